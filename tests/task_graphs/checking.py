"""An independent check of task-graph schedules, and the optimum of small ones by brute force."""

from __future__ import annotations

from itertools import pairwise

from hetsched.partition.list_scheduling import Placed, Tasks

SLACK = 1e-9
"""Relative to the makespan: sums in another order."""


def edges_of(tasks: Tasks) -> list[tuple[int, int, float]]:
    """Source, target and size of every edge."""
    rows = zip(tasks.in_start.tolist(), tasks.in_start[1:].tolist(), strict=False)
    return [(int(tasks.in_items[e]), v, float(tasks.in_size[e])) for v, (a, b) in enumerate(rows) for e in range(a, b)]


def faults(tasks: Tasks, placed: Placed) -> list[str]:
    """What is wrong with a schedule: a task nowhere, of another duration, before its inputs, or beside another on its queue."""
    queue, begin, end = placed.queue.tolist(), placed.begin.tolist(), placed.end.tolist()
    slack, wrong = SLACK * max(end, default=0.0), []
    for v, q in enumerate(queue):
        if not 0 <= q < tasks.cost.shape[1]:
            wrong.append(f"task {v} is nowhere")
        elif begin[v] < 0 or not abs(end[v] - begin[v] - tasks.cost[v, q]) <= slack:
            wrong.append(f"task {v} runs {begin[v]} .. {end[v]} where it takes {tasks.cost[v, q]}")
    if wrong:
        return wrong
    for u, v, size in edges_of(tasks):
        arrives = end[u] + size * tasks.rate[queue[u], queue[v]] + tasks.delay[queue[u], queue[v]]
        if begin[v] < arrives - slack:
            wrong.append(f"task {v} begins at {begin[v]}, before {arrives} when task {u} reaches it")
    for q in range(tasks.cost.shape[1]):
        row = sorted((begin[v], end[v], v) for v in range(len(queue)) if queue[v] == q)
        wrong += [f"tasks {a[2]} and {b[2]} overlap on queue {q}" for a, b in pairwise(row) if b[0] < a[1] - slack]
    return wrong


def optimum(tasks: Tasks) -> float:
    """The least makespan, by trying every topological order with every placement, each task as early as it goes."""
    n, queues = tasks.cost.shape
    before = [[(u, s) for u, w, s in edges_of(tasks) if w == v] for v in range(n)]
    best = float("inf")

    def extend(end: dict[int, tuple[float, int]], free: list[float]) -> None:
        nonlocal best
        if max(free) >= best:
            return
        if len(end) == n:
            best = max(free)
        for v in range(n):
            if v in end or any(u not in end for u, _ in before[v]):
                continue
            for q in range(queues):
                ready = max((end[u][0] + s * tasks.rate[end[u][1], q] + tasks.delay[end[u][1], q] for u, s in before[v]), default=0.0)
                finish = max(ready, free[q]) + float(tasks.cost[v, q])
                extend({**end, v: (finish, q)}, [finish if p == q else f for p, f in enumerate(free)])

    extend({}, [0.0] * queues)
    return best
