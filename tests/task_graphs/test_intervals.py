"""The CP-SAT model of a task graph."""

from __future__ import annotations

import pytest
from task_graphs.checking import faults, optimum
from task_graphs.drawn import random_tasks

from hetsched.partition.intervals import IntervalModel
from hetsched.partition.list_scheduling import heft
from hetsched.partition.problem import Budget


@pytest.mark.parametrize("seed", range(20))
def test_the_model_finds_the_optimum_and_proves_it(seed):
    tasks = random_tasks(seed, 5, 2 + seed % 2)
    least, known = optimum(tasks), heft(tasks)
    model = IntervalModel(tasks, 0.0, known.makespan)
    model.hint(known)
    budget = Budget()
    answer = model.solve(budget, 5.0)
    assert answer.proven
    assert answer.placed is not None
    assert faults(tasks, answer.placed) == []
    assert answer.placed.makespan == pytest.approx(least, rel=1e-5)
    assert least * (1 - 1e-5) <= answer.bound <= least * (1 + 1e-9)
    assert 0 < budget.spent < 5


@pytest.mark.parametrize("share", [0.9, 0.2])
def test_nothing_is_found_below_the_optimum(share):
    tasks = random_tasks(8, 5)
    least = optimum(tasks)
    answer = IntervalModel(tasks, 0.0, least * share).solve(Budget(), 5.0)
    assert (answer.placed, answer.bound, answer.proven) == (None, float("inf"), True)


def test_the_limit_itself_counts():
    tasks = random_tasks(8, 5)
    least = optimum(tasks)
    answer = IntervalModel(tasks, least, least).solve(Budget(), 5.0)
    assert answer.placed is not None
    assert answer.placed.makespan == pytest.approx(least)
