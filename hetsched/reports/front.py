"""The front of latency and energy: one dot a plan."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from hetsched.plans import Plan
from hetsched.reports.markup import el, percent
from hetsched.reports.units import quantity, share

HEIGHT, TOP, BOTTOM = 220.0, 16.0, 26.0
#: Share of the width and of the height that stays free around the dots.
ROOM = 0.08


@dataclass(frozen=True)
class FrontView:
    """The chart, and rows of (latency, energy, where the ops run, segments, what a better plan could save at most)."""

    chart: Markup | None
    """None: there is nothing to trade."""
    rows: tuple[tuple[str, str, str, str, str], ...]


def front_view(plan: Plan) -> FrontView | None:
    """The front of a plan with the plan itself marked; None where none was asked for."""
    if not plan.front:
        return None
    p = plan.prediction
    if len({(f.latency_s, f.energy_j) for f in plan.front} | {(p.latency_s, p.energy_j)}) == 1:
        return FrontView(None, ())
    times = [f.latency_s for f in plan.front] + [p.latency_s]
    joules = [f.energy_j for f in plan.front] + [p.energy_j]
    dots = [(f.latency_s, f.energy_j, "c0", f"{quantity(f.latency_s, 's')}, {quantity(f.energy_j, 'J')}", 5.0) for f in plan.front]
    dots.append((p.latency_s, p.energy_j, "c1 ours", f"this plan: {quantity(p.latency_s, 's')}, {quantity(p.energy_j, 'J')}", 7.0))
    marks = [
        el("circle", el("title", tip), class_=f"dot {colour}", cx=percent(_place(t, times)), cy=_height(j, joules), r=radius)
        for t, j, colour, tip, radius in dots
    ]
    labels = [
        el("text", quantity(max(joules), "J"), class_="a", x="0", y=TOP - 4),
        el("text", quantity(min(joules), "J"), class_="a", x="0", y=TOP + HEIGHT - 2),
        el("text", quantity(min(times), "s"), class_="a", x=percent(ROOM), y=TOP + HEIGHT + 16, text_anchor="middle"),
        el("text", quantity(max(times), "s"), class_="a", x=percent(1 - ROOM), y=TOP + HEIGHT + 16, text_anchor="middle"),
        el("line", class_="g", x1="0", x2="100%", y1=TOP + HEIGHT, y2=TOP + HEIGHT),
    ]
    chart = el(
        "svg", *labels, *marks, class_="front", width="100%", height=TOP + HEIGHT + BOTTOM, role="img",
        aria_label=f"Energy against latency of {len(plan.front)} plans",
    )  # fmt: skip
    rows = tuple(
        (
            quantity(f.latency_s, "s"), quantity(f.energy_j, "J"), ", ".join(f"{n} on {q}" for q, n in f.ops_by_queue.items()),
            str(f.segments), "–" if f.gap is None else share(f.gap),
        )
        for f in plan.front
    )  # fmt: skip
    return FrontView(chart, rows)


def _height(value: float, values: list[float]) -> float:
    return TOP + HEIGHT * (1 - _place(value, values))


def _place(value: float, values: list[float]) -> float:
    """Where a value lies between the extremes, with some room around."""
    low, high = min(values), max(values)
    return ROOM + (1 - 2 * ROOM) * ((value - low) / (high - low) if high > low else 0.5)
