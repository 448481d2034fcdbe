"""The frontier DP and the list timing against the segment rule and brute force."""

from __future__ import annotations

from copy import copy
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.partition import frontier
from hetsched.partition.frontier import PER_STATE, PER_STATE_COMPILED, Additive, compiled_optimum, frontier_optimum
from hetsched.partition.orders import affinity, by_priority, depth_first, file_order, is_chain, smallest_arena
from hetsched.partition.timing import Costs, figures
from hetsched.segments import schedule


def placements(c):
    return product(*c.alts)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 20), st.booleans())
def test_list_timing_equals_the_segment_rule(random_table, seed, n, shared):
    table = random_table(seed, n, shared_domains=shared)
    c, r = Costs(table), np.random.default_rng(seed)
    alternative = [int(r.choice(list(row))) for row in c.alts]
    order = by_priority(c, r.random(n).tolist())
    timed, f = schedule(table, order, alternative), figures(c, order, alternative)
    assert f.latency_s == pytest.approx(timed.latency_s, rel=1e-12)
    assert f.serial_s == pytest.approx(timed.serial_s, rel=1e-12)
    assert f.energy_j == pytest.approx(timed.energy_j, rel=1e-12)
    assert f.segments == len(timed.segments)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 5), st.integers(1, 3), st.booleans(), st.sampled_from([5, 100, 400]))
def test_dp_equals_brute_force_over_placements_for_its_order(random_table, seed, n, queues, shared, crossing):
    table = random_table(seed, n, queues, shared_domains=shared, crossing_us=crossing, precisions=1 + seed % 2)
    c = Costs(table)
    order = by_priority(c, np.random.default_rng(seed).random(n).tolist())
    timed = [figures(c, order, p) for p in placements(c)]
    serial, energy = frontier_optimum(c, order, Additive(c)), frontier_optimum(c, order, Additive(c, 0.0, 1.0))
    assert serial.exact and energy.exact
    assert serial.cost == pytest.approx(min(f.serial_s for f in timed), rel=1e-12)
    assert figures(c, order, serial.alternative).serial_s == pytest.approx(serial.cost, rel=1e-12)
    assert energy.cost == pytest.approx(min(f.energy_j for f in timed), rel=1e-12)
    assert figures(c, order, energy.alternative).energy_j == pytest.approx(energy.cost, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 25), st.booleans(), st.sampled_from([2, 7, 500]), st.sampled_from([1e-5, 1e9]))
def test_the_compiled_dp_gives_the_same_answer(random_table, seed, n, shared, cap, units):
    c = Costs(random_table(seed, n, 1 + seed % 3, shared_domains=shared, precisions=1 + seed % 2))
    order = by_priority(c, np.random.default_rng(seed).random(n).tolist())
    for add in (Additive(c), Additive(c, 0.0, 1.0)):
        plain = frontier_optimum(c, order, add, cap, units * PER_STATE)
        compiled = compiled_optimum(order, add, cap, units * PER_STATE_COMPILED)
        assert (compiled.cost, compiled.alternative) == (plain.cost, plain.alternative)
        assert (compiled.exact, compiled.width) == (plain.exact, plain.width)


def a_tensor_for_each_reader(c):
    """The same ops; each writes one tensor for each of its readers."""
    d = copy(c)
    d.producer, d.transfer, d.inputs, d.outputs = [], [], [[] for _ in range(c.n)], [[] for _ in range(c.n)]
    for op, row in enumerate(c.inputs):
        for t in row:
            d.inputs[op].append(len(d.producer))
            if c.producer[t] >= 0:
                d.outputs[c.producer[t]].append(len(d.producer))
            d.producer.append(c.producer[t])
            d.transfer.append([[(1 + op % 3) * s for s in targets] for targets in c.transfer[t]])
    return d


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.integers(5, 20), st.sampled_from([7, 500]))
def test_the_compiled_dp_gives_the_same_answer_where_ops_write_many_tensors(random_table, seed, n, cap):
    c = a_tensor_for_each_reader(Costs(random_table(seed, n, 1 + seed % 3, density=0.8)))
    order, add = by_priority(c, np.random.default_rng(seed).random(n).tolist()), Additive(c)
    plain, compiled = frontier_optimum(c, order, add, cap), compiled_optimum(order, add, cap, 1e9)
    assert (compiled.cost, compiled.alternative) == (plain.cost, plain.alternative)
    assert (compiled.exact, compiled.width) == (plain.exact, plain.width)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 25), st.sampled_from([2, 7, 500]), st.sampled_from([1e-5, 1e9]), st.sampled_from([3, 10**9]))
def test_few_orders_of_a_large_graph_get_the_answer_of_the_compiled_dp(random_table, seed, n, cap, units, wide):
    c = Costs(random_table(seed, n, 1 + seed % 3, precisions=1 + seed % 2))
    order, add = file_order(c), Additive(c)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "COMPILED_OPS", 0)
        patch.setattr(frontier, "WIDE", wide)
        patch.setattr(frontier, "compiler_loaded", lambda: False)
        few, many = (frontier_optimum(c, order, add, cap, units * PER_STATE_COMPILED, few=f) for f in (True, False))
    assert (few.cost, few.alternative, few.exact, few.width) == (many.cost, many.alternative, many.exact, many.width)
    assert few.units == pytest.approx(many.units, rel=1e-12)


def test_a_beam_says_that_it_is_not_exact_and_is_never_below_the_optimum(random_table):
    narrowed = 0
    for seed in range(30):
        c = Costs(random_table(seed, 12))
        exact, beam = frontier_optimum(c, file_order(c), Additive(c)), frontier_optimum(c, file_order(c), Additive(c), cap=1)
        assert exact.exact and beam.cost >= exact.cost * (1 - 1e-12)
        narrowed += not beam.exact
    assert narrowed > 10


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 25))
def test_every_order_is_topological(random_table, seed, n):
    c = Costs(random_table(seed, n))
    r = np.random.default_rng(seed)
    nbytes = r.random(len(c.producer)).tolist()
    for order in (file_order(c), depth_first(c), affinity(c, r.integers(0, 3, n).tolist()), smallest_arena(c, nbytes)):
        position = {op: k for k, op in enumerate(order)}
        assert sorted(order) == list(range(n))
        assert all(position[p] < position[v] for v in range(n) for p in c.preds[v])


def test_chain_is_recognised(random_table):
    assert is_chain(Costs(random_table(1, 9, chain=True)))
    assert not is_chain(Costs(random_table(3, 9, density=0.1)))
