"""An operator's work is divided among threads so that results keep their bits."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.frontends import load
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.arena import Scratch
from hetsched.runtime.delegates.base import SegmentJob
from hetsched.runtime.lower import lower
from hetsched.runtime.lower.splitting import part_edges
from hetsched.runtime.team import Team

RNG = np.random.default_rng(0)


def noise(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@given(st.integers(0, 10_000), st.integers(1, 300), st.integers(1, 9))
def test_parts_cover_the_work_once_in_whole_grains(units: int, grain: int, threads: int) -> None:
    edges = part_edges(units, grain, threads)
    sizes = [b - a for a, b in pairwise(edges)]
    assert edges[0] == 0 and edges[-1] == units and all(s > 0 for s in sizes)
    assert all(e % grain == 0 for e in edges[:-1])
    assert len(sizes) == min(len(sizes), threads * 3)
    if sizes:
        assert max(sizes) - min(sizes[:-1], default=max(sizes)) <= grain


def test_every_thread_gets_as_many_parts() -> None:
    assert len(part_edges(25, 1, 2)) - 1 == 6
    assert len(part_edges(14, 1, 2)) - 1 == 2
    assert len(part_edges(14, 1, 1)) - 1 == 1


TWICE = np.array([1, 1, 2, 2], np.float32)
#: (nodes, inputs, constants, precision)
CASES: dict[str, tuple[list[tuple[str, list[str], dict[str, Any]]], dict[str, Any], dict[str, Any], str]] = {
    "sum of equal shapes": ([("Add", ["x", "z"], {})], {"x": noise(40, 1000), "z": noise(40, 1000)}, {}, "f32"),
    "power of two tensors": ([("Pow", ["x", "z"], {})], {"x": abs(noise(48000)), "z": noise(48000).round()}, {}, "f32"),
    "product by channel": ([("Mul", ["x", "c"], {})], {"x": noise(1, 64, 30, 30)}, {"c": noise(64, 1, 1)}, "f32"),
    "comparison": ([("Less", ["x", "z"], {})], {"x": noise(200, 300), "z": noise(300)}, {}, "f32"),
    "selection": (
        [("Less", ["x", "z"], {}), ("Where", ["y0", "x", "z"], {})], {"x": noise(200, 300), "z": noise(300)}, {}, "f32",
    ),
    "chain over channels": (
        [("Mul", ["x", "c"], {}), ("Add", ["y0", "d"], {}), ("Sigmoid", ["y1"], {})], {"x": noise(1, 64, 30, 30)},
        {"c": noise(64, 1, 1), "d": noise(1)}, "f32",
    ),
    "chain over rows": (
        [("Mul", ["x", "c"], {}), ("Add", ["y0", "x"], {}), ("Tanh", ["y1"], {})], {"x": noise(300, 100)}, {"c": noise(100)}, "f32",
    ),
    "softmax": ([("Softmax", ["x"], {"axis": -1})], {"x": noise(100, 333)}, {}, "f32"),
    "masked softmax": (
        [("Mul", ["x", "s"], {}), ("Add", ["y0", "m"], {}), ("Softmax", ["y1"], {"axis": -1})], {"x": noise(2, 6, 50, 70)},
        {"s": np.float32(0.3), "m": noise(2, 1, 1, 70)}, "f32",
    ),
    "softmax along the middle": ([("Softmax", ["x"], {"axis": 1})], {"x": noise(40, 12, 30)}, {}, "f32"),
    "logarithm of softmax": ([("LogSoftmax", ["x"], {"axis": -1})], {"x": noise(100, 333)}, {}, "f32"),
    "transposition": ([("Transpose", ["x"], {"perm": [0, 2, 1, 3]})], {"x": noise(1, 128, 12, 32)}, {}, "f32"),
    "transposed matrix": ([("Transpose", ["x"], {"perm": [1, 0]})], {"x": noise(300, 257)}, {}, "f32"),
    "join": ([("Concat", ["x", "z"], {"axis": 1})], {"x": noise(1, 60, 30, 20), "z": noise(1, 30, 30, 20)}, {}, "f32"),
    "mean of rows": ([("ReduceMean", ["x", "a"], {})], {"x": noise(60, 500)}, {"a": np.array([1])}, "f32"),
    "mean of planes": ([("GlobalAveragePool", ["x"], {})], {"x": noise(1, 64, 30, 30)}, {}, "f32"),
    "pool": ([("MaxPool", ["x"], {"kernel_shape": [3, 3]})], {"x": noise(1, 64, 30, 30)}, {}, "f32"),
    "mean pool": ([("AveragePool", ["x"], {"kernel_shape": [3, 3]})], {"x": noise(2, 32, 30, 30)}, {}, "f32"),
    "batch norm": (
        [("BatchNormalization", ["x", "c", "c", "c", "v"], {})], {"x": noise(1, 64, 30, 30)}, {"c": noise(64), "v": abs(noise(64))}, "f32",
    ),
    "norms of images": (
        [("InstanceNormalization", ["x", "c", "c"], {})], {"x": noise(3, 16, 30, 40)}, {"c": noise(16)}, "f32",
    ),
    "linear resize": ([("Resize", ["x", "", "s"], {"mode": "linear"})], {"x": noise(1, 20, 30, 30)}, {"s": TWICE}, "f32"),
    "nearest resize": ([("Resize", ["x", "", "s"], {"mode": "nearest"})], {"x": noise(1, 20, 30, 30)}, {"s": TWICE}, "f32"),
    "product of one row": ([("Gemm", ["x", "w", "b"], {})], {"x": noise(1, 100)}, {"w": noise(100, 1001), "b": noise(1001)}, "f32"),
    "product of pairs": ([("MatMul", ["x", "z"], {})], {"x": noise(6, 40, 30), "z": noise(6, 30, 50)}, {}, "f32"),
    "product of a pair": ([("MatMul", ["x", "z"], {})], {"x": noise(70, 30), "z": noise(30, 50)}, {}, "f32"),
    "transposed pair": ([("Gemm", ["x", "z"], {"transA": 1, "transB": 1})], {"x": noise(30, 70), "z": noise(50, 30)}, {}, "f32"),
    "integers, one row": ([("Gemm", ["x", "w", "b"], {})], {"x": noise(1, 101)}, {"w": noise(101, 1001), "b": noise(1001)}, "w8a8"),
    "integers, rows": ([("MatMul", ["x", "w"], {})], {"x": noise(70, 101)}, {"w": noise(101, 75)}, "w8a8"),
    "to bytes and back": (
        [("QuantizeLinear", ["x", "s", "q"], {}), ("DequantizeLinear", ["y0", "s", "q"], {})], {"x": noise(60000)},
        {"s": np.float32(0.02), "q": np.uint8(120)}, "f32",
    ),
    "to bytes by channel": (
        [("QuantizeLinear", ["x", "s", "q"], {"axis": 1}), ("DequantizeLinear", ["y0", "s", "q"], {"axis": 1})],
        {"x": noise(1, 48, 40, 40)}, {"s": abs(noise(48)), "q": np.arange(48, dtype=np.int8)}, "f32",
    ),
}  # fmt: skip


@pytest.fixture
def graph_of(tmp_path: Path) -> Callable[[str], Any]:
    import onnx
    from onnx import helper, numpy_helper

    def build(name: str) -> Any:
        nodes, feeds, constants, _ = CASES[name]
        last = len(nodes) - 1
        protos = [helper.make_node(t, i, ["y" if k == last else f"y{k}"], **a) for k, (t, i, a) in enumerate(nodes)]
        inputs = [helper.make_tensor_value_info(k, 1, v.shape) for k, v in feeds.items()]
        values = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
        graph = helper.make_graph(protos, "g", inputs, [onnx.ValueInfoProto(name="y")], values)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
        return standard(load(tmp_path / "m.onnx"))

    return build


def two_cores() -> str:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return f"cpu:{cores[0]},{cores[-1]}"


@pytest.mark.parametrize("name", CASES)
def test_results_have_the_same_bits_on_one_core_and_on_two(name: str, graph_of: Any, plan_by_hand: Callable[..., Plan]) -> None:
    graph, (_, feeds, _, precision) = graph_of(name), CASES[name]
    run = []
    for queue in ("cpu:0", two_cores()):
        plan = plan_by_hand(graph, lambda i, queue=queue: queue, precision=lambda i: precision)
        with compile_plan(graph, plan) as executable:
            run.append(executable.run(feeds).outputs["y"])
    assert run[0].tobytes() == run[1].tobytes()
    assert np.unique(run[0]).size > 1


@pytest.mark.parametrize("name", CASES)
def test_two_threads_have_something_to_do(name: str, graph_of: Any) -> None:
    graph, precision = graph_of(name), CASES[name][3]
    team = Team("cpu", 1)
    team.threads = 2
    buffers = {n: np.zeros(t.shape, t.dtype.numpy) for n, t in graph.tensors.items() if not t.is_constant}
    scratch = Scratch()
    for op in graph.ops:
        job = SegmentJob(graph, None, graph.ops, {op.name: precision}, {}, buffers, {}, scratch, team=team)  # type: ignore[arg-type]
        assert max(len(step) for step in lower(op, job, [])) >= 2, op.type
