"""What is wrong with a field of a file, in words for whoever wrote the file: which field, what it holds, what it should hold.

The schema's own vocabulary (its types, its unions, the names of its checks) stays out of the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Location = tuple[int | str, ...]
#: Kind of the error of a check that finds a number too small or too large to be true: its unit is named.
FAR_OFF = "far_off"
#: Longer values lose their end in a sentence, and lists of fields theirs.
_MAX_VALUE, _MAX_FIELDS = 60, 8
#: Ending of a field's name -> its unit; the first ending that fits counts.
_UNITS = (
    ("_j_per_byte", "joules a byte"), ("_s_per_byte", "seconds a byte"), ("_s_per_weight", "seconds a weight"),
    ("_ops_s", "operations a second"), ("bytes_s", "bytes a second"), ("bytes", "bytes"), ("k_per_w", "kelvin a watt"),
    ("_w_per_k", "watts a kelvin"), ("_ws_per_k", "watt-seconds a kelvin"),
    ("_j_per_k", "joules a kelvin"), ("hz", "Hz"), ("_nm", "nm"), ("_w", "watts"),
    ("_wh", "watt-hours"), ("_ohm", "ohms"), ("_v", "volts"), ("_s", "seconds"), ("seconds", "seconds"),
    ("_ms", "milliseconds"), ("_c", "degrees Celsius"), ("_k", "kelvin"), ("_j", "joules"),
)  # fmt: skip
#: Kind of a limit that is broken -> its key in the error's context, and words for it.
_LIMITS = {
    "greater_than_equal": ("ge", "at least {:g}"), "greater_than": ("gt", "more than {:g}"), "less_than_equal": ("le", "at most {:g}"),
    "less_than": ("lt", "less than {:g}"), "string_too_long": ("max_length", "text of at most {} characters"),
    "string_too_short": ("min_length", "text of at least {} characters"), "finite_number": ("", "a finite number"),
}  # fmt: skip
_LISTS = {str: "a list of texts", int: "a list of whole numbers", float: "a list of numbers"}
_PLAIN = {float: "a number", int: "a whole number", bool: "true or false", str: "text", dict: "a mapping", tuple: "a list", list: "a list"}


@dataclass(frozen=True)
class Fault:
    """One field that is wrong: its dotted path, what it holds (empty where that says nothing) and what is to be done about it."""

    path: str
    given: str
    advice: str
    others: int
    """How many more faults the file has."""

    def __str__(self) -> str:
        also = f" (and {self.others} more mistake{'s' if self.others > 1 else ''})" if self.others else ""
        return (f"{self.path} = {self.given}: " if self.given else "") + self.advice + also


def fault(error: ValidationError, schema: type[BaseModel], raw: Any = None) -> Fault:
    """What is wrong first, and how much more there is.

    Args:
        error: what ``schema`` raised.
        schema: the type of the whole file.
        raw: the file's plain data, so that items of lists are called by their names.

    Examples:
        >>> from pydantic import ValidationError
        >>> from hetsched.soc_quantities import Market
        >>> try:
        ...     Market.model_validate({"tier": "mid", "relase": "2023-10", "source": "its page"})
        ... except ValidationError as e:
        ...     print(fault(e, Market))
        there is no field 'relase'; did you mean 'release'? (and 1 more mistake)
    """
    found = error.errors(include_url=False)
    first = min(found, key=lambda e: e["type"] == "missing" and _misspelt(e["loc"], found))
    places = {_resolve(schema, e["loc"])[0] for e in found}  # a value that is none of several types is one mistake
    own = [p for p in places if not any(q != p and q[: len(p)] == p for q in places)]  # a list is too short where its items are wrong
    return _words(first, schema, raw, len(own) - 1)


def _misspelt(at: Location, found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an unknown field stands beside one that is missing."""
    return any(e["type"] == "extra_forbidden" and e["loc"][:-1] == at[:-1] for e in found)


def _words(error: Mapping[str, Any], schema: type[BaseModel], raw: Any, others: int) -> Fault:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    at, wanted = _resolve(schema, error["loc"])
    path, unit, said = _path(raw, at), _unit(at), error["msg"].removeprefix("Value error, ")
    shown = short(given["value"] if isinstance(given, Mapping) and "value" in given else given)
    if kind == "json_invalid":
        shown, advice = "", f"it is not JSON: {context['error']}"
    elif kind == "extra_forbidden":
        shown, advice = "", f"there is no field {path!r}; {_instead(schema, at)}"
    elif kind == "missing" and isinstance(at[-1], str):
        shown, advice = "", f"the field {path!r} is missing: write {_expected(wanted, unit)}"
    elif error["loc"] and error["loc"][-1] == "[key]":
        shown, advice = "", f"{path} has the key {shown}: {said if said != error['msg'] else 'it must be text'}"
    elif kind in ("missing", "too_short", "too_long"):
        at = at[:-1] if kind == "missing" else at
        path, advice = _path(raw, at), f"it must be {_sized(_resolve(schema, at)[1], kind, context)}"
    elif kind in _LIMITS:
        key, limit = _LIMITS[kind]
        value = context.get(key)
        advice = "it must not be empty" if (key, value) == ("min_length", 1) else f"it must be {limit.format(value)}{_in(unit)}"
    elif kind == FAR_OFF:
        advice = error["msg"] + _in(unit)
    elif said != error["msg"]:  # another of our own checks
        advice = said
    else:
        bare = ", without a unit" if isinstance(given, str) and _plain(wanted) in (float, int) else ""
        advice = f"it must be {_expected(wanted, unit)}{bare}"
    return Fault(path, shown, advice, others)


def _in(unit: str) -> str:
    return f" ({unit})" if unit else ""


def _instead(schema: type[BaseModel], at: Location) -> str:
    """What could stand where an unknown field stands."""
    known = _fields(_plain(_resolve(schema, at[:-1])[1]))
    near = get_close_matches(str(at[-1]), known, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"use one of {_listed(known)}" if known else "leave it out"


def _sized(wanted: Any, kind: str, context: Mapping[str, Any]) -> str:
    items = get_args(_plain(wanted))
    if get_origin(_plain(wanted)) is tuple and items[-1] is not Ellipsis:
        return f"a list of {len(items)}"
    limit = f"at least {context.get('min_length', 1)}" if kind == "too_short" else f"at most {context.get('max_length')}"
    return f"{_expected(wanted, '')} of {limit}"


def _expected(wanted: Any, unit: str) -> str:
    """What a field should hold, in words."""
    kind = _plain(wanted)
    origin, args = get_origin(kind) or kind, get_args(kind)
    known = _fields(kind)
    if {"value", "source", "estimated"} <= set(known):
        inner = _expected(kind.model_fields["value"].annotation, unit)
        return f"{inner} with its origin, {{value: ..., source: WHERE}} or {{value: ..., estimated: BASIS}}"
    if known:
        return f"a mapping with {_listed(known)}"
    if origin is Literal:
        return str(args[0]) if len(args) == 1 else f"one of {', '.join(map(str, args[:-1]))} or {args[-1]}"
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_expected(a, unit) for a in args if a is not NoneType))
    if origin is tuple and args and args[-1] is not Ellipsis:
        return f"a list of {len(args)}"
    if origin in (tuple, list) and args:
        return _LISTS.get(get_origin(_plain(args[0])) or _plain(args[0]), "a list of mappings" if _fields(_plain(args[0])) else "a list")
    words = _PLAIN.get(origin, "something else")
    return f"{words} of {unit}" if unit and origin in (float, int) else words


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_FIELDS])
    return shown if len(names) <= _MAX_FIELDS else f"{shown} and {len(names) - _MAX_FIELDS} more"


def _fields(kind: Any) -> list[str]:
    """Fields of a mapping that the schema names."""
    return list(getattr(kind, "model_fields", ()))


def _plain(kind: Any) -> Any:
    """A type without notes, and without ``None`` beside it."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        others = [a for a in get_args(kind) if a is not NoneType]
        return _plain(others[0]) if len(others) == 1 else kind
    return kind


def _resolve(schema: Any, at: Location) -> tuple[Location, Any]:
    """The location without what is no step into the file, and the type that belongs there.

    A step into a union names one of its types, so the location ends before it.
    """
    if at and at[-1] == "[key]":
        at = at[:-2]
    kind = schema
    for n, step in enumerate(at):
        kind = _plain(kind)
        if get_origin(kind) in (Union, UnionType):
            return at[:n], kind
        kind = _child(kind, step)
    return at, kind


def _child(kind: Any, step: int | str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin is dict:
        return args[1]
    if origin is tuple and isinstance(step, int):
        return args[min(step, len(args) - 1)] if args[-1] is not Ellipsis else args[0]
    if origin is list:
        return args[0]
    field = getattr(kind, "model_fields", {}).get(step)
    return None if field is None else field.annotation


def _unit(at: Location) -> str:
    """The unit that a field's name says; the name of a figure stands before ``value``, that of a table of figures before the key."""
    names = [str(step) for step in at[-3:] if step != "value"]
    return next((unit for name in reversed(names[-2:]) for ending, unit in _UNITS if name.endswith(ending)), "")


def _path(raw: Any, at: Location) -> str:
    """``processors.npu.clusters.npu.top_w`` rather than ``processors.2.clusters.0.top_w``."""
    names: list[str] = []
    node = raw
    for step in at:
        try:
            node = node[step]
        except (LookupError, TypeError):
            node = None
        name = _called(node) if isinstance(step, int) else ""
        names.append(name or str(step))
    return ".".join(names) or "the file"


def _called(item: Any) -> str:
    """How an item of a list is called: by its name, or by what it joins."""
    if not isinstance(item, Mapping):
        return ""
    name, ends = item.get("name"), item.get("between")
    if isinstance(name, str):
        return name
    return "-".join(ends) if isinstance(ends, list | tuple) and all(isinstance(e, str) for e in ends) else ""


def short(value: Any) -> str:
    """A value as a sentence shows it."""
    text = repr(value)
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 3] + "..."
