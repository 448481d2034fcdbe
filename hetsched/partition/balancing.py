"""Placements for the period of a pipeline: work levelled over the queues.

The period is the busiest queue's work, and the busiest queue is at least as busy as any weighted mean of all of them. For fixed
weights that mean is a sum over ops, launches and transfers, which the frontier DP minimises; the weight of a queue then grows
with its load (multiplicative updates), so that the DP moves work off the busiest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hetsched.partition.frontier import Additive, frontier_optimum, imitation
from hetsched.partition.orders import affinity, file_order
from hetsched.partition.problem import Budget
from hetsched.partition.timing import Costs

ROUNDS = 24
STEP = 0.5
"""How strongly a weight follows the load; it falls with the square root of the round."""
CAP = 100
SHARE = 0.2


def levelled(c: Costs, budget: Budget) -> list[tuple[list[int], tuple[int, ...]]]:
    """``(order, alternative)`` pairs of placements that share the work out ever more evenly; the caller keeps the best."""
    weights = [1.0 / c.queues] * c.queues
    found: list[tuple[list[int], tuple[int, ...]]] = []
    order, left = file_order(c), SHARE * budget.units
    for k in range(ROUNDS if c.queues > 1 else 1):
        got = frontier_optimum(c, order, _weighted(c, weights), CAP, left)
        left -= got.units
        budget.charge(got.units)
        found.append((order, got.alternative))
        if left <= 0 or budget.out_of_time():
            break
        load = _loads(c, order, got.alternative)
        top = max(load) or 1.0
        weights = [w * math.exp(STEP / math.sqrt(k + 1) * x / top) for w, x in zip(weights, load, strict=True)]
        weights = [w / sum(weights) for w in weights]
        order = file_order(c) if k % 2 else affinity(c, [c.queue[a] for a in got.alternative])
    return found


def _weighted(c: Costs, weights: Sequence[float]) -> Additive:
    """Seconds of work, each counted with the weight of its queue; waits for other queues cost nothing."""
    add = Additive(c)
    queue_of = dict(zip(c.domain, c.queue, strict=True))
    by_domain = [weights[queue_of.get(d, c.host)] for d in range(c.domains)]
    add.op = [weights[q] * t for q, t in zip(c.queue, c.time, strict=True)]
    add.transfer = [[[s * w for s, w in zip(row, by_domain, strict=True)] for row in t] for t in c.transfer]
    add.first = [w * s for w, s in zip(weights, c.launch, strict=True)]
    add.switch = [[add.first[r] if p != r else 0.0 for r in range(c.queues)] for p in range(c.queues)]
    add.last = [0.0] * c.queues
    add.imitate = imitation(add.switch, add.last)
    return add


def _loads(c: Costs, order: Sequence[int], alternative: Sequence[int]) -> list[float]:
    """Work of each queue in seconds, launches left out."""
    load = [0.0] * c.queues
    for op in order:
        load[c.queue[alternative[op]]] += c.time[alternative[op]]
    return load
