"""The cost of going from one plan to another: weights that are held elsewhere, states that move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched.graph import DType, Role, Tensor, WeightRef
from hetsched.partition.switching import Placed, switch_cost


@pytest.fixture
def model(random_table, graph_of):
    table = random_table(2, 6, 3, precisions=1, support=1.0)
    graph = graph_of(table)
    tensors = dict(graph.tensors)
    ops = []
    for k, op in enumerate(graph.ops):
        name = f"w{k}"
        tensors[name] = Tensor(name, (100 * (k + 1),), DType.U8, Role.WEIGHT, None, WeightRef(array=np.zeros(100 * (k + 1), np.uint8)))
        ops.append(replace(op, inputs=(*op.inputs, name)))
    last = graph.outputs[-1]
    tensors[last] = replace(tensors[last], role=Role.STATE)
    return graph.replace(ops=tuple(ops), tensors=tensors), table, last


def on(table, queue):
    return [next(a for a in table.alternatives(i) if table.alt_queue[a] == queue) for i in range(len(table.op_names))]


def test_nothing_changes_between_a_plan_and_itself(model) -> None:
    graph, table, _ = model
    placed = Placed(graph, table, on(table, 1))
    cost = switch_cost(placed, placed)
    assert (cost.weight_bytes, cost.pack_s, cost.state_bytes, cost.handover_s) == (0, 0.0, 0, 0.0)


def test_all_weights_and_the_state_go_to_the_other_processor(model) -> None:
    graph, table, state = model
    cost = switch_cost(Placed(graph, table, on(table, 1)), Placed(graph, table, on(table, 2)))
    assert cost.weight_bytes == sum(100 * (k + 1) for k in range(6))
    assert cost.pack_s == pytest.approx(2 * cost.weight_bytes / 1e10)
    assert cost.state_bytes == graph.tensors[state].nbytes
    assert cost.handover_s == pytest.approx(2 * cost.state_bytes / 1e10 + table.sync_s[1, 2])


def test_only_what_moves_counts(model) -> None:
    graph, table, _ = model
    before, after = on(table, 1), on(table, 1)
    after[0] = on(table, 2)[0]
    cost = switch_cost(Placed(graph, table, before), Placed(graph, table, after))
    assert cost.weight_bytes == 100
    assert cost.state_bytes == 0
