"""List schedulers on task graphs: an independent check of every schedule, brute force, the paper's example, ties."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_graphs.checking import edges_of, faults, optimum
from task_graphs.drawn import random_tasks
from task_graphs.generated import KINDS, dnn, tasks_of

from hetsched.errors import InfeasibleError, OptionError
from hetsched.partition import list_core
from hetsched.partition.list_scheduling import Placed, Tasks, best, cpop, heft, peft

SCHEDULERS = (heft, peft, cpop)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 40), st.integers(1, 5), st.sampled_from([0.05, 0.3, 0.8]))
def test_every_schedule_is_valid(seed, n, queues, density):
    tasks = random_tasks(seed, n, queues, density)
    found = [scheduler(tasks) for scheduler in SCHEDULERS]
    for placed in found:
        assert faults(tasks, placed) == []
    top = best(tasks, trials=30)
    assert faults(tasks, top) == []
    assert top.makespan <= best(tasks, trials=0).makespan <= min(p.makespan for p in found)


@pytest.mark.parametrize("seed", range(25))
def test_no_schedule_is_shorter_than_the_optimum_and_the_best_is_near_it(seed):
    tasks = random_tasks(seed, 5, 2 + seed % 2)
    least = optimum(tasks)
    assert all(scheduler(tasks).makespan >= least * (1 - 1e-12) for scheduler in SCHEDULERS)
    assert least * (1 - 1e-12) <= best(tasks).makespan <= 1.2 * least


def test_the_check_finds_what_is_wrong():
    tasks = Tasks.of([[2.0, 3.0], [1.0, 1.0], [4.0, 4.0]], [(0, 1)], [5.0], [[0, 1], [1, 0]])
    good = heft(tasks)
    assert faults(tasks, good) == []
    row, times = np.array([0, 0, 0]), np.array([0.0, 2.0, 3.0])
    assert faults(tasks, Placed(row, times, np.array([2.0, 3.0, 7.0]))) == []
    assert "overlap" in faults(tasks, Placed(row, np.array([0.0, 2.0, 2.5]), np.array([2.0, 3.0, 6.5])))[0]
    assert "before" in faults(tasks, Placed(np.array([0, 1, 0]), np.array([0.0, 2.0, 2.0]), np.array([2.0, 3.0, 6.0])))[0]
    assert "takes" in faults(tasks, Placed(row, times, np.array([2.0, 3.5, 7.0])))[0]
    assert "nowhere" in faults(tasks, Placed(np.array([0, -1, 0]), times, np.array([2.0, 3.0, 7.0])))[0]


def paper() -> Tasks:
    """The ten tasks on three processors of figures 1 and 2 in Topcuoglu, Hariri and Wu (2002)."""
    cost = [
        [14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10],
        [13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20], [21, 7, 16],
    ]  # fmt: skip
    size = {
        (0, 1): 18, (0, 2): 12, (0, 3): 9, (0, 4): 11, (0, 5): 14, (1, 7): 19, (1, 8): 16, (2, 6): 23,
        (3, 7): 27, (3, 8): 23, (4, 8): 13, (5, 7): 15, (6, 9): 17, (7, 9): 11, (8, 9): 13,
    }  # fmt: skip
    return Tasks.of(cost, list(size), list(size.values()), 1 - np.eye(3))


def test_the_papers_example_has_the_papers_makespans_and_ranks():
    tasks = paper()
    rank = np.empty(10)
    list_core.upward_rank(tasks.out_start, tasks.out_items, tasks.out_size, tasks.own, rank)
    assert np.round(rank[[0, 9]], 3).tolist() == [108.0, 14.667]
    assert heft(tasks).makespan == 80
    assert cpop(tasks).makespan == 86


@pytest.mark.parametrize("kind", KINDS)
def test_gap_arrays_that_grow_stay_exact(kind):
    """Thousands of tasks, checked; and the same schedule as a plain scan of busy intervals finds."""
    tasks = tasks_of(KINDS[kind](3000, 4))
    placed = heft(tasks)
    assert faults(tasks, placed) == []
    rank = np.empty(3000)
    list_core.upward_rank(tasks.out_start, tasks.out_items, tasks.mean_edge(tasks.out_size), tasks.own, rank)
    queue, begin = scanned(tasks, np.argsort(-rank, kind="stable").tolist())
    assert placed.queue.tolist() == queue
    assert placed.begin.tolist() == begin


@pytest.mark.parametrize("seed", range(40))
def test_tasks_that_take_no_time_fit_between_two_others(seed):
    tasks = random_tasks(seed, 30, 2 + seed % 3, (0.05, 0.3)[seed % 2])
    rank = np.empty(30)
    list_core.upward_rank(tasks.out_start, tasks.out_items, tasks.mean_edge(tasks.out_size), tasks.own, rank)
    queue, begin = scanned(tasks, np.argsort(-rank, kind="stable").tolist())
    placed = heft(tasks)
    assert placed.queue.tolist() == queue
    assert placed.begin.tolist() == begin


def scanned(tasks: Tasks, order: list[int]) -> tuple[list[int], list[float]]:
    """Insertion as in the paper, every busy interval looked at."""
    n, queues = tasks.cost.shape
    before: list[list[tuple[int, float]]] = [[] for _ in range(n)]
    for u, v, s in edges_of(tasks):
        before[v].append((u, s))
    busy: list[list[tuple[float, float]]] = [[] for _ in range(queues)]
    queue, begin, end = [-1] * n, [0.0] * n, [0.0] * n
    for v in order:
        options = []
        for q in range(queues):
            arrivals = (end[u] + s * tasks.rate[queue[u], q] + tasks.delay[queue[u], q] for u, s in before[v])
            start, seconds = max(arrivals, default=0.0), tasks.cost[v, q]
            for a, b in busy[q]:
                if start + seconds <= a:
                    break
                start = max(start, b)
            options.append((float(start + seconds), q, float(start)))
        end[v], queue[v], begin[v] = min(options)
        busy[queue[v]] = sorted([*busy[queue[v]], (begin[v], end[v])])
    return queue, begin


def test_ties_go_to_the_lower_index():
    tasks = Tasks.of(np.ones((4, 2)), [], [], np.zeros((2, 2)))
    for scheduler in SCHEDULERS:
        placed = scheduler(tasks)
        assert placed.queue.tolist() == [0, 1, 0, 1]
        assert placed.begin.tolist() == [0, 0, 1, 1]


def test_bad_graphs_are_refused_with_what_to_do():
    with pytest.raises(OptionError, match=r"edge 1 -> 0 of 2 tasks does not point forward: number the tasks"):
        Tasks.of(np.ones((2, 2)), [(1, 0)], [1], np.zeros((2, 2)))
    with pytest.raises(OptionError, match=r"the cost at \(0, 1\) is -1.0"):
        Tasks.of([[1, -1]], [], [], np.zeros((2, 2)))
    with pytest.raises(OptionError, match="do not belong together"):
        Tasks.of(np.ones((2, 2)), [(0, 1)], [], np.zeros((2, 2)))
    for scheduler in (*SCHEDULERS, best):
        with pytest.raises(InfeasibleError, match="task 1 can run on no queue"):
            scheduler(Tasks.of([[1, 1], [np.inf, np.inf]], [], [], np.zeros((2, 2))))


def test_no_tasks_take_no_time():
    assert best(Tasks.of(np.empty((0, 2)), [], [], np.zeros((2, 2)))).makespan == 0


def test_planning_imports_no_compiler():
    script = "import sys, hetsched.partition.heft, hetsched.partition.list_scheduling; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], env=os.environ, cwd=Path(__file__).parents[2]).returncode == 0


def test_saga_is_never_better():
    pytest.importorskip("saga", reason="needs anrg-saga (make peers brings it)")
    from task_graphs.saga_instances import as_tasks, best_of_saga, instances

    for name, graph, network in instances(2):
        tasks = as_tasks(graph, network)[0]
        placed = best(tasks, 1000)
        assert faults(tasks, placed) == []
        assert placed.makespan <= best_of_saga(graph, network) * (1 + 1e-9), name


def test_the_same_schedule_on_every_call():
    tasks = tasks_of(dnn(200, 3))
    assert best(tasks, 50).begin.tolist() == best(tasks_of(dnn(200, 3)), 50).begin.tolist()
