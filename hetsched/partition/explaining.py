"""``explain``: why an op is where it is and what every other place would have cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from hetsched.costs import CostTable
from hetsched.errors import OptionError
from hetsched.partition.causes import duration, joules
from hetsched.partition.plan_builder import what_if
from hetsched.partition.problem import Objective
from hetsched.placement import placement_of
from hetsched.plans import Choice, Placement, Plan, PlanSegment

if TYPE_CHECKING:
    from hetsched.partition.counterfactuals import Elsewhere, Placed

#: Ops timed in all for the smallest changes of a report; ``explain`` has those of the ops beyond.
QUICK_OPS = 1_500_000
_SIBLINGS = 4


@dataclass(frozen=True)
class Explanation:
    """One op of a plan: its place, the cause, its segment, and what every alternative would cost alone and for the plan."""

    placement: Placement
    segment: PlanSegment
    plan_latency_s: float
    alternatives: tuple[Choice, ...]
    objective: Objective = "latency"
    elsewhere: tuple[Elsewhere, ...] = ()
    """Per other queue that takes the op: what would have to change for the op to go there."""
    precisions: tuple[Elsewhere, ...] = ()
    """Places that the plan's precisions do not offer, and what going there would bring."""
    closed: tuple[str, ...] = ()
    """Queues that the plan does without."""
    power_basis: str = ""
    """What its energies rest on."""
    siblings: tuple[Placement, ...] = ()
    """Other ops that the same nodes of the user became."""
    about: tuple[str, ...] = ()
    """Sentences on which plan of its file this is; empty: it is the only one."""

    @property
    def refusals(self) -> tuple[str, ...]:
        """Where the op cannot run, with the reason."""
        return self.placement.refusals

    def lines(self) -> list[str]:
        """Sentences for a human."""
        p, s = self.placement, self.segment
        origin = "" if set(p.origin) <= {p.op} else f", made from {', '.join(p.origin)}"
        others = ", ".join(f"{o.op} on {o.queue}" for o in self.siblings[:_SIBLINGS])
        more = f" and {len(self.siblings) - _SIBLINGS} more" if len(self.siblings) > _SIBLINGS else ""
        return [
            f"{p.op} ({p.type}{origin}) runs on {p.queue} in {p.precision}: {p.cause}",
            *([f"the same nodes also became {others}{more}"] if others else []),
            f"segment {s.index} on {s.queue} from {duration(s.start_s)} to {duration(s.end_s)}, op {s.ops.index(p.op) + 1} of {len(s.ops)}",
        ]

    def conditions(self) -> list[str]:
        """A sentence for each queue that the op could be on: under which single change it would pay."""
        from hetsched.partition.conditions import in_precision, sentence

        return [
            *(sentence(e, self.objective) for e in self.elsewhere),
            *(in_precision(e, self.objective) for e in self.precisions),
            *(f"{queue} is off in this plan" for queue in self.closed),
        ]

    def openings(self) -> list[str]:
        """In short what would bring the op elsewhere: per queue the smallest change, and other precisions that save something there."""
        from hetsched.partition.conditions import in_precision, shortest

        saving = (in_precision(e, self.objective) for e in self.precisions if e.extra < 0)
        return [*filter(None, (shortest(e, self.objective) for e in self.elsewhere)), *saving]

    def rows(self) -> list[list[str]]:
        """Per alternative: place, precision, op alone, energy, whole plan (with the difference), the chosen one marked."""
        out: list[list[str]] = []
        for a in self.alternatives:
            here = (a.queue, a.precision) == (self.placement.queue, self.placement.precision)
            whole = "-"
            if a.plan_latency_s is not None:
                change = a.plan_latency_s - self.plan_latency_s
                sign = "+" if change > 0 else "-"
                whole = f"{duration(a.plan_latency_s)}" + ("" if here else f" ({sign}{duration(abs(change))})")
            out.append([f"{a.queue} (chosen)" if here else a.queue, a.precision, duration(a.seconds), joules(a.energy_j), whole])
        return out


def explain(
    plan: Plan, op: str, table: CostTable | None = None, wider: tuple[CostTable, CostTable] | None = None, closed: Sequence[str] = ()
) -> Explanation:
    """Why an op is where it is, and what would have to change for it to be elsewhere.

    Args:
        plan: the plan.
        op: an op's name, or the name of any of the user's own nodes that it stands for.
        table: the plan's cost table, for what would have to change, and to time alternatives that the plan file left out.
        wider: the same with more precisions to choose from, and with those alone that the plan does not have.
        closed: names of queues that the plan could not use.

    Raises:
        OptionError: no op or node has the name; near matches are named.
    """
    from hetsched.partition.counterfactuals import Placed, elsewhere
    from hetsched.partition.other_precisions import Wider, in_other_precisions

    placement = find_placement(plan, op)
    segment = next(s for s in plan.segments if placement.op in s.ops)
    siblings = tuple(p for p in plan.placements if p is not placement and {*p.origin} & {*placement.origin})
    there = tuple(a for a in placement.alternatives if a.queue not in closed)
    found = Explanation(placement, segment, plan.prediction.latency_s, there, plan.objective, siblings=siblings)
    if table is None:
        return found
    placed = Placed(table, plan.objective, *placement_of(plan, table), closed)
    index = table.op_names.index(placement.op)
    if any(a.plan_latency_s is None for a in placement.alternatives):
        found = replace(found, alternatives=_timed(placed, index))
    found = replace(found, elsewhere=elsewhere(placed, index), closed=tuple(closed))
    if wider is None:
        return found
    more, pure = wider
    other = Wider(Placed(more, plan.objective, *placement_of(plan, more), closed), pure)
    return replace(found, precisions=in_other_precisions(placed, other, index))


def smallest_changes(plan: Plan, table: CostTable, closed: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Op -> the smallest change for each other queue, of the ops that take longest, as long as that stays quick."""
    from hetsched.partition.conditions import shortest
    from hetsched.partition.counterfactuals import Placed, elsewhere

    placed = Placed(table, plan.objective, *placement_of(plan, table), closed)
    out: dict[str, tuple[str, ...]] = {}
    for op in sorted(range(placed.c.n), key=lambda op: (-placed.c.time[placed.alternative[op]], op)):
        if placed.timed_ops > QUICK_OPS:
            break
        out[table.op_names[op]] = tuple(filter(None, (shortest(e, plan.objective) for e in elsewhere(placed, op))))
    return out


def find_placement(plan: Plan, name: str) -> Placement:
    """The placement of an op, by its name or by one of the user's node names.

    Raises:
        OptionError: there is none; near matches are named.
    """
    for p in plan.placements:
        if p.op == name:
            return p
    for p in plan.placements:
        if name in p.origin:
            return p
    known = list(dict.fromkeys(n for p in plan.placements for n in (p.op, *p.origin)))
    near = get_close_matches(name, known, 3, 0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"its ops are called like {known[0]!r}, and the plan file lists them all"
    raise OptionError(f"the plan has no op or node {name!r}: {hint}")


def _timed(placed: Placed, op: int) -> tuple[Choice, ...]:
    """The op's alternatives with the whole plan's latency for each."""
    table, c = placed.table, placed.c
    whole = what_if(c, placed.order, placed.alternative, [op])
    return tuple(
        Choice(
            queue=table.queues[c.queue[a]].name, precision=table.alt_precision[a], seconds=c.time[a], energy_j=c.energy[a],
            plan_latency_s=whole[a],
        )
        for a in c.alts[op]
        if c.queue[a] not in placed.closed
    )  # fmt: skip
