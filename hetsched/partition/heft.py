"""``heft``, ``peft``, ``cpop``: list scheduling with insertion of a hetsched problem; ties broken by index.

The ranks are those of :mod:`hetsched.partition.list_ranks`, at mean crossings between queues. The placement is one loop in
plain Python, because it also chooses among alternatives of one queue and charges conversions, syncs and launches; task graphs
without those are :mod:`hetsched.partition.list_scheduling`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from hetsched.partition import list_ranks
from hetsched.partition.orders import affinity, by_priority
from hetsched.partition.problem import Budget, Problem, Solution
from hetsched.partition.search import settle
from hetsched.partition.timing import Costs


class Ranks:
    """The ranks of a problem's ops, in seconds; a crossing takes the mean over pairs of queues of sync and launch."""

    def __init__(self, c: Costs) -> None:
        self.c = c
        pairs = [(p, q) for p in range(c.queues) for q in range(c.queues)]
        self.crossing = sum(c.sync[p][q] + c.launch[q] for p, q in pairs if p != q) / max(1, len(pairs))
        self.own = [sum(c.time[a] for a in c.alts[v]) / len(c.alts[v]) for v in range(c.n)]
        self.after, self.before = self._packed(c.succs), self._packed(c.preds)
        self.cost = [[float("inf")] * c.queues for _ in range(c.n)]
        for v, row in enumerate(self.cost):
            for a in c.alts[v]:
                row[c.queue[a]] = min(row[c.queue[a]], c.time[a])

    def _packed(self, rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int], list[float]]:
        start = [0]
        for row in rows:
            start.append(start[-1] + len(row))
        return start, [v for row in rows for v in row], [self.crossing] * start[-1]

    def upward(self) -> list[float]:
        """Longest way to the end."""
        rank = [0.0] * self.c.n
        list_ranks.upward_rank(*self.after, self.own, rank)
        return rank

    def downward(self) -> list[float]:
        """Longest way from the beginning."""
        rank = [0.0] * self.c.n
        list_ranks.downward_rank(*self.before, self.own, rank)
        return rank

    def optimistic(self) -> list[list[float]]:
        """Per op and queue the least seconds that still follow."""
        table = [[0.0] * self.c.queues for _ in range(self.c.n)]
        list_ranks.optimistic_cost(*self.after, self.cost, table)
        return table

    def ready_order(self, priority: Sequence[float]) -> list[int]:
        """Among ready ops always the one of the largest priority."""
        order = [0] * self.c.n
        list_ranks.ready_order(*self.after[:2], [len(p) for p in self.c.preds], priority, order)
        return order

    def critical_queue(self, priority: Sequence[float]) -> dict[int, int]:
        """The queue of the ops of the critical path, where one queue can run them all."""
        on_path, roots = [0] * self.c.n, [v for v, p in enumerate(self.c.preds) if not p]
        list_ranks.critical_path(*self.after[:2], roots, priority, on_path)
        path = [v for v in range(self.c.n) if on_path[v]]
        total = [sum(self.cost[v][q] for v in path) for q in range(self.c.queues)]
        return dict.fromkeys(path, total.index(min(total))) if min(total) < float("inf") else {}


def first_gap(busy: list[tuple[float, float]], ready: float, seconds: float) -> float:
    """Earliest start at or after ``ready`` of an idle gap of ``seconds`` between sorted busy intervals.

    What ends by ``ready`` is skipped by bisection: it leaves no gap that counts.
    """
    start = ready
    for k in range(bisect_right(busy, ready, key=itemgetter(1)), len(busy)):
        begin, end = busy[k]
        if begin - start >= seconds:
            break
        start = max(start, end)
    return start


def place(
    c: Costs, order: Sequence[int], bias: Sequence[Sequence[float]] = (), pinned: dict[int, int] | None = None
) -> tuple[list[float], list[int]]:
    """Start second and alternative of every op: each to the alternative that finishes it first, in the first gap that holds it.

    Args:
        c: the costs.
        order: a topological order.
        bias: per op and queue what is added to the finish when alternatives are compared (empty: nothing).
        pinned: the only queue of some ops.
    """
    pinned = pinned or {}
    busy: list[list[tuple[float, float]]] = [[] for _ in range(c.queues)]
    start, end, alternative = [0.0] * c.n, [0.0] * c.n, [-1] * c.n
    for v in order:
        best: tuple[float, float, float, int] | None = None
        for a in c.alts[v]:
            ready, q, d = 0.0, c.queue[a], c.domain[a]
            if pinned.get(v, q) != q:
                continue
            for u in c.preds[v]:
                p = c.queue[alternative[u]]
                ready = max(ready, end[u] + (c.sync[p][q] + c.launch[q] if p != q else 0.0))
            seconds = c.time[a]
            for t in c.inputs[v]:
                source = c.source(t, alternative)
                if source != d:
                    seconds += c.transfer[t][source][d]
            begin = first_gap(busy[q], ready, seconds)
            finish = begin + seconds + (bias[v][q] if bias else 0.0)
            if best is None or finish < best[0]:
                best = (finish, begin, begin + seconds, a)
        assert best is not None
        _, start[v], end[v], alternative[v] = best
        insort(busy[c.queue[best[3]]], (start[v], end[v]))
    return start, alternative


def _timed(problem: Problem, c: Costs, name: str, start: Sequence[float], alternative: Sequence[int]) -> Solution:
    """A list schedule knows no segments: it is timed by the segment rule as it stands and regrouped to stay on one queue."""
    orders = [by_priority(c, start), affinity(c, [c.queue[a] for a in alternative])]
    return settle(problem, c, name, [(order, alternative) for order in orders])


@dataclass(frozen=True)
class Heft:
    """Heterogeneous earliest finish time (Topcuoglu, Hariri, Wu 2002): by upward rank, each op where it finishes first."""

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op."""
        c = Costs(problem.table)
        rank = Ranks(c).upward()
        return _timed(problem, c, "heft", *place(c, sorted(range(c.n), key=lambda v: (-rank[v], v))))


@dataclass(frozen=True)
class Peft:
    """Predict earliest finish time (Arabnejad, Barbosa 2014): each op where its finish plus what must still follow is least."""

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op."""
        c = Costs(problem.table)
        ranks = Ranks(c)
        table = ranks.optimistic()
        return _timed(problem, c, "peft", *place(c, ranks.ready_order([sum(row) / c.queues for row in table]), table))


@dataclass(frozen=True)
class Cpop:
    """Critical path on a processor (Topcuoglu, Hariri, Wu 2002): the critical path stays on the queue where it is shortest."""

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op."""
        c = Costs(problem.table)
        ranks = Ranks(c)
        priority = [up + down for up, down in zip(ranks.upward(), ranks.downward(), strict=True)]
        return _timed(problem, c, "cpop", *place(c, ranks.ready_order(priority), pinned=ranks.critical_queue(priority)))
