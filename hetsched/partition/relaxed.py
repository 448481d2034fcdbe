"""A latency relaxation: ops with the least time between their ends, on all ops or on some of them.

Ends of ops are counted as if an op's own launch and transfers were paid just before it, and as if it signalled at once;
the real rule (launch and transfers at the start of the segment, signal at its end) is never faster. Leaving out an op
keeps the relaxation valid: the arcs that ran through it are replaced by the shortest way through any of its
alternatives. A few light ops that hang beside everything else (a mask, a shape) are worth leaving out, because the
rest then falls into small blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from hetsched.partition.blocks import Block, blocks
from hetsched.partition.timing import Costs

Matrix: TypeAlias = list[list[float]]
"""[i][j]: least seconds between the end of u in its i-th alternative and the start of v's own work in its j-th."""


class Relaxed:
    """Ops, arcs between them, what they wait for at the start, and what follows them at the end (seconds)."""

    def __init__(self, c: Costs) -> None:
        self.c = c
        homes: dict[int, set[int]] = {}
        for d, q in zip(c.domain, c.queue, strict=True):
            homes.setdefault(d, set()).add(q)
        self.exclusive = all(len(h) == 1 for h in homes.values())
        """Transfers are charged to an arc only if every domain belongs to one queue: another queue could have paid."""
        results = set(c.results)
        self.ops = list(range(c.n))
        self.arrive = {v: [self._arrival(v, b) for b in c.alts[v]] for v in self.ops}
        self.follow = {v: [c.sync[c.queue[a]][c.host] if v in results else 0.0 for a in c.alts[v]] for v in self.ops}
        self.preds: dict[int, dict[int, Matrix]] = {v: {u: self._arc(u, v) for u in c.preds[v]} for v in self.ops}
        self.succs: dict[int, list[int]] = {v: list(c.succs[v]) for v in self.ops}
        self.crossing = shortest(c.sync, c.launch)

    def _arrival(self, v: int, b: int) -> float:
        c = self.c
        inputs = [c.transfer[t][c.input_domain][c.domain[b]] for t in c.inputs[v] if c.producer[t] < 0] if self.exclusive else []
        return c.launch[c.queue[b]] + sum(inputs)

    def _arc(self, u: int, v: int) -> Matrix:
        c = self.c
        shared = [t for t in c.inputs[v] if c.producer[t] == u] if self.exclusive else []

        def least(a: int, b: int) -> float:
            p, q, d, e = c.queue[a], c.queue[b], c.domain[a], c.domain[b]
            moved = sum(c.transfer[t][d][e] for t in shared) if d != e else 0.0
            return moved + (c.sync[p][q] + c.launch[q] if p != q else 0.0)

        return [[least(a, b) for b in c.alts[v]] for a in c.alts[u]]

    def leave_out(self, v: int) -> None:
        """Drop an op and bridge the arcs through it."""
        own = [self.c.time[x] for x in self.c.alts[v]]
        into, onward = self.preds.pop(v), self.succs.pop(v)
        for w in onward:
            out = self.preds[w].pop(v)
            through = [[own[i] + x for x in row] for i, row in enumerate(out)]
            reach = [min(s + row[j] for s, row in zip(self.arrive[v], through, strict=True)) for j in range(len(self.arrive[w]))]
            self.arrive[w] = [max(x, y) for x, y in zip(self.arrive[w], reach, strict=True)]
            for u, first in into.items():
                bridged = [[min(f + row[j] for f, row in zip(line, through, strict=True)) for j in range(len(out[0]))] for line in first]
                known = self.preds[w].get(u)
                self.preds[w][u] = (
                    bridged if known is None else [[max(x, y) for x, y in zip(*r, strict=True)] for r in zip(known, bridged, strict=True)]
                )
        ending = [t + f for t, f in zip(own, self.follow[v], strict=True)]
        for u, first in into.items():
            self.succs[u] = sorted({*self.succs[u], *onward} - {v})
            rest = [min(f + e for f, e in zip(line, ending, strict=True)) for line in first]
            self.follow[u] = [max(x, y) for x, y in zip(self.follow[u], rest, strict=True)]
        self.ops.remove(v)

    def ancestors(self, v: int) -> set[int]:
        """Ops that come before ``v`` in every order."""
        seen: set[int] = set()
        stack = list(self.preds[v])
        while stack:
            u = stack.pop()
            if u not in seen:
                seen.add(u)
                stack += self.preds[u]
        return seen

    def blocks(self) -> list[Block]:
        """The ops between neighbouring cuts."""
        return blocks(self.ops, self.preds)

    def forward(self, block: Block, a: int) -> dict[int, list[float]]:
        """Per op and alternative, the least time from the entry's end to the op's end.

        Args:
            block: the block.
            a: the entry's alternative (an index of the cost table), -1 at the start.
        """
        c = self.c
        reached: dict[int, list[float]] = {}
        if block.entry >= 0:
            reached[block.entry] = [0.0 if x == a else float("inf") for x in c.alts[block.entry]]
        for v in (*block.inner, *([block.exit] if block.exit >= 0 else [])):
            row = list(self.arrive[v]) if block.entry < 0 else [0.0] * len(c.alts[v])
            for u, matrix in self.preds[v].items():
                if u in reached:
                    _raise(row, reached[u], matrix)
            reached[v] = [r + c.time[x] for r, x in zip(row, c.alts[v], strict=True)]
        return reached

    def backward(self, block: Block, b: int) -> dict[int, list[float]]:
        """Per inner op and alternative, the least time from the op's end to the exit's end (``b``: as in ``forward``)."""
        c = self.c
        rest: dict[int, list[float]] = {}
        if block.exit >= 0:
            rest[block.exit] = [0.0 if x == b else float("inf") for x in c.alts[block.exit]]
        for u in reversed(block.inner):
            row = list(self.follow[u]) if block.exit < 0 else [0.0] * len(c.alts[u])
            for v in self.succs[u]:
                if v in rest:
                    ahead = [c.time[x] + r for x, r in zip(c.alts[v], rest[v], strict=True)]
                    matrix = self.preds[v][u]
                    for i, line in enumerate(matrix):
                        row[i] = max(row[i], min(m + r for m, r in zip(line, ahead, strict=True)))
            rest[u] = row
        return rest


def _raise(row: list[float], reached: Sequence[float], matrix: Matrix) -> None:
    """``row[j] = max(row[j], min over i of reached[i] + matrix[i][j])``."""
    for j in range(len(row)):
        row[j] = max(row[j], min(r + line[j] for r, line in zip(reached, matrix, strict=True)))


def shortest(sync: Sequence[Sequence[float]], launch: Sequence[float]) -> Matrix:
    """[p][q] least sync and launch cost (seconds or joules) on any way from queue p to queue q (Floyd, Warshall)."""
    q = range(len(launch))
    cost = [[0.0 if p == r else sync[p][r] + launch[r] for r in q] for p in q]
    for k in q:
        for i in q:
            for j in q:
                cost[i][j] = min(cost[i][j], cost[i][k] + cost[k][j])
    return cost


def simplified(c: Costs, left_out: Iterable[int]) -> Relaxed:
    """A relaxation without some ops."""
    relaxed = Relaxed(c)
    for v in left_out:
        relaxed.leave_out(v)
    return relaxed
