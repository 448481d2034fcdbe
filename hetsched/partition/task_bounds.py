"""Lower bounds on the makespan of a task graph: the longest way, and the work inside windows shared out over the queues."""

from __future__ import annotations

import numpy as np

from hetsched.partition.list_scheduling import FloatArray, Tasks
from hetsched.partition.task_blocks import INFINITE

WINDOWS = 200
"""Most heads and most tails that the windows of :func:`area_bound` begin and end at."""
EXACT = 1 - 1e-12
"""Sums in another order."""
ROUNDS = 300
"""Steps towards the best weights of the queues."""


def heads(tasks: Tasks) -> FloatArray:
    """[n, q] the earliest second at which a task can end on a queue, as if no queue were ever busy."""
    from hetsched.partition import task_core

    found: FloatArray = task_core.heads(tasks.cost, tasks.in_start, tasks.in_items, tasks.in_size, tasks.rate, tasks.delay)
    return found


def tails(tasks: Tasks) -> FloatArray:
    """[n, q] the least seconds that still follow the end of a task on a queue."""
    from hetsched.partition import task_core

    found: FloatArray = task_core.tails(tasks.cost, tasks.out_start, tasks.out_items, tasks.out_size, tasks.rate, tasks.delay)
    return found


def path_bound(head: FloatArray, tail: FloatArray) -> float:
    """The longest way: every task must be on some queue."""
    return float((head + tail).min(1).max(initial=0.0)) * EXACT


def weights_of(cost: FloatArray) -> FloatArray:
    """[q] shares of the queues, adding up to one, for which the cheapest weighted work of all tasks is nearly greatest.

    Multiplicative updates: a queue that is given more work than the others weighs more in the next round.
    """
    n, queues = cost.shape
    weight = best = np.full(queues, 1.0 / queues)
    most, rows = -1.0, np.arange(n)
    for k in range(ROUNDS):
        weighted = np.where(np.isfinite(cost), cost * weight, INFINITE)
        chosen = weighted.argmin(1)
        value = float(weighted[rows, chosen].sum())
        if value > most:
            most, best = value, weight
        load = np.bincount(chosen, cost[rows, chosen], queues)
        weight = weight * np.exp(load / max(float(load.max()), 1e-300) / np.sqrt(k + 1.0))
        weight = weight / weight.sum()
    return best


def area_bound(tasks: Tasks, head: FloatArray, tail: FloatArray) -> float:
    """Work that cannot begin before a and must end b before the end takes ``a + b + sum of min over queues weight * seconds``.

    Any weights that add up to one are valid, because no queue works longer than the window lasts.
    """
    if len(tasks.cost) == 0:
        return 0.0
    weight = weights_of(tasks.cost)
    work = np.where(np.isfinite(tasks.cost), tasks.cost * weight, INFINITE).min(1)
    earliest, rest = (head - np.where(np.isfinite(tasks.cost), tasks.cost, 0.0)).min(1), tail.min(1)
    starts, ends = _thresholds(earliest), _thresholds(rest)
    grid = np.zeros((len(starts), len(ends)))
    np.add.at(grid, (np.searchsorted(starts, earliest, "right") - 1, np.searchsorted(ends, rest, "right") - 1), work)
    inside = grid[::-1, ::-1].cumsum(0).cumsum(1)[::-1, ::-1]
    return float((inside + (starts[:, None] + ends)[: len(starts)] * (inside > 0)).max()) * EXACT


def _thresholds(values: FloatArray) -> FloatArray:
    unique = np.unique(np.append(values, 0.0))
    if len(unique) <= WINDOWS:
        return unique
    return np.asarray(unique[np.linspace(0, len(unique) - 1, WINDOWS).astype(int)])
