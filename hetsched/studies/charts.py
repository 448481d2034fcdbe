"""Charts of a study that can be pointed at: minute 1 and the end, policies, work against heat. Plotly figures as plain data.

Colours are names of the page's style (``var(--cpu0)``); its script fills them in, so that the charts follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hetsched.studies.axes import Axes, colour_of, colours, label, panels
from hetsched.studies.results import Row
from hetsched.studies.words import shown_figure

#: Of the colours ``c-run0`` ... of the style sheet.
SLOTS = ("var(--cpu0)", "var(--gpu0)", "var(--npu0)", "var(--other0)", "var(--cpu1)", "var(--gpu1)")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star", "hexagon", "cross")
#: Rows of a chart with a line a scenario.
MAX_LINES = 60
MINUTES = ("rate_first_minute", "rate_last_minute")
Figure = dict[str, Any]


def held(rows: Sequence[Row], axes: Axes, work: str) -> Figure | None:
    """What each scenario does in its first minute and in its last, the best at the end on top; None for single inferences."""
    timed = [r for r in rows if all(r.number(c) is not None for c in MINUTES)]
    if not timed:
        return None
    ranked = sorted(timed, key=lambda r: -(r.number("rate_last_minute") or 0.0))[:MAX_LINES]
    at_first = sorted(ranked, key=lambda r: -(r.number("rate_first_minute") or 0.0))
    place = {r.key: k + 1 for k, r in enumerate(at_first)}
    slot = colours(rows, axes)
    at = list(range(len(ranked)))
    tips = [_told(r, axes, k + 1, place[r.key], work) for k, r in enumerate(ranked)]
    paint = [SLOTS[slot[colour_of(r, axes)] % len(SLOTS)] for r in ranked]
    quiet = {"opacity": 0.4, "hoverinfo": "skip"}
    lines = [
        _scatter([r.number(c) for c in MINUTES], [y, y], "lines", line={"color": colour, "width": 3}, **quiet)
        for r, y, colour in zip(ranked, at, paint, strict=True)
    ]
    rings, dots = ({"size": 11, "color": f, "line": {"color": paint, "width": 2}} for f in ("var(--card)", paint))
    ends = [
        _scatter([r.number(column) for r in ranked], at, "markers", marker=marker, hovertext=tips, hoverinfo="text")
        for column, marker in zip(MINUTES, (rings, dots), strict=True)
    ]
    axis = _rate_axis([v for r in ranked for c in MINUTES if (v := r.number(c))], f"{work} a second")
    height = 90 + 26 * len(ranked)
    return _figure([*lines, *ends], xaxis=axis, yaxis=_names_axis([label(r, axes.all) for r in ranked]), height=height, showlegend=False)


def _rate_axis(values: Sequence[float], title: str) -> dict[str, Any]:
    """From zero; logarithmic, with round numbers, where the largest is far over the smallest."""
    if not values or max(values) <= 12 * min(values):
        return {"title": {"text": title}, "rangemode": "tozero"}
    decades = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ticks = [f * 10.0**d for d in decades for f in (1, 2, 5)]
    return {"title": {"text": f"{title}, logarithmic"}, "type": "log", "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks]}


def _told(row: Row, axes: Axes, place: int, first: int, work: str) -> str:
    """What a scenario of :func:`held` did."""
    minute, last, share = (shown_figure(f, row.figures.get(f)) for f in (*MINUTES, "held"))
    begin = f"<b>{_plain(label(row, axes.all))}</b><br>minute 1: {minute} {work}/s, place {first}"
    return f"{begin}<br>last minute: {last} {work}/s, place {place}<br>holds {share}"


def heat(rows: Sequence[Row], axes: Axes, work: str) -> Figure | None:
    """Work done against the warmest that the skin got, with the front of what no other scenario beats in both."""
    shown = [r for r in rows if r.number(work) is not None and r.number("skin_c") is not None]
    if len(shown) < 2:
        return None
    names = list(panels(rows, axes))
    told_apart = axes.colour is not None and len(names) <= len(SYMBOLS)
    symbols = {p: SYMBOLS[k] if told_apart else SYMBOLS[0] for k, p in enumerate(names)}
    traces = []
    front = front_of([(r.number("skin_c") or 0.0, r.number(work) or 0.0) for r in shown])
    if len(front) > 1:
        traces.append(_scatter(
            [x for x, _ in front], [y for _, y in front], "lines", name="not beaten in both", hoverinfo="skip",
            line={"color": "var(--soft)", "width": 1.5, "dash": "dot", "shape": "hv"},
        ))  # fmt: skip
    for name, k in colours(rows, axes).items():
        own = [r for r in shown if colour_of(r, axes) == name]
        marker = {
            "size": 11, "color": SLOTS[k % len(SLOTS)], "line": {"color": "var(--card)", "width": 1}, "opacity": 0.9,
            "symbol": [symbols[label(r, axes.rest)] for r in own],
        }  # fmt: skip
        tips = [
            f"<b>{_plain(label(r, axes.all))}</b><br>{shown_figure(work, r.figures[work])} {work}"
            + "".join(f"<br>{n} {shown_figure(f, r.figures.get(f))}" for n, f in (("skin", "skin_c"), ("energy", "energy_j")))
            for r in own
        ]  # fmt: skip
        traces.append(_scatter(
            [r.number("skin_c") for r in own], [r.number(work) for r in own], "markers", marker=marker, name=_plain(name), hovertext=tips,
            hoverinfo="text",
        ))  # fmt: skip
    if axes.colour is None:
        traces.append(_named([r for r in shown if (r.number("skin_c"), r.number(work)) in front], axes, work))
    if told_apart and len(symbols) > 1:
        marks = [{"size": 10, "color": "var(--soft)", "symbol": s} for s in symbols.values()]
        traces += [_scatter([None], [None], "markers", marker=m, name=_plain(p)) for p, m in zip(symbols, marks, strict=True)]
    upward = {"title": {"text": f"{work} in the run"}, "rangemode": "tozero", "automargin": True}
    return _figure(
        traces, xaxis={"title": {"text": "warmest that the skin got (°C)"}}, yaxis=upward, height=500, showlegend=axes.colour is not None,
        hovermode="closest",
    )  # fmt: skip


def _named(rows: Sequence[Row], axes: Axes, work: str) -> dict[str, Any]:
    """Names beside dots that no colour tells apart."""
    texts = [_plain(label(r, axes.all)) for r in rows]
    at = [r.number("skin_c") for r in rows], [r.number(work) for r in rows]
    return _scatter(*at, "text", text=texts, textposition="top left", hoverinfo="skip", textfont={"color": "var(--soft)", "size": 11})


def compared(rows: Sequence[Row], axes: Axes, work: str) -> Figure | None:
    """Work and skin of every value of the coloured axis side by side, panel by panel; None where nothing is compared by colour."""
    groups = panels(rows, axes)
    if axes.colour is None or not any(r.number(work) is not None for r in rows) or len(groups) > MAX_LINES // 2:
        return None
    at = list(range(len(groups)))
    traces = []
    for name, k in colours(rows, axes).items():
        own = [next((r for r in group if colour_of(r, axes) == name), None) for group in groups.values()]
        for column, x, y in ((work, "x", "y"), ("skin_c", "x2", "y")):
            values = [None if r is None else r.number(column) for r in own]
            tips = [f"<b>{_plain(name)}</b> {shown_figure(column, v)}{f' {work}' if column == work else ''}" for v in values]
            traces.append({
                "type": "bar", "orientation": "h", "x": values, "y": at, "xaxis": x, "yaxis": y, "name": _plain(name),
                "legendgroup": _plain(name), "showlegend": x == "x", "marker": {"color": SLOTS[k % len(SLOTS)]}, "hovertext": tips,
                "hoverinfo": "text", "textposition": "none",
            })  # fmt: skip
    skins = [v for r in rows if (v := r.number("skin_c")) is not None]
    room = [min(skins) - 2, max(skins) + 1] if skins else [0, 1]
    return _figure(
        traces, barmode="group", bargap=0.28, height=110 + (14 * len(colours(rows, axes)) + 18) * len(at),
        xaxis={"title": {"text": work}, "domain": [0, 0.56], "rangemode": "tozero"},
        xaxis2={"title": {"text": "skin (°C)"}, "domain": [0.62, 1], "range": room, "anchor": "y"},
        yaxis=_names_axis(list(groups)), showlegend=True,
    )  # fmt: skip


def front_of(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both: less of the first, more of the second; by the first, ascending.

    Examples:
        >>> front_of([(1, 1), (2, 3), (3, 2), (4, 4)])
        [(1, 1), (2, 3), (4, 4)]
    """
    out: list[tuple[float, float]] = []
    for x, y in sorted(set(points), key=lambda p: (p[0], -p[1])):
        if not out or y > out[-1][1]:
            out.append((x, y))
    return out


def _scatter(x: Sequence[float | None], y: Sequence[Any], mode: str, **more: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": mode, "x": list(x), "y": list(y), **more}


def _names_axis(names: Sequence[str]) -> dict[str, Any]:
    """A line a name, from the top."""
    ends = [len(names) - 0.4, -0.6]
    return {
        "tickvals": list(range(len(names))), "ticktext": [_plain(n) for n in names], "range": ends, "automargin": True, "ticksuffix": "  ",
        "showgrid": False, "zeroline": False,
    }  # fmt: skip


def _figure(traces: Sequence[dict[str, Any]], **layout: Any) -> Figure:
    lines = {"gridcolor": "var(--grid)", "zerolinecolor": "var(--line)", "linecolor": "var(--line)"}
    layout = {k: {**lines, **v} if k.startswith(("xaxis", "yaxis")) else v for k, v in layout.items()}
    base = {
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": "var(--ink)", "size": 12},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--soft)", "activecolor": "var(--accent)", "orientation": "v"},
        "margin": {"l": 10, "r": 40, "t": 34, "b": 46}, "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "hoverlabel": {"bgcolor": "var(--tip-bg)", "bordercolor": "var(--tip-bg)", "font": {"color": "var(--tip-ink)"}, "align": "left"},
    }  # fmt: skip
    return {"data": list(traces), "layout": {**base, **layout}}


def _plain(text: str) -> str:
    """Text that Plotly shows as it is: it reads a little HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
