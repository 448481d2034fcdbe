"""The front of latency and energy: what a joule less costs in time, by the epsilon-constraint method.

The ends are the fastest and the thriftiest plan; between them the least energy is sought under limits on the latency. Each
point is a plan that exists, and its ``bound`` says how much less energy any plan of at most that latency could need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from hetsched.errors import InfeasibleError, OptionError
from hetsched.partition.problem import Problem, Solution
from hetsched.partition.solving import solve
from hetsched.segments import schedule

Item = TypeVar("Item")
MOST = 64
"""Points that may be asked for."""


def front(problem: Problem, points: int = 8, solver: str = "auto", time_limit_s: float = 10.0) -> tuple[Solution, ...]:
    """Plans that no other plan found beats in both latency and energy, fastest first.

    Args:
        problem: its objective is ignored, its limits hold for every point.
        points: plans looked for; fewer come back where several are the same.
        solver: asked for every point.
        time_limit_s: for all points together.

    Returns:
        Solutions for the objective ``energy``, but for the first, which is for ``latency``.

    Raises:
        InfeasibleError: no plan is within the problem's own limits.
        OptionError: fewer than 2 points, or more than :data:`MOST`.
    """
    if not 2 <= points <= MOST:
        raise OptionError(f"a front of {points} points cannot be drawn: ask for 2 to {MOST}")
    share = time_limit_s / points
    fast = solve(replace(problem, objective="latency"), solver, time_limit_s=share)
    thrift = solve(replace(problem, objective="energy"), solver, time_limit_s=share)
    found = [fast, thrift, *_at_least_as_good(problem, (*fast.finalists, *thrift.finalists))]
    (begin, _), (end, _) = _figures(problem, fast), _figures(problem, thrift)
    for k in range(1, points - 1):
        limit = begin + (end - begin) * (k / (points - 1)) ** 2  # denser where the front is steep
        limits = replace(problem.limits, latency_s=min(limit, problem.limits.latency_s or limit))
        try:
            found.append(solve(replace(problem, objective="energy", limits=limits), solver, time_limit_s=share))
        except InfeasibleError:
            continue
    return _undominated(problem, found)


def _figures(problem: Problem, s: Solution) -> tuple[float, float]:
    timed = schedule(problem.table, s.order, s.alternative)
    return timed.latency_s, timed.energy_j


def _at_least_as_good(problem: Problem, finalists: tuple[Solution, ...]) -> list[Solution]:
    """Finalists as candidates for the front: within the limits, with the energy as their objective and no bound."""
    from hetsched.partition.timing import Costs, figures

    c = Costs(problem.table)
    timed = [(s, figures(c, s.order, s.alternative)) for s in finalists]
    return [replace(s, objective=f.energy_j, bound=0.0, status="heuristic", causes=()) for s, f in timed if f in problem.limits]


def _undominated(problem: Problem, found: list[Solution]) -> tuple[Solution, ...]:
    """Fastest first, each thriftier than all before it."""
    timed = [(*_figures(problem, s), s) for s in found]
    timed.sort(key=lambda x: (x[0], -x[2].bound, x[2].order, x[2].alternative))
    return tuple(s for _, _, s in thriftier(timed, lambda x: x[1]))


def thriftier(fastest_first: Sequence[Item], joules: Callable[[Item], float]) -> list[Item]:
    """Those that need less energy than all before them."""
    kept: list[Item] = []
    for item in fastest_first:
        if not kept or joules(item) < joules(kept[-1]) * (1 - 1e-9):
            kept.append(item)
    return kept
