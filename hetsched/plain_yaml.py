"""YAML as plain data, from files that nobody vouches for: no aliases, no key twice, no objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml import Node


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
    """A key that stands twice in a mapping: YAML would silently keep the last."""
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
