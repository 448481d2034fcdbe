"""No bound is ever above what brute force finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.partition.blocks import incomparable, light_ops
from hetsched.partition.bounds import area_bound, chain_bound, lower_bound
from hetsched.partition.chain import Chain, chains
from hetsched.partition.problem import Budget
from hetsched.partition.relaxed import Relaxed, simplified
from hetsched.partition.tightening import LAYERS, OTHERS, Tightened, tighten
from hetsched.partition.timing import Costs


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 5), st.integers(1, 3), st.sampled_from([3, 30, 300]), st.booleans())
def test_bounds_are_below_the_optimum(random_table, optimum, seed, n, queues, crossing, shared):
    c = Costs(random_table(seed, n, queues, precisions=1 + (n < 4), crossing_us=crossing, shared_domains=shared, density=0.3))
    best = optimum(c)
    for objective, value in best.items():
        assert 0 < lower_bound(c, objective) <= value * (1 + 1e-9), objective
    assert area_bound(c) <= best["period"] * (1 + 1e-9)


def test_a_plain_chain_is_bounded_exactly(random_table, optimum):
    exact = 0
    for seed in range(40):
        c = Costs(random_table(seed, 4, 3, precisions=1, chain=True, density=0.0))
        if any(c.producer[t] < 0 for row in c.inputs[1:] for t in row):
            continue  # a graph input that is read late could have been converted early: only bounded
        assert chain_bound(c) == pytest.approx(optimum(c)["latency"], rel=1e-9)
        exact += 1
    assert exact > 20


def test_blocks_hold_every_op_once_between_comparable_cuts(random_table):
    for seed in range(30):
        c = Costs(random_table(seed, 14, density=0.4))
        relaxed = Relaxed(c)
        blocks, cuts = relaxed.blocks(), [v for v, k in incomparable(relaxed.ops, relaxed.preds).items() if k == 0]
        assert [b.exit for b in blocks] == [*cuts, -1]
        assert [b.entry for b in blocks] == [-1, *cuts]
        assert sorted([v for b in blocks for v in b.inner] + cuts) == list(range(14))


def test_area_bound_shares_the_work_out(random_table):
    for seed in range(10):
        c = Costs(random_table(seed, 30, 3, density=0.0, crossing_us=1))
        least = sum(min(c.time[a] for a in row) for row in c.alts)
        assert least / 3 * 0.999 <= area_bound(c) <= least


@pytest.mark.parametrize("seed", range(24))
def test_block_relaxations_are_below_the_optimum(random_table, optimum, seed):
    c = Costs(random_table(seed, 5 + seed % 2, 2 + (seed % 4 == 0), precisions=1, crossing_us=(10, 60, 200)[seed % 3], density=0.5))
    best = optimum(c)["latency"]
    spend = Budget(wall_limit_s=1e9)
    tightened = [Tightened(c, chain, spend) for chain in chains(c)]
    bound = max(tighten(tightened, stage, best * 1.5, float("inf"), spend, 20.0) for stage in (*LAYERS, *OTHERS))
    assert chain_bound(c) <= bound * (1 + 1e-9)
    assert bound <= best * (1 + 1e-9)


def test_leaving_ops_out_keeps_the_bound_valid(random_table, optimum):
    dropped = 0
    for seed in range(60):
        c = Costs(random_table(seed, 5, 2, precisions=1, density=0.4, crossing_us=(3, 100)[seed % 2]))
        relaxed = simplified(c, [v for v, _ in light_ops(c.preds, [min(c.time[a] for a in row) for row in c.alts], 0.5)])
        dropped += c.n - len(relaxed.ops)
        assert Chain(relaxed).bound()[0] <= optimum(c)["latency"] * (1 + 1e-9)
    assert dropped > 30
