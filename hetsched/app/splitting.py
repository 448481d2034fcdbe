"""Operators shared by two processors: cut where an estimate promises something, kept where the whole plan is faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hetsched.app.planning_task import Costed, Task
from hetsched.costs import CostTable
from hetsched.errors import InfeasibleError
from hetsched.graph import Graph
from hetsched.placement import placement_of
from hetsched.plans import Plan

if TYPE_CHECKING:
    from hetsched.partition import Solution
    from hetsched.partition.solving import Part
    from hetsched.partition.splitting import Split

#: Operator -> the output channels at which it is cut.
Cuts: TypeAlias = Mapping[str, tuple[int, ...]]
#: Operators that are split at most.
MOST = 64
#: Splits have to save this share of the objective together to be kept.
LEAST = 0.005
#: Part of the time limit that solving the graph with splits gets.
SHARE = 0.5


def split(graph: Graph, cuts: Cuts) -> Graph:
    """The graph with operators cut into parts that are joined again."""
    from hetsched.passes.split_outputs import SplitOutputs

    return SplitOutputs(cuts)(graph) if cuts else graph


def with_splits(task: Task, whole: Costed, solution: Solution) -> tuple[Costed, Solution, dict[str, tuple[int, ...]]]:
    """The faster of the plan of the whole operators and of one with some of them shared; what that one cuts.

    All splits that promise something are made at once; each stays if the plan is slower without it, everything else being as it is.
    The graph with those that stay is solved anew, also from the placement that this leaves.

    Args:
        task: the options.
        whole: the costs of the graph as it is.
        solution: its solution.
    """
    from hetsched.partition.solving import parts_of
    from hetsched.partition.splitting import proposals
    from hetsched.passes.split_outputs import splitting_of

    found = {i: how.channels for i, op in enumerate(whole.graph.ops) if (how := splitting_of(whole.graph, op)) is not None}
    first = next(p for p in parts_of(task.problem(whole))[0] if {*solution.alternative} <= {*p.original})
    index = {a: k for k, a in enumerate(first.original)}
    offered = proposals(first.small.table, [index[a] for a in solution.alternative], found)[:MOST]
    queues = sorted({*first.small.table.alt_queue.tolist()})
    try:
        kept = _paying(task, whole, solution, offered, queues) if offered else []
        if not kept:
            return whole, solution, {}
        cuts: dict[str, tuple[int, ...]] = {whole.graph.ops[s.op].name: s.cuts for s in kept}
        made = task.costed(split(whole.graph, cuts))
        best = _solved(task, whole, solution, made, kept, queues)
    except InfeasibleError:  # parts cannot go where the user wants them, or a solver keeps no limit with them
        return whole, solution, {}
    return (made, best, cuts) if _rank(best) < _rank(solution) * (1 - LEAST) else (whole, solution, {})


def _part(task: Task, costed: Costed, queues: Sequence[int]) -> Part:
    """The problem on some queues, without what the user forbids.

    Raises:
        InfeasibleError: an op can run on none of them.
    """
    from hetsched.partition.solving import Part

    problem = task.problem(costed)
    keep = problem.keep & np.isin(problem.table.alt_queue, queues)
    return Part(problem, problem.on(problem.table.restrict(keep)), tuple(np.flatnonzero(keep).tolist()))


def _paying(task: Task, whole: Costed, solution: Solution, offered: Sequence[Split], queues: Sequence[int]) -> list[Split]:
    """The splits without which the plan would be worse, tried one at a time, the largest promise first."""
    from hetsched.partition.splitting import placed
    from hetsched.partition.timing import Costs, figures, value

    cuts = {whole.graph.ops[s.op].name: s.cuts for s in offered}
    small = _part(task, task.costed(split(whole.graph, cuts)), queues).small
    c = Costs(small.table)

    def cost(shared: set[int]) -> float:
        return value(small, figures(c, *placed(whole.table, solution.order, solution.alternative, small.table, offered, shared)))

    shared: set[int] = set()
    best = cost(shared)
    for s in offered:
        got = cost(shared | {s.op})
        if got < best:
            shared, best = shared | {s.op}, got
    return [s for s in offered if s.op in shared]


def _solved(task: Task, whole: Costed, solution: Solution, made: Costed, kept: Sequence[Split], queues: Sequence[int]) -> Solution:
    """The best of what the solver finds for the graph with splits and of the placement that the splits were chosen for, improved.

    Raises:
        InfeasibleError: the solver finds no placement within the limits.
    """
    from hetsched.partition.splitting import placed

    found = task.solved(made, task.time_limit_s * SHARE)
    part = _part(task, made, queues)
    seed = _improved(task, part, *placed(whole.table, solution.order, solution.alternative, part.small.table, kept, {s.op for s in kept}))
    if seed is None:
        return found
    bound = min(found.bound, seed.objective)
    seed = replace(seed, bound=bound, status="feasible", finalists=(found, *found.finalists), evaluate=found.evaluate)
    return min((found, seed), key=_rank)


def _improved(task: Task, part: Part, order: Sequence[int], alternative: Sequence[int]) -> Solution | None:
    """Local search from a placement of the part, as a solution of the whole; None where it stays beyond a limit."""
    from hetsched.partition.problem import Budget
    from hetsched.partition.search import LocalSearch, as_solution
    from hetsched.partition.timing import Costs

    search = LocalSearch(part.small, Costs(part.small.table), Budget(task.time_limit_s))
    limit = int(SHARE * task.time_limit_s / search.units)
    better, places, reached = search.improve(order, alternative, limit)
    return part.translated(as_solution(part.small, "auto", better, places)) if reached < float("inf") else None


def with_reasons(plan: Plan, table: CostTable, cuts: Cuts) -> Plan:
    """The plan whose shared operators say who shares them and what the plan would be like with each of them whole.

    Args:
        plan: of the graph with splits.
        table: its costs.
        cuts: operator -> the channels at which it is cut.
    """
    from hetsched.partition.causes import amount
    from hetsched.partition.timing import Costs, figures, measure

    if not cuts:
        return plan
    c, (order, alternative) = Costs(table), placement_of(plan, table)
    index = {name: i for i, name in enumerate(table.op_names)}
    reasons: dict[str, str] = {}
    for name, edges in cuts.items():
        parts = [index[f"{name}/{k}of{len(edges) + 1}"] for k in range(1, len(edges) + 2)]
        home = alternative[parts[len(parts) // 2]]
        together = list(alternative)
        for i in parts:
            together[i] = next((a for a in c.alts[i] if _place(table, a) == _place(table, home)), alternative[i])
        queues = [table.queues[q].name for q in sorted({c.queue[alternative[i]] for i in parts})]
        saved = measure(plan.objective, figures(c, order, together)) - measure(plan.objective, figures(c, order, alternative))
        where = table.queues[c.queue[home]].name
        if len(queues) == 1:
            continue
        lost = f"lose {amount(saved, plan.objective)}" if saved > 0 else "be no worse"
        effect = f"with all of it on {where} the plan would {lost}"
        for i in (*parts, index[f"{name}/join"]):
            reasons[table.op_names[i]] = f"{' and '.join(queues)} share {name}: {effect}"
    told = (p.model_copy(update={"cause": reasons.get(p.op, p.cause)}) for p in plan.placements)
    return plan.model_copy(update={"placements": tuple(told)})


def _place(table: CostTable, alternative: int) -> tuple[int, str]:
    return int(table.alt_queue[alternative]), table.alt_precision[alternative]


def _rank(solution: Solution) -> float:
    return solution.objective if solution.evaluate is None else solution.evaluate(solution)
