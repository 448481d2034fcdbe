"""Large-neighbourhood search: free a few consecutive segments of a plan, let CP-SAT rearrange them, keep what is faster."""

from __future__ import annotations

from collections.abc import Iterator

from hetsched.partition.problem import Budget, Problem, Solution
from hetsched.partition.search import as_solution
from hetsched.partition.slots import Neighbourhood, SlotModel
from hetsched.partition.timing import Costs, figures, value

FREE_OPS = 14
"""Most ops that are free at a time."""
SPARE = 2
"""Empty slots put before, between and after the freed segments."""
MAX_SEGMENTS = 60
"""Plans with more segments are left to local search: their models are too large."""


def improve_by_neighbourhoods(problem: Problem, c: Costs, best: Solution, target: float, budget: Budget, units: float) -> Solution:
    """Search until ``target`` is reached, a whole sweep finds nothing, or the time is spent.

    Args:
        problem: the problem.
        c: its costs.
        best: where to start.
        target: an objective that is good enough.
        budget: for the wall clock and progress.
        units: deterministic time for all neighbourhoods together.
    """
    share = max(0.05, units / 40)
    spent, improved = 0.0, True
    while improved:
        improved = False
        for window in list(_windows(c, best)):
            if spent >= units or best.objective <= target or budget.out_of_time():
                return best
            spent += share
            found = _search(problem, c, best, window, budget, share)
            if found is not None and found.objective < best.objective * (1 - 1e-9):
                best, improved = found, True
                budget.report("neighbourhoods", best.objective, target)
                break
    return best


def _segments(c: Costs, plan: Solution) -> list[list[int]]:
    out: list[list[int]] = []
    for op in plan.order:
        if out and c.queue[plan.alternative[out[-1][-1]]] == c.queue[plan.alternative[op]]:
            out[-1].append(op)
        else:
            out.append([op])
    return out


def _windows(c: Costs, plan: Solution) -> Iterator[tuple[int, int]]:
    """Ranges of the plan's order to free, overlapping by half."""
    if len(_segments(c, plan)) > MAX_SEGMENTS:
        return
    size = min(FREE_OPS, c.n)
    step = max(1, size // 2)
    for begin in range(0, max(1, c.n - size + step), step):
        yield begin, min(c.n, begin + size)


def _search(problem: Problem, c: Costs, plan: Solution, window: tuple[int, int], budget: Budget, units: float) -> Solution | None:
    """One neighbourhood: the ops at ``order[begin:end]`` may take any alternative in the slots around them."""
    free = plan.order[window[0] : window[1]]
    slot_of, slots, spread = _layout(c, plan, set(free))
    windows = [spread if i in set(free) else [slot_of[i]] for i in range(c.n)]
    alts = [list(c.alts[i]) if i in set(free) else [plan.alternative[i]] for i in range(c.n)]
    model = SlotModel(c, problem.objective, slots, plan.objective, Neighbourhood(windows, alts))
    answer = model.solve(budget, units)
    if answer.placed is None:
        return None
    order, alternative = answer.placed
    if value(problem, figures(c, order, alternative)) == float("inf"):
        return None
    return as_solution(problem, "ilp", order, alternative)


def _layout(c: Costs, plan: Solution, free: set[int]) -> tuple[dict[int, int], int, list[int]]:
    """A slot for every op with spare slots around the freed ones; the slots that free ops may take.

    A segment that holds both free and fixed ops may be cut by free ops of another queue, so its fixed parts before,
    between and after get slots of their own.
    """
    slot_of: dict[int, int] = {}
    slot, previous, spread = -1, (-1, False), list[int]()
    for op in plan.order:
        here = (c.queue[plan.alternative[op]], op in free)
        if here != previous:
            gap = SPARE if here[1] or previous[1] else 0
            spread += range(slot + 1, slot + 1 + gap)
            slot += gap + 1
            if here[1] or previous[1]:
                spread.append(slot)
        slot_of[op], previous = slot, here
    spread += range(slot, slot + 1 + SPARE)
    return slot_of, slot + 1 + SPARE, sorted({s for s in spread if s >= 0})
