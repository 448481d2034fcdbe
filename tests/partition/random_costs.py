"""Small random costs whose crossings range from cheap to dear, for tests of latency bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hetsched.costs import CostTable
from hetsched.graph import Csr
from hetsched.partition.problem import Budget
from hetsched.partition.timing import Costs


def budget() -> Budget:
    """One that no clock stops."""
    return Budget(wall_limit_s=1e9)


def table(random_table: Callable[..., CostTable], seed: int, n: int, **more: Any) -> Costs:
    """Costs of ``n`` ops by seed; ``more`` are options of ``make_table``."""
    options = {"precisions": 1, "crossing_us": (3, 20, 80, 250)[seed % 4], "density": 0.4, **more}
    return Costs(random_table(seed, n, 2 + (n < 6 and seed % 2), **options))


def alike(
    random_table: Callable[..., CostTable], seed: int, inputs: list[list[int]], same: list[int], queues: int = 2, precisions: int = 1
) -> CostTable:
    """Op v reads the tensors ``inputs[v]`` (0: the graph's input), writes tensor v + 1 and costs what op ``same[v]`` costs."""
    n = len(inputs)
    base = random_table(seed, n, queues, precisions=precisions, density=0.0, crossing_us=20, support=1.0)
    preds = [sorted({t - 1 for t in row if t}) for row in inputs]
    copied = np.concatenate([np.arange(base.alt_start[v], base.alt_start[v + 1]) for v in same])
    rows = np.minimum([0, *(1 + v for v in same)], len(base.tensor_bytes) - 1)
    moved = ("conversion_s", "maintenance_s", "transfer_energy_j", "transfer_bytes", "tensor_bytes")
    return replace(
        base, tensor_names=tuple(f"t{i}" for i in range(n + 1)), compute_s=base.compute_s[copied], energy_j=base.energy_j[copied],
        op_inputs=Csr.from_rows(inputs), op_outputs=Csr.from_rows([[1 + v] for v in range(n)]), predecessors=Csr.from_rows(preds),
        successors=Csr.from_rows([[v for v in range(n) if u in preds[v]] for u in range(n)]),
        tensor_producer=np.arange(-1, n, dtype=np.int32), graph_outputs=np.array([n], np.int32),
        **{name: getattr(base, name)[rows] for name in moved},
    )  # fmt: skip


def heads(random_table: Callable[..., CostTable], seed: int, count: int, queues: int = 2) -> CostTable:
    """An op, ``count`` identical branches of two ops, an op that joins them."""
    branches = [row for h in range(count) for row in ([1], [2 + 2 * h])]
    inputs = [[0], *branches, [3 + 2 * h for h in range(count)]]
    return alike(random_table, seed, inputs, [0, *[1, 2] * count, 2 * count + 1], queues)
