"""Operators shared by two processors: cut where an estimate promises something, kept where the whole plan is faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from hetsched.app.planning_task import Costed, Task
from hetsched.graph import Graph

if TYPE_CHECKING:
    from hetsched.partition import Problem, Solution
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
    from hetsched.partition.splitting import proposals
    from hetsched.passes.split_outputs import splitting_of

    found = {i: how.channels for i, op in enumerate(whole.graph.ops) if (how := splitting_of(whole.graph, op)) is not None}
    offered = proposals(whole.table, solution.alternative, found)[:MOST]
    kept = _paying(task, whole, solution, offered) if offered else []
    if not kept:
        return whole, solution, {}
    cuts: dict[str, tuple[int, ...]] = {whole.graph.ops[s.op].name: s.cuts for s in kept}
    made = task.costed(split(whole.graph, cuts))
    best = _solved(task, whole, solution, made, kept)
    if _rank(best) < _rank(solution) * (1 - LEAST):
        return made, best, cuts
    return whole, solution, {}


def _paying(task: Task, whole: Costed, solution: Solution, offered: Sequence[Split]) -> list[Split]:
    """The splits without which the plan would be slower, tried one at a time, the largest promise first."""
    from hetsched.partition.problem import objective_of
    from hetsched.partition.splitting import placed

    cuts = {whole.graph.ops[s.op].name: s.cuts for s in offered}
    made = task.costed(split(whole.graph, cuts))
    problem = task.problem(made)

    def seconds(shared: set[int]) -> float:
        order, alternative = placed(whole.table, solution.order, solution.alternative, made.table, offered, shared)
        return objective_of(problem, tuple(order), tuple(alternative))

    shared: set[int] = set()
    best = seconds(shared)
    for s in offered:
        got = seconds(shared | {s.op})
        if got < best:
            shared, best = shared | {s.op}, got
    return [s for s in offered if s.op in shared]


def _solved(task: Task, whole: Costed, solution: Solution, made: Costed, kept: Sequence[Split]) -> Solution:
    """The best of what the solver finds for the graph with splits and of the placement that the splits were chosen for, improved."""
    from hetsched.partition.splitting import placed

    found = task.solved(made, task.time_limit_s * SHARE)
    problem = task.problem(made)
    order, alternative = placed(whole.table, solution.order, solution.alternative, made.table, kept, {s.op for s in kept})
    seed = _improved(task, problem, order, alternative)
    bound = min(found.bound, seed.objective)
    seed = replace(seed, bound=bound, status="feasible", finalists=(found, *found.finalists), evaluate=found.evaluate)
    return min((found, seed), key=_rank)


def _improved(task: Task, problem: Problem, order: Sequence[int], alternative: Sequence[int]) -> Solution:
    """Local search from a placement."""
    from hetsched.partition.problem import Budget
    from hetsched.partition.search import LocalSearch, as_solution
    from hetsched.partition.timing import Costs

    c = Costs(problem.table)
    search = LocalSearch(problem, c, Budget(task.time_limit_s))
    limit = int(SHARE * task.time_limit_s / search.units)
    better, places, _ = search.improve(order, alternative, limit)
    return as_solution(problem, "auto", better, places)


def _rank(solution: Solution) -> float:
    return solution.objective if solution.evaluate is None else solution.evaluate(solution)
