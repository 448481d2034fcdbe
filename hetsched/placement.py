"""From a plan's names to the indices that cost table, segment rule, simulator and solvers use."""

from __future__ import annotations

from hetsched.costs import CostTable
from hetsched.errors import PlanError
from hetsched.plans import Plan


def placement_of(plan: Plan, table: CostTable) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A plan's ``(order, alternative)`` in the indices of its cost table: op indices, and one alternative per op.

    Raises:
        PlanError: the table does not hold the plan's ops, or does not offer an op's queue and precision.
    """
    index = {name: i for i, name in enumerate(table.op_names)}
    queue = {q.name: i for i, q in enumerate(table.queues)}
    alternative = [-1] * len(index)
    for p in plan.placements:
        if p.op not in index:
            raise PlanError(f"the plan places the op {p.op!r}, which the model does not have: make the plan again")
        there = table.alternatives(index[p.op])
        hits = [a for a in there if table.alt_queue[a] == queue.get(p.queue, -1) and table.alt_precision[a] == p.precision]
        if not hits:
            raise PlanError(
                f"the plan runs {p.op!r} on {p.queue} in {p.precision}, which the cost table does not offer: make the plan again"
            )
        # Several alternatives of one queue and precision differ in time only: the plan's own time says which it was.
        alternative[index[p.op]] = min(hits, key=lambda a: abs(float(table.time_s[a]) - p.seconds))
    missing = [n for n, a in zip(table.op_names, alternative, strict=True) if a < 0] or [n for n in plan.order if n not in index]
    if missing:
        raise PlanError(f"the plan and the model disagree about the op {missing[0]!r}: make the plan again")
    return tuple(index[n] for n in plan.order), tuple(alternative)
