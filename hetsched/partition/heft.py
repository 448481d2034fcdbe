"""``heft``: heterogeneous earliest finish time (Topcuoglu, Hariri, Wu 2002), list scheduling with insertion."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from hetsched.partition.orders import affinity, by_priority
from hetsched.partition.problem import Budget, Problem, Solution
from hetsched.partition.search import settle
from hetsched.partition.timing import Costs


def upward_rank(c: Costs) -> list[float]:
    """Length of the longest path to the end at mean costs; crossings at the mean over pairs of queues, in seconds."""
    pairs = [(p, q) for p in range(c.queues) for q in range(c.queues)]
    crossing = sum(c.sync[p][q] + c.launch[q] for p, q in pairs if p != q) / max(1, len(pairs))
    rank = [0.0] * c.n
    for v in reversed(range(c.n)):
        own = sum(c.time[a] for a in c.alts[v]) / len(c.alts[v])
        rank[v] = own + max((rank[s] + crossing for s in c.succs[v]), default=0.0)
    return rank


def first_gap(busy: list[tuple[float, float]], ready: float, seconds: float) -> float:
    """Earliest start at or after ``ready`` of an idle gap of ``seconds`` between sorted busy intervals."""
    start = ready
    for begin, end in busy:
        if begin - start >= seconds:
            break
        start = max(start, end)
    return start


@dataclass(frozen=True)
class Heft:
    """Ops by upward rank, ties by index; each to the alternative that finishes it first, in the first gap that holds it.

    The list schedule knows no segments: its order is then timed by the segment rule, as it stands and regrouped to stay
    on one queue while it can, and the better of the two is returned.
    """

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op."""
        c = Costs(problem.table)
        rank = upward_rank(c)
        start, alternative = self.place(c, sorted(range(c.n), key=lambda v: (-rank[v], v)))
        chosen = [c.queue[a] for a in alternative]
        orders = [by_priority(c, start), affinity(c, chosen)]
        return settle(problem, c, "heft", [(order, alternative) for order in orders])

    def place(self, c: Costs, ranked: list[int]) -> tuple[list[float], list[int]]:
        """Start second and alternative of every op."""
        busy: list[list[tuple[float, float]]] = [[] for _ in range(c.queues)]
        start, end, alternative = [0.0] * c.n, [0.0] * c.n, [-1] * c.n
        for v in ranked:
            best: tuple[float, float, int] | None = None
            for a in c.alts[v]:
                ready, q, d = 0.0, c.queue[a], c.domain[a]
                for u in c.preds[v]:
                    p = c.queue[alternative[u]]
                    ready = max(ready, end[u] + (c.sync[p][q] + c.launch[q] if p != q else 0.0))
                seconds = c.time[a]
                for t in c.inputs[v]:
                    source = c.source(t, alternative)
                    if source != d:
                        seconds += c.transfer[t][source][d]
                begin = first_gap(busy[q], ready, seconds)
                if best is None or begin + seconds < best[0]:
                    best = (begin + seconds, begin, a)
            assert best is not None
            end[v], start[v], alternative[v] = best
            insort(busy[c.queue[best[2]]], (start[v], end[v]))
        return start, alternative
