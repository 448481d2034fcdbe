"""The compiled core of proofs on task graphs: earliest ends, least rests, and simulated annealing.

As with :mod:`hetsched.partition.list_core`, importing this imports numba, and the machine code is cached on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hetsched.partition.list_core import place

HOT, COLD = 0.1, 0.01
"""First and last temperature in mean tasks: a schedule longer by so much is accepted with probability 1/e."""


@njit(cache=True, nogil=True)
def heads(cost: Any, start: Any, items: Any, size: Any, rate: Any, delay: Any) -> Any:
    """[n, q] the earliest second at which a task can end on a queue, as if no queue were ever busy.

    ``start``, ``items`` and ``size`` are the edges to the predecessors.
    """
    n, queues = cost.shape
    found = np.empty((n, queues))
    for v in range(n):
        for q in range(queues):
            ready = 0.0
            for e in range(start[v], start[v + 1]):
                arrives = np.inf
                for p in range(queues):
                    arrives = min(arrives, found[items[e], p] + size[e] * rate[p, q] + delay[p, q])
                ready = max(ready, arrives)
            found[v, q] = ready + cost[v, q]
    return found


@njit(cache=True, nogil=True)
def tails(cost: Any, start: Any, items: Any, size: Any, rate: Any, delay: Any) -> Any:
    """[n, q] the least seconds that still follow the end of a task on a queue; the edges are those to the successors."""
    n, queues = cost.shape
    found = np.empty((n, queues))
    for u in range(n - 1, -1, -1):
        for p in range(queues):
            rest = 0.0
            for e in range(start[u], start[u + 1]):
                follows = np.inf
                for q in range(queues):
                    follows = min(follows, size[e] * rate[p, q] + delay[p, q] + cost[items[e], q] + found[items[e], q])
                rest = max(rest, follows)
            found[u, p] = rest
    return found


@njit(cache=True, nogil=True)
def _moved(order: Any, at: int, to: int, out: Any) -> None:
    """Fill ``out`` with the order after its ``at``-th task has gone to place ``to``."""
    v = order[at]
    low, high = min(at, to), max(at, to)
    out[:] = order
    if at < to:
        out[low:high] = order[low + 1 : high + 1]
    else:
        out[low + 1 : high + 1] = order[low:high]
    out[to] = v


@njit(cache=True, nogil=True)
def _sort(order: Any, begin: Any) -> None:
    """Sort a nearly sorted order by begin, keeping the order of equals."""
    for k in range(1, len(order)):
        v, j = order[k], k - 1
        while j >= 0 and begin[order[j]] > begin[v]:
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = v


@njit(cache=True, nogil=True)
def anneal(
    cost: Any, in_start: Any, in_items: Any, in_size: Any, out_start: Any, out_items: Any, rate: Any, delay: Any,
    begin: Any, end: Any, queue: Any, trials: int, seed: int,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The shortest schedule met by simulated annealing from a schedule, always the same for the same seed.

    A trial gives one task another queue and another turn among those between its inputs and its successors, or swaps the
    queues of two tasks; then all tasks are placed again in that order, each in the first gap of its queue.
    """
    np.random.seed(seed)
    n, queues = cost.shape
    order, place_of, trial, no_bias = np.argsort(begin, kind="mergesort"), np.empty(n, np.int64), np.empty(n, np.int64), np.empty((0, 0))
    current = shortest = end.max()
    best = (begin, end, queue)
    hot, cooling = max(HOT * (end - begin).mean(), 1e-300), COLD / HOT
    for k in range(n):
        place_of[order[k]] = k
    for t in range(trials):
        v, asked = np.random.randint(n), queue.copy()
        low, high = 0, n - 1
        if np.random.random() < 0.7:
            for e in range(in_start[v], in_start[v + 1]):
                low = max(low, place_of[in_items[e]] + 1)
            for e in range(out_start[v], out_start[v + 1]):
                high = min(high, place_of[out_items[e]] - 1)
            _moved(order, place_of[v], np.random.randint(low, high + 1), trial)
            asked[v] = np.random.randint(queues)
        else:
            w = np.random.randint(n)
            trial[:] = order
            asked[v], asked[w] = queue[w], queue[v]
            if asked[w] == queue[w] or not np.isfinite(cost[w, asked[w]]):
                continue
        if not np.isfinite(cost[v, asked[v]]):
            continue
        b, e, q = place(trial, cost, in_start, in_items, in_size, rate, delay, no_bias, asked)
        longest = e.max()
        if longest <= current or np.random.random() < np.exp((current - longest) / (hot * cooling ** (t / trials))):
            order[:] = trial
            _sort(order, b)
            for k in range(n):
                place_of[order[k]] = k
            queue, current = q, longest
            if longest < shortest:
                shortest, best = longest, (b, e, q)
    return best
