"""The page of a study: curves in panels, comparisons, work against heat, and every scenario. One file that works without a network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from markupsafe import Markup

from hetsched.files import write_atomically
from hetsched.reports.curves import Chart, Series, chart_parts, span_of
from hetsched.reports.page import rendered
from hetsched.reports.sheet import Cell, Column, Line
from hetsched.studies import charts
from hetsched.studies.axes import COLOURS, Axes, axes_of, colour_of, colours, panels
from hetsched.studies.results import Row, values_of
from hetsched.studies.study_file import Study
from hetsched.studies.words import HEADS, axis_name, head, shown_choice, shown_figure, shown_input

#: Panels of small multiples.
MAX_PANELS = 24
#: Figures beside the values of an input.
MAX_EFFECTS = 6
#: Curves that are drawn -> title, and whether they begin at zero.
DRAWN = {
    "rate": ("Rate", True), "skin": ("Skin", False), "hottest": ("Hottest part", False), "power": ("Power", True),
    "level": ("Throttle level of the plan", True), "battery": ("Battery", False),
}  # fmt: skip
#: As they are written here.
UNITS = {"rate": "/s", "skin": "degC", "hottest": "degC", "power": "W", "level": "level", "battery": "1"}
#: Curves that hold each value until the next sample.
STEPS = ("rate", "power", "level")


@dataclass(frozen=True)
class Plot:
    """A Plotly figure for the template, with what it shows in words."""

    title: str
    hint: str
    spec: str


def write_page(study: Study, rows: Sequence[Row], path: Path) -> None:
    """Write the page.

    Raises:
        OptionError: the file cannot be written.
    """
    write_atomically(path, html(study, rows).encode())


def html(study: Study, rows: Sequence[Row]) -> str:
    """The page as text: same results, same text."""
    ran = [r for r in rows if not r.findings.refused]
    axes = axes_of(rows)
    work = "tokens" if any(r.number("tokens") for r in ran) else "inferences"
    return rendered("study.html.jinja", {
        "title": study.title, "question": study.question, "lead": _lead(rows, axes), "tiles": _tiles(rows),
        "effects": _effects(ran, axes), "multiples": _multiples(ran, axes), "plots": _plots(ran, axes, work),
        "columns": _columns(rows, axes), "rows": _lines(rows, axes), "fixed": _fixed(rows), "plotly": _script(_plotly_text()),
        "own": _script(_asset("study.js")),
    })  # fmt: skip


@cache
def _plotly_text() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _asset(name: str) -> str:
    return (files("hetsched.reports") / "templates" / name).read_text("utf-8")


@dataclass(frozen=True)
class Script:
    """A script, and the digest by which the page allows it."""

    text: Any
    digest: str


def _script(text: str) -> Script:
    return Script(Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())  # noqa: S704 - of packages


def _lead(rows: Sequence[Row], axes: Axes) -> str:
    """What was tried, in a sentence."""
    parts = [f"{len(values_of(rows, a))} × {axis_name(a)}" for a in axes.all]
    refused = sum(bool(r.findings.refused) for r in rows)
    return f"{len(rows)} scenarios" + (f": {', '.join(parts)}" if parts else "") + (f"; {refused} cannot run" if refused else "") + "."


def _tiles(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """The extremes: (name, value, whose it is)."""
    axes = axes_of(rows)
    out = [("Scenarios", str(len(rows)), f"{sum(1 for r in rows if r.number('throttled_s'))} of them throttle")]
    extremes = (
        ("Holds best", "held", max), ("Holds least", "held", min), ("Warmest skin", "skin_c", max), ("Coolest skin", "skin_c", min),
    )  # fmt: skip
    for name, figure, best in extremes:
        known = [(v, r) for r in rows if (v := r.number(figure)) is not None]
        if len(known) > 1:
            value, row = best(known, key=lambda x: x[0])
            out.append((name, shown_figure(figure, value), " · ".join(shown_choice(a, row.inputs.get(a)) for a in axes.all)))
    return out


def _effects(rows: Sequence[Row], axes: Axes) -> list[tuple[str, list[str], list[list[str]]]]:
    """For every axis of a few values: medians of figures by value."""
    out = []
    figures = [f for f in HEADS if any(r.number(f) is not None for r in rows)][:MAX_EFFECTS]
    for axis in axes.all:
        values = values_of(rows, axis)
        if len(axes.all) < 2 or len(values) > 2 * charts.MAX_LINES // 3:
            continue
        lines = []
        for value in values:
            own = [r for r in rows if r.inputs.get(axis) == value]
            middles = [[v for r in own if (v := r.number(f)) is not None] for f in figures]
            lines.append(
                [shown_choice(axis, value), *(shown_figure(f, median(m)) if m else "–" for f, m in zip(figures, middles, strict=True))]
            )
        out.append((axis_name(axis), [HEADS[f] for f in figures], lines))
    return out


def _multiples(rows: Sequence[Row], axes: Axes) -> list[tuple[str, list[Any]]]:
    """Charts over time, all of a quantity with the same scale: (title, charts)."""
    groups = dict(list(panels([r for r in rows if r.findings.curves], axes).items())[:MAX_PANELS])
    slot = colours(rows, axes)
    out = []
    for name, (title, zero) in DRAWN.items():
        drawn = {panel: _series(own, axes, slot, name, title.lower()) for panel, own in groups.items()}
        drawn = {panel: series for panel, series in drawn.items() if series}
        if name != "level" or any(v for series in drawn.values() for s in series for v in s.values):
            out += [(title, _same_scale(drawn, name, title, zero))] if drawn else []
    return out


def _series(rows: Sequence[Row], axes: Axes, slot: Mapping[str, int], name: str, title: str) -> list[Series]:
    out = []
    for r in rows:
        c, label = r.findings.curves.get(name), colour_of(r, axes)
        if c is not None and len(c.times_s) > 1:
            out.append(Series(title if label == "all" else label, f"c-run{slot[label] % COLOURS}", c.times_s, c.values, name in STEPS))
    return out


def _same_scale(drawn: Mapping[str, Sequence[Series]], name: str, title: str, zero: bool) -> list[tuple[str, Any, Any]]:
    """(panel, drawing, legend) of every panel."""
    every = [s for series in drawn.values() for s in series]
    domain, step = span_of(every, zero), name in STEPS
    end = max(2 * s.times_s[-1] - s.times_s[-2] if step else s.times_s[-1] for s in every)
    out = []
    for panel, series in drawn.items():
        _, svg, legend = chart_parts(Chart(f"{title}: {panel}", UNITS[name], tuple(series), end, domain))
        out.append((title if panel == "all" else panel, svg, legend))
    return out


def _plots(rows: Sequence[Row], axes: Axes, work: str) -> list[Plot]:
    """The charts that can be pointed at."""
    by = axis_name(axes.colour) if axes.colour else ""
    found = (
        ("Minute 1 and the last minute", "A ring is the first minute, a dot the last; the best at the end is on top.",
         charts.held(rows, axes, work)),
        (f"Compared by {by}", "Work done in the whole run, and the warmest that the skin got.", charts.compared(rows, axes, work)),
        ("Work against heat", "Up and to the left is better. The dotted line joins what no other scenario beats in both.",
         charts.heat(rows, axes, work)),
    )  # fmt: skip
    return [Plot(title, hint, _in_script(figure)) for title, hint, figure in found if figure is not None]


def _in_script(figure: charts.Figure) -> str:
    """JSON that cannot end the element that it stands in."""
    return json.dumps(figure, sort_keys=True, allow_nan=False).replace("<", "\\u003c")


def _figures(rows: Sequence[Row]) -> list[str]:
    """Figures that any scenario has, the important ones first."""
    names = dict.fromkeys([*HEADS, *(k for r in rows for k in r.figures)])
    return [k for k in names if any(r.figures.get(k) is not None for r in rows)]


def _columns(rows: Sequence[Row], axes: Axes) -> list[Column]:
    inputs = [Column(axis_name(n), not any(isinstance(r.inputs.get(n), str) for r in rows)) for n in axes.all]
    return inputs + [Column(head(n), any(r.number(n) is not None for r in rows)) for n in _figures(rows)]


def _lines(rows: Sequence[Row], axes: Axes) -> list[Line]:
    out = []
    for r in rows:
        cells = [Cell(shown_input(a, r.inputs.get(a)), _sorting(r.inputs.get(a))) for a in axes.all]
        figures = [Cell(shown_figure(f, r.figures.get(f)), _sorting(r.figures.get(f))) for f in _figures(rows)]
        if r.findings.refused and figures:
            figures[0] = Cell("refused", 0.0, r.findings.refused)
        out.append(Line((*cells, *figures), bool(r.findings.refused)))
    return out


def _sorting(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("-1e300")


def _fixed(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """What is the same in every scenario."""
    names = list(dict.fromkeys(k for r in rows for k in r.inputs))
    return [(axis_name(n), shown_input(n, v[0])) for n in names if len(v := values_of(rows, n)) == 1 and v[0] is not None]
