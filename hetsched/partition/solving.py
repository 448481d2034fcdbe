"""``solve``: constraints in, the named solver, a bound and causes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from hetsched import plugins
from hetsched.costs import CostTable
from hetsched.errors import InfeasibleError, OptionError
from hetsched.partition.bounds import lower_bound
from hetsched.partition.causes import causes_of
from hetsched.partition.problem import Budget, Evaluate, Problem, Progress, Solution, Solver, objective_of
from hetsched.partition.timing import Costs, figures

ENTRY_POINTS = "hetsched.solvers"
BUILT_IN = {
    "auto": "hetsched.partition.auto:Auto",
    "cpop": "hetsched.partition.heft:Cpop",
    "frontier-dp": "hetsched.partition.frontier_dp:FrontierDP",
    "heft": "hetsched.partition.heft:Heft",
    "ilp": "hetsched.partition.ilp:Ilp",
    "peft": "hetsched.partition.heft:Peft",
    "rules": "hetsched.partition.rules:Rules",
    "single": "hetsched.partition.single:SingleQueue",
    "vendor": "hetsched.partition.vendor:Vendor",
}
WALL_FACTOR = 6.0


def solver_names() -> list[str]:
    """Every solver that can be named: the built-in ones and those of installed plug-ins."""
    return plugins.names(ENTRY_POINTS, BUILT_IN)


def solver_named(name: str) -> Solver:
    """The solver of a name; what follows a colon is its argument (``single:npu``, ``rules:mine.yaml``).

    Raises:
        OptionError: no solver has that name.
    """
    base, _, argument = name.partition(":")
    factory = plugins.factory(ENTRY_POINTS, BUILT_IN, base)
    if factory is None:
        raise OptionError(f"there is no solver {name!r}: use one of {', '.join(solver_names())}")
    if base == "single":
        return cast(Solver, factory(argument))
    return cast(Solver, factory(argument) if argument else factory())


def solve(
    problem: Problem,
    solver: str = "auto",
    *,
    time_limit_s: float = 10.0,
    evaluate: Evaluate | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Place and order every op.

    Args:
        problem: what to place, for which objective, under which constraints.
        solver: a name from :func:`solver_names`.
        time_limit_s: work allowed, in seconds of an ordinary core, for all choices between queues that share cores
            together; the wall clock stops the search at six times as much, and then the status is ``clock``.
        evaluate: ranks the finalists of ``auto`` (a simulation with contention, say), also between choices of queues;
            smaller is better. It is shown alternatives of ``problem.table``.
        progress: called with the stage, the best objective and its bound.

    Raises:
        InfeasibleError: no placement satisfies the constraints, or this solver finds none.
        OptionError: an unknown solver, op or queue; a time limit that is not positive.
    """
    if not time_limit_s > 0:
        raise OptionError(f"the time limit is {time_limit_s} s: give a positive number")
    began = perf_counter()
    chosen = solver_named(solver)
    ranks = evaluate if evaluate is not None and hasattr(chosen, "evaluate") else None
    parts, refusal = parts_of(problem)
    answers: list[Solution] = []
    bounds: list[float] = []
    tries = max(1, len(parts)) * (1 if problem.table.dma is None else 2)
    budget = Budget(time_limit_s / tries, progress, began, time_limit_s * WALL_FACTOR)
    for part in parts:
        budget.spent = 0.0
        try:
            answers.append(part.solve(chosen, ranks, budget))
            bounds.append(answers[-1].bound)
        except InfeasibleError as e:
            refusal = e
            bounds.append(0.0)
        unproven = bounds[-1] <= 0 or answers[-1].status == "heuristic"
        bounds[-1] = max(bounds[-1], *_bounds(part.small, unproven, bounds[-1] <= 0, budget))
        answers += part.wary(chosen, ranks, budget)
    if not answers:
        raise refusal or InfeasibleError("no placement satisfies the constraints")
    best = min(answers, key=ranks or (lambda s: s.objective))
    bound = min(*bounds, best.objective)
    return replace(
        best,
        bound=bound,
        causes=best.causes or causes_of(problem, best),
        finalists=tuple(s for answer in answers for s in (answer, *answer.finalists)),
        evaluate=ranks,
        wall_s=perf_counter() - began,
        status=_status(best, bound, budget),
    )


def _bounds(problem: Problem, unproven: bool, unpriced: bool, budget: Budget) -> Iterator[float]:
    """Bounds on what a solver has answered without a proof of its own; those that limits bring, where it has none at all."""
    c = Costs(problem.table)
    yield lower_bound(c, problem.objective) if unproven else 0.0
    if problem.limits and unpriced:
        from hetsched.partition.lagrangian import bound_within_limits, search

        yield bound_within_limits(problem, c, search(problem, c, budget).prices, budget)


def _status(best: Solution, bound: float, budget: Budget) -> Any:
    if bound >= best.objective * (1 - 1e-9):
        return "optimal"
    return "clock" if budget.clock_stopped else ("feasible" if best.status == "optimal" else best.status)


def selections(
    table: CostTable, keep: npt.NDArray[np.bool_], more: Sequence[npt.NDArray[np.float64]] = ()
) -> Iterator[npt.NDArray[np.bool_]]:
    """The kept alternatives, once per maximal choice of queues that share no cores, without dominated ones.

    An alternative is dominated by another of the same op, queue and domain that needs no more time and no more energy and
    loses no more accuracy, nor has more of any of ``more`` ([m] each).
    """
    from itertools import combinations

    cores = [set(q.cores) if q.kind == "cpu" else set[int]() for q in table.queues]
    clashes = [(p, q) for p, q in combinations(range(len(cores)), 2) if cores[p] & cores[q]]
    allowed = [frozenset(range(len(cores)))]
    for p, q in clashes:
        allowed = list(dict.fromkeys(s for a in allowed for s in ([a - {p}, a - {q}] if {p, q} <= a else [a])))
    for queues in (a for a in allowed if not any(a < b for b in allowed)):
        yield _undominated(table, keep & np.isin(table.alt_queue, sorted(queues)), more)


def _undominated(table: CostTable, keep: npt.NDArray[np.bool_], more: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.bool_]:
    keep = keep.copy()
    time, energy = table.time_s.tolist(), table.energy_j.tolist()
    figures = list(zip(energy, *([table.loss.tolist()] if len(table.loss) else []), *(m.tolist() for m in more), strict=True))
    queue, domain = table.alt_queue.tolist(), table.alt_domain.tolist()
    for op in range(len(table.op_names)):
        kept: list[int] = []
        for a in sorted((a for a in table.alternatives(op) if keep[a]), key=lambda a: (time[a], energy[a], a)):
            if any(queue[k] == queue[a] and domain[k] == domain[a] and _no_more(figures[k], figures[a]) for k in kept):
                keep[a] = False
            else:
                kept.append(a)
    return keep


def _no_more(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class Part:
    """A problem on some of its alternatives; ``original`` are their indices in the problem's own table."""

    problem: Problem
    small: Problem
    original: tuple[int, ...]

    def solve(self, solver: Solver, evaluate: Evaluate | None, budget: Budget) -> Solution:
        """The solver's answer in the problem's own indices, which are also what ``evaluate`` is shown.

        Raises:
            InfeasibleError: the solver finds no placement, or none within the limits.
        """
        if evaluate is not None:
            solver = replace(cast(Any, solver), evaluate=lambda s: evaluate(self.translated(s)))
        answer, limits = solver.solve(self.small, budget), self.problem.limits
        placed = self.translated(answer)
        broken = list(limits.exceeded(figures(Costs(self.problem.table), placed.order, placed.alternative))) if limits else []
        if broken:
            raise InfeasibleError(f"{answer.solver} found no plan within the limits: its best has {', '.join(broken)}")
        finalists = tuple(self.translated(s) for s in answer.finalists)
        return replace(placed, finalists=finalists, objective=objective_of(self.problem, placed.order, placed.alternative))

    def wary(self, solver: Solver, evaluate: Evaluate | None, budget: Budget) -> list[Solution]:
        """Where a DMA engine copies tensors: the answer of a solver that takes copies for work of the queue that reads them, if it has one.

        Solvers leave copies out of what they build plans by, and time plans with them; their bounds hold, and may be low.
        """
        if self.small.table.dma is None:
            return []
        part = replace(self, small=self.small.on(self.small.table.copying_on_queues()))
        budget.spent = 0.0
        try:
            answer = part.solve(solver, evaluate, budget)
        except InfeasibleError:
            return []
        return [replace(self._retimed(answer), finalists=tuple(map(self._retimed, answer.finalists)))]

    def _retimed(self, answer: Solution) -> Solution:
        """An answer for another table, timed by this one; its bound is nothing here."""
        return replace(answer, objective=objective_of(self.problem, answer.order, answer.alternative), bound=0.0)

    def translated(self, answer: Solution) -> Solution:
        """A solution of the part as one of the whole problem."""
        return replace(answer, alternative=tuple(self.original[a] for a in answer.alternative))


def parts_of(problem: Problem, more: Sequence[npt.NDArray[np.float64]] = ()) -> tuple[list[Part], InfeasibleError | None]:
    """The problem once per choice of queues that share no cores; why, if there is a choice that cannot place every op.

    ``more``: see :func:`selections`.
    """
    parts: list[Part] = []
    refusal: InfeasibleError | None = None
    for keep in selections(problem.table, problem.keep, more):
        try:
            small = problem.on(problem.table.restrict(keep))
        except InfeasibleError as e:
            refusal = e
            continue
        parts.append(Part(problem, small, tuple(np.flatnonzero(keep).tolist())))
    return parts, refusal
