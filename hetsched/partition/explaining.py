"""``explain``: why an op is where it is and what every other place would have cost."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from hetsched.costs import CostTable
from hetsched.errors import OptionError
from hetsched.partition.causes import duration, joules
from hetsched.partition.plan_builder import what_if
from hetsched.partition.timing import Costs
from hetsched.placement import placement_of
from hetsched.plans import Choice, Placement, Plan, PlanSegment


@dataclass(frozen=True)
class Explanation:
    """One op of a plan: its place, the cause, its segment, and what every alternative would cost alone and for the plan."""

    placement: Placement
    segment: PlanSegment
    plan_latency_s: float
    alternatives: tuple[Choice, ...]
    power_basis: str = ""
    """What its energies rest on."""

    @property
    def refusals(self) -> tuple[str, ...]:
        """Where the op cannot run, with the reason."""
        return self.placement.refusals

    def lines(self) -> list[str]:
        """Sentences for a human."""
        p, s = self.placement, self.segment
        origin = "" if set(p.origin) <= {p.op} else f", made from {', '.join(p.origin)}"
        return [
            f"{p.op} ({p.type}{origin}) runs on {p.queue} in {p.precision}: {p.cause}",
            f"segment {s.index} on {s.queue} from {duration(s.start_s)} to {duration(s.end_s)}, op {s.ops.index(p.op) + 1} of {len(s.ops)}",
        ]

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


def explain(plan: Plan, op: str, table: CostTable | None = None) -> Explanation:
    """Why an op is where it is.

    Args:
        plan: the plan.
        op: an op's name, or the name of any of the user's own nodes that it stands for.
        table: the plan's cost table, to time alternatives that the plan file left out (large models).

    Raises:
        OptionError: no op or node has the name; near matches are named.
    """
    placement = find_placement(plan, op)
    segment = next(s for s in plan.segments if placement.op in s.ops)
    alternatives = placement.alternatives
    if table is not None and any(a.plan_latency_s is None for a in alternatives):
        alternatives = _timed(plan, placement, table)
    return Explanation(placement, segment, plan.prediction.latency_s, alternatives)


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
    raise OptionError(f"the plan has no op or node {name!r}" + (f": did you mean {', '.join(near)}?" if near else ""))


def _timed(plan: Plan, placement: Placement, table: CostTable) -> tuple[Choice, ...]:
    """The op's alternatives with the whole plan's latency for each."""
    c = Costs(table)
    order, alternative = placement_of(plan, table)
    i = table.op_names.index(placement.op)
    whole = what_if(c, order, alternative, [i])
    return tuple(
        Choice(
            queue=table.queues[c.queue[a]].name, precision=table.alt_precision[a], seconds=c.time[a], energy_j=c.energy[a],
            plan_latency_s=whole[a],
        )
        for a in c.alts[i]
    )  # fmt: skip
