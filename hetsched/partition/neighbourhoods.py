"""Large-neighbourhood search: free a few consecutive segments of a plan, let CP-SAT rearrange them, keep what is faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hetsched.partition.problem import Budget, Problem, Solution
from hetsched.partition.search import as_solution, runs_of
from hetsched.partition.slots import Neighbourhood, SlotModel
from hetsched.partition.timing import Costs, figures, value

FREE_OPS = 10
"""Most ops that are free at a time."""
SPARE = 2
"""Slots more than the freed segments have."""
MAX_SLOTS = 16
"""Plans with more segments are left to local search: their slot models are too large."""
MAX_OPS = 300
SHARE = 0.25
"""Most work per neighbourhood, building the model included."""


def improve_by_neighbourhoods(problem: Problem, c: Costs, best: Solution, target: float, budget: Budget, units: float) -> Solution:
    """Search until ``target`` is reached, a whole sweep finds nothing, or the time is spent.

    Args:
        problem: the problem.
        c: its costs.
        best: where to start.
        target: an objective that is good enough.
        budget: is charged.
        units: of it, how much may be spent on all neighbourhoods together.
    """
    improved = True
    while improved:
        improved = False
        runs = runs_of(c, best.order, best.alternative)
        for first, last in _windows(runs) if c.n <= MAX_OPS and len(runs) + SPARE <= MAX_SLOTS else ():
            if units < SHARE or best.objective <= target or budget.out_of_time():
                return best
            found, used = _search(problem, c, best, runs, (first, last), budget)
            units -= used
            if found is not None and found.objective < best.objective * (1 - 1e-9):
                best, improved = found, True
                budget.report("neighbourhoods", best.objective, target)
                break
    return best


def _windows(runs: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Maximal ranges ``[first, last)`` of segments with few enough ops together."""
    reached = 0
    for first in range(len(runs)):
        last, ops = first, 0
        while last < len(runs) and ops + len(runs[last]) <= FREE_OPS:
            ops += len(runs[last])
            last += 1
        if last > max(first, reached):
            reached = last
            yield first, last


def _search(
    problem: Problem, c: Costs, plan: Solution, runs: Sequence[Sequence[int]], window: tuple[int, int], budget: Budget
) -> tuple[Solution | None, float]:
    """One neighbourhood: the ops of the segments in the window may take any alternative and any slot there; the work done."""
    first, last = window
    free = {op for run in runs[first:last] for op in run}
    slot_of = {op: k + (SPARE if k >= last else 0) for k, run in enumerate(runs) for op in run}
    inside = range(max(0, first - 1), min(len(runs) + SPARE, last + SPARE + 1))
    windows = [inside if i in free else [slot_of[i]] for i in range(c.n)]
    alts: list[Sequence[int]] = [c.alts[i] if i in free else [plan.alternative[i]] for i in range(c.n)]
    model = SlotModel(c, problem.objective, len(runs) + SPARE, plan.objective, Neighbourhood(windows, alts))
    answer = model.solve(budget, SHARE)
    if answer.placed is None or value(problem, figures(c, *answer.placed)) == float("inf"):
        return None, model.used
    return as_solution(problem, "ilp", *answer.placed), model.used
