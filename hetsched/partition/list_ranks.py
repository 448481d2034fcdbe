"""Ranks of list scheduling on plain rows of numbers: upward, downward, optimistic cost table, orders, critical path.

Every function is written for numba *and* for plain Python lists: a plan of a few hundred ops calls it as it stands, so that
planning never waits for a compiler, and :mod:`hetsched.partition.list_core` compiles the same source for large graphs. Tasks
are numbered in topological order. Rows are packed: the edges of ``v`` are ``items[start[v]:start[v + 1]]``, and ``weight`` is
the mean seconds of communication of the same edge.
"""

from __future__ import annotations

import heapq
from typing import Any, TypeAlias

Row: TypeAlias = Any
"""A sequence of numbers: a list or a numpy array."""
Grid: TypeAlias = Any
"""A sequence of rows, or a matrix."""


def upward_rank(start: Row, items: Row, weight: Row, own: Row, rank: Row) -> None:
    """Fill ``rank`` with the longest way to the end, a task's ``own`` mean seconds included (Topcuoglu, Hariri, Wu 2002).

    ``start``, ``items`` and ``weight`` are the edges to the successors.
    """
    for v in range(len(own) - 1, -1, -1):
        longest = 0.0
        for e in range(start[v], start[v + 1]):
            longest = max(longest, weight[e] + rank[items[e]])
        rank[v] = own[v] + longest


def downward_rank(start: Row, items: Row, weight: Row, own: Row, rank: Row) -> None:
    """Fill ``rank`` with the longest way from the beginning to the start of a task (the same paper).

    ``start``, ``items`` and ``weight`` are the edges to the predecessors.
    """
    for v in range(len(own)):
        longest = 0.0
        for e in range(start[v], start[v + 1]):
            u = items[e]
            longest = max(longest, rank[u] + own[u] + weight[e])
        rank[v] = longest


def optimistic_cost(start: Row, items: Row, weight: Row, cost: Grid, table: Grid) -> None:
    """Fill ``table[v][q]`` with the least seconds that still follow if ``v`` runs on ``q`` (Arabnejad, Barbosa 2014).

    Every task after ``v`` takes its best queue, as if each queue were free; ``cost[v][q]`` is infinite where ``v`` cannot run.
    """
    for v in range(len(table) - 1, -1, -1):
        queues = len(table[v])
        for q in range(queues):
            table[v][q] = 0.0
        for e in range(start[v], start[v + 1]):
            s = items[e]
            away = table[s][0] + cost[s][0]
            for p in range(1, queues):
                away = min(away, table[s][p] + cost[s][p])
            away += weight[e]
            for q in range(queues):
                table[v][q] = max(table[v][q], min(away, table[s][q] + cost[s][q]))


def ready_order(start: Row, items: Row, waiting: Row, priority: Row, order: Row) -> None:
    """Fill ``order``: among the ready tasks always the one of the largest priority, the first on a tie.

    ``start`` and ``items`` are the edges to the successors; ``waiting`` (the number of predecessors) is used up.
    """
    heap = [(-priority[v], v) for v in range(len(priority)) if waiting[v] == 0]
    heapq.heapify(heap)
    for k in range(len(priority)):
        v = heapq.heappop(heap)[1]
        order[k] = v
        for e in range(start[v], start[v + 1]):
            s = items[e]
            waiting[s] -= 1
            if waiting[s] == 0:
                heapq.heappush(heap, (-priority[s], s))


def critical_path(start: Row, items: Row, roots: Row, priority: Row, on_path: Row) -> None:
    """Mark in ``on_path`` (zeros before) a way of largest priority from a root to an end, the first task on a tie.

    ``priority`` is the upward plus the downward rank; ``roots`` are the tasks without predecessors, in their order.
    """
    v = -1
    for r in roots:
        if v < 0 or priority[r] > priority[v]:
            v = r
    while v >= 0:
        on_path[v] = 1
        best = -1
        for e in range(start[v], start[v + 1]):
            s = items[e]
            if best < 0 or priority[s] > priority[best] or (priority[s] == priority[best] and s < best):
                best = s
        v = best
