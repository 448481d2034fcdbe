"""Segments as ONNX models: their ends, composites undone, Q/DQ kept, float16 inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import UnsupportedModelError
from hetsched.frontends import load
from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.lowering.onnx_segment import Ends, ends_of, onnx_model
from hetsched.passes import standard

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
Save = Callable[..., Path]

FLOAT = """
g (float[2,4] x) => (float[2,4] y, float[2,4] z) <float[4,4] w = {0.1,2,3,4, 5,6,7,8, 9,1,2,3, 4,5,6,7}, float[4] b = {1,2,3,4}> {
    m = MatMul(x, w)
    a = Add(m, b)
    y = Relu(a)
    z = Sigmoid(y)
}"""
QDQ = """
g (uint8[2,4] x) => (uint8[2,4] y) <float s = {0.1}, uint8 z = {128}, float t = {0.2}, uint8 v = {3}> {
    f = DequantizeLinear(x, s, z)
    r = Relu(f)
    y = QuantizeLinear(r, t, v)
}"""


def run(model: bytes, feeds: dict[str, Any]) -> list[Any]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def test_only_what_others_read_is_an_output(save: Save) -> None:
    graph = load(save(FLOAT))
    assert ends_of(graph, graph.ops[:2]) == Ends(("x",), ("a",))
    assert ends_of(graph, graph.ops) == Ends(("x",), ("y", "z"))
    assert ends_of(graph, graph.ops[:2], every=True) == Ends(("x",), ("m", "a"))
    assert ends_of(graph, graph.ops[3:]) == Ends(("y",), ("z",))


def test_composites_are_written_as_their_nodes(save: Save) -> None:
    path = save(FLOAT)
    graph = standard(load(path))
    assert any(op.is_composite for op in graph.ops)
    model = onnx_model(graph, graph.ops, ends_of(graph, graph.ops), metadata={"segment": "0"})
    read = onnx.load_from_string(model)
    assert {n.op_type for n in read.graph.node} == {"MatMul", "Add", "Relu", "Sigmoid"}
    assert {p.key: p.value for p in read.metadata_props} == {"segment": "0"}
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    for got, want in zip(run(model, feeds), run(path.read_bytes(), feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_same_bytes_every_time(save: Save) -> None:
    graph = standard(load(save(FLOAT)))
    ends = ends_of(graph, graph.ops)
    assert onnx_model(graph, graph.ops, ends) == onnx_model(graph, graph.ops, ends)


def test_integers_come_in_qdq_form(save: Save) -> None:
    path = save(QDQ)
    graph = standard(load(path))
    model = onnx_model(graph, graph.ops, ends_of(graph, graph.ops))
    assert sorted(n.op_type for n in onnx.load_from_string(model).graph.node) == ["DequantizeLinear", "QuantizeLinear", "Relu"]
    feeds = {"x": np.array([[0, 100, 128, 255], [129, 130, 200, 4]], np.uint8)}
    np.testing.assert_array_equal(run(model, feeds)[0], run(path.read_bytes(), feeds)[0])


def test_what_is_no_onnx_operator_is_refused_by_name() -> None:
    tensors = {n: Tensor(n, (2,), DType.F32, Role.INPUT if n == "x" else Role.OUTPUT) for n in ("x", "y")}
    graph = Graph("g", tensors, (Op("odd", "NoSuchThing", ("x",), ("y",)),), ("x",), ("y",))
    with pytest.raises(UnsupportedModelError, match="'odd' is not an ONNX model"):
        onnx_model(graph, graph.ops, ends_of(graph, graph.ops))


def test_a_model_that_is_too_large_is_refused() -> None:
    shape = (1 << 16, 1 << 14)
    tensors = {
        "x": Tensor("x", (1, shape[0]), DType.F32, Role.INPUT), "y": Tensor("y", (1, shape[1]), DType.F32, Role.OUTPUT),
        "w": Tensor("w", shape, DType.F32, Role.WEIGHT, data=WeightRef(array=np.broadcast_to(np.float32(0), shape))),
    }  # fmt: skip
    graph = Graph("g", tensors, (Op("mm", "MatMul", ("x", "w"), ("y",)),), ("x",), ("y",))
    with pytest.raises(UnsupportedModelError, match=r"'mm' .*over 2 GB"):
        onnx_model(graph, graph.ops, Ends(("x",), ("y",)))
