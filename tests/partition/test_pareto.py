"""The front of latency and energy: no point beats another, the ends are the optima, and small fronts are complete at their limits."""

from __future__ import annotations

import itertools

import pytest

from hetsched.errors import OptionError
from hetsched.partition import Problem
from hetsched.partition.pareto import front
from hetsched.partition.timing import Costs, figures


@pytest.mark.parametrize("seed", range(4))
def test_a_small_front_is_part_of_the_true_one(random_table, every_plan, seed):
    table = random_table(40 + seed, 4, 3, crossing_us=(5, 60)[seed % 2], precisions=1, density=0.35)
    c = Costs(table)
    plans = every_plan(c)
    found = front(Problem(table), 6, time_limit_s=20)
    timed = [figures(c, s.order, s.alternative) for s in found]
    for f in timed:
        assert not any(p.latency_s < f.latency_s * (1 - 1e-5) and p.energy_j < f.energy_j * (1 - 1e-5) for p in plans)
    assert timed[0].latency_s == pytest.approx(min(p.latency_s for p in plans), rel=1e-5)
    assert timed[-1].energy_j == pytest.approx(min(p.energy_j for p in plans), rel=1e-5)
    assert all(a.latency_s < b.latency_s and a.energy_j > b.energy_j for a, b in itertools.pairwise(timed))


def test_some_front_has_more_than_its_ends(random_table):
    counts = [len(front(Problem(random_table(seed, 9, 3, crossing_us=20, precisions=1)), 6, time_limit_s=2)) for seed in range(3)]
    assert max(counts) > 2


@pytest.mark.parametrize("points", [0, 1, 65])
def test_absurd_numbers_of_points_are_refused(random_table, points):
    with pytest.raises(OptionError, match=f"front of {points} points"):
        front(Problem(random_table(1, 4)), points)
