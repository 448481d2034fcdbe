"""Bounds of task graphs: by hand, and never above the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from task_graphs.checking import optimum
from task_graphs.drawn import random_tasks
from task_graphs.generated import SPEEDS, layered, tasks_of

from hetsched.partition.list_scheduling import Tasks
from hetsched.partition.task_bounds import area_bound, heads, path_bound, tails, weights_of


def test_heads_and_tails_take_the_cheaper_of_staying_and_crossing():
    tasks = Tasks.of([[4.0, 1.0], [5.0, 9.0]], [(0, 1)], [2.0], 1 - np.eye(2))
    assert heads(tasks).tolist() == [[4, 1], [8, 10]]
    assert tails(tasks).tolist() == [[5, 7], [0, 0]]
    assert path_bound(heads(tasks), tails(tasks)) == pytest.approx(8)


@pytest.mark.parametrize("seed", range(40))
def test_no_bound_is_above_the_optimum(seed):
    tasks = random_tasks(seed, 5, 2 + seed % 2, (0.0, 0.3, 0.6)[seed % 3])
    head, tail = heads(tasks), tails(tasks)
    assert max(path_bound(head, tail), area_bound(tasks, head, tail)) <= optimum(tasks)


def test_weights_share_the_work_of_related_queues_by_their_speed():
    cost = np.asarray(layered(200)[0])[:, None] / np.asarray(SPEEDS)
    least = (cost * weights_of(cost)).min(1).sum()
    assert least == pytest.approx(cost[:, 0].sum() / sum(SPEEDS), rel=1e-3)


def test_work_inside_a_window_is_added_to_what_comes_before_and_after():
    # One long task, six at once on two queues, one long task: 10 + 3 + 10.
    edges = [(0, v) for v in range(1, 7)] + [(v, 7) for v in range(1, 7)]
    cost = np.ones((8, 2))
    cost[[0, 7]] = 10
    tasks = Tasks.of(cost, edges, np.zeros(12), np.zeros((2, 2)))
    assert path_bound(heads(tasks), tails(tasks)) == pytest.approx(21)
    assert area_bound(tasks, heads(tasks), tails(tasks)) == pytest.approx(23)


def test_the_area_bound_of_many_tasks_is_that_of_all_their_work_at_least():
    tasks = tasks_of(layered(1000))
    assert area_bound(tasks, heads(tasks), tails(tasks)) >= tasks.cost[:, 0].sum() / sum(SPEEDS) * (1 - 1e-3)
