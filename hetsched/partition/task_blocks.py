"""Task graphs cut into blocks that run one after another, without the edges that others imply.

A task that is an ancestor or a descendant of every other one is a *cut*: whatever the schedule, all that comes before it has
ended when it starts, and nothing after it has begun when it ends. So the least makespan is a shortest path over the queues of
the cuts, with the least time of a block between two queues as the length of an arc. An edge that jumps over a cut must be
implied by the way through it, or the cut does not count.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from hetsched.partition.blocks import Block
from hetsched.partition.list_scheduling import FloatArray, IntArray, Tasks

INFINITE = float("inf")
MOST_TASKS = 20_000
"""Larger graphs keep the edges that others imply: the sets of descendants would take too much memory."""
EFFORT = 100_000
"""Tasks between the ends of edges that are looked at."""


def edges_of(tasks: Tasks) -> tuple[IntArray, IntArray, FloatArray]:
    """Source [m], target [m] and size [m] of every edge, by source."""
    source = np.repeat(np.arange(len(tasks.cost)), np.diff(tasks.out_start))
    return source, tasks.out_items, tasks.out_size


def seconds_of(tasks: Tasks, size: float) -> FloatArray:
    """[q, q] seconds of an edge of this size."""
    return np.asarray(size * tasks.rate + tasks.delay)


def without_implied(tasks: Tasks) -> Tasks:
    """The same problem without edges that other paths imply on whatever queues: every schedule stays valid or invalid.

    Short edges are looked at first, until ``EFFORT`` tasks have been; what is left then stays.
    """
    n, (source, target, size) = len(tasks.cost), edges_of(tasks)
    if n > MOST_TASKS:
        return tasks
    before: list[dict[int, FloatArray]] = [{} for _ in range(n)]
    after: list[set[int]] = [set() for _ in range(n)]
    for u, v, s in zip(source.tolist(), target.tolist(), size.tolist(), strict=True):
        seconds = seconds_of(tasks, s)
        before[v][u] = np.maximum(seconds, before[v][u]) if u in before[v] else seconds
        after[u].add(v)
    reach = [0] * n
    for u in reversed(range(n)):
        for v in after[u]:
            reach[u] |= reach[v] | 1 << v
    transitive = [(v - u, u, v) for u in range(n) for v in after[u] if any(reach[w] >> v & 1 for w in after[u])]
    effort = 0
    for span, u, v in sorted(transitive):
        effort += span
        if effort > EFFORT:
            break
        seconds = before[v].pop(u)
        if (seconds > _least_between(tasks, before, reach, u, v)).any():
            before[v][u] = seconds
    kept = np.array([u in before[v] for u, v in zip(source.tolist(), target.tolist(), strict=True)], bool)
    if kept.all():
        return tasks
    return Tasks.of(tasks.cost, np.stack([source, target], 1)[kept], size[kept], tasks.rate, tasks.delay)


def _least_between(tasks: Tasks, before: list[dict[int, FloatArray]], reach: list[int], u: int, v: int) -> FloatArray:
    """[p, q] least seconds between the end of u on queue p and the start of v on q by the paths between them."""
    ends = {u: np.where(np.eye(len(tasks.rate), dtype=bool), 0.0, INFINITE)}
    for w in range(u + 1, v + 1):
        if w != v and not (reach[u] >> w & 1 and reach[w] >> v & 1):
            continue
        starts = [(ends[x][:, :, None] + d).min(1) for x, d in before[w].items() if x in ends]
        ends[w] = np.maximum.reduce(starts) + (0.0 if w == v else tasks.cost[w])
    return ends[v]


def ids_of(block: Block) -> list[int]:
    """The tasks of a block with its entry and its exit, in topological order."""
    return [*([block.entry] if block.entry >= 0 else []), *block.inner, *([block.exit] if block.exit >= 0 else [])]


def between(tasks: Tasks, block: Block, p: int, q: int) -> Tasks:
    """The task graph of a block with its entry, which has just ended, on queue p and its exit on q (-1: it has none)."""
    ids = ids_of(block)
    cost = tasks.cost[ids]
    if block.entry >= 0:
        cost[0] = INFINITE
        cost[0, p] = 0.0
    if block.exit >= 0:
        cost[-1, np.arange(cost.shape[1]) != q] = INFINITE
    index = {v: i for i, v in enumerate(ids)}
    edges, size = [], []
    for v in ids[block.entry >= 0 :]:
        for e in range(tasks.in_start[v], tasks.in_start[v + 1]):
            edges.append((index[int(tasks.in_items[e])], index[v]))
            size.append(float(tasks.in_size[e]))
    return Tasks.of(cost, edges, size, tasks.rate, tasks.delay)


def blocks_of(tasks: Tasks) -> list[Block]:
    """The blocks of a task graph, in order; one block without entry and exit where nothing can be cut."""
    n, (source, target, _) = len(tasks.cost), edges_of(tasks)
    nearest, farthest = np.full(n, n), np.full(n, -1)
    np.minimum.at(nearest, source, target)
    np.maximum.at(farthest, target, source)
    jumps = np.zeros(n + 1, np.int64)
    np.add.at(jumps, source + 1, 1)
    np.add.at(jumps, target, -1)
    over = np.cumsum(jumps)[:n]
    # All tasks before i lead to i if each has a successor up to i; all after follow from i if each has a predecessor from i on.
    lead = [-1, *accumulate(nearest.tolist(), max)][:n]
    follow = [*accumulate(farthest.tolist()[:0:-1], min, initial=n)][::-1]
    cuts = [i for i in range(n) if lead[i] <= i <= follow[i] and over[i] == 0]
    bounds = [-1, *cuts, n]
    found = [Block(a, tuple(range(a + 1, b)), b if b < n else -1) for a, b in pairwise(bounds)]
    return [b for b in found if b.inner or b.exit >= 0]
