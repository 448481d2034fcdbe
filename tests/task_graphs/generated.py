"""Random task graphs on three queues, the same for every scheduler: layered ones, and DNN-like chains with branches.

Costs and edges are drawn in the same order as by the study that the reference makespans come from, so that a seed names the
same graph there and here.
"""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np

from hetsched.partition.list_scheduling import Tasks

SPEEDS = (1.0, 3.0, 8.0)
"""Work a second of a CPU, a GPU and an NPU."""
BANDWIDTH = 20.0
"""Units a second between two different queues."""
Drawn = tuple[list[float], dict[tuple[int, int], float]]


def layered(n: int, seed: int = 0, width: int = 10) -> Drawn:
    """Work of n tasks and sizes of edges: layers of about ``width`` tasks, one to three predecessors in the layer above."""
    draw = random.Random(seed)
    layers: list[range] = []
    while (first := layers[-1].stop if layers else 0) < n:
        layers.append(range(first, min(n, first + draw.randint(max(1, width // 2), width * 3 // 2))))
    work = [draw.uniform(1, 10) for _ in range(n)]
    size = {}
    for above, layer in pairwise(layers):
        for v in layer:
            for u in draw.sample(above, min(len(above), draw.randint(1, 3))):
                size[u, v] = draw.uniform(1, 20)
    return work, size


def dnn(n: int, seed: int = 0) -> Drawn:
    """Work of n tasks and sizes of edges: chains, then blocks of two to four short branches that join, half with a residual edge."""
    draw = random.Random(seed)
    work, size, last = [draw.uniform(1, 10)], {}, 0

    def add(predecessors: list[int]) -> int:
        work.append(draw.lognormvariate(1.2, 0.8))
        for u in predecessors:
            size[u, len(work) - 1] = draw.uniform(1, 20)
        return len(work) - 1

    while len(work) < n:
        for _ in range(draw.randint(1, 4)):
            last = add([last]) if len(work) < n else last
        if len(work) >= n:
            break
        ends = []
        for _ in range(draw.randint(2, 4)):
            end = last
            for _ in range(draw.randint(1, 3)):
                end = add([end]) if len(work) < n else end
            if end != last:
                ends.append(end)
        if len(work) >= n:
            break
        residual = [last] if draw.random() < 0.5 else []
        last = add(list(dict.fromkeys(ends + residual)))
    return work, size


KINDS = {"layered": layered, "dnn": dnn}


def tasks_of(drawn: Drawn) -> Tasks:
    """A drawn graph on the three queues."""
    work, size = drawn
    cost = np.asarray(work)[:, None] / np.asarray(SPEEDS)
    rate = (1 - np.eye(len(SPEEDS))) / BANDWIDTH
    return Tasks.of(cost, list(size), list(size.values()), rate)
