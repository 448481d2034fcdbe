"""The arena: which tensor holds which bytes, when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from hetsched.graph import Graph
from hetsched.plans import Plan
from hetsched.reports.lifetimes import Interval
from hetsched.reports.markup import el, percent
from hetsched.reports.units import quantity, ticks

HEIGHT = 220


def arena_map(plan: Plan, graph: Graph | None, held: Sequence[Interval], colours: Mapping[str, str]) -> Markup | None:
    """Offsets over time, one box per buffer, coloured by who writes it; None for a plan without buffers.

    ``held`` are the lifetimes of ``plan.buffers`` in seconds.
    """
    size, end = plan.arena_bytes, max([plan.prediction.latency_s, *(s.end_s for s in plan.segments)])
    if not plan.buffers or size <= 0 or end <= 0:
        return None
    queue = {p.op: p.queue for p in plan.placements}
    parts: list[Markup] = []
    for t in ticks(0, size / 1e6, 4):
        y = HEIGHT - HEIGHT * t * 1e6 / size
        parts += [el("line", class_="g", x1="0", x2="100%", y1=y, y2=y)]
    for b, (start, stop) in zip(plan.buffers, held, strict=True):
        writer = graph.producer.get(b.tensor) if graph is not None else None
        colour = colours.get(queue.get(graph.ops[writer].name, ""), "c-other0") if graph is not None and writer is not None else "c-other0"
        height = HEIGHT * b.nbytes / size
        tip = f"{b.tensor}\n{quantity(b.nbytes, 'B')} at offset {b.offset}\nheld from segment {b.first} to {b.last}"
        parts.append(
            el(
                "rect", class_=f"buf {colour}", x=percent(start / end), width=percent((stop - start) / end),
                y=HEIGHT - HEIGHT * (b.offset + b.nbytes) / size, height=max(0.4, height), data_t=tip,
            )
        )  # fmt: skip
    for t in ticks(0, size / 1e6, 4):
        parts.append(el("text", f"{t:g} MB", class_="a", x=2, y=HEIGHT - HEIGHT * t * 1e6 / size - 3))
    label = f"Arena of {quantity(size, 'B')}: {len(plan.buffers)} buffers, offset over time"
    return el("svg", *parts, class_="arena", width="100%", height=HEIGHT + 2, role="img", aria_label=label)
