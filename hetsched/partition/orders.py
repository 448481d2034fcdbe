"""Topological orders to search over. All are deterministic: ties go to the op that comes first in the table."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hetsched.partition.timing import Costs


def file_order(c: Costs) -> list[int]:
    """The table's own order (the model file's, where that is valid)."""
    return list(range(c.n))


def depth_first(c: Costs) -> list[int]:
    """Follow each branch to its end before starting the next."""
    waiting = [len(p) for p in c.preds]
    stack = [i for i in reversed(range(c.n)) if waiting[i] == 0]
    order: list[int] = []
    while stack:
        op = stack.pop()
        order.append(op)
        for s in reversed(c.succs[op]):
            waiting[s] -= 1
            if waiting[s] == 0:
                stack.append(s)
    return order


def affinity(c: Costs, queue_of: Sequence[int], first: int | None = None) -> list[int]:
    """Stay on one queue for as long as an op of that queue is ready, depth-first; then go to the queue with most ready ops.

    Args:
        c: the costs.
        queue_of: the queue that each op prefers, or is placed on.
        first: the queue to begin with; None: that of the first ready op.
    """
    waiting = [len(p) for p in c.preds]
    ready: list[list[int]] = [[] for _ in range(c.queues)]
    roots = [i for i in range(c.n) if waiting[i] == 0]
    for i in reversed(roots):
        ready[queue_of[i]].append(i)
    current = queue_of[roots[0]] if first is None and roots else (first or 0)
    order: list[int] = []
    while len(order) < c.n:
        if not ready[current]:
            current = max(range(c.queues), key=lambda q: (len(ready[q]), -q))
        op = ready[current].pop()
        order.append(op)
        for s in reversed(c.succs[op]):
            waiting[s] -= 1
            if waiting[s] == 0:
                ready[queue_of[s]].append(s)
    return order


def by_priority(c: Costs, priority: Sequence[float]) -> list[int]:
    """Among ready ops always the one with the smallest priority."""
    waiting = [len(p) for p in c.preds]
    heap = [(priority[i], i) for i in range(c.n) if waiting[i] == 0]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        _, op = heapq.heappop(heap)
        order.append(op)
        for s in c.succs[op]:
            waiting[s] -= 1
            if waiting[s] == 0:
                heapq.heappush(heap, (priority[s], s))
    return order


def by_stage(c: Costs, stage: Sequence[float], queue_of: Sequence[int]) -> list[int]:
    """Among ready ops those of the earliest stage; of these, one on the queue of the op before."""
    waiting = [len(p) for p in c.preds]
    ready = [i for i in range(c.n) if waiting[i] == 0]
    order: list[int] = []
    while ready:
        current = queue_of[order[-1]] if order else -1
        op = min(ready, key=lambda i: (stage[i], queue_of[i] != current, i))
        ready.remove(op)
        order.append(op)
        for s in c.succs[op]:
            waiting[s] -= 1
            if waiting[s] == 0:
                ready.append(s)
    return order


def smallest_arena(c: Costs, nbytes: Sequence[float]) -> list[int]:
    """Greedy order that keeps the live bytes small: among ready ops the one that frees most; ``nbytes`` per tensor."""
    waiting = [len(p) for p in c.preds]
    uses = [0] * len(nbytes)
    for row in c.inputs:
        for t in row:
            uses[t] += 1
    ready = [i for i in range(c.n) if waiting[i] == 0]
    order: list[int] = []

    def growth(op: int) -> float:
        freed = sum(nbytes[t] for t in c.inputs[op] if uses[t] == 1 and c.producer[t] >= 0)
        return sum(nbytes[t] for t in c.outputs[op]) - freed

    while ready:
        op = min(ready, key=lambda i: (growth(i), i))
        ready.remove(op)
        order.append(op)
        for t in c.inputs[op]:
            uses[t] -= 1
        for s in c.succs[op]:
            waiting[s] -= 1
            if waiting[s] == 0:
                ready.append(s)
    return order


def is_chain(c: Costs) -> bool:
    """Whether the ops have only one topological order: each op feeds the next one directly."""
    return all(i - 1 in c.preds[i] for i in range(1, c.n))
