"""Quantities as people read them, and round numbers for axes."""

from __future__ import annotations

import math

_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "J": ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "Hz": ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz")),
    "W": ((1.0, "W"), (1e-3, "mW")),
    "degC": ((1.0, "°C"),),
    "1": ((1e-2, "%"),),
}


def scale_of(unit: str, largest: float) -> tuple[float, str]:
    """``(factor, name)`` of the unit in which a series up to ``largest`` reads best; values are divided by the factor."""
    options = _SCALES.get(unit, ((1.0, unit),))
    size = abs(largest) * (1 + 1e-9)
    return next((o for o in options if size >= o[0]), options[-1])


def quantity(value: float | None, unit: str) -> str:
    """Three significant digits with a unit: ``0.0123, "s"`` -> ``12.3 ms``; a dash for None."""
    if value is None:
        return "–"
    if value == 0:
        return f"0 {scale_of(unit, 1.0)[1]}"
    if unit == "s" and 0 < value < 1e-9:
        return "< 1 ns"
    factor, name = scale_of(unit, value)
    return f"{digits(value / factor)} {name}"


def capitalized(sentence: str) -> str:
    """A sentence that begins with a capital, whoever wrote it."""
    return sentence[:1].upper() + sentence[1:]


def axis(value: float, unit: str) -> str:
    """A round number on an axis: ``0.002, "s"`` -> ``2 ms``."""
    factor, name = scale_of(unit, value)
    return f"{value / factor:.4g} {name}" if value else "0"


def digits(value: float) -> str:
    """Three significant digits, never in exponent form for everyday sizes."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    rounded = float(f"{value:.2e}")
    size = math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(0, 2 - size)}f}" if -4 <= size < 9 else f"{value:.2e}"


def interval(low: float, high: float, unit: str) -> str:
    """A range in one common unit: ``8.1-19.4 ms`` (with an en dash)."""
    factor, name = scale_of(unit, high)
    return f"{digits(low / factor)}–{digits(high / factor)} {name}"


def share(value: float) -> str:
    """A fraction as a percentage with a useful number of digits."""
    p = 100 * value
    return f"{p:.0f} %" if p >= 10 or p == 0 else f"{p:.1f} %" if p >= 0.1 else "< 0.1 %"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round numbers from ``low`` to ``high``."""
    if not math.isfinite(low) or not math.isfinite(high) or high <= low:
        return [low]
    raw = (high - low) / max(1, count)
    power: float = 10.0 ** math.floor(math.log10(raw))
    step = power * next(f for f in (1.0, 2.0, 2.5, 5.0, 10.0) if power * f >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def duration(seconds: float) -> str:
    """A time on an axis of seconds, minutes or hours."""
    if seconds >= 120:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min" if rest == 0 else f"{minutes}:{rest:02d} min"
    return axis(seconds, "s")
