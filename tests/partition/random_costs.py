"""Small random costs whose crossings range from cheap to dear, for tests of latency bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.costs import CostTable
from hetsched.partition.problem import Budget
from hetsched.partition.timing import Costs


def budget() -> Budget:
    """One that no clock stops."""
    return Budget(wall_limit_s=1e9)


def table(random_table: Callable[..., CostTable], seed: int, n: int, **more: Any) -> Costs:
    """Costs of ``n`` ops by seed; ``more`` are options of ``make_table``."""
    options = {"precisions": 1, "crossing_us": (3, 20, 80, 250)[seed % 4], "density": 0.4, **more}
    return Costs(random_table(seed, n, 2 + (n < 6 and seed % 2), **options))
