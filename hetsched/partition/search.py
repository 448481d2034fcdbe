"""What solvers share: the best alternative on a given queue, the better of several candidates, and local search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from hetsched.partition.orders import affinity
from hetsched.partition.problem import Budget, Problem, Solution, objective_of
from hetsched.partition.timing import Costs, figures, value
from hetsched.segments import runs

PER_OP = 1.2e-6
"""Units to time one op of one candidate, making the candidate included."""


def best_on_queue(problem: Problem, c: Costs, queue_of: Sequence[int]) -> list[int]:
    """For every op the cheapest alternative on its queue, charging conversions from the producer's chosen domain.

    Walks in topological order, so that a precision is changed only where it pays for its conversion.
    """
    joules = problem.objective == "energy"
    own, moved = (c.energy, c.transfer_j) if joules else (c.time, c.transfer)
    chosen: list[int] = []
    for op in range(c.n):

        def cost(a: int, op: int = op) -> tuple[float, int]:
            arriving = [(t, c.source(t, chosen)) for t in c.inputs[op]]
            return own[a] + sum(moved[t][s][c.domain[a]] for t, s in arriving if s != c.domain[a]), a

        chosen.append(min((a for a in c.alts[op] if c.queue[a] == queue_of[op]), key=cost))
    return chosen


def settle(problem: Problem, c: Costs, solver: str, candidates: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Solution:
    """The best of some ``(order, alternative)`` candidates, the first on a tie, as a solution."""
    order, alternative = min(candidates, key=lambda k: value(problem, figures(c, *k)))
    return as_solution(problem, solver, order, alternative)


def as_solution(problem: Problem, solver: str, order: Sequence[int], alternative: Sequence[int]) -> Solution:
    """A placement with its objective by the segment rule itself."""
    placed = tuple(order), tuple(alternative)
    return Solution(solver, *placed, objective=objective_of(problem, *placed))


def runs_of(c: Costs, order: Sequence[int], alternative: Sequence[int]) -> list[list[int]]:
    """Ops of the maximal runs on one queue: the segments."""
    return runs(order, [c.queue[a] for a in alternative])


class Descent(ABC):
    """First-improvement descent over placements and orders, every candidate timed by the segment rule."""

    def __init__(self, c: Costs, budget: Budget) -> None:
        self.c, self.budget = c, budget
        self.evaluations = 0
        self.units = PER_OP * c.n
        """Of one evaluation."""
        self.known: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
        """What has been timed already: descents often come by the same candidates again."""

    def improve(
        self, order: Sequence[int], alternative: Sequence[int], limit: int, target: float = 0.0
    ) -> tuple[list[int], list[int], float]:
        """Descend from a placement until no move helps, ``limit`` evaluations or the budget are spent, or ``target`` is reached."""
        o, a = list(order), list(alternative)
        best = self._value(o, a)
        stop = self.evaluations + limit
        moved = True
        while moved and best > target:
            moved = False
            for order_, alternative_ in self._moves(o, a):
                got = self._value(order_, alternative_)
                if got < best * (1 - 1e-12):
                    o, a, best, moved = order_, alternative_, got, True
                    break
                if self.evaluations >= stop or self.budget.left <= 0 or self.budget.out_of_time():
                    return o, a, best
        return o, a, best

    def _value(self, order: Sequence[int], alternative: Sequence[int]) -> float:
        self.evaluations += 1
        self.budget.charge(self.units)
        placed = tuple(order), tuple(alternative)
        if placed not in self.known:
            self.known[placed] = self.measured(*placed)
        return self.known[placed]

    @abstractmethod
    def measured(self, order: Sequence[int], alternative: Sequence[int]) -> float:
        """What is to be small."""

    def _moves(self, order: list[int], alternative: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Regroup the order; move whole runs, then single ops, to another place; both with and without regrouping."""
        yield self._regroup(alternative), alternative
        for run in runs_of(self.c, order, alternative):
            for q in range(self.c.queues):
                changed = self._to_queue(alternative, run, q)
                if changed is not None:
                    yield order, changed
                    yield self._regroup(changed), changed
        yield from self._run_moves(order, alternative)
        yield from self._order_moves(order, alternative)
        for op in order:
            for a in self.c.alts[op]:
                if a != alternative[op]:
                    changed = list(alternative)
                    changed[op] = a
                    yield order, changed
                    if self.c.queue[a] != self.c.queue[alternative[op]]:
                        yield self._regroup(changed), changed

    def _regroup(self, alternative: Sequence[int]) -> list[int]:
        return affinity(self.c, [self.c.queue[a] for a in alternative])

    def _to_queue(self, alternative: Sequence[int], ops: Sequence[int], queue: int) -> list[int] | None:
        changed = list(alternative)
        for op in ops:
            there = [a for a in self.c.alts[op] if self.c.queue[a] == queue]
            if not there:
                return None
            changed[op] = min(there, key=lambda a: (self.c.time[a], a))
        return changed if changed != list(alternative) else None

    def _run_moves(self, order: list[int], alternative: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Start a whole run as early, or as late, as its neighbours allow.

        This may cut another queue's run in two, so that the first part signals before the second begins.
        """
        position = {op: k for k, op in enumerate(order)}
        for run in runs_of(self.c, order, alternative):
            begin, size, inside = position[run[0]], len(run), set(run)
            low = max((position[p] + 1 for op in run for p in self.c.preds[op] if p not in inside), default=0)
            high = min((position[s] for op in run for s in self.c.succs[op] if s not in inside), default=len(order))
            if low < begin:
                yield order[:low] + run + order[low:begin] + order[begin + size :], alternative
            if high > begin + size:
                yield order[:begin] + order[begin + size : high] + run + order[high:], alternative

    def _order_moves(self, order: list[int], alternative: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Move an op to the earliest or the latest place its neighbours allow, next to another run of its queue."""
        c, n = self.c, len(order)
        position = [0] * n
        for k, op in enumerate(order):
            position[op] = k
        for k, op in enumerate(order):
            low = max((position[p] + 1 for p in c.preds[op]), default=0)
            high = min((position[s] - 1 for s in c.succs[op]), default=n - 1)
            q = c.queue[alternative[op]]
            spots = [j for j in range(low, high + 1) if abs(j - k) > 1 and c.queue[alternative[order[j]]] == q]
            for j in dict.fromkeys([*spots[:1], *spots[-1:]]):
                rest = order[:k] + order[k + 1 :]
                rest.insert(j, op)
                yield rest, alternative


class LocalSearch(Descent):
    """Descent of a problem's objective, infinite where a plan breaks a limit."""

    def __init__(self, problem: Problem, c: Costs, budget: Budget) -> None:
        super().__init__(c, budget)
        self.problem = problem

    def measured(self, order: Sequence[int], alternative: Sequence[int]) -> float:
        """The objective of a placement."""
        return value(self.problem, figures(self.c, order, alternative))
