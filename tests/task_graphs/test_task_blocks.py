"""Cutting task graphs: what is a cut, what a block holds, which edges are implied."""

from __future__ import annotations

import numpy as np
import pytest
from task_graphs.checking import edges_of, optimum
from task_graphs.drawn import random_tasks
from task_graphs.generated import dnn, layered, tasks_of

from hetsched.partition.blocks import Block
from hetsched.partition.list_scheduling import Tasks
from hetsched.partition.task_blocks import between, blocks_of, without_implied


def tasks_with(edges: dict[tuple[int, int], float], n: int, cost: float = 1.0) -> Tasks:
    """Equal tasks on two queues; an edge takes its seconds between them."""
    return Tasks.of(np.full((n, 2), cost), list(edges), list(edges.values()), 1 - np.eye(2))


def test_blocks_lie_between_tasks_that_everything_passes():
    tasks = tasks_with({(0, 1): 1, (0, 2): 1, (1, 3): 1, (2, 3): 1, (3, 4): 1, (4, 5): 1, (4, 6): 1}, 7)
    assert blocks_of(tasks) == [Block(-1, (), 0), Block(0, (1, 2), 3), Block(3, (), 4), Block(4, (5, 6), -1)]
    assert blocks_of(tasks_with({}, 3)) == [Block(-1, (0, 1, 2), -1)]
    assert blocks_of(tasks_with({}, 0)) == []


def test_an_edge_that_jumps_over_a_cut_undoes_it():
    chain = {(0, 1): 1.0, (1, 2): 1.0}
    assert len(blocks_of(tasks_with(chain, 3))) == 3
    assert blocks_of(tasks_with({**chain, (0, 2): 9.0}, 3)) == [Block(-1, (), 0), Block(0, (1,), 2)]


def test_only_edges_that_are_slower_than_every_other_way_are_kept():
    chain = {(0, 1): 1.0, (1, 2): 1.0}
    # Over task 1 it takes two seconds from one queue to the other and one to get back to the same.
    assert edges_of(without_implied(tasks_with({**chain, (0, 2): 2.0}, 3))) == edges_of(tasks_with(chain, 3))
    kept = tasks_with({**chain, (0, 2): 2.5}, 3)
    assert without_implied(kept) is kept
    slow = Tasks.of(np.ones((3, 2)), [*chain, (0, 2)], [1, 1, 1], np.zeros((2, 2)), np.full((2, 2), 1.5))
    assert len(edges_of(without_implied(slow))) == 2
    twice = Tasks.of(np.ones((3, 2)), [*chain, (0, 2), (0, 2)], [1, 1, 1, 9], 1 - np.eye(2))
    assert len(edges_of(without_implied(twice))) == 4


@pytest.mark.parametrize("seed", range(30))
def test_implied_edges_make_no_difference(seed):
    tasks = random_tasks(seed, 5, 2 + seed % 2, 0.8)
    lean = without_implied(tasks)
    assert set(edges_of(lean)) <= set(edges_of(tasks))
    assert optimum(lean) == optimum(tasks)


def test_some_edges_of_random_graphs_are_implied():
    assert sum(len(edges_of(t)) - len(edges_of(without_implied(t))) for t in (random_tasks(s, 8, 2, 0.8) for s in range(30))) > 50


@pytest.mark.parametrize("draw", [dnn, layered])
def test_blocks_of_large_graphs_hold_every_task_once(draw):
    tasks = tasks_of(draw(400, 2))
    blocks = blocks_of(tasks)
    assert [v for b in blocks for v in (*b.inner, *([b.exit] if b.exit >= 0 else []))] == list(range(400))
    assert len(blocks) > 100 if draw is dnn else len(blocks) == 1


def test_a_block_between_two_queues():
    tasks = tasks_with({(0, 1): 1, (0, 2): 2, (1, 3): 3, (2, 3): 4, (3, 4): 5}, 5)
    part = between(tasks, Block(0, (1, 2), 3), 0, 1)
    assert part.cost.tolist() == [[0, np.inf], [1, 1], [1, 1], [np.inf, 1]]
    assert edges_of(part) == [(0, 1, 1.0), (0, 2, 2.0), (1, 3, 3.0), (2, 3, 4.0)]
