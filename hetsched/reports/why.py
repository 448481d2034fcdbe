"""The table of why: for every op where it runs, what that costs, and what the alternatives would have cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from hetsched.plans import Placement, Plan
from hetsched.reports.units import quantity, share

NOTHING: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True)
class Cell:
    """A text with the number to sort it by."""

    text: str
    sort: float


@dataclass(frozen=True)
class Other:
    """A place that was not taken."""

    place: str
    seconds: str
    energy: str
    moved: str
    taken: bool


@dataclass(frozen=True)
class Row:
    """One op. ``extra`` are the trace columns: what it took when simulated or measured."""

    number: int
    op: Markup
    type: str
    origin: Markup
    queue: str
    colour: str
    precision: str
    delegate: str
    segment: int
    time: Cell
    share: str
    energy: Cell
    extra: Sequence[Cell]
    cause: str
    alternatives: Sequence[Other]
    refusals: Sequence[str]
    changes: Sequence[str]
    search: str


def rows(
    plan: Plan, colours: Mapping[str, str], columns: Sequence[Mapping[str, float]], changes: Mapping[str, Sequence[str]] = NOTHING
) -> list[Row]:
    """Rows in the order of the plan's placements.

    Args:
        plan: the plan.
        colours: of its queues.
        columns: seconds by op name, one mapping per trace.
        changes: op -> what would have to change for it to be elsewhere.
    """
    total = sum(p.seconds for p in plan.placements) or 1.0
    segment = {op: s.index for s in plan.segments for op in s.ops}
    return [_row(i, p, segment.get(p.op, -1), total, plan, colours, columns, changes.get(p.op, ())) for i, p in enumerate(plan.placements)]


def _row(
    i: int, p: Placement, segment: int, total: float, plan: Plan, colours: Mapping[str, str], columns: Sequence[Mapping[str, float]],
    changes: Sequence[str],
) -> Row:  # fmt: skip
    others = tuple(o for o in p.origin if o != p.op)
    extra = [Cell(quantity(c.get(p.op), "s"), c.get(p.op, -1.0)) for c in columns]
    search = " ".join((p.op, p.type, p.queue, p.precision, p.delegate, p.cause, *p.origin)).lower()
    return Row(
        i, breakable(p.op), p.type, breakable(", ".join(others)), p.queue, colours[p.queue], p.precision, p.delegate, segment,
        Cell(quantity(p.seconds, "s"), p.seconds), share(p.seconds / total), Cell(quantity(p.energy_j, "J"), p.energy_j),
        extra, p.cause, [_other(p, k, plan) for k in range(len(p.alternatives))], p.refusals, changes, search,
    )  # fmt: skip


def breakable(name: str) -> Markup:
    """The name with places where a narrow column may break it."""
    return Markup("/<wbr>").join(escape(part) for part in name.split("/"))


def _other(p: Placement, k: int, plan: Plan) -> Other:
    c = p.alternatives[k]
    moved = ""
    if c.plan_latency_s is not None:
        change = c.plan_latency_s - plan.prediction.latency_s
        moved = f"{'+' if change >= 0 else '−'}{quantity(abs(change), 's')}" if abs(change) > 1e-12 else "no change"
    taken = (c.queue, c.precision) == (p.queue, p.precision)
    return Other(f"{c.queue} {c.precision}", quantity(c.seconds, "s"), quantity(c.energy_j, "J"), moved, taken)
