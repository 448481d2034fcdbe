"""Plans whose buffers share bytes, on two overlapping queues: the planner's offsets and the runtime's fences must fit together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetsched.costs import CostTable, Domain, Queue
from hetsched.graph import Csr, DType, Graph, Op, Role, Tensor
from hetsched.partition import Problem, Solution, build_plan
from hetsched.reference import run as reference_run
from hetsched.runtime import compile as compile_plan

WIDTH = 4096


def random_graph(r: np.random.Generator, n: int) -> Graph:
    """``n`` elementwise ops on ``[WIDTH]`` floats with random inputs; tensors that nobody reads are outputs."""
    tensors = {"x": Tensor("x", (WIDTH,), DType.F32, Role.INPUT)}
    ops: list[Op] = []
    for i in range(n):
        names = ["x", *(f"t{k}" for k in range(max(0, i - 6), i))]
        kind = str(r.choice(["Add", "Mul", "Max", "Sigmoid", "Neg"]))
        reads = [str(r.choice(names)) for _ in range(1 if kind in ("Sigmoid", "Neg") else 2)]
        ops.append(Op(f"op{i}", kind, tuple(reads), (f"t{i}",)))
    read = {n for op in ops for n in op.inputs}
    outputs = tuple(f"t{i}" for i in range(n) if f"t{i}" not in read)
    tensors |= {f"t{i}": Tensor(f"t{i}", (WIDTH,), DType.F32, Role.OUTPUT if f"t{i}" in outputs else Role.ACTIVATION) for i in range(n)}
    return Graph("random", tensors, tuple(ops), ("x",), outputs)


def two_queue_table(graph: Graph) -> CostTable:
    """Every op costs the same on either of two CPU queues."""
    n, names = len(graph.ops), tuple(graph.tensors)
    index = {name: i for i, name in enumerate(names)}
    queues = (Queue("cpu:0", "cpu", "cpu", (0,)), Queue("cpu:1", "cpu", "cpu", (1,)))
    t = len(names)
    none = np.zeros((t, 2, 2))
    return CostTable(
        graph.name, "host", queues, (Domain(0, "f32"), Domain(1, "f32")), 0, 0, tuple(op.name for op in graph.ops), names,
        np.arange(0, 2 * n + 1, 2, dtype=np.int32), np.tile(np.array([0, 1], np.int32), n), np.tile(np.array([0, 1], np.int32), n),
        ("f32",) * (2 * n), np.full(2 * n, 1e-6), np.zeros(2 * n), np.zeros(2 * n), np.zeros(2 * n), np.zeros(2 * n), np.zeros(2 * n),
        Csr.from_rows([[index[i] for i in graph.activations(op)] for op in graph.ops]),
        Csr.from_rows([[index[o] for o in op.outputs] for op in graph.ops]), graph.predecessors, graph.successors,
        np.array([graph.producer.get(name, -1) for name in names], np.int32), np.array([index[o] for o in graph.outputs], np.int32),
        np.full((t, 2), 4.0 * WIDTH), none, none, none, none, np.zeros(2), np.zeros(2), np.array([[0.0, 1e-6], [1e-6, 0.0]]),
        np.zeros((2, 2)), np.full(2, 1e10), ((),) * n,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_shared_bytes_survive_overlap(seed: int) -> None:
    r = np.random.default_rng(seed)
    graph = random_graph(r, 40)
    table = two_queue_table(graph)
    alternative = tuple(int(a) for a in 2 * np.arange(40) + r.integers(0, 2, 40))
    solution = Solution(
        order=tuple(range(40)), alternative=alternative, objective=1.0, bound=0.0, status="heuristic", solver="random", causes=()
    )
    plan = build_plan(graph, Problem.of(graph, table), solution)
    spans = [(b.offset, b.offset + b.nbytes) for b in plan.buffers]
    assert any(a < d and c < b for k, (a, b) in enumerate(spans) for c, d in spans[:k]), (
        "the planner shares nothing: this test would prove nothing"
    )
    feeds: dict[str, Any] = {"x": r.standard_normal(WIDTH).astype(np.float32)}
    want = reference_run(graph, feeds)
    with compile_plan(graph, plan) as executable:
        for _ in range(10):
            outputs = executable.run(feeds, repeat=3, trace=False).outputs
            for name in graph.outputs:
                np.testing.assert_allclose(outputs[name], want[name], rtol=1e-4, atol=1e-5)
