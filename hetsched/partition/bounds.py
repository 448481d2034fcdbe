"""Proven lower bounds on latency, energy, energy-delay and period, cheap enough to compute for every plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.partition.additive_chain import AdditiveChain
from hetsched.partition.chain import Chain, chains
from hetsched.partition.frontier import Additive
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
    """The least additive energy that the chain of blocks of :mod:`hetsched.partition.additive_chain` needs, in joules."""
    return AdditiveChain(c, Additive(c, 0.0, 1.0)).bound()[0]
