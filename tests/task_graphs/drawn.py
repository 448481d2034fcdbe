"""Small random task graphs on unrelated queues."""

from __future__ import annotations

import numpy as np

from hetsched.partition.list_scheduling import Tasks


def random_tasks(seed: int, n: int, queues: int = 3, density: float = 0.3) -> Tasks:
    """Unrelated costs, some infinite, some zero; some queues a delay apart; whole numbers, so that ties are common."""
    draw = np.random.default_rng(seed)
    cost = draw.integers(0, 9, (n, queues)).astype(float)
    cost[:, 1:][draw.random((n, queues - 1)) < 0.2] = np.inf
    edges = [(u, v) for v in range(n) for u in range(v) if draw.random() < density]
    apart = 1.0 - np.eye(queues)
    return Tasks.of(cost, edges, draw.integers(0, 6, len(edges)), apart * draw.integers(0, 3, (queues, queues)), apart * (seed % 2))
