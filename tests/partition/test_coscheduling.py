"""Choosing a placement for each of several models: never worse than each planned alone, and the load is shared out."""

from __future__ import annotations

from itertools import product

import pytest

from hetsched.partition import Problem, solve
from hetsched.partition.coscheduling import candidates, together


@pytest.fixture(scope="module")
def offers(random_table):
    out = []
    for seed in (3, 4, 5):
        problem = Problem(random_table(seed, 8, 3, crossing_us=10, precisions=1, support=1.0))
        out.append(candidates(problem, solve(problem, "frontier-dp"), "frontier-dp"))
    return out


def test_the_own_plan_comes_first_and_no_placement_twice(offers):
    for row in offers:
        keys = [(c.solution.order, c.solution.alternative) for c in row]
        assert len(set(keys)) == len(keys) >= 3
        assert row[0].solution.solver == "frontier-dp"
        assert all(sum(c.busy_s) > 0 for c in row)
        assert any(sum(b > 0 for b in c.busy_s) == 1 for c in row)  # some placement leaves the other queues free


@pytest.mark.parametrize("rates", [(10.0, 10.0, 10.0), (900.0, 10.0, 300.0)])
def test_the_busiest_queue_is_as_free_as_any_choice_makes_it_or_nearly(offers, rates):
    def judge(choice):
        load = [0.0, 0.0, 0.0]
        for row, k, rate in zip(offers, choice, rates, strict=True):
            load = [x + rate * b for x, b in zip(load, row[k].busy_s, strict=True)]
        return (max(load),)

    found = together(offers, rates, judge)
    best = min(judge(c) for c in product(*(range(len(row)) for row in offers)))
    assert found.score == judge(found.chosen) <= found.alone
    assert found.score[0] <= 1.1 * best[0]


def test_models_planned_alone_stay_if_nothing_is_gained(offers):
    assert together(offers, (1.0, 1.0, 1.0), lambda c: (float(sum(c)),)).chosen == (0, 0, 0)
