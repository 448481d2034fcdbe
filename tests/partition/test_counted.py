"""Bounds by numbers of ops per class: never above what brute force finds, and higher with more launches."""

from __future__ import annotations

import pytest
from exhaustive import optima, orders_of
from random_costs import alike, budget, heads, table

from hetsched.partition import tightening
from hetsched.partition.alike import Classes
from hetsched.partition.chain import Chain, chains
from hetsched.partition.counted import QueueCounts
from hetsched.partition.overlap import Window
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.tightening import Patience, Tightened
from hetsched.partition.timing import Costs

INFINITE = float("inf")


@pytest.mark.parametrize(("count", "queues"), [(3, 2), (2, 3)])
def test_heads_are_bounded_from_below(random_table, count, queues):
    raised = 0
    for seed in range(6):
        raw = heads(random_table, seed, count, queues)
        c = Costs(raw)
        best = optima(raw, orders_of(c))["latency"]
        before = Chain(Relaxed(c)).bound()[0]
        tightened = Tightened(c, Chain(Relaxed(c)), budget())
        tightened.raise_by("roles", best * 2, INFINITE, 50.0, Patience(INFINITE))
        after = tightened.chain.bound()[0]
        assert before * (1 - 1e-9) <= after <= best * (1 + 1e-9)
        raised += after > before * (1 + 1e-6)
    assert raised > 2


def test_ops_that_are_left_out_keep_it_a_bound(random_table, optimum):
    for seed in range(12):
        c = table(random_table, seed, 6, density=0.3)
        best = optimum(c)["latency"]
        for chain in (chain for chain in chains(c) if len(chain.relaxed.ops) < c.n):
            tightened = Tightened(c, chain, budget())
            tightened.raise_by("roles", best * 2, INFINITE, 50.0, Patience(INFINITE))
            assert tightened.chain.bound()[0] <= best * (1 + 1e-9)


def test_more_segments_cost_more_launches(random_table):
    c = Costs(heads(random_table, 4, 6, 3))
    relaxed = Relaxed(c)
    block = next(block for block in relaxed.blocks() if block.inner)
    window = Window(relaxed, block, c.alts[block.entry].start, c.alts[block.exit].start)
    classes = Classes(window)
    bounds = [QueueCounts(window, classes, 0.0, 1.0, {1: n}, overlap=False).solve(budget(), 10.0).bound for n in range(5)]
    assert bounds == sorted(bounds)
    assert bounds[4] > bounds[1]


@pytest.mark.parametrize("way", ["fractions", "roles", "sequences", "slots 0", "slots 1", "starts"])
def test_no_way_of_raising_a_bound_passes_the_optimum_where_a_queue_has_two_domains(random_table, optimum, monkeypatch, way):
    monkeypatch.setattr(tightening, "FEW_OPS", 0)
    graphs = [(seed, [[0], [1], [1], [2, 3]]) for seed in (4, 23, 37)]
    tables = [alike(random_table, seed, inputs, [0, 1, 1, 3], precisions=2) for seed, inputs in graphs]
    tables += [random_table(seed, 4, 2, density=0.5, precisions=2, crossing_us=us) for seed, us in ((11, 250), (1, 20), (2, 80), (3, 250))]
    for c in map(Costs, tables):
        best = optimum(c)["latency"]
        for chain in chains(c):
            tightened = Tightened(c, chain, budget())
            tightened.raise_by(way, best * 2, INFINITE, 20.0, Patience(INFINITE))
            assert tightened.chain.bound()[0] <= best * (1 + 1e-9)
