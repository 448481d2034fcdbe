"""``ilp`` on task graphs: exact on small ones, bounds below every schedule, the same answer on every run."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from task_graphs.checking import edges_of, faults, optimum
from task_graphs.drawn import random_tasks
from task_graphs.generated import dnn, layered, tasks_of

from hetsched.errors import InfeasibleError, OptionError
from hetsched.partition import task_graphs
from hetsched.partition.blocks import Block
from hetsched.partition.list_scheduling import Tasks, best, heft
from hetsched.partition.task_graphs import TaskChain, ilp


@pytest.mark.parametrize("seed", range(30))
def test_small_graphs_are_solved_exactly(seed):
    tasks = random_tasks(seed, 1 + seed % 5, 1 + seed % 3, (0.3, 0.6, 0.9)[seed // 3 % 3])
    proven = ilp(tasks, 0.2)
    assert faults(tasks, proven.placed) == []
    assert proven.status == "optimal"
    assert proven.placed.makespan == pytest.approx(optimum(tasks), rel=1e-5)
    assert optimum(tasks) * (1 - 1e-5) <= proven.bound <= optimum(tasks) * (1 + 1e-9)


def in_a_row(parts: list[Tasks]) -> Tasks:
    """Graphs one after another, with a task between each two that everything passes."""
    cost, edges, size, first = list[np.ndarray](), [], [], 0
    for part in parts:
        n = len(part.cost)
        cost += [part.cost, np.ones((1, part.cost.shape[1]))]
        edges += [(first + u, first + v) for u, v, _ in edges_of(part)]
        size += [s for *_, s in edges_of(part)]
        ends = [v for v in range(n) if all(u != v for u, *_ in edges_of(part))]
        starts = [v for v in range(n) if all(w != v for _, w, _ in edges_of(part))]
        edges += [(first + v, first + n) for v in ends] + [(first - 1, first + v) for v in starts if first]
        size += [1.0] * (len(edges) - len(size))
        first += n + 1
    return Tasks.of(np.concatenate(cost), edges, size, parts[0].rate, parts[0].delay)


@pytest.mark.parametrize("seed", range(6))
def test_a_row_of_blocks_is_as_good_as_one_model_of_the_whole(seed, monkeypatch):
    tasks = in_a_row([random_tasks(2 * (seed + k), 4, 2) for k in range(3)])
    cut = ilp(tasks, 1.0)
    monkeypatch.setattr(task_graphs, "blocks_of", lambda t: [Block(-1, tuple(range(len(t.cost))), -1)])
    whole = ilp(tasks, 1.0)
    assert cut.status == whole.status == "optimal"
    assert faults(tasks, cut.placed) == []
    assert cut.placed.makespan == pytest.approx(whole.placed.makespan, rel=2e-5)


def test_identical_blocks_are_solved_once():
    part = random_tasks(4, 5, 2)
    chain = TaskChain(tasks := in_a_row([part] * 4), heft(tasks))
    wide = [row for block, row in zip(chain.blocks, chain.pairs, strict=True) if len(block.inner) > 1 and block.entry >= 0]
    assert len(wide) == 3
    for one, other in pairwise(wide):
        assert all(one[queues] is other[queues] for queues in one)


def test_a_dnn_like_graph_is_proven_and_twice_the_same():
    tasks = tasks_of(dnn(100))
    proven, again = ilp(tasks, 5.0), ilp(tasks_of(dnn(100)), 5.0)
    assert proven.status == "optimal"
    assert proven.placed.makespan == pytest.approx(49.801, rel=1e-4)  # the study's optimum, of costs rounded to 0.001
    assert (proven.bound, proven.placed.begin.tolist()) == (again.bound, again.placed.begin.tolist())


def test_little_time_still_gives_a_valid_schedule_and_a_bound():
    tasks = tasks_of(layered(60))
    proven = ilp(tasks, 0.05)
    assert faults(tasks, proven.placed) == []
    assert proven.status in ("feasible", "clock")
    assert 0.95 * proven.placed.makespan < proven.bound < proven.placed.makespan <= best(tasks, 0).makespan
    assert 0 < proven.gap < 0.05


def test_a_graph_with_more_pairs_than_asked_stays_whole():
    tasks = tasks_of(dnn(50))
    assert len(TaskChain(tasks, heft(tasks)).blocks) > 10
    assert TaskChain(tasks, heft(tasks), 50).blocks == [Block(-1, tuple(range(50)), -1)]


def test_graphs_too_large_for_a_model_keep_their_simple_bound(monkeypatch):
    monkeypatch.setattr(task_graphs, "MOST_LITERALS", 0)
    proven = ilp(tasks_of(layered(60)), 0.5)
    assert 0.95 * proven.placed.makespan < proven.bound < proven.placed.makespan


def test_empty_and_impossible_graphs():
    nothing = ilp(Tasks.of(np.empty((0, 2)), [], [], np.zeros((2, 2))), 1.0)
    assert (nothing.placed.makespan, nothing.bound, nothing.gap, nothing.status) == (0, 0, 0, "optimal")
    with pytest.raises(InfeasibleError, match="task 1 can run on no queue"):
        ilp(Tasks.of([[1, 1], [np.inf, np.inf]], [], [], np.zeros((2, 2))), 1.0)
    with pytest.raises(OptionError, match="time limit is 0 s"):
        ilp(tasks_of(dnn(5)), 0)
