"""Proven lower bounds on latency, energy, energy-delay and period, cheap enough to compute for every plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.partition.chain import INFINITE, Chain, chains
from hetsched.partition.relaxed import Block, Relaxed, shortest
from hetsched.partition.timing import Costs


def lower_bound(c: Costs, objective: str, found: Sequence[Chain] = ()) -> float:
    """A value that no placement and no order can beat, in the objective's unit.

    Args:
        c: the costs.
        objective: of the problem.
        found: the chains of the costs, if they are known already.
    """
    if c.n == 0:
        return 0.0
    if objective == "period":
        return area_bound(c)
    if objective == "energy":
        return energy_bound(c)
    latency = max(area_bound(c), max(chain.bound()[0] for chain in found) if found else chain_bound(c))
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
    """The latency bound over cuts and blocks of :mod:`hetsched.partition.chain`, in seconds."""
    return max(chain.bound()[0] for chain in chains(c))


def energy_bound(c: Costs) -> float:
    """The additive energy of ops, of the transfers between neighbouring cuts, and of the queue switches that blocks force."""
    switch = _switches(c)
    first = c.launch_j
    reached: dict[int, float] = {-1: 0.0}
    for block in Relaxed(c).blocks():
        exits = [-1] if block.exit < 0 else list(c.alts[block.exit])
        following = dict.fromkeys(exits, INFINITE)
        for a, so_far in reached.items():
            for b in exits:
                following[b] = min(following[b], so_far + _block_energy(c, block, a, b, switch, first))
        reached = following
    return min(reached.values()) * (1 - 1e-12)


def _switches(c: Costs) -> list[list[float]]:
    """[p][q] least energy of getting from an open segment on p to one on q; ``[p][queues]`` to the host at the end."""
    cost = shortest(c.sync_j, c.launch_j)
    return [[*row, min(x + c.sync_j[j][c.host] for j, x in enumerate(row))] for row in cost]


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
