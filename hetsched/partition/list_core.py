"""The compiled core of list scheduling: placement with insertion on gap arrays, and the ranks of ``list_ranks``.

Importing this imports numba; nothing that plans an ordinary model does. The machine code is cached beside this file (or where
``NUMBA_CACHE_DIR`` says), so that only the first process on a machine compiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hetsched.partition import list_ranks

upward_rank: Any = njit(cache=True, nogil=True)(list_ranks.upward_rank)
downward_rank: Any = njit(cache=True, nogil=True)(list_ranks.downward_rank)
optimistic_cost: Any = njit(cache=True, nogil=True)(list_ranks.optimistic_cost)
ready_order: Any = njit(cache=True, nogil=True)(list_ranks.ready_order)
critical_path: Any = njit(cache=True, nogil=True)(list_ranks.critical_path)


@njit(cache=True, nogil=True)
def _first_gap(begins: Any, ends: Any, count: int, ready: float, seconds: float, before: float) -> int:
    """Index of the first gap that holds ``seconds`` at or after ``ready``; -1 if none ends before ``before``."""
    low, high, need = 0, count, ready + seconds
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] < need:
            low = middle + 1
        else:
            high = middle
    for j in range(low, count):
        finish = max(begins[j], ready) + seconds
        if finish >= before:
            break
        if finish <= ends[j]:
            return j
    return -1


@njit(cache=True, nogil=True)
def _compact(begins: Any, ends: Any, count: int, least: float) -> int:
    """Drop the gaps shorter than ``least``; how many stay."""
    kept = 0
    for j in range(count):
        if ends[j] - begins[j] >= least:
            begins[kept], ends[kept] = begins[j], ends[j]
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _with_room(begins: Any, ends: Any, gaps: Any, full: int, least: float) -> tuple[Any, Any]:
    """The gap arrays with room for more on the queue ``full``; what no task can use any more is dropped first."""
    room = begins.shape[1]
    gaps[full] = _compact(begins[full], ends[full], gaps[full], least)
    if 2 * gaps[full] <= room:
        return begins, ends
    wide_begins, wide_ends = np.empty((len(gaps), 2 * room)), np.empty((len(gaps), 2 * room))
    wide_begins[:, :room], wide_ends[:, :room] = begins, ends
    return wide_begins, wide_ends


@njit(cache=True, nogil=True)
def _fill(begins: Any, ends: Any, count: int, gap: int, start: float, finish: float, least: float) -> int:
    """Take ``start .. finish`` out of a gap, keeping what is left of it where it is long enough; the new number of gaps."""
    left, right = start - begins[gap], ends[gap] - finish
    keep_left, keep_right = left >= least, right >= least
    if keep_left and keep_right:
        for j in range(count, gap + 1, -1):
            begins[j], ends[j] = begins[j - 1], ends[j - 1]
        begins[gap + 1], ends[gap + 1] = finish, ends[gap]
        ends[gap] = start
        return count + 1
    if keep_left:
        ends[gap] = start
    elif keep_right:
        begins[gap] = finish
    else:
        for j in range(gap, count - 1):
            begins[j], ends[j] = begins[j + 1], ends[j + 1]
        return count - 1
    return count


@njit(cache=True, nogil=True)
def _shortest_left(order: Any, cost: Any) -> Any:
    """[n + 1, q] the shortest task from the k-th of ``order`` on."""
    n, queues = cost.shape
    shortest = np.empty((n + 1, queues))
    shortest[n] = np.inf
    for k in range(n - 1, -1, -1):
        for q in range(queues):
            shortest[k, q] = min(cost[order[k], q], shortest[k + 1, q])
    return shortest


@njit(cache=True, nogil=True)
def place(order: Any, cost: Any, start: Any, items: Any, size: Any, rate: Any, delay: Any, bias: Any, fixed: Any) -> tuple[Any, Any, Any]:
    """Place tasks one by one where ``finish + bias`` is least, in the first gap that holds them; ties to the lowest queue.

    The gaps of a queue are sorted arrays, searched by bisection; what is too short for any task still to come is dropped, so
    that a graph of a few branches keeps almost none. The moment between two tasks is a gap too, for tasks that take no time.

    Args:
        order: [n] a topological order.
        cost: [n, q] seconds; infinite where a task cannot run.
        start: [n + 1] first edge to the predecessors of each task.
        items: [m] the predecessors.
        size: [m] what those edges carry.
        rate: [q, q] seconds per unit of size.
        delay: [q, q] seconds of any edge.
        bias: [n, q] added to the finish when queues are compared, or of no rows.
        fixed: [n] the only queue allowed, -1 for any.

    Returns:
        Begin [n], end [n] and queue [n] of every task; queue -1 and infinite times where no queue can run it.
    """
    n, queues = cost.shape
    shortest = _shortest_left(order, cost)
    gap_begin, gap_end = np.empty((queues, 256)), np.empty((queues, 256))
    gaps, free, ready = np.zeros(queues, np.int64), np.zeros(queues), np.zeros(queues)
    begin, end, queue = np.empty(n), np.empty(n), np.empty(n, np.int64)
    biased = bias.shape[0] == n
    for k in range(n):
        v = order[k]
        ready[:] = 0.0
        for e in range(start[v], start[v + 1]):
            u = items[e]
            p = queue[u]
            for q in range(queues):
                ready[q] = max(ready[q], end[u] + size[e] * rate[p, q] + delay[p, q])
        least, best, at, gap = np.inf, -1, np.inf, -1
        for q in range(queues):
            if fixed[v] >= 0 and fixed[v] != q:
                continue
            extra = bias[v, q] if biased else 0.0
            seconds = cost[v, q]
            hole = -1
            starts = max(ready[q], free[q])
            if ready[q] < free[q] and gaps[q] > 0:
                hole = _first_gap(gap_begin[q], gap_end[q], gaps[q], ready[q], seconds, min(least - extra, starts + seconds))
                if hole >= 0:
                    starts = max(gap_begin[q, hole], ready[q])
            if starts + seconds + extra < least:
                least, best, at, gap = starts + seconds + extra, q, starts, hole
        begin[v], queue[v] = at, best
        if best < 0:
            end[v], queue[v] = np.inf, -1
            return begin, end, queue
        end[v] = at + cost[v, best]
        smallest = shortest[k + 1, best]
        if gap >= 0:
            gaps[best] = _fill(gap_begin[best], gap_end[best], gaps[best], gap, at, end[v], smallest)
        else:
            idle = at - free[best]
            if idle >= smallest:
                gap_begin[best, gaps[best]], gap_end[best, gaps[best]] = free[best], at
                gaps[best] += 1
            free[best] = end[v]
        if gaps[best] == gap_begin.shape[1]:
            gap_begin, gap_end = _with_room(gap_begin, gap_end, gaps, best, smallest)
    return begin, end, queue
