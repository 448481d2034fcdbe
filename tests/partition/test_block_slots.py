"""Blocks as CP-SAT models over segments: bounds against brute force, plans of blocks in a row, identical branches."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import FEATURES, optima, orders_of, without
from random_costs import alike, heads

from hetsched.costs import CostTable
from hetsched.partition.additive_chain import AdditiveChain
from hetsched.partition.block_plans import BlockPlans, op_ends, ties
from hetsched.partition.block_search import search
from hetsched.partition.block_slots import BlockSlots
from hetsched.partition.chain import Chain
from hetsched.partition.frontier import Additive
from hetsched.partition.orders import file_order
from hetsched.partition.overlap import Window
from hetsched.partition.problem import Budget
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.tightening import SLOTS, Patience, Tightened
from hetsched.partition.timing import Costs, figures
from hetsched.partition.twins import twins

INFINITE = float("inf")
PATIENT = Patience(INFINITE)


def budget() -> Budget:
    return Budget(units=1e9, wall_limit_s=1e9)


def drawn(random_table, seed: int) -> CostTable:
    """A random table of 4 to 6 ops with some cost features switched off."""
    r = np.random.default_rng(seed)
    table = random_table(
        seed, 4 + seed % 3, 2 + seed % 2, density=float(r.choice([0.15, 0.3, 0.5])), precisions=1 + (seed % 5 == 0),
        crossing_us=int(r.choice([1, 5, 30, 150])), shared_domains=seed % 4 == 0, support=float(r.choice([0.6, 1.0])),
    )  # fmt: skip
    return without(table, [f for f in FEATURES if r.random() < 0.2])


def layers(random_table, seed: int) -> CostTable:
    """An op and two identical layers of two branches that all read the graph's input, too."""
    return alike(random_table, seed, [[0], [0, 1], [0, 1], [2, 3], [0, 4], [0, 4], [5, 6]], [3, 1, 2, 3, 1, 2, 3])


def bounded(c: Costs, best: float, ways: list[str]) -> Tightened:
    tightened = Tightened(c, Chain(Relaxed(c)), budget())
    for way in ways:
        tightened.raise_by(way, best * 2, INFINITE, 1e6, PATIENT)
    return tightened


@pytest.mark.parametrize("between", SLOTS)
def test_segments_with_a_rest_bound_from_below(random_table, between):
    raised = exact = 0
    for seed in range(6 if between > 1 else 24):
        table = drawn(random_table, 3 * seed + SLOTS.index(between))
        c = Costs(table)
        best = optima(table, orders_of(c))["latency"]
        before = Chain(Relaxed(c)).bound()[0]
        after = bounded(c, best, ["slots 0", f"slots {between}"]).chain.bound()[0]
        assert before * (1 - 1e-9) <= after <= best * (1 + 1e-9)
        raised += after > before * (1 + 1e-6)
        exact += before < best * (1 - 1e-4) <= after
    assert raised > 1
    assert exact >= 1


def test_plans_of_blocks_in_a_row_are_often_the_optimum(random_table):
    met = 0
    for seed in range(12):
        table = drawn(random_table, 501 + 3 * seed)
        c = Costs(table)
        best = optima(table, orders_of(c))["latency"]
        tightened = bounded(c, best, ["slots 1"])
        start = file_order(c), [row.start for row in c.alts]
        order, alternative = tightened.replanned(*start, 4.0)
        value = figures(c, order, alternative).latency_s
        assert best * (1 - 1e-9) <= value
        met += value <= best * (1 + 1e-9)
    assert met > 8


@pytest.mark.parametrize("seed", range(8))
def test_the_blocks_of_a_plan_take_as_long_as_the_plan(random_table, seed):
    c = Costs(random_table(seed, 9, 3, chain=True, density=0.2, precisions=1))
    order, alternative = file_order(c), [row.start + seed % len(row) for row in c.alts]
    ended = op_ends(c, order, alternative)
    latency = figures(c, order, alternative).latency_s
    assert max(ended) <= latency * (1 + 1e-9)
    plans = BlockPlans(Chain(Relaxed(c)), budget())
    plans.adopt(order, alternative)
    assert sum(seconds for seconds, _ in plans.known.values()) <= latency * (1 + 1e-9)
    assert figures(c, *plans.composed()).latency_s <= latency * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_identical_branches_may_come_in_one_order(random_table, seed):
    """The optimum of a block is the same with and without the order of its branches, and as brute force finds it."""
    table = heads(random_table, seed, 3)
    c = Costs(table)
    chain, serial = Chain(Relaxed(c)), AdditiveChain(c, Additive(c))
    k = next(k for k, block in enumerate(chain.blocks) if len(block.inner) == 6)
    assert [len(group) for group in twins(chain.relaxed, chain.blocks[k], serial.charged[k])] == [3]
    best = optima(table, orders_of(c))["latency"]
    assert bounded(c, best, ["roles", "slots 0", "slots 1", "slots 3"]).chain.bound()[0] <= best * (1 + 1e-9)
    for a in chain.entries(chain.blocks[k]):
        for b in chain.exits(chain.blocks[k]):
            window = Window(chain.relaxed, chain.blocks[k], a, b, serial.charged[k])
            free = search(BlockSlots(window, 3, 0.0, 1.0, rest=False), budget(), 8.0)
            tied = search(BlockSlots(window, 3, 0.0, 1.0, rest=False, tied=ties(window)), budget(), 8.0)
            assert free.bound <= tied.value * (1 + 1e-6)
            assert len(ties(window)) == 2


@pytest.mark.parametrize("seed", range(12))
def test_identical_layers_may_differ_in_what_they_pay(random_table, seed):
    """The graph's input is brought over once, so the second layer may be cheaper than the first."""
    table = layers(random_table, seed)
    best = optima(table, orders_of(Costs(table)))["latency"]
    assert bounded(Costs(table), best, ["fractions", "roles", "slots 0", "slots 1"]).chain.bound()[0] <= best * (1 + 1e-9)


def test_branches_that_differ_are_not_twins(random_table):
    c = Costs(heads(random_table, 1, 3))
    c.time[c.alts[1].start] *= 2
    relaxed = Relaxed(c)
    block = next(block for block in relaxed.blocks() if len(block.inner) == 6)
    assert [len(group) for group in twins(relaxed, block, ())] == [2]


def test_more_segments_one_by_one_bound_no_less(random_table):
    """And a plan is no better than any of the bounds."""
    compared = 0
    for seed in range(6):
        c = Costs(random_table(seed, 8, 3, density=0.25, precisions=1, crossing_us=30))
        chain, serial = Chain(Relaxed(c)), AdditiveChain(c, Additive(c))
        for k, block in enumerate(chain.blocks):
            if len(block.inner) < 3:
                continue
            window = Window(chain.relaxed, block, chain.entries(block)[0], chain.exits(block)[0], serial.charged[k])
            least = [search(BlockSlots(window, between, 0.0, 0.01, rest=True), budget(), 8.0).bound for between in SLOTS]
            plan = search(BlockSlots(window, 4, 0.0, 0.01, rest=False), budget(), 8.0).value
            assert least[0] <= least[1] * (1 + 1e-5)
            assert least[-1] <= plan * (1 + 1e-5)
            compared += 1
    assert compared > 2
