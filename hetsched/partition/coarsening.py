"""Ops merged before solving for the least energy, where it is proven that the optimum stays the same.

Energy adds up: every op costs something at its *place* (queue and domain), every tensor something once per domain that it is read
in, every change of the queue something; the order decides nothing else. A step below takes any plan and makes another one of
it that costs no more. So plans without it may be forgotten, and steps may follow one another. All need that going from one
queue to another, or to the host, is never dearer directly than over a third one (``closed``): then a phase (a run of ops on one
queue) may be taken out of an order for nothing, and a new one costs a way there and a way back at most.

*Drop* place x of op v: v goes to place y instead, whatever else the plan has. Its own cost changes; its inputs are read in y
(worst domain of their makers; what nobody else reads is no longer brought to x); its results are made in y (worst domains of
their readers); the queue changes twice more at most.

*Merge* u and v, u's only reader. Plans with both in one place: u goes to just before v in the order, which changes no transfer
and takes at most one phase away. Plans with u in x and v in y != x: u goes to just before v, into y. No phase is added; the
same as above holds for u's own cost and its inputs (one that v reads too is in y anyway), and its result is no longer brought
from x to y. Or, where u is all that v waits for (it may have other readers), v goes to just behind u, into x: the same,
mirrored, with v's results. If for every pair of places one of the two costs no more, u and v are one op from now on, in a place
that both have.

Nothing like it is proven for the latency. Where two queues may overlap, u may fill a gap long before v begins, v's results may be
waited for elsewhere while u's are not, and an op that goes away may join two segments that it stood between, the first of
which then signals later. At ops that are comparable to all others none of this can happen, but their runs are bounded
exactly by the chain's path already (:mod:`hetsched.partition.chain`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import product
from typing import TypeAlias

from hetsched.partition.additive_chain import with_inputs
from hetsched.partition.frontier import Additive
from hetsched.partition.problem import Problem
from hetsched.partition.super_ops import SuperOps, grouped
from hetsched.partition.timing import Costs

#: Queue and domain.
Place: TypeAlias = tuple[int, int]
#: What an op costs in a place, and the alternatives of its members.
Way: TypeAlias = tuple[float, tuple[int, ...]]


def coarsened(problem: Problem, c: Costs) -> SuperOps | None:
    """The problem with ops merged, and places dropped, that no plan of least energy needs; None where nothing is proven.

    Args:
        problem: the problem, without forced or forbidden placements. Its least energy is that without limits.
        c: its costs.
    """
    add = Additive(c, 0.0, 1.0)
    if not closed(add):
        return None
    merging = Merging(c, add)
    merging.run()
    return merging.super_ops(problem)


def closed(add: Additive) -> bool:
    """Whether no change of queues, and no way to the host, is cheaper over a third queue."""
    q = range(add.c.queues)
    between = all(add.switch[p][r] <= add.switch[p][k] + add.switch[k][r] for p, k, r in product(q, q, q))
    return between and all(add.last[p] <= add.switch[p][r] + add.last[r] for p, r in product(q, q))


@dataclass(eq=False)
class _Node:
    """An op or several: where it may be, what it reads and writes, its neighbours (keys of other nodes)."""

    ops: list[int]
    inputs: list[int]
    outputs: list[int]
    preds: set[int]
    succs: set[int]
    ways: dict[Place, Way]

    def __post_init__(self) -> None:
        self.go(self.ways)

    def go(self, ways: dict[Place, Way]) -> None:
        """Set where it may be."""
        self.ways, self.domains = ways, {domain for _, domain in ways}


class Merging:
    """The graph while ops are merged."""

    def __init__(self, c: Costs, add: Additive) -> None:
        add, folded = with_inputs(c, add)
        self.c, self.add = c, add
        reads = [[t for t in dict.fromkeys(row) if t not in folded] for row in c.inputs]
        self.nodes = {v: _Node([v], reads[v], list(c.outputs[v]), set(c.preds[v]), set(c.succs[v]), self._ways(v)) for v in range(c.n)}
        self.maker = list(c.producer)
        self.readers: list[set[int]] = [set() for _ in c.producer]
        for v, row in enumerate(c.inputs):
            for t in row:
                self.readers[t].add(v)

    def _ways(self, v: int) -> dict[Place, Way]:
        """The cheapest alternative in each place: two in one place differ in nothing else."""
        c, ways = self.c, dict[Place, Way]()
        for a in c.alts[v]:
            place, way = (c.queue[a], c.domain[a]), (self.add.op[a], (a,))
            ways[place] = min(way, ways.get(place, way))
        return ways

    def run(self) -> None:
        """Drop places and merge ops until nothing more is proven."""
        waiting, queued = deque(self.nodes), set(self.nodes)
        while waiting:
            v = waiting.popleft()
            queued.discard(v)
            for w in self._step(v) if v in self.nodes else ():
                if w not in queued:
                    waiting.append(w)
                    queued.add(w)

    def _step(self, v: int) -> list[int]:
        """Drop places of an op, then merge it with a neighbour; the ops that may have become mergeable by that."""
        node = self.nodes[v]
        dropped = self._drop(v)
        for w in [*sorted(node.preds), *sorted(node.succs)]:
            u, reader = (w, v) if w in node.preds else (v, w)
            if self._mergeable(u, reader):
                known, changed = self.nodes[u].domains, self._around(reader)
                self._merge(u, reader)
                return [u, *sorted(changed if self.nodes[u].domains == known else changed | self._around(u))]
        return sorted(self._around(v)) if dropped else []

    def _around(self, v: int) -> set[int]:
        """Neighbours, and the other reader of what two of them read."""
        node = self.nodes[v]
        return (node.preds | node.succs | {w for t in node.inputs if len(self.readers[t]) == 2 for w in self.readers[t]}) - {v}

    def _drop(self, v: int) -> bool:
        node, switch = self.nodes[v], self.add.switch
        left = dict(node.ways)
        for x in sorted(left, key=lambda place: (-left[place][0], place)) if len(left) > 1 else ():
            if any(y != x and self._moved(v, x, y) + switch[x[0]][y[0]] + switch[y[0]][x[0]] <= 0 for y in left):
                del left[x]
        if len(left) == len(node.ways):
            return False
        node.go(left)
        return True

    def _mergeable(self, u: int, v: int) -> bool:
        """Whether every plan that has the two apart can be changed into one that has them together and costs no more."""
        first, second = self.nodes[u], self.nodes[v]
        before, behind = first.succs == {v}, second.preds == {u}

        def forward(x: Place, y: Place) -> bool:
            return before and y in first.ways and self._moved(u, x, y, v) <= 0

        def backward(x: Place, y: Place) -> bool:
            return behind and x in second.ways and self._moved(v, y, x, u) <= 0

        one, other = (forward, backward) if len(first.inputs) < len(second.inputs) else (backward, forward)  # the cheaper one first
        return (before or behind) and all(one(x, y) or other(x, y) for x, y in product(first.ways, second.ways) if x != y)

    def _moved(self, v: int, x: Place, y: Place, other: int = -1) -> float:
        """Most that a plan costs more if an op is in y instead of x, next to ``other``, which is in y; without changes of the queue."""
        node, (d, e) = self.nodes[v], (x[1], y[1])
        change = node.ways[y][0] - node.ways[x][0]
        if d != e:
            change += sum(self._read(t, d, e, other) for t in node.inputs) + sum(self._written(t, d, e, other) for t in node.outputs)
        return change

    def _read(self, t: int, d: int, e: int, other: int) -> float:
        """Most that it costs more if an op reads a tensor in e instead of d."""
        move, maker, there = self.add.transfer[t], self.maker[t], other in self.readers[t]
        alone = len(self.readers[t]) == 1 + there
        if maker >= 0 and maker == other:
            return -move[e][d] if alone else 0.0
        sources = self._domains(maker)
        return max((0.0 if there or s == e else move[s][e]) - (move[s][d] if alone and s != d else 0.0) for s in sources)

    def _written(self, t: int, d: int, e: int, other: int) -> float:
        """Most that it costs more to bring a tensor to all who read it if it is made in e instead of d."""
        readers, move = self.readers[t], self.add.transfer[t]
        if not readers:
            return 0.0
        reading = {e} if readers == {other} else {f for r in readers for f in self._domains(r)}
        more = [(move[e][f] if f != e else 0.0) - (move[d][f] if f != d else 0.0) for f in sorted(reading)]
        return max(more) if len(readers) == 1 else sum(x for x in more if x > 0) or max(more)

    def _domains(self, v: int) -> set[int]:
        return self.nodes[v].domains if v >= 0 else {self.c.input_domain}

    def _merge(self, u: int, v: int) -> None:
        """Make one op of two, under the first one's key."""
        first, second = self.nodes[u], self.nodes.pop(v)
        both = [p for p in first.ways if p in second.ways]
        first.go({p: (first.ways[p][0] + second.ways[p][0], first.ways[p][1] + second.ways[p][1]) for p in both})
        for t in second.inputs:
            self.readers[t].discard(v)
            if self.maker[t] != u:
                self.readers[t].add(u)
        first.inputs = list(dict.fromkeys([*first.inputs, *(t for t in second.inputs if self.maker[t] != u)]))
        first.outputs = [t for t in first.outputs if self.readers[t]] + second.outputs
        for t in second.outputs:
            self.maker[t] = u
        for w in second.preds | second.succs:
            other = self.nodes.get(w)
            if other is not None and w != u:
                other.preds = {u if k == v else k for k in other.preds}
                other.succs = {u if k == v else k for k in other.succs}
        first.ops += second.ops
        first.preds = (first.preds | second.preds) - {u, v}
        first.succs = (first.succs | second.succs) - {u, v}

    def super_ops(self, problem: Problem) -> SuperOps:
        """The problem of what is left, in topological order."""
        waiting = {v: len(node.preds) for v, node in self.nodes.items()}
        heap = [v for v, count in waiting.items() if count == 0]
        heapify(heap)
        groups: list[list[int]] = []
        ways: list[list[tuple[int, ...]]] = []
        while heap:
            node = self.nodes[heappop(heap)]
            groups.append(node.ops)
            ways.append([node.ways[place][1] for place in sorted(node.ways)])
            for w in sorted(node.succs):
                waiting[w] -= 1
                if waiting[w] == 0:
                    heappush(heap, w)
        return grouped(problem, self.c, groups, ways)
