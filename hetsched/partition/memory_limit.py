"""The best plan that fits into a memory limit, among many placements in several orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hetsched.errors import InfeasibleError
from hetsched.graph import Graph
from hetsched.partition.frontier_dp import FrontierDP
from hetsched.partition.ilp import cheap_solutions
from hetsched.partition.memory import lifetimes_of, place_buffers, weight_bytes
from hetsched.partition.orders import affinity, depth_first, file_order, smallest_arena
from hetsched.partition.problem import Budget, Problem, Solution, objective_of
from hetsched.partition.solving import parts_of
from hetsched.partition.timing import Costs, figures, value
from hetsched.plans import Buffer, Status
from hetsched.segments import Schedule, schedule

UNITS = 2.0
"""Work for the fast solvers, which are asked again for their placements."""


@dataclass(frozen=True)
class Stored:
    """A solution, timed, with its buffers, its arena and its weights in bytes."""

    solution: Solution
    timed: Schedule
    buffers: tuple[Buffer, ...]
    arena: int
    weights: int

    @property
    def nbytes(self) -> int:
        """Weights and arena together."""
        return self.arena + self.weights


def stored(graph: Graph, problem: Problem, solution: Solution) -> Stored:
    """Time a solution and place its buffers."""
    table = problem.table
    timed = schedule(table, solution.order, solution.alternative)
    buffers, arena = place_buffers(lifetimes_of(graph, table, timed.segments, solution.alternative), timed.segments)
    return Stored(solution, timed, buffers, arena, weight_bytes(graph, table, solution.alternative))


def within_limit(graph: Graph, problem: Problem, first: Stored) -> Stored:
    """``first`` if it fits into the problem's memory limit, else the best-ranked candidate that does.

    The rank is that of the solution's evaluator, if it has one, else the objective.

    Raises:
        InfeasibleError: no candidate fits.
    """
    limit = problem.memory_limit_bytes
    if limit is None or first.nbytes <= limit:
        return first
    rank = first.solution.evaluate or (lambda s: s.objective)
    least = first.nbytes
    for candidate in sorted(candidates(problem, first.solution), key=rank):
        made = stored(graph, problem, candidate)
        if made.nbytes <= limit:
            note = f"the plan ranked first would need {first.nbytes} bytes, more than the limit of {limit}: this one fits"
            bound = min(first.solution.bound, candidate.objective)
            status: Status = "optimal" if bound >= candidate.objective * (1 - 1e-9) else "heuristic"
            return replace(made, solution=replace(candidate, bound=bound, status=status, causes=(), notes=(*candidate.notes, note)))
        least = min(least, made.nbytes)
    raise InfeasibleError(
        f"no plan of {graph.name!r} found fits into {limit} bytes: the fastest needs {first.nbytes}, the thriftiest {least} bytes;"
        " raise the memory limit or use a smaller model or precision"
    )


def candidates(problem: Problem, solution: Solution) -> list[Solution]:
    """Every placement at hand in its own order and in orders that may keep fewer bytes live; each pair once."""
    c = Costs(problem.table)
    fixed = [file_order(c), depth_first(c), smallest_arena(c, problem.table.tensor_bytes.max(axis=1).tolist())]
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], Solution] = {}
    for s in placements(problem, solution):
        for order in (s.order, *fixed, affinity(c, [c.queue[a] for a in s.alternative])):
            key = tuple(order), s.alternative
            if key not in found and value(problem, figures(c, *key)) < float("inf"):
                found[key] = replace(s, order=key[0], objective=objective_of(problem, *key))
    return list(found.values())


def placements(problem: Problem, solution: Solution) -> Iterator[Solution]:
    """The solution, what it was chosen from, and what every fast solver says (``frontier-dp``: for all its orders)."""
    yield solution
    yield from solution.finalists
    for part in parts_of(problem)[0]:
        budget = Budget(UNITS)
        yield from (part.translated(s) for s in cheap_solutions(part.small, budget))
        for order, alternative in FrontierDP().candidates(part.small, Costs(part.small.table), budget)[0]:
            yield part.translated(Solution("frontier-dp", tuple(order), tuple(alternative), float("inf")))
