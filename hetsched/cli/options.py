"""Reading option values: durations, sizes, NAME=VALUE pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from hetsched.errors import OptionError
from hetsched.files import is_plan_file
from hetsched.quantities import SECONDS, number_and_unit

T = TypeVar("T")

_UNITS_J = {"j": 1.0, "mj": 1e-3, "uj": 1e-6, "µj": 1e-6}
_UNITS_W = {"w": 1.0, "mw": 1e-3}
_UNITS_BYTES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3}
_LARGEST = 1e15


def seconds(text: str | None, option: str) -> float | None:
    """A duration such as ``10min``, ``90s`` or ``250ms``."""
    return None if text is None else _quantity(text, option, SECONDS, "33ms, 90s or 10min")


def nbytes(text: str | None, option: str) -> int | None:
    """A size such as ``300MB``, ``2GiB`` or plain bytes."""
    return None if text is None else int(_quantity(text, option, _UNITS_BYTES, "300MB or 2GiB"))


def joules(text: str | None, option: str) -> float | None:
    """An energy such as ``5mJ``, ``0.2J`` or ``800uJ``."""
    return None if text is None else _quantity(text, option, _UNITS_J, "5mJ or 0.2J")


def watts(text: str | None, option: str) -> float | None:
    """A power such as ``4W`` or ``800mW``."""
    return None if text is None else _quantity(text, option, _UNITS_W, "4W or 800mW")


def share(percent: float | None, option: str) -> float | None:
    """Percent as a share of 1."""
    if percent is not None and not 0 <= percent <= 100:
        raise OptionError(f"{option} {percent:g} is out of range: use 0 to 100 percent")
    if percent is not None and 0 < percent < 1:
        meant = 100 * percent
        raise OptionError(f"{option} {percent:g} is less than one percent: write {meant:g} for {meant:g} %, or at least 1")
    return None if percent is None else percent / 100


def _quantity(text: str, option: str, units: dict[str, float], example: str) -> float:
    found = number_and_unit(text)
    if found is None or found[1] not in units:
        what = "has no unit" if found is not None and not found[1] else "is not a quantity"
        raise OptionError(f"{option} {text!r} {what}: write for example {example}")
    value = found[0] * units[found[1]]
    if value > _LARGEST:
        raise OptionError(f"{option} {text!r} is too large: write for example {example}")
    return value


def only(items: Sequence[T], option: str) -> T | None:
    """The value of an option that may be repeated elsewhere, but not here; None: not given."""
    if len(items) > 1:
        raise OptionError(f"{option} is given {len(items)} times for one plan: give it once")
    return items[0] if items else None


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` items as a dict; the last ``=`` separates, since names may hold one."""
    out: dict[str, str] = {}
    for item in items:
        name, eq, value = item.rpartition("=")
        if not eq or not name or not value:
            raise OptionError(f"{option} {item!r} is not of the form NAME=VALUE")
        if name in out and out[name] != value:
            raise OptionError(f"{option} gives {name!r} twice: {out[name]} and {value}")
        out[name] = value
    return out


def settings(items: Sequence[str]) -> dict[str, str]:
    """``--set FIELD=VALUE`` items; the first ``=`` separates, since no field holds one."""
    out: dict[str, str] = {}
    for item in items:
        field, eq, value = (part.strip() for part in item.partition("="))
        if not eq or not field or not value:
            raise OptionError(f"--set {item!r} is not of the form FIELD=VALUE, such as npu.int8_tops=100")
        if out.setdefault(field, value) != value:
            raise OptionError(f"--set gives {field!r} twice: {out[field]} and {value}")
    return out


def dims(items: Sequence[str]) -> dict[str, int]:
    """``--dim NAME=N`` items."""
    out: dict[str, int] = {}
    for name, value in pairs(items, "--dim").items():
        if not value.isdecimal() or not 1 <= int(value) <= 1 << 31:
            raise OptionError(f"--dim {name}={value}: the size must be a whole number from 1 to 2^31")
        out[name] = int(value)
    return out


def plan_options(
    target: Path, precision: str, dim: Sequence[str], ranges: Path | None = None, what_if: Sequence[str] = ()
) -> dict[str, Any]:
    """Options that only a model (not a plan file) takes."""
    if is_plan_file(target):
        if dim or what_if or precision != "auto" or ranges is not None:
            raise OptionError(f"{target} is already a plan: --dim, --precision, --ranges and --set belong to 'hetsched plan'")
        return {}
    return {"dims": dims(dim), "precision": precision, "ranges": ranges, "overrides": settings(what_if)}
