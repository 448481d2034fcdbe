"""Merged ops: the optimum of what is left is the optimum of the whole, by trying every plan of both."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from exhaustive import FEATURES, optima, orders_of, without
from large_graphs import LAYER, transformer

from hetsched.partition import Problem, solve
from hetsched.partition.coarsening import closed, coarsened
from hetsched.partition.frontier import Additive
from hetsched.partition.relaxed import shortest
from hetsched.partition.timing import Costs

SWITCHED = [off for k in range(len(FEATURES) + 1) for off in combinations(FEATURES, k)]


def direct(table):
    """The table with no way between two queues cheaper over a third one."""
    rows = {}
    for sync, launch in (("sync_s", "launch_s"), ("sync_energy_j", "launch_energy_j")):
        costs = getattr(table, launch)
        rows[sync] = np.array(shortest(getattr(table, sync).tolist(), costs.tolist())) - costs[None]
        np.fill_diagonal(rows[sync], 0.0)
    return replace(table, **rows)


def drawn(random_table, seed):
    """A table of two to seven ops, some of the cost features switched off, and ops from light to heavy beside the crossings."""
    r = np.random.default_rng(seed)
    n = int(r.integers(2, 8))
    table = random_table(
        seed, n, int(r.integers(2, 4)), density=float(r.choice([0.1, 0.3, 0.5, 0.8])), precisions=1 + int(n <= 4 and r.random() < 0.5),
        crossing_us=int(r.choice([3, 30, 150])), chain=bool(r.random() < 0.6), shared_domains=bool(r.random() < 0.2),
        support=float(r.choice([0.5, 0.8, 1.0])),
    )  # fmt: skip
    scale = float(r.choice([0.02, 0.2, 1.0]))
    table = replace(table, compute_s=table.compute_s * scale, energy_j=table.energy_j * scale)
    return direct(without(table, SWITCHED[seed % len(SWITCHED)]))


def test_the_least_energy_stays_the_same_with_every_cost_feature_on_and_off(random_table):
    merged, dropped, apart = 0, 0, 0
    for seed in range(3 * len(SWITCHED)):
        table = drawn(random_table, seed)
        c = Costs(table)
        found, orders = coarsened(Problem(table, "energy"), c), orders_of(c, 300)
        if found is None or orders is None:
            continue
        d = Costs(found.problem.table)
        fewer = orders_of(d)
        assert fewer is not None
        assert optima(found.problem.table, fewer)["energy"] == pytest.approx(optima(table, orders)["energy"], rel=1e-9, abs=1e-15)
        merged, dropped, apart = merged + (d.n < c.n), dropped + (len(d.queue) < len(c.queue)), apart + (d.n > 1)
    assert merged > 40
    assert dropped > 100
    assert apart > 100


def test_where_a_detour_is_cheaper_nothing_is_merged(random_table):
    table = direct(random_table(1, 5, 3))
    assert closed(Additive(Costs(table), 0.0, 1.0))
    dear = table.sync_energy_j.copy()
    dear[0, 1] += 1.0
    table = replace(table, sync_energy_j=dear)
    assert coarsened(Problem(table, "energy"), Costs(table)) is None


def test_what_one_queue_does_best_is_one_op():
    problem = Problem(transformer(4 * LAYER), "energy")
    found = coarsened(problem, Costs(problem.table))
    assert found is not None
    assert [len(group) for group in found.groups] == [4 * LAYER]


def test_least_energy_is_proven_where_queues_take_turns():
    problem = Problem(transformer(6 * LAYER, slow=8.0), "energy")
    answer = solve(problem)
    assert len(set(problem.table.alt_queue[list(answer.alternative)].tolist())) > 1
    assert answer.status == "optimal"
