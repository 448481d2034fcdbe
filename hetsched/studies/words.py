"""How inputs and figures of scenarios read."""

from __future__ import annotations

from hetsched.reports.units import digits, duration, quantity, share
from hetsched.scenarios import Scalar

#: Figures that stand beside every scenario -> their heads.
HEADS = {
    "rate_first_minute": "minute 1", "rate_last_minute": "at end", "held": "held", "skin_c": "skin", "battery_used": "battery",
    "missed": "missed", "p90_ms": "p90", "energy_j": "energy", "rate": "mean",
}  # fmt: skip
_UNITS = (("_ms", "s", 1e-3), ("_c", "degC", 1.0), ("_s", "s", 1.0), ("_j", "J", 1.0), ("_w", "W", 1.0))
#: Input -> how an axis of it is called.
INPUTS = {
    "soc": "SoC", "ambient_c": "around the phone", "period_s": "period", "duration_s": "for", "battery": "battery at the start",
    "think_s": "thinking", "charging_w": "charging", "deadline_s": "deadline",
}  # fmt: skip


def head(name: str) -> str:
    """How a figure is called; its unit stands beside the values."""
    ending = next((e for e, _, _ in _UNITS if name.endswith(e)), "")
    return HEADS.get(name, name.removesuffix(ending).replace("_", " "))


def shown_figure(name: str, value: Scalar) -> str:
    """A figure with its unit, which its name tells."""
    if value is None:
        return "–"
    if isinstance(value, str | bool):
        return str(value)
    if name == "battery_used":
        return f"{-100 * value:+.{0 if abs(value) >= 0.1 else 1 if abs(value) >= 0.01 else 2}f} %"
    if name in ("held", "missed") or name.endswith(".missed"):
        return share(value)
    for ending, unit, factor in _UNITS:
        if name.endswith(ending):
            return quantity(value * factor, unit)
    return digits(value) if value < 1e5 else f"{float(f'{value:.2e}'):,.0f}"


def shown_input(name: str, value: Scalar) -> str:
    """An input's value, with its unit."""
    if value is None or isinstance(value, str | bool):
        return "–" if value is None else str(value)
    if name == "battery":
        return share(value)
    if name == "duration_s":
        return duration(value)
    if name.endswith(("_c", "_w", "_s")) and not name.startswith("set."):
        return quantity(value, {"c": "degC", "w": "W", "s": "s"}[name[-1]])
    return f"{value:g}" if isinstance(value, float) else str(value)


def axis_name(name: str) -> str:
    """How an axis is called."""
    return INPUTS.get(name, name.removeprefix("set.").removeprefix("dims.").replace("_", " "))


def shown_choice(name: str, value: Scalar) -> str:
    """A value of an axis that needs no name beside it."""
    if value is None:
        return f"no {axis_name(name)}"
    if isinstance(value, bool):
        return axis_name(name) if value else f"no {axis_name(name)}"
    if isinstance(value, str):
        return value
    if name.endswith("_c"):
        return f"{value:g} °C"
    if value == 0 and name.endswith(("_s", "_w")):
        return f"no {axis_name(name)}"
    if name.endswith("_s"):
        return f"{duration(value)} {axis_name(name)}"
    if name.endswith("_w"):
        return f"{axis_name(name)} {value:g} W"
    if name == "battery":
        return f"battery {share(value)}"
    return f"{axis_name(name)} {value:g}"
