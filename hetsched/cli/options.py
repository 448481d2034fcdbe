"""Reading option values: durations, sizes, NAME=VALUE pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hetsched.errors import OptionError

_UNITS_S = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_UNITS_J = {"j": 1.0, "mj": 1e-3, "uj": 1e-6, "µj": 1e-6}
_UNITS_W = {"w": 1.0, "mw": 1e-3}
_UNITS_BYTES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3}
_LARGEST = 1e15
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)


def seconds(text: str | None, option: str) -> float | None:
    """A duration such as ``10min``, ``90s``, ``250ms`` or ``1.5`` (seconds)."""
    return None if text is None else _quantity(text, option, _UNITS_S | {"": 1.0}, "90s, 10min or 1h")


def nbytes(text: str | None, option: str) -> int | None:
    """A size such as ``300MB``, ``2GiB`` or plain bytes."""
    return None if text is None else int(_quantity(text, option, _UNITS_BYTES, "300MB or 2GiB"))


def joules(text: str | None, option: str) -> float | None:
    """An energy such as ``5mJ``, ``0.2J`` or ``800uJ``."""
    return None if text is None else _quantity(text, option, _UNITS_J, "5mJ or 0.2J")


def watts(text: str | None, option: str) -> float | None:
    """A power such as ``4W`` or ``800mW``."""
    return None if text is None else _quantity(text, option, _UNITS_W, "4W or 800mW")


def _quantity(text: str, option: str, units: dict[str, float], example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if not match or match[2].lower() not in units:
        raise OptionError(f"{option} {text!r} is not a quantity: write for example {example}")
    value = float(match[1]) * units[match[2].lower()]
    if value > _LARGEST:
        raise OptionError(f"{option} {text!r} is too large: write for example {example}")
    return value


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
