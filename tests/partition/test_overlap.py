"""Blocks in which queues overlap: no bound is above what brute force finds, and some are exact."""

from __future__ import annotations

import pytest
from random_costs import budget, table

from hetsched.partition.alike import Classes
from hetsched.partition.chain import Chain, chains
from hetsched.partition.counted import QueueCounts
from hetsched.partition.overlap import Window
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.tightening import Patience, Tightened
from hetsched.partition.timing import Costs

INFINITE = float("inf")


@pytest.mark.parametrize("way", ["fractions", "roles"])
def test_serial_or_overlapping_is_below_the_optimum(random_table, optimum, way):
    raised = exact = 0
    for seed in range(120 if way == "fractions" else 40):
        c = table(random_table, seed, 5 + seed % 2)
        best = optimum(c)["latency"]
        for chain in chains(c):
            before = chain.bound()[0]
            tightened = Tightened(c, chain, budget())
            for step in ("fractions", way):
                tightened.raise_by(step, best * 2, INFINITE, 10.0, Patience(INFINITE))
            after = chain.bound()[0]
            assert before * (1 - 1e-9) <= after <= best * (1 + 1e-9)
            raised += after > before * (1 + 1e-6)
            exact += after > best * (1 - 1e-6) and before < best * (1 - 1e-6)
    assert raised > 10
    assert exact > 0


def test_domains_of_several_queues_are_bounded_too(random_table, optimum):
    for seed in range(15):
        c = table(random_table, seed, 5, shared_domains=True, precisions=2 if seed % 3 else 1, density=0.3)
        best = optimum(c)["latency"]
        tightened = Tightened(c, Chain(Relaxed(c)), budget())
        for step in ("fractions", "roles", "starts"):
            tightened.raise_by(step, best * 2, INFINITE, 5.0, Patience(INFINITE))
        assert tightened.chain.bound()[0] <= best * (1 + 1e-9)


def test_whole_ops_bound_no_less_than_fractions(random_table):
    for seed in range(12):
        c = table(random_table, seed, 9, density=0.25)
        relaxed = Relaxed(c)
        for block in (b for b in relaxed.blocks() if len(b.inner) > 1):
            for a in [-1] if block.entry < 0 else c.alts[block.entry]:
                window = Window(relaxed, block, a, -1 if block.exit < 0 else c.alts[block.exit].start)
                fractional = window.fractional()
                whole = QueueCounts(window, Classes(window), 0.0, 10 * fractional).solve(budget(), 10.0)
                assert fractional * (1 - 1e-4) <= whole.bound
                assert whole.units > 0


def test_one_op_between_cuts_never_overlaps(random_table):
    c = Costs(random_table(1, 6, chain=True, density=0.0))
    relaxed = Relaxed(c)
    assert all(Window(relaxed, b, -1, -1).fractional() == INFINITE for b in relaxed.blocks() if len(b.inner) < 2)


def test_identical_blocks_have_one_signature(random_table):
    c = Costs(random_table(1, 12, 2, chain=True, density=0.1, precisions=1))
    chain = Chain(Relaxed(c))
    signatures = {chain.signature(arc) for arc in chain.values}
    assert 1 < len(signatures) <= len(chain.values)
    assert signatures == {Chain(Relaxed(c)).signature(arc) for arc in chain.values}
    c.time = [2 * t for t in c.time]
    assert signatures != {Chain(Relaxed(c)).signature(arc) for arc in chain.values}
