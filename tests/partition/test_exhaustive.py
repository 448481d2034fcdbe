"""The oracle itself, and solvers against it on a sample (``make bench-exact``: more than a thousand graphs)."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import FEATURES, optima, orders_of, plans, without

from hetsched.partition import Problem, solve
from hetsched.partition.timing import Costs


@pytest.mark.parametrize("seed", range(6))
def test_the_oracle_is_the_segment_rule(random_table, optimum, seed):
    table = random_table(seed, 4, 3, crossing_us=(5, 60)[seed % 2], precisions=1 + seed % 2)
    c = Costs(table)
    orders = orders_of(c)
    assert orders is not None
    want = optimum(c)
    got = optima(table, orders)
    assert got == {k: pytest.approx(v, rel=1e-12) for k, v in want.items()}


def test_every_order_is_found_once(random_table):
    table = random_table(3, 6, density=0.2)
    orders = orders_of(Costs(table))
    assert orders is not None and len(np.unique(orders, axis=0)) == len(orders) > 10
    assert orders_of(Costs(table), most=5) is None


@pytest.mark.parametrize("off", [(), *((f,) for f in FEATURES), FEATURES])
def test_each_feature_switched_off(random_table, off):
    found = 0
    for seed in range(3):
        table = without(random_table(70 + seed, 5, 3, crossing_us=40, precisions=1, density=0.4), off)
        c = Costs(table)
        orders = orders_of(c)
        assert orders is not None and plans(c, orders) < 1e6
        best = optima(table, orders)
        for objective in ("latency", "energy", "period"):
            answer = solve(Problem(table, objective), "ilp")
            assert answer.objective == pytest.approx(best[objective], rel=1e-5)
            assert answer.bound <= best[objective] * (1 + 1e-9)
            found += 1
    assert found == 9
