"""Blocks of identical branches, sequence by sequence: bounds and plans against brute force."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from exhaustive import optima, orders_of
from random_costs import budget, heads

from hetsched.partition import tightening
from hetsched.partition.chain import Chain
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.sequences import _held
from hetsched.partition.tightening import Patience, Tightened
from hetsched.partition.timing import Costs, figures

INFINITE = float("inf")


@pytest.mark.parametrize(("count", "queues"), [(3, 2), (2, 3)])
def test_every_sequence_bounds_from_below_and_the_best_is_a_plan(random_table, monkeypatch, count, queues):
    monkeypatch.setattr(tightening, "FEW_OPS", 0)
    exact = met = 0
    for seed in range(6):
        raw = heads(random_table, 20 + seed, count, queues)
        c = Costs(raw)
        best = optima(raw, orders_of(c))["latency"]
        tightened = Tightened(c, Chain(Relaxed(c)), budget())
        before = tightened.chain.bound()[0]
        for way in ("roles", "sequences"):
            tightened.raise_by(way, best * 1.2, best * 1.2, 200.0, Patience(INFINITE))
        after = tightened.chain.bound()[0]
        assert before * (1 - 1e-9) <= after <= best * (1 + 1e-9)
        order, alternative = tightened.replanned(range(c.n), [row.start for row in c.alts], 0.0)
        exact += after > best * (1 - 1e-4)
        met += figures(c, order, alternative).latency_s <= best * (1 + 1e-9)
    assert exact > 2
    assert met > 2


def contains(long: tuple[int, ...], short: tuple[int, ...]) -> bool:
    """Whether a sequence is the other one with some left out."""
    rest = iter(long)
    return all(q in rest for q in short)


def test_the_sequences_that_are_solved_hold_all_others():
    held = _held([(0, 0), (1, 0), (1, 1), (2, 0), (0, 1)], [1, 2], 0)
    for size in range(6):
        for short in product(range(3), repeat=size):
            alternates = all(p != q for p, q in pairwise(short))
            few = (short.count(1), short.count(2)) in {(0, 0), (1, 0), (1, 1), (2, 0), (0, 1)}
            if alternates and few:
                assert any(contains(sequence, short) for sequence in held)
