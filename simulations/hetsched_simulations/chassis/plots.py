"""Measured against simulated, a panel a run, as one SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from hetsched_simulations.chassis.runs import QUARTER, Run, Series

_COLUMNS, _WIDTH, _HEIGHT = 4, 224, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 30, 10, 30, 22
_INK, _MUTED, _GRID, _MEASURED, _SIMULATED = "#1f2933", "#616e7c", "#d9dee4", "#9aa5b1", "#c2410c"


@dataclass(frozen=True, slots=True)
class Panel:
    """A run with what was simulated: seconds and fraction of the peak."""

    run: Run
    simulated: Series


def svg(panels: Sequence[Panel]) -> str:
    """The drawing; the same text for the same panels."""
    rows = math.ceil(len(panels) / _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="9">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for i, panel in enumerate(panels):
        lines.append(f'<g transform="translate({i % _COLUMNS * _WIDTH} {i // _COLUMNS * _HEIGHT})">')
        lines += _panel(panel)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(panel: Panel) -> Iterator[str]:
    run, x0, x1, y0, y1 = panel.run, _LEFT, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM, _TOP

    def at(t: float, v: float) -> str:
        return f"{x0 + (x1 - x0) * t / run.seconds:.1f},{y0 + (y1 - y0) * min(v, 1.1) / 1.1:.1f}"

    yield f'<text x="{x0}" y="12" fill="{_INK}" font-weight="600">{escape(run.phone.name)}, {escape(run.queue)}</text>'
    yield f'<text x="{x0}" y="23" fill="{_MUTED}">{escape(_short(run.workload))}</text>'
    for v in (0.0, 0.5, QUARTER, 1.0):
        a, b = at(0, v), at(run.seconds, v)
        dashes = ' stroke-dasharray="2 2"' if v == QUARTER else ""
        yield f'<path d="M{a}L{b}" stroke="{_GRID}"{dashes}/>'
        yield f'<text x="{x0 - 4}" y="{float(a.split(",")[1]) + 3:.1f}" text-anchor="end" fill="{_MUTED}">{v:.0%}</text>'
    for t in _ticks(run.seconds):
        x = at(t, 0).split(",")[0]
        yield f'<text x="{x}" y="{y0 + 12}" text-anchor="middle" fill="{_MUTED}">{t / 60:g} min</text>'
    for t, v in run.series:
        x, y = at(t, v).split(",")
        yield f'<circle cx="{x}" cy="{y}" r="1.8" fill="{_MEASURED}"/>'
    line = "L".join(at(t, v) for t, v in panel.simulated if t <= run.seconds)
    yield f'<path d="M{line}" fill="none" stroke="{_SIMULATED}" stroke-width="1.4"/>'


def _ticks(seconds: float) -> list[float]:
    step = 300.0 if seconds <= 1200 else 600.0
    return [k * step for k in range(int(seconds // step) + 1)]


def _short(workload: str) -> str:
    """What fits over a panel."""
    text = workload.split(" / tg128")[0].split(", repeated")[0].split(", continuous")[0].split(", back to back")[0]
    return text if len(text) <= 38 else text[:37] + "…"
