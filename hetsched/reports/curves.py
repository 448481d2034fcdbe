"""Quantities over time as small line charts that stretch with the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hetsched.costs import FloatArray
from hetsched.reports.decimate import decimate, means
from hetsched.reports.markup import el, number, percent
from hetsched.reports.units import digits, duration, scale_of, ticks

WIDTH, HEIGHT, TOP, BOTTOM = 1000, 120, 14, 18
BUCKETS = 240


@dataclass(frozen=True)
class Series:
    """A named curve in SI units; ``steps`` holds each value until the next sample. ``colour`` is a CSS class."""

    name: str
    colour: str
    times_s: Sequence[float]
    values: Sequence[float]
    steps: bool = True
    summary: str = ""
    """Shown in the legend instead of the last value."""


@dataclass(frozen=True)
class Mark:
    """A vertical line at a time."""

    time_s: float
    tip: str


@dataclass(frozen=True)
class Chart:
    """A titled chart of series in one unit, from time 0 to ``end_s``, with values in ``domain`` (SI units)."""

    title: str
    unit: str
    series: tuple[Series, ...]
    end_s: float
    domain: tuple[float, float]
    marks: tuple[Mark, ...] = ()
    limit: tuple[str, float] | None = None


def span_of(series: Sequence[Series], zero: bool) -> tuple[float, float]:
    """A value range that shows all the series, from zero if ``zero``."""
    values = [v for s in series for v in s.values]
    low, high = min(values, default=0.0), max(values, default=1.0)
    low = min(0.0, low) if zero else low
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (low if zero and low == 0 else low - room), high + room


def chart_parts(chart: Chart) -> tuple[str, Markup, list[tuple[str, str, str]]]:
    """``(title with unit, SVG, legend)``; a legend entry is (name, colour class, last value)."""
    factor, unit = scale_of(chart.unit, max(abs(chart.domain[0]), abs(chart.domain[1])))
    low, high = chart.domain[0] / factor, chart.domain[1] / factor
    lines, labels = _grid(low, high)
    parts = [*lines, *_time_axis(chart.end_s)]
    parts += [
        el(
            "line",
            class_="mark",
            x1=percent(m.time_s / chart.end_s),
            x2=percent(m.time_s / chart.end_s),
            y1=TOP,
            y2=TOP + HEIGHT,
            data_t=m.tip,
        )
        for m in chart.marks
    ]
    paths = []
    if chart.limit is not None:
        y = _y(chart.limit[1] / factor, low, high)
        parts.append(el("line", class_="limit", x1="0", x2="100%", y1=TOP + y, y2=TOP + y))
        parts.append(el("text", chart.limit[0], class_="a", x="100%", y=TOP + y - 4, text_anchor="end"))
    for i, s in enumerate(chart.series):
        times, values = decimate(s.times_s, s.values, BUCKETS)
        d = _path(times, values, s.steps, chart.end_s, factor, low, high)
        if s.steps and len(s.times_s) > 4 * BUCKETS and s.times_s[-1] > s.times_s[0]:  # too dense to follow: its range, and its mean
            paths.append(el("path", class_=f"{s.colour} range", d=d))
            d = _path(*means(s.times_s, s.values, chart.end_s, BUCKETS), True, chart.end_s, factor, low, high)
        if d:
            paths.append(el("path", class_=f"{s.colour} d{i // 8}", d=d, data_name=s.name))
    plot = el(
        "svg", *paths, x=0, y=TOP, width="100%", height=HEIGHT, viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", class_="plot",
        data_end=f"{chart.end_s:.9g}", data_low=f"{low:.9g}", data_high=f"{high:.9g}", data_unit=unit,
    )  # fmt: skip
    names = ", ".join(s.name for s in chart.series)
    svg = el(
        "svg", *parts, plot, *labels, el("line", class_="cursor", y1=TOP, y2=TOP + HEIGHT), class_="curves", width="100%",
        height=TOP + HEIGHT + BOTTOM, role="img", aria_label=f"{chart.title} over {duration(chart.end_s)}: {names}",
    )  # fmt: skip
    legend = [(s.name, s.colour, s.summary or f"{digits(s.values[-1] / factor)} {unit}") for s in chart.series if len(s.values)]
    return (f"{chart.title} ({unit})" if unit not in ("", "%") else f"{chart.title} (%)" if unit == "%" else chart.title), svg, legend


def _y(value: float, low: float, high: float) -> float:
    return HEIGHT * (1 - (value - low) / (high - low))


def _grid(low: float, high: float) -> tuple[list[Markup], list[Markup]]:
    lines, labels = [], []
    for t in ticks(low, high, 4):
        y = TOP + _y(t, low, high)
        lines.append(el("line", class_="g", x1="0", x2="100%", y1=y, y2=y))
        labels.append(el("text", _short(t), class_="a", x="0", y=y - 3))
    return lines, labels


def _short(value: float) -> str:
    return number(value, 3) if abs(value) < 1e6 else f"{value:.2e}"


def _time_axis(end_s: float) -> list[Markup]:
    step = 60.0 if end_s >= 240 else 1.0
    out = []
    for t in ticks(0.0, end_s / step, 4):
        x = t * step / end_s
        anchor = "start" if t == 0 else "end" if x > 0.94 else "middle"
        out.append(el("text", duration(t * step), class_="a", x=percent(x), y=TOP + HEIGHT + 14, text_anchor=anchor))
    return out


def _path(times: FloatArray, values: FloatArray, steps: bool, end_s: float, factor: float, low: float, high: float) -> str:
    parts: list[str] = []
    previous = ""
    for t, v in zip(times.tolist(), values.tolist(), strict=True):
        x, y = number(WIDTH * t / end_s, 1), number(_y(v / factor, low, high), 1)
        if not parts:
            parts.append(f"M{x},{y}")
        elif not steps:
            parts.append(f"L{x},{y}")
        else:
            parts.append(f"H{x}" if y == previous else f"H{x}V{y}")
        previous = y
    if steps and parts:
        parts.append(f"H{WIDTH}")
    return "".join(parts)


def by_prefix(names: Mapping[str, object]) -> dict[str, list[str]]:
    """Counter names grouped by what they count: ``temperature/npu`` under ``temperature``."""
    out: dict[str, list[str]] = {}
    for name in names:
        out.setdefault(name.split("/", 1)[0], []).append(name)
    return out
