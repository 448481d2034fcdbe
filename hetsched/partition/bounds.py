"""Proven lower bounds on latency, energy, energy-delay and period.

Latency is bounded per *cut*: an op that is an ancestor or a descendant of every other op. Whatever the order, all ops
between two neighbouring cuts run between them, so the time from one cut's end to the next, given their alternatives,
is bounded block by block and a shortest path over the cuts' alternatives bounds the whole. Inside a block two
arguments are used: the longest path (each edge at its cheapest pair of alternatives), and "one queue or several":
either every op of the block is on one queue, which then does all the work one after another, or some op is off the
main queue, and the path through it pays two crossings.

Ends of ops are counted as if an op's own launch and transfers were paid just before it; the real rule (launch and
transfers at the start of the segment, signal at its end) is never faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.partition.orders import file_order
from hetsched.partition.timing import Costs

INFINITE = float("inf")


@dataclass(frozen=True)
class Block:
    """The ops between two cuts. ``entry`` and ``exit`` are ops, or -1 for the start and the end of the inference."""

    entry: int
    inner: tuple[int, ...]
    exit: int


def cut_ops(c: Costs) -> list[int]:
    """Ops that are comparable to every other op, in order."""
    before, after = [0] * c.n, [0] * c.n
    for v in range(c.n):
        for p in c.preds[v]:
            before[v] |= before[p] | 1 << p
    for v in reversed(range(c.n)):
        for s in c.succs[v]:
            after[v] |= after[s] | 1 << s
    return [v for v in range(c.n) if before[v].bit_count() + after[v].bit_count() == c.n - 1]


def blocks_of(c: Costs) -> list[Block]:
    """Split the ops at the cuts."""
    cuts = set(cut_ops(c))
    blocks: list[Block] = []
    entry, inner = -1, list[int]()
    for v in file_order(c):
        if v in cuts:
            blocks.append(Block(entry, tuple(inner), v))
            entry, inner = v, []
        else:
            inner.append(v)
    blocks.append(Block(entry, tuple(inner), -1))
    return blocks


def lower_bound(c: Costs, objective: str) -> float:
    """A value that no placement and no order can beat, in the objective's unit."""
    if c.n == 0:
        return 0.0
    if objective == "period":
        return area_bound(c)
    if objective == "energy":
        return energy_bound(c)
    latency = max(area_bound(c), chain_bound(c))
    return latency * energy_bound(c) if objective == "edp" else latency


def area_bound(c: Costs, rounds: int = 40) -> float:
    """Work that must be done, shared out over the queues: ``max over weights of sum over ops of min weight * time``.

    Any weights that add up to one give a valid bound, because no queue can be busy for longer than the latency; the
    weights follow the load (multiplicative updates).
    """
    time, queue = np.array(c.time), np.array(c.queue)
    starts = np.array([r.start for r in c.alts])
    owner = np.repeat(np.arange(c.n), [len(r) for r in c.alts])
    weights = np.full(c.queues, 1.0 / c.queues)
    best = 0.0
    for _ in range(rounds):
        cost = weights[queue] * time
        least = np.minimum.reduceat(cost, starts)
        best = max(best, float(least.sum()))
        first = np.flatnonzero(cost == least[owner])
        chosen = first[np.unique(owner[first], return_index=True)[1]]
        load = np.bincount(queue[chosen], time[chosen], c.queues)
        weights = weights * np.exp(0.3 * load / max(float(load.max()), 1e-30))
        weights /= weights.sum()
    return best * (1 - 1e-12)


def chain_bound(c: Costs) -> float:
    """The latency bound over cuts and blocks that the module describes."""
    paths = Paths(c)
    reached: dict[int, float] = {-1: 0.0}
    for block in blocks_of(c):
        exits = [-1] if block.exit < 0 else list(c.alts[block.exit])
        following = dict.fromkeys(exits, INFINITE)
        backward = {b: paths.backward(block, b) for b in exits}
        for a, so_far in reached.items():
            forward = paths.forward(block, a)
            for b in exits:
                total = so_far + paths.block(block, a, b, forward, backward[b])
                following[b] = min(following[b], total)
        reached = following
    return min(reached.values()) * (1 - 1e-12)


class Paths:
    """Longest paths inside blocks: ``D[v][a]`` from the entry's end to the op's end, ``B[v][a]`` on to the exit's end."""

    def __init__(self, c: Costs) -> None:
        self.c = c
        homes: dict[int, set[int]] = {}
        for d, q in zip(c.domain, c.queue, strict=True):
            homes.setdefault(d, set()).add(q)
        self.exclusive = all(len(h) == 1 for h in homes.values())
        """Transfers are charged to an edge only if a domain belongs to one queue: another queue could have paid."""
        self.shared = {
            (u, v): [t for t in c.inputs[v] if c.producer[t] == u] for v in range(c.n) for u in c.preds[v]
        }  # fmt: skip

    def edge(self, u: int, a: int, v: int, b: int) -> float:
        """Least time between the end of u (alternative a) and the start of v's own work (alternative b)."""
        c = self.c
        p, q, d, e = c.queue[a], c.queue[b], c.domain[a], c.domain[b]
        cost = 0.0 if p == q else c.sync[p][q] + c.launch[q]
        if d != e and self.exclusive:
            cost += sum(c.transfer[t][d][e] for t in self.shared[u, v])
        return cost

    def arrival(self, v: int, b: int) -> float:
        """Least time before v's own work if it only waits for graph inputs."""
        c = self.c
        inputs = sum(c.transfer[t][c.input_domain][c.domain[b]] for t in c.inputs[v] if c.producer[t] < 0) if self.exclusive else 0.0
        return c.launch[c.queue[b]] + inputs

    def forward(self, block: Block, a: int) -> dict[int, dict[int, float]]:
        """D for the inner ops and the exit, given the entry's alternative (-1: the start)."""
        c = self.c
        D: dict[int, dict[int, float]] = {} if block.entry < 0 else {block.entry: {a: 0.0}}
        for v in (*block.inner, *([block.exit] if block.exit >= 0 else [])):
            row: dict[int, float] = {}
            for b in c.alts[v]:
                ready = self.arrival(v, b) if block.entry < 0 else 0.0
                for u in c.preds[v]:
                    if u in D:
                        ready = max(ready, min(x + self.edge(u, p, v, b) for p, x in D[u].items()))
                row[b] = ready + c.time[b]
            D[v] = row
        return D

    def backward(self, block: Block, b: int) -> dict[int, dict[int, float]]:
        """B for the inner ops, given the exit's alternative (-1: the end)."""
        c = self.c
        B: dict[int, dict[int, float]] = {} if block.exit < 0 else {block.exit: {b: 0.0}}
        results = set(c.results)
        for u in reversed(block.inner):
            row: dict[int, float] = {}
            for a in c.alts[u]:
                rest = c.sync[c.queue[a]][c.host] if block.exit < 0 and u in results else 0.0
                for v in c.succs[u]:
                    if v in B:
                        rest = max(rest, min(self.edge(u, a, v, e) + c.time[e] + x for e, x in B[v].items()))
                row[a] = rest
            B[u] = row
        return B

    def block(self, block: Block, a: int, b: int, D: dict[int, dict[int, float]], B: dict[int, dict[int, float]]) -> float:
        """Least time from the entry's end to the exit's end."""
        c = self.c
        ending = c.sync[c.queue[a]][c.host] if block.exit < 0 and block.entry in c.results else 0.0
        bound = D[block.exit][b] if block.exit >= 0 else ending
        if not block.inner:
            return bound
        through = {v: [(c.queue[x], D[v][x] + B[v][x]) for x in c.alts[v]] for v in block.inner}
        bound = max(bound, max(min(x for _, x in row) for row in through.values()))
        off = [min((x for row in through.values() for r, x in row if r != q), default=INFINITE) for q in range(c.queues)]
        mono = min(self.alone(block, a, b, q) for q in range(c.queues))
        return max(bound, min(mono, max(off)))

    def alone(self, block: Block, a: int, b: int, q: int) -> float:
        """Least time of the block if queue ``q`` does all its inner ops one after another."""
        c = self.c
        work = 0.0
        for v in block.inner:
            work += min((c.time[x] for x in c.alts[v] if c.queue[x] == q), default=INFINITE)
        if block.entry < 0:
            work += c.launch[q]
        elif c.queue[a] != q:
            work += c.sync[c.queue[a]][q] + c.launch[q]
        if block.exit < 0:
            return work
        return work + c.time[b] + (0.0 if c.queue[b] == q else c.sync[q][c.queue[b]] + c.launch[c.queue[b]])


def energy_bound(c: Costs) -> float:
    """The additive energy of ops, of the transfers between neighbouring cuts, and of the queue switches that blocks force."""
    switch = _shortest(c)
    first = c.launch_j
    reached: dict[int, float] = {-1: 0.0}
    for block in blocks_of(c):
        exits = [-1] if block.exit < 0 else list(c.alts[block.exit])
        following = dict.fromkeys(exits, INFINITE)
        for a, so_far in reached.items():
            for b in exits:
                following[b] = min(following[b], so_far + _block_energy(c, block, a, b, switch, first))
        reached = following
    return min(reached.values()) * (1 - 1e-12)


def _shortest(c: Costs) -> list[list[float]]:
    """[p][q] least energy of getting from an open segment on p to one on q; ``[p][queues]`` to the host at the end."""
    q = range(c.queues)
    cost = [[0.0 if p == r else c.sync_j[p][r] + c.launch_j[r] for r in q] for p in q]
    for k in q:
        for i in q:
            for j in q:
                cost[i][j] = min(cost[i][j], cost[i][k] + cost[k][j])
    for i in q:
        cost[i].append(min(cost[i][j] + c.sync_j[j][c.host] for j in q))
    return cost


def _block_energy(c: Costs, block: Block, a: int, b: int, switch: Sequence[Sequence[float]], first: Sequence[float]) -> float:
    """Least energy of a block's inner ops, its exit and the switches on the way."""
    q = range(c.queues)

    def enter(r: int) -> float:
        return first[r] if a < 0 else switch[c.queue[a]][r]

    def leave(r: int) -> float:
        return switch[r][c.queues if b < 0 else c.queue[b]]

    own = 0.0 if b < 0 else c.energy[b]
    if not block.inner:
        if a < 0:
            return own + (0.0 if b < 0 else first[c.queue[b]])
        tensors = [t for t in c.inputs[block.exit] if c.producer[t] == block.entry] if b >= 0 else []
        moved = sum(c.transfer_j[t][c.domain[a]][c.domain[b]] for t in tensors) if b >= 0 and c.domain[a] != c.domain[b] else 0.0
        return own + moved + leave(c.queue[a])
    least = sum(min(c.energy[x] for x in c.alts[v]) for v in block.inner)
    alone = [sum(min((c.energy[x] for x in c.alts[v] if c.queue[x] == r), default=INFINITE) for v in block.inner) for r in q]
    mono = min(enter(r) + alone[r] + leave(r) for r in q)
    if len(block.inner) == 1:
        return own + mono
    mixed = min(enter(r) + switch[r][s] + leave(s) for r in q for s in q if r != s) if c.queues > 1 else INFINITE
    return own + min(mono, least + mixed)
