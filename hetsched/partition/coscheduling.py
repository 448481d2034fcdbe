"""Several models on one SoC: which placement each takes so that all of them keep their deadlines.

Each model has a few candidate placements: the best on every set of queues, and the thriftiest. The search starts from every model
planned alone and from placements that share the load out over the queues, and changes one model's candidate at a time while
the score improves. The score comes from whoever can run them together (a simulation of the shared queues and the shared memory).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hetsched.errors import InfeasibleError
from hetsched.partition.problem import Problem, Solution, busy_s
from hetsched.partition.solving import solve
from hetsched.segments import schedule

#: Smaller is better, compared from the left.
Score = tuple[float, ...]
#: The score of one candidate a model, by their indices.
Judge = Callable[[tuple[int, ...]], Score]
SWEEPS = 6


@dataclass(frozen=True)
class Candidate:
    """A placement of a model: seconds of work it puts on each queue per inference, its latency and energy alone."""

    solution: Solution
    busy_s: tuple[float, ...]
    latency_s: float
    energy_j: float


def candidates(problem: Problem, first: Solution, solver: str = "auto", time_limit_s: float = 5.0) -> list[Candidate]:
    """``first``, then the best placement on every smaller set of queues, then the thriftiest; each placement once.

    Args:
        problem: of one model.
        first: its plan on all queues.
        solver: asked for the others.
        time_limit_s: for all of them together.
    """
    names = [q.name for q in problem.table.queues]
    sets = [s for k in range(len(names) - 1, 0, -1) for s in combinations(names, k)]
    barred = [tuple(("*", q) for q in names if q not in allowed) for allowed in sets]
    variants = [replace(problem, forbidden=(*problem.forbidden, *pairs)) for pairs in barred]
    variants += [replace(problem, objective="energy")] if problem.objective != "energy" else []
    found = [first]
    for variant in variants:
        try:
            found.append(solve(variant, solver, time_limit_s=time_limit_s / len(variants)))
        except InfeasibleError:
            continue
    unique: dict[tuple[tuple[int, ...], tuple[int, ...]], Solution] = {}
    for s in found:
        unique.setdefault((s.order, s.alternative), s)
    return [_candidate(problem, s) for s in unique.values()]


def _candidate(problem: Problem, s: Solution) -> Candidate:
    timed = schedule(problem.table, s.order, s.alternative)
    return Candidate(s, tuple(busy_s(timed, len(problem.table.queues))), timed.latency_s, timed.energy_j)


@dataclass(frozen=True)
class Together:
    """The candidate that each model takes, and the score of that and of every model planned alone."""

    chosen: tuple[int, ...]
    score: Score
    alone: Score


def together(offers: Sequence[Sequence[Candidate]], rates: Sequence[float], judge: Judge) -> Together:
    """Choose a candidate for every model.

    Args:
        offers: the candidates of each model, the one of its own plan first.
        rates: inferences a second of each model.
        judge: scores a choice.

    Returns:
        The best choice found; never worse, by ``judge``, than every model planned alone.
    """
    known: dict[tuple[int, ...], Score] = {}

    def score(choice: tuple[int, ...]) -> Score:
        if choice not in known:
            known[choice] = judge(choice)
        return known[choice]

    alone = tuple(0 for _ in offers)
    best = alone
    for start in dict.fromkeys((alone, _levelled(offers, rates), _levelled(offers, rates, reverse=True))):
        best = min(best, _descend(start, offers, score), key=lambda c: (score(c), c))
    return Together(best, score(best), score(alone))


def _descend(choice: tuple[int, ...], offers: Sequence[Sequence[Candidate]], score: Judge) -> tuple[int, ...]:
    """Change one model's candidate at a time, the best first, until nothing improves."""
    for _ in range(SWEEPS):
        before = choice
        for m, row in enumerate(offers):
            tried = [(*choice[:m], k, *choice[m + 1 :]) for k in range(len(row))]
            choice = min(tried, key=lambda c: (score(c), c))
        if choice == before:
            break
    return choice


def _levelled(offers: Sequence[Sequence[Candidate]], rates: Sequence[float], reverse: bool = False) -> tuple[int, ...]:
    """Every model in turn, the most work first, takes what keeps the busiest queue least busy."""
    demand = [rate * min(max(c.busy_s) for c in row) for row, rate in zip(offers, rates, strict=True)]
    load = [0.0] * len(offers[0][0].busy_s)
    chosen = [0] * len(offers)
    for m in sorted(range(len(offers)), key=lambda m: (-demand[m], m), reverse=reverse):
        loads = [[x + rates[m] * b for x, b in zip(load, c.busy_s, strict=True)] for c in offers[m]]
        _, _, chosen[m] = min((max(after), c.latency_s, k) for k, (after, c) in enumerate(zip(loads, offers[m], strict=True)))
        load = loads[chosen[m]]
    return tuple(chosen)
