"""Who works when: one row per queue, the same scale for the prediction, the simulation and the measurement.

Horizontal positions are percentages, so that zooming only widens the drawing and text keeps its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hetsched.costs import DMA
from hetsched.plans import Plan
from hetsched.reports.markup import el, percent
from hetsched.reports.runs import Iteration
from hetsched.reports.units import axis, quantity, ticks

ROW = 34
STRIP = 9


@dataclass(frozen=True)
class Bar:
    """A piece of work. ``kind`` is a span kind; ``tip`` is shown on hover."""

    queue: str
    kind: str
    start_s: float
    end_s: float
    tip: str
    label: str = ""


@dataclass(frozen=True)
class Arrow:
    """A fence: signalled by one queue, waited for by another."""

    source: str
    source_s: float
    target: str
    target_s: float
    tip: str


@dataclass(frozen=True)
class Lanes:
    """One drawing of a timeline: what the plan predicts, or one inference of a trace."""

    title: str
    origin: str
    bars: tuple[Bar, ...]
    arrows: tuple[Arrow, ...]
    end_s: float


def predicted(plan: Plan) -> Lanes:
    """The plan's own schedule: overlapping queues, no contention."""
    place = {p.op: p for p in plan.placements}
    bars: list[Bar] = []
    for s in plan.segments:
        took = quantity(s.end_s - s.start_s, "s")
        tip = f"segment {s.index} on {s.queue}: {took}, {len(s.ops)} ops\nfrom {quantity(s.start_s, 's')} to {quantity(s.end_s, 's')}"
        bars.append(Bar(s.queue, "segment", s.start_s, s.end_s, tip, str(s.index)))
        at = s.start_s
        for kind, seconds in (("launch", s.launch_s), ("transfer", s.transfer_s)):
            if seconds > 0:
                what = f"\n{', '.join(s.transfers[:5])}" if kind == "transfer" else ""
                bars.append(Bar(s.queue, kind, at, at + seconds, f"{kind}: {quantity(seconds, 's')}{what}"))
                at += seconds
        for op in s.ops:
            p = place[op]
            bars.append(Bar(s.queue, "op", at, at + p.seconds, f"{p.op}\n{p.type}, {p.precision}: {quantity(p.seconds, 's')}", p.type))
            at += p.seconds
    for c in plan.copies:
        tip = f"copy of {c.tensor} for segment {c.segment}: {quantity(c.end_s - c.start_s, 's')}"
        bars.append(Bar(DMA, "transfer", c.start_s, c.end_s, tip))
    arrows = []
    for f in plan.fences:
        a, b = plan.segments[f.signal], plan.segments[f.wait]
        arrows.append(
            Arrow(a.queue, a.end_s, b.queue, b.start_s, f"fence: segment {f.signal} → {f.wait}, {f.mode}, {quantity(f.sync_s, 's')}")
        )
    end = max([plan.prediction.latency_s, *(s.end_s for s in plan.segments)])
    return Lanes("Predicted", "predicted", tuple(bars), tuple(arrows), end)


def recorded(run: Iteration, title: str, origin: str, plan: Plan | None) -> Lanes:
    """One inference of a trace; fences are drawn between the segments that the plan joins."""
    bars = []
    for s in sorted(run.spans, key=lambda s: (s.queue, s.start_s, -s.end_s)):
        took = quantity(s.end_s - s.start_s, "s")
        forecast = f", predicted {quantity(s.predicted_s, 's')}" if s.predicted_s is not None else ""
        start, end = s.start_s - run.start_s, s.end_s - run.start_s
        bars.append(
            Bar(
                s.queue,
                s.kind,
                start,
                end,
                f"{s.name}\n{s.kind} on {s.queue}: {took}{forecast}",
                str(s.segment) if s.kind == "segment" else "",
            )
        )
    arrows = []
    when = {s.segment: s for s in run.spans if s.kind == "segment"}
    for f in plan.fences if plan else ():
        if f.signal in when and f.wait in when:
            a, b = when[f.signal], when[f.wait]
            arrows.append(Arrow(a.queue, a.end_s - run.start_s, b.queue, b.start_s - run.start_s, f"fence: segment {f.signal} → {f.wait}"))
    return Lanes(title, origin, tuple(bars), tuple(arrows), run.end_s - run.start_s)


def draw(lanes: Lanes, queues: Sequence[str], colours: Mapping[str, str], span_s: float) -> Markup:
    """One timeline of ``span_s`` seconds with a row for each of ``queues``."""
    row = {q: i for i, q in enumerate(queues)}
    height = ROW * len(queues) + 18
    parts: list[Markup] = []
    for k, t in enumerate(ticks(0.0, span_s, 8)):
        anchor = "start" if t == 0 else "end" if t > 0.97 * span_s else "middle"
        x = percent(t / span_s)
        parts.append(el("line", class_="g", x1=x, x2=x, y1=0, y2=height - 16))
        parts.append(el("text", axis(t, "s"), class_="a odd" if k % 2 else "a", x=x, y=height - 4, text_anchor=anchor))
    parts += [_bar(b, row[b.queue], colours[b.queue], span_s) for b in lanes.bars if b.queue in row]
    for a in lanes.arrows:
        if a.source in row and a.target in row:
            y1, y2 = (row[q] * ROW + ROW / 2 for q in (a.source, a.target))
            parts.append(
                el("line", class_="f", x1=percent(a.source_s / span_s), x2=percent(a.target_s / span_s), y1=y1, y2=y2, data_t=a.tip)
            )
    label = f"{lanes.title}: {len(queues)} queues, {quantity(lanes.end_s, 's')}"
    return el("svg", *parts, class_="lanes", width="100%", height=height, role="img", aria_label=label)


def _bar(b: Bar, row: int, colour: str, span_s: float) -> Markup:
    top = row * ROW + 3
    x, width = percent(b.start_s / span_s), percent(max(0.0, b.end_s - b.start_s) / span_s)
    if b.kind == "segment":
        return el("rect", class_=f"k-segment {colour}", x=x, width=width, y=top, height=STRIP, data_t=b.tip)
    return el("rect", class_=f"k-{b.kind} {colour}", x=x, width=width, y=top + STRIP + 1, height=ROW - STRIP - 8, data_t=b.tip)
