"""Copies of a DMA engine: solvers bound plans without them, time plans with them, and never lose to the queue that copies itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from hetsched.costs import CostTable, Dma
from hetsched.partition import Problem, solve
from hetsched.partition.problem import OBJECTIVES, objective_of
from hetsched.partition.timing import Costs, figures
from hetsched.segments import schedule

US = 1e-6


def copying(table: CostTable, seed: int, dearest_us: float) -> CostTable:
    """The table with copies of up to so long between domains of different queues."""
    r = np.random.default_rng(seed)
    apart = np.not_equal.outer([d.queue for d in table.domains], [d.queue for d in table.domains])
    copied = r.integers(0, 2, table.transfer_bytes.shape) * r.integers(1, max(int(dearest_us), 2), table.transfer_bytes.shape) * 1e3 * apart
    dma = Dma(1e9, 2 * US, 0.5)
    paid = np.where(copied > 0, (dma.launch_s + copied / dma.bandwidth_bytes_s) * dma.active_w, 0.0)
    return replace(table, dma=dma, copy_bytes=copied, transfer_energy_j=table.transfer_energy_j + paid)


@pytest.mark.parametrize("seed", range(20))
def test_search_and_schedule_time_copies_alike(random_table: Callable[..., CostTable], seed: int) -> None:
    r = np.random.default_rng(seed)
    table = copying(random_table(seed, n=10), seed, 300)
    alternative = [int(r.choice(list(table.alternatives(op)))) for op in range(10)]
    timed, found = schedule(table, range(10), alternative), figures(Costs(table), range(10), alternative)
    assert found[:3] == pytest.approx((timed.latency_s, timed.serial_s, timed.energy_j), rel=1e-9)
    for before, after in zip(timed.copies, timed.copies[1:], strict=False):
        assert after.start_s >= before.end_s * (1 - 1e-12)
    for c in timed.copies:
        assert c.start_s >= (timed.end_s[c.source] if c.source >= 0 else 0.0)
        assert timed.start_s[c.segment] >= c.end_s


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("seed", "dearest_us"), [(0, 30), (1, 300), (2, 1000), (3, 1000)])
def test_bounds_hold_and_auto_loses_to_nobody(random_table: Callable[..., CostTable], seed: int, dearest_us: float, objective: str) -> None:
    table = copying(random_table(seed, n=5, queues=2, precisions=1, support=1.0), seed, dearest_us)
    problem = Problem(table, objective)  # type: ignore[arg-type]
    found = solve(problem, "auto", time_limit_s=0.2)
    assert found.objective == objective_of(problem, found.order, found.alternative)
    preds = [set(table.predecessors.row(op).tolist()) for op in range(5)]
    orders = [o for o in permutations(range(5)) if all(preds[op] <= set(o[:k]) for k, op in enumerate(o))]
    best = min(objective_of(problem, o, a) for o in orders for a in product(*(table.alternatives(op) for op in range(5))))
    assert found.bound <= best * (1 + 1e-9)
    assert found.objective <= 1.05 * best
    assert (found.status == "optimal") <= (found.objective <= best * (1 + 1e-9))
    for other in ("heft", "vendor", "frontier-dp", "ilp"):
        assert found.objective <= solve(problem, other, time_limit_s=0.2).objective * (1 + 1e-9)
