"""What-if hardware: a SoC with some of its fields set by the user, by short name or by dotted path into the SoC file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from hetsched import plain_yaml, soc_aliases
from hetsched.errors import SoCError
from hetsched.soc_aliases import Raw

MAX_OVERRIDES = 256
_MAX_FIELD, _MAX_VALUE = 200, 1000
#: What names a SoC and its file; nothing that hardware could have otherwise.
_IDENTITY = frozenset({"id", "name", "family", "schema_version", "overrides"})
#: Mappings that take new keys.
_OPEN = ("queues", "peak_ops_s", "utilisation", "together_bytes_s")


def apply(raw: Raw, overrides: Mapping[str, str]) -> None:
    """Set fields in the plain data of a valid SoC, in place. The order in which they are given does not matter.

    Args:
        raw: ``SoC.model_dump(mode="json")``.
        overrides: short name (:mod:`hetsched.soc_aliases`) or dotted path -> text of the value. List items go by their name,
            links and thermal resistances by the names they join (``links.cpu-npu.sync_s``), others by their number.

    Raises:
        SoCError: no such field (with near names), or the text is no value.

    Examples:
        >>> from hetsched.soc_files import load_soc
        >>> raw = load_soc("snapdragon-8-gen-3").model_dump(mode="json")
        >>> apply(raw, {"npu.launch_us": "50"})
        >>> next(p for p in raw["processors"] if p["name"] == "npu")["launch_s"]["value"]
        5e-05
    """
    if len(overrides) > MAX_OVERRIDES:
        raise SoCError(f"{len(overrides)} fields are set: at most {MAX_OVERRIDES} can be; write a SoC file instead")
    for field in sorted(overrides, key=lambda f: (soc_aliases.stage(f), f)):
        text = overrides[field]
        if len(field) > _MAX_FIELD or len(text) > _MAX_VALUE:
            raise SoCError(f"cannot set {field[:60]!r}: name or value is too long; write a SoC file instead")
        if field in _IDENTITY:
            raise SoCError(f"cannot set {field!r}: it says which SoC this is; write a SoC file for another one")
        short = soc_aliases.setter(raw, field)
        if short is not None:
            short(text)
        else:
            _set_path(raw, field, text)
    _check_cache(raw["memory"])


def _check_cache(memory: Any) -> None:
    """What the file's own system cache spares is inside the fitted figures: how much slower a chip is with less of it nobody has measured.

    Raises:
        SoCError: it is set to less.
    """
    cache = memory.get("system_cache_bytes") if isinstance(memory, dict) else None
    was, value = (cache.get("was"), cache.get("value")) if isinstance(cache, dict) else (None, None)
    if was is not None and isinstance(value, (int, float)) and value < was:
        raise SoCError(
            f"cannot set the system cache to {value / 1e6:g} MB: what the file's {was / 1e6:g} MB spare is inside the fitted figures, "
            "so that only a larger one can be asked for"
        )


def _set_path(raw: Raw, field: str, text: str) -> None:
    """Set one dotted field; a figure's value gets the origin "set by the user"."""
    path = field.removesuffix(".value")
    *steps, last = path.split(".")
    node: Any = raw
    for i, step in enumerate(steps):
        node = _child(raw, node, step, field, ".".join(steps[:i]))
    if not isinstance(node, dict) or (last not in node and (not steps or steps[-1] not in _OPEN)):
        raise SoCError(f"cannot set {field!r}: there is no such field{_near(raw, field)}")
    value = _parsed(field, text)
    old = node.get(last)
    is_figure = last in _figure_fields() or (bool(steps) and steps[-1] in _figure_mappings()) or (isinstance(old, dict) and "value" in old)
    node[last] = soc_aliases.given(value, old) if is_figure and value is not None and not isinstance(value, dict) else value


def _child(raw: Raw, node: Any, step: str, field: str, at: str) -> Any:
    """The item of a mapping or a list that a step names.

    Raises:
        SoCError: there is none; the sentence lists those that there are.
    """
    if isinstance(node, dict) and step in node:
        return node[step]
    if isinstance(node, list):
        for item in node:
            if isinstance(item, dict) and item.get("name") == step:
                return item
        pair = soc_aliases.between(node, step)
        if pair is not None:
            return pair
        if step.isdecimal() and int(step) < len(node):
            return node[int(step)]
    if not at:
        raise SoCError(f"cannot set {field!r}: there is no such field{_near(raw, field)}")
    choices = ", ".join(_keys(node)) or "a plain value"
    raise SoCError(f"cannot set {field!r}: {at} has no {step!r}, only {choices}{_near(raw, field)}")


def _keys(node: Any) -> list[str]:
    """How the items of a mapping or a list are called in a path."""
    if isinstance(node, dict):
        return [str(k) for k in node]
    if not isinstance(node, list):
        return []
    return [str(i.get("name") or "-".join(i.get("between", ())) or n) if isinstance(i, dict) else str(n) for n, i in enumerate(node)]


def _near(raw: Raw, field: str) -> str:
    """``; did you mean ...?`` with the nearest short names and paths."""
    from difflib import get_close_matches

    found = get_close_matches(field, [*soc_aliases.names(raw), *paths(raw)], n=3, cutoff=0.6)
    if not found:
        return "; 'hetsched socs ID --json' shows the fields, and docs/soc_files.md the short names"
    return f"; did you mean {' or '.join(found)}?"


def paths(node: Any, at: str = "") -> Iterator[str]:
    """Dotted path of everything in a SoC's plain data that can be set: figures and plain values."""
    items = _items(node)
    if not items:
        yield at
    for key, child in items:
        if at or key not in _IDENTITY:
            yield from paths(child, f"{at}.{key}" if at else key)


def _items(node: Any) -> list[tuple[str, Any]]:
    """What a path can step into: the fields of a mapping that is no figure, the mappings of a list."""
    if isinstance(node, dict):
        return [] if "value" in node else list(node.items())
    if isinstance(node, list) and any(isinstance(i, dict) for i in node):
        return list(zip(_keys(node), node, strict=True))
    return []


def _parsed(field: str, text: str) -> Any:
    """A number, or a YAML value.

    Raises:
        SoCError: neither.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return plain_yaml.load(text)
    except ValueError as e:
        raise SoCError(f"cannot set {field!r} to {text!r}: it is not a number or a YAML value: it {e}") from e


@cache
def _figure_fields() -> frozenset[str]:
    """Fields of the schema that hold a figure (a number with its origin)."""
    return frozenset(
        name for name, kind in _annotations() if "dict[" not in kind and any(k in kind for k in ("Figure", "Fusions", "Features"))
    )


@cache
def _figure_mappings() -> frozenset[str]:
    """Fields of the schema that map names to figures."""
    return frozenset(name for name, kind in _annotations() if "Figure" in kind and "dict[" in kind)


def _annotations() -> Iterator[tuple[str, str]]:
    from hetsched import soc_battery as power
    from hetsched import soc_thermal as heat
    from hetsched import socs

    thermal = (heat.ThermalNode, heat.ThermalResistance, heat.Trip, heat.PowerBudget, heat.StatusLevel)
    battery = (power.Battery, power.ChargeStep, power.HotCharging)
    for model in (socs.SoC, socs.Memory, socs.Link, socs.Processor, socs.Cluster, *thermal, *battery):
        for name, info in model.model_fields.items():
            yield name, str(info.annotation)
