"""YAML as plain data, from files that nobody vouches for: no aliases, no key twice, no objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.errors import OptionError

if TYPE_CHECKING:
    from yaml import Node


#: Longest integer.
_DIGITS = 100


def read(path: Path, what: str, most_bytes: int) -> Any:
    """What a file of one YAML document holds.

    Args:
        path: the file.
        what: begins the sentence of an error, such as ``the workload``.
        most_bytes: larger files are refused before they are read.

    Raises:
        OptionError: it is no plain file, too large, no text or not YAML.
    """
    if path.exists() and not path.is_file():
        raise OptionError(f"{what} {path} is not a plain file: name a YAML file")
    try:
        size = path.stat().st_size
        if size > most_bytes:
            raise OptionError(f"{what} {path} has {size} bytes: at most {most_bytes} are read")
        return load(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise OptionError(f"{what} {path} cannot be read: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise OptionError(f"{what} {path} is not UTF-8 text: save it as such") from e
    except ValueError as e:
        raise OptionError(f"{what} {path} {e}") from e


def load(text: str) -> Any:
    r"""What a text of one YAML document holds.

    Raises:
        ValueError: a predicate for a sentence that begins with the file's name, such as ``is not valid YAML at line 3, ...``.

    Examples:
        >>> load("a: [1, 2]")
        {'a': [1, 2]}
        >>> load("a: 1\na: 2")
        Traceback (most recent call last):
        ...
        ValueError: has the key 'a' twice, at line 2: keep one
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if "&" in text or "*" in text:
            _refuse_aliases(text, loader)
        root = yaml.compose(text, Loader=loader)
        if root is not None:
            _refuse_repeats(root)
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"is not valid YAML{at}: {getattr(e, 'problem', None) or type(e).__name__}") from e
    except RecursionError as e:
        raise ValueError("is not valid YAML: it nests too deeply") from e
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 (both are safe loaders)
    except RecursionError as e:
        raise ValueError("is not valid YAML: it nests too deeply") from e
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:  # a tag or look that is a lie
        why = next(iter(str(e).splitlines()), "") if isinstance(e, yaml.YAMLError | ValueError) else ""
        raise ValueError(f"is not valid YAML: {why[:200] or 'a value is not of the type that its tag says'}") from e


def _refuse_aliases(text: str, loader: Any) -> None:
    """Aliases can blow a small file up to gigabytes ("billion laughs"); no file of ours needs them."""
    import yaml

    marks = [t for t in yaml.scan(text, Loader=loader) if isinstance(t, (yaml.AliasToken, yaml.AnchorToken))]
    for token in sorted(marks, key=lambda t: isinstance(t, yaml.AnchorToken)):
        what = f"alias (*{token.value})" if isinstance(token, yaml.AliasToken) else f"anchor (&{token.value})"
        raise ValueError(f"uses a YAML {what} at line {token.start_mark.line + 1}: write the value out")


def _refuse_repeats(node: Node) -> None:
    """A key that stands twice in a mapping (YAML would silently keep the last), or a number without sense."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise ValueError(f"has the key {key.value[:60]!r} twice, at line {key.start_mark.line + 1}: keep one")
                seen.add((key.tag, key.value))
            _refuse_repeats(key)
            _refuse_repeats(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeats(item)
    elif node.tag.endswith(":int") and len(node.value) > _DIGITS:  # Python writes no such number
        raise ValueError(f"has a number of {len(node.value)} digits at line {node.start_mark.line + 1}: no quantity is that large")
