"""The search over phases: the least energy in any order, against brute force."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hetsched.partition.additive_chain import AdditiveChain, least_cost, with_inputs
from hetsched.partition.blocks import blocks, bridged, incomparable, light_ops
from hetsched.partition.frontier import Additive
from hetsched.partition.orders import by_priority
from hetsched.partition.problem import Budget
from hetsched.partition.timing import Costs, figures

INFINITE = float("inf")


def free() -> Budget:
    return Budget(wall_limit_s=1e9)


@example(63527, 4, 3, 3, False, 0.6)  # going to the host over a third queue is cheaper than directly
@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**9), st.integers(1, 6), st.integers(1, 3), st.sampled_from([3, 60, 300]), st.booleans(), st.sampled_from([0.3, 0.6])
)
def test_least_energy_is_below_every_plan_and_one_block_is_exact(random_table, optimum, seed, n, queues, crossing, shared, density):
    table = random_table(seed, n, queues, precisions=1 + (n < 4), crossing_us=crossing, shared_domains=shared, density=density)
    c = Costs(table)
    add, best = Additive(c, 0.0, 1.0), optimum(c)["energy"]
    found = least_cost(c, add, INFINITE, INFINITE, free(), 10.0)
    assert AdditiveChain(c, add).bound()[0] <= found.cost * (1 + 1e-12)
    assert found.cost <= best * (1 + 1e-9)
    assert found.placed is not None
    assert best * (1 - 1e-9) <= figures(c, *found.placed).energy_j


def test_most_random_graphs_are_solved_to_the_optimum(random_table, optimum):
    exact = 0
    for seed in range(30):
        c = Costs(random_table(seed, 6, 2, precisions=1, crossing_us=(5, 60, 250)[seed % 3], density=0.35))
        found = least_cost(c, Additive(c, 0.0, 1.0), INFINITE, INFINITE, free(), 10.0)
        best = optimum(c)["energy"]
        exact += found.cost >= best * (1 - 1e-9)
        if found.cost >= best * (1 - 1e-9):
            assert figures(c, *found.placed).energy_j == pytest.approx(best, rel=1e-9)
    assert exact >= 22  # where no detour over a third queue pays and no input is read in two blocks


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 6), st.sampled_from([0.1, 0.4, 0.8]), st.integers(0, 40))
def test_a_bound_without_some_ops_or_stopped_early_is_below_the_optimum(random_table, optimum, seed, n, share, states):
    c = Costs(random_table(seed, n, 2, precisions=1, density=0.4, crossing_us=30))
    add, best = Additive(c, 0.0, 1.0), optimum(c)["energy"]
    light = light_ops(c.preds, [min(add.op[a] for a in row) for row in c.alts], share)
    chain = AdditiveChain(c, add, [v for v, _ in light])
    for arc in chain.found:
        got = chain.search(arc, INFINITE, states)
        assert got.states <= states
        chain.found[arc] = got
    assert chain.bound()[0] <= best * (1 + 1e-9)
    assert chain.raise_to(INFINITE, INFINITE, free(), 10.0).cost <= best * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 12), st.booleans())
def test_inputs_that_one_op_reads_may_be_paid_with_the_op(random_table, seed, n, shared):
    c, r = Costs(random_table(seed, n, 3, density=0.3, shared_domains=shared)), np.random.default_rng(seed)
    add, folded = with_inputs(c, Additive(c, 0.0, 1.0))
    d = copy(c)
    d.energy = add.op
    d.transfer_j = [[[0.0] * c.domains for _ in m] if t in folded else m for t, m in enumerate(c.transfer_j)]
    assert all(sum(t in row for row in c.inputs) == 1 for t in folded)
    for _ in range(5):
        order, alternative = by_priority(c, r.random(n).tolist()), [int(r.choice(list(row))) for row in c.alts]
        assert figures(d, order, alternative).energy_j == pytest.approx(figures(c, order, alternative).energy_j, rel=1e-12)


def test_serial_seconds_are_additive_too(random_table, optimum):
    for seed in range(20):
        c = Costs(random_table(seed, 5, 2, precisions=1, chain=True, density=0.1))
        found = least_cost(c, Additive(c), INFINITE, INFINITE, free(), 5.0)
        assert found.cost <= figures(c, *found.placed).serial_s * (1 + 1e-12)


def test_a_search_stops_at_its_limit(random_table):
    c = Costs(random_table(3, 9, density=0.2))
    chain = AdditiveChain(c, Additive(c, 0.0, 1.0))
    arc = max(chain.found, key=lambda arc: len(chain.blocks[arc[0]].inner))
    least = chain.searches[arc[0]].search(arc[1], arc[2], states=10**6)
    half = chain.searches[arc[0]].search(arc[1], arc[2], limit=least.cost / 2, states=10**6)
    assert least.exact and not half.exact
    assert half.cost == least.cost / 2 and half.states < least.states


def test_light_ops_are_few_and_leave_the_others_comparable(random_table):
    for seed in range(20):
        c = Costs(random_table(seed, 20, 2, precisions=1, density=0.5))
        cost = [min(c.time[a] for a in row) for row in c.alts]
        light = light_ops(c.preds, cost, 0.3)
        gone = [v for v, _ in light]
        assert sum(cost[v] for v in gone) <= 0.3 * sum(cost) * (1 + 1e-9)
        assert [share for _, share in light] == pytest.approx([sum(cost[v] for v in gone[: k + 1]) / sum(cost) for k in range(len(gone))])
        preds = bridged(c.preds, gone)
        whole = incomparable(range(20), dict(enumerate(c.preds)))
        assert all(count <= whole[v] for v, count in incomparable(list(preds), preds).items())
        assert sorted(v for b in blocks(list(preds), preds) for v in (*b.inner, *([b.exit] if b.exit >= 0 else []))) == sorted(preds)
