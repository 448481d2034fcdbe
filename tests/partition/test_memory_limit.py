"""Plans within a memory limit, against every placement in every order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from hetsched.costs import CostTable
from hetsched.errors import InfeasibleError
from hetsched.graph import DType, Graph, Role, Tensor, WeightRef
from hetsched.partition import Problem, Solution, build_plan, solve
from hetsched.partition.memory import alternative_bytes, weight_bytes
from hetsched.partition.memory_limit import stored
from hetsched.partition.solving import parts_of
from hetsched.partition.timing import Costs


def weighted(graph: Graph, seed: int) -> Graph:
    """The graph with a float weight for each op, of 1 to 8 KB; every fourth op reads the one before it has."""
    r = np.random.default_rng(seed)
    tensors, ops = dict(graph.tensors), []
    for i, op in enumerate(graph.ops):
        name = f"w{i - (i % 4 == 3)}"
        shape = (int(r.integers(8, 64)), 32)
        tensors.setdefault(name, Tensor(name, shape, DType.F32, Role.WEIGHT, data=WeightRef(array=np.zeros(shape, np.float32))))
        ops.append(replace(op, inputs=(*op.inputs, name)))
    return graph.replace(ops=tuple(ops), tensors=tensors)


def every_stored(graph: Graph, table: CostTable, orders: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """(bytes, latency) of all placements in all orders."""
    found = []
    for placement in product(*Costs(table).alts):
        for order in orders:
            made = stored(graph, Problem.of(graph, table), Solution("all", tuple(order), placement, 0.0))
            found.append((made.nbytes, made.timed.latency_s))
    return found


def test_plans_within_a_limit_are_near_the_best_of_all(random_table, graph_of, topological):
    asked = found = 0
    excess = []
    for seed in range(12):
        table = random_table(seed, 3, 2, precisions=2, support=1.0)
        graph = weighted(graph_of(table), seed)
        problem = Problem.of(graph, table)
        solution = solve(problem, "auto", time_limit_s=0.2)
        every = every_stored(graph, table, topological(Costs(table)))
        need, least = stored(graph, problem, solution).nbytes, min(b for b, _ in every)
        for share in (0.0, 0.25, 0.5, 0.75):
            limit = int(least + share * (need - least))
            if limit >= need:
                continue
            asked += 1
            try:
                plan = build_plan(graph, replace(problem, memory_limit_bytes=limit), solution)
            except InfeasibleError:
                continue
            found += 1
            assert plan.prediction.peak_memory_bytes <= limit
            excess.append(plan.prediction.latency_s / min(s for b, s in every if b <= limit))
    assert asked > 20 and found == asked
    assert np.median(excess) < 1.001 and max(excess) < 1.3


def test_alternatives_that_only_save_bytes_are_kept_under_a_limit(random_table, graph_of):
    table = random_table(1, 4, 2, precisions=2, support=1.0)
    eight = np.array([p == "w8a8" for p in table.alt_precision])  # slower here, and in the same domain: dominated but for its bytes
    slower = np.where(eight, 10.0, 1.0) * table.compute_s.max()
    table = replace(table, alt_domain=table.alt_queue * 2, compute_s=slower, energy_j=slower)
    graph = weighted(graph_of(table), 1)
    problem, nbytes = Problem.of(graph, table), alternative_bytes(graph, table)
    usual, thrifty = parts_of(problem)[0][0], parts_of(problem, (nbytes,))[0][0]
    assert {*usual.original} < {*thrifty.original}
    for a in {*thrifty.original} - {*usual.original}:
        same = [b for b in usual.original if table.alt_op[b] == table.alt_op[a] and table.alt_queue[b] == table.alt_queue[a]]
        assert all(nbytes[a] < nbytes[b] for b in same)


def test_bytes_of_alternatives_add_up_to_the_weights_and_what_is_written(random_table, graph_of):
    table = random_table(3, 8, 1, precisions=1)
    graph = weighted(graph_of(table), 3)
    alternative = [r[0] for r in Costs(table).alts]
    written = table.tensor_bytes[table.tensor_producer >= 0, 0].sum()
    assert alternative_bytes(graph, table)[alternative].sum() == weight_bytes(graph, table, alternative) + written
