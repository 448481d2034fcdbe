"""From a solver's answer to a plan: segments, fences, buffers, predictions, and what every alternative would have cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hetsched.errors import PlanError
from hetsched.graph import Graph
from hetsched.partition.accounting import accounts_of, refused_by, work_by_type
from hetsched.partition.causes import causes_of
from hetsched.partition.fences import fences_of
from hetsched.partition.limits import UNLIMITED
from hetsched.partition.memory_limit import stored, within_limit
from hetsched.partition.problem import Budget, Problem, Solution
from hetsched.partition.timing import Costs, figures
from hetsched.plans import Baseline, Choice, Placement, Plan, PlanCopy, PlanSegment, Prediction
from hetsched.segments import Schedule, schedule

WHAT_IF_OPS = 200_000
"""Ops timed in all for the alternatives' whole-plan latencies; beyond that they are computed when asked for."""
WHAT_IF_PLANS = 2000


def build_plan(graph: Graph, problem: Problem, solution: Solution, baselines: Sequence[Baseline] = ()) -> Plan:
    """The plan of a solution.

    Args:
        graph: the graph that the problem's table was made for.
        problem: with the memory limit, if there is one.
        solution: of that problem.
        baselines: shown beside the plan.

    Returns:
        The plan. Where the solution needs more memory than allowed, the best of the other placements and orders at hand
        that fit, ranked as the solution was, takes its place, and a note says so.

    Raises:
        InfeasibleError: nothing fits into the memory limit.
        PlanError: the solution is not one of this graph.
    """
    table = problem.table
    if tuple(op.name for op in graph.ops) != table.op_names:
        raise PlanError(f"the cost table of {table.model!r} was made for another graph than {graph.name!r}")
    made = within_limit(graph, problem, stored(graph, problem, solution))
    solution, timed, arena, peak = made.solution, made.timed, made.layout, made.nbytes
    low, high = table.interval
    prediction = Prediction(
        latency_s=timed.latency_s, latency_interval_s=(timed.latency_s * low, timed.latency_s * high), serial_s=timed.serial_s,
        energy_j=timed.energy_j, peak_memory_bytes=peak, weight_bytes=made.weights, arena_bytes=arena.nbytes,
        arena_bound_bytes=arena.bound_bytes, pool_bytes=arena.pool_bytes, workspace_bytes=made.workspace,
        unshared_bytes=arena.unshared_bytes,
        loss=float(table.loss[list(solution.alternative)].sum()) if len(table.loss) else None,
    )  # fmt: skip
    return Plan(
        solver=solution.solver, objective=problem.objective, status=solution.status, bound_s=solution.bound, gap=solution.gap,
        order=tuple(table.op_names[i] for i in solution.order), placements=_placements(graph, problem, solution),
        segments=_segments(problem, timed), copies=_copies(problem, timed), fences=fences_of(table, timed),
        buffers=arena.buffers, arena_bytes=arena.nbytes, prediction=prediction, accounts=accounts_of(table, timed),
        baselines=tuple(baselines), notes=(*table.notes, *solution.notes),
    )  # fmt: skip


def baselines(problem: Problem) -> tuple[Baseline, ...]:
    """The single queues, ``vendor``, ``rules`` and ``heft``; the reason stands where one cannot place the model.

    They know no limits and no wishes for single ops; a queue that is closed to every op is closed to them too.
    """
    names = [f"single:{q.name}" for q in problem.table.queues] + ["vendor", "rules", "heft"]
    closed = tuple(f for f in problem.forbidden if f[0] == "*")
    free = replace(problem, forced={}, forbidden=closed, limits=UNLIMITED)
    free = free.on(free.table.restrict(free.keep)) if closed else free
    c = Costs(free.table)
    return tuple(_baseline(free, c, name) for name in names)


def _baseline(free: Problem, c: Costs, name: str) -> Baseline:
    from hetsched.errors import HetschedError
    from hetsched.partition.solving import solver_named
    from hetsched.partition.vendor import preferred

    table, types = free.table, free.op_types
    try:
        answer = solver_named(name).solve(free, Budget())
    except HetschedError as e:
        return Baseline(solver=name, latency_s=None, energy_j=None, segments=None, reason=str(e))
    timed = schedule(table, answer.order, answer.alternative)
    fallen = name == "vendor" and bool(types)
    return Baseline(
        solver=name, latency_s=timed.latency_s, energy_j=timed.energy_j, segments=len(timed.segments), accounts=accounts_of(table, timed),
        types=work_by_type(c, table, types, answer.alternative) if types else (),
        refused=refused_by(c, table, types, answer.order, answer.alternative, preferred(c, table)) if fallen else (),
    )  # fmt: skip


def _segments(problem: Problem, timed: Schedule) -> tuple[PlanSegment, ...]:
    table = problem.table
    return tuple(
        PlanSegment(
            index=s.index, queue=table.queues[s.queue].name, ops=tuple(table.op_names[i] for i in s.ops),
            start_s=timed.start_s[s.index], end_s=timed.end_s[s.index], launch_s=s.launch_s, transfer_s=s.transfer_s,
            work_s=s.work_s, energy_j=s.energy_j, transfers=tuple(dict.fromkeys(table.tensor_names[x.tensor] for x in s.transfers)),
        )
        for s in timed.segments
    )  # fmt: skip


def _copies(problem: Problem, timed: Schedule) -> tuple[PlanCopy, ...]:
    names = problem.table.tensor_names
    return tuple(PlanCopy(tensor=names[c.tensor], segment=c.segment, start_s=c.start_s, end_s=c.end_s) for c in timed.copies)


def _placements(graph: Graph, problem: Problem, solution: Solution) -> tuple[Placement, ...]:
    table, c = problem.table, Costs(problem.table)
    causes = solution.causes or causes_of(problem, solution)
    whole = what_if(c, solution.order, solution.alternative)
    out: list[Placement] = []
    for i, op in enumerate(graph.ops):
        a = solution.alternative[i]
        queue = table.queues[c.queue[a]]
        choices = tuple(
            Choice(
                queue=table.queues[c.queue[b]].name, precision=table.alt_precision[b], seconds=c.time[b], energy_j=c.energy[b],
                plan_latency_s=whole.get(b),
            )
            for b in c.alts[i]
        )  # fmt: skip
        refusals = tuple(f"{table.queues[r.queue].name} {r.precision}: {r.reason}" for r in table.refusals[i])
        out.append(
            Placement(
                op=op.name, type=op.type, origin=op.origin, queue=queue.name, precision=table.alt_precision[a], delegate=table.delegate(a),
                seconds=c.time[a], energy_j=c.energy[a], cause=causes[i], refusals=refusals, alternatives=choices,
            )
        )  # fmt: skip
    return tuple(out)


def what_if(c: Costs, order: Sequence[int], alternative: Sequence[int], ops: Sequence[int] | None = None) -> dict[int, float]:
    """Alternative -> latency in seconds of the whole plan with only its op moved there, timed again by the segment rule.

    Args:
        c: the costs.
        order: of the plan.
        alternative: of the plan.
        ops: the ops to try (None: all, as long as that stays quick; later ops are left out).
    """
    chosen = list(alternative)
    tried = [b for i in (range(c.n) if ops is None else ops) for b in c.alts[i]]
    owner = {b: i for i in (range(c.n) if ops is None else ops) for b in c.alts[i]}
    if ops is None and (len(tried) > WHAT_IF_PLANS or len(tried) * c.n > WHAT_IF_OPS):
        return {}
    base = figures(c, order, chosen).latency_s
    out: dict[int, float] = {}
    for b in tried:
        i = owner[b]
        if b == alternative[i]:
            out[b] = base
            continue
        chosen[i] = b
        out[b] = figures(c, order, chosen).latency_s
        chosen[i] = alternative[i]
    return out
