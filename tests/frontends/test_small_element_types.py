"""Types that numpy does not have, from file to value: initializers, Constant nodes, Q/DQ, folding, and running in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hetsched.frontends import load
from hetsched.frontends.onnx_tensors import ModelFile, constant
from hetsched.graph import DType, Graph
from hetsched.passes import standard
from hetsched.passes.widen_floats import WidenFloats
from hetsched.reference import run
from hetsched.small_types import bfloat16_bytes, decode, nearest
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table

TYPES = {
    TensorProto.BFLOAT16: (ml_dtypes.bfloat16, DType.BF16),
    TensorProto.FLOAT8E4M3FN: (ml_dtypes.float8_e4m3fn, DType.F8E4M3),
    TensorProto.FLOAT8E4M3FNUZ: (ml_dtypes.float8_e4m3fnuz, DType.F8E4M3FNUZ),
    TensorProto.FLOAT8E5M2: (ml_dtypes.float8_e5m2, DType.F8E5M2),
    TensorProto.FLOAT8E5M2FNUZ: (ml_dtypes.float8_e5m2fnuz, DType.F8E5M2FNUZ),
    TensorProto.FLOAT8E8M0: (ml_dtypes.float8_e8m0fnu, DType.F8E8M0),
    TensorProto.FLOAT4E2M1: (ml_dtypes.float4_e2m1fn, DType.F4E2M1),
    TensorProto.INT4: (ml_dtypes.int4, DType.I4),
    TensorProto.UINT4: (ml_dtypes.uint4, DType.U4),
    TensorProto.INT2: (ml_dtypes.int2, DType.I2),
    TensorProto.UINT2: (ml_dtypes.uint2, DType.U2),
}


def model(folder: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, int], weights: list[Any], opset: int = 21) -> Path:
    infos = [helper.make_tensor_value_info(k, *v) for k, v in inputs.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info(k, v, None) for k, v in outputs.items()], weights)
    path = folder / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11).SerializeToString())
    return path


def by_onnx_runtime(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    values: list[np.ndarray] = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    return values


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("number", TYPES)
def test_every_code_is_read_as_it_was_written(tmp_path: Path, number: int, raw: bool) -> None:
    numpy_type, dtype = TYPES[number]
    codes = np.arange(1 << dtype.bits if dtype.bits <= 8 else 1 << 16, dtype=np.uint16 if dtype.bits > 8 else np.uint8)
    values = codes.view(numpy_type) if dtype.bits >= 8 else codes.astype(np.uint8).view(numpy_type)
    proto = numpy_helper.from_array(values[:-1].reshape(-1, 1), "w")  # an odd number: the last byte is filled up
    if not raw:
        stored = np.frombuffer(proto.raw_data, np.uint16 if dtype.bits > 8 else np.uint8)
        proto.ClearField("raw_data")
        proto.int32_data.extend(stored.astype(int).tolist())
    tensor = constant(proto, "w", ModelFile(tmp_path / "m.onnx"))
    assert (tensor.dtype, tensor.shape) == (dtype, (values.size - 1, 1))
    assert tensor.nbytes == -(-(values.size - 1) * dtype.bits // 8) == tensor.numpy().size
    expected = values[:-1].astype(np.float32 if dtype.is_float else np.int8 if dtype.value[0] == "i" else np.uint8)
    np.testing.assert_array_equal(tensor.values().reshape(-1), expected)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_rounding_to_small_floats(values: list[float]) -> None:
    x = np.array(values, np.float32)
    np.testing.assert_array_equal(decode(bfloat16_bytes(x), "bf16", x.size), x.astype(ml_dtypes.bfloat16).astype(np.float32))
    for numpy_type, dtype in TYPES.values():
        if dtype.is_float and dtype.value in {"f8e4m3", "f8e5m2", "f4e2m1"}:
            largest = float(ml_dtypes.finfo(numpy_type).max)
            np.testing.assert_array_equal(nearest(x, dtype.value), np.clip(x, -largest, largest).astype(numpy_type).astype(np.float32))


def test_bfloat16_constants_fold_and_stay_bfloat16(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((3, 4)).astype(ml_dtypes.bfloat16)
    nodes = [
        helper.make_node("Mul", ["w", "w"], ["s"]),
        helper.make_node("Transpose", ["s"], ["t"]),
        helper.make_node("Cast", ["t"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    path = model(tmp_path, nodes, {"x": (1, [4, 3])}, {"y": 1}, [numpy_helper.from_array(w, "w")])
    graph = load(path)
    assert [op.type for op in graph.ops] == ["Add"]
    expected = (w * w).astype(np.float32).T
    np.testing.assert_array_equal(run(graph, {"x": np.zeros((4, 3), np.float32)})["y"], expected)


@pytest.mark.parametrize(
    ("number", "granularity"),
    [(n, g) for n in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2) for g in ("tensor", "channel")]
    + [(TensorProto.INT4, "group"), (TensorProto.UINT4, "group")],
)  # fmt: skip
def test_dequantized_weights_and_requantized_activations(tmp_path: Path, number: int, granularity: str) -> None:
    rng = np.random.default_rng(1)
    numpy_type, dtype = TYPES[number]
    shapes: dict[str, tuple[int, ...]] = {"tensor": (), "channel": (6,), "group": (2, 6)}
    scale = rng.uniform(0.1, 1, shapes[granularity]).astype(np.float32)
    codes = rng.integers(0, 256 if dtype.bits == 8 else 16, (32, 6))
    codes[codes % 128 > 118] = 0  # neither NaN nor infinity
    w = (codes.astype(np.uint8).view(numpy_type) if dtype.is_float else (codes % 8).astype(numpy_type)).reshape(32, 6)
    attrs = {"axis": 1} if granularity == "channel" else {"axis": 0, "block_size": 16} if granularity == "group" else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"], **attrs),
        helper.make_node("MatMul", ["x", "f"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "o"], ["q"], output_dtype=number),
        helper.make_node("DequantizeLinear", ["q", "o"], ["y"]),
    ]
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(scale, "s"), numpy_helper.from_array(np.float32(0.7), "o")]
    path = model(tmp_path, nodes, {"x": (1, [3, 32])}, {"y": 1}, weights, opset=21)
    graph = load(path)
    assert graph.tensors["w"].nbytes == 32 * 6 * dtype.bits // 8
    feeds = {"x": rng.standard_normal((3, 32)).astype(np.float32)}
    expected = by_onnx_runtime(path, feeds)[0]
    for form in (graph, standard(graph)):
        np.testing.assert_allclose(run(form, feeds)["y"], expected, rtol=1e-5, atol=1e-5)
    table = build_table(standard(graph), load_soc("snapdragon-8-gen-3"))
    assert len(table.op_names) == len(standard(graph).ops)


def test_constants_of_every_kind(tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"value_int": 3, "value_ints": [3, 4], "value_float": 0.5, "value_floats": [0.5, 1.5]}
    kinds["value"] = numpy_helper.from_array(np.array([2.0], np.float32))
    nodes = [helper.make_node("Constant", [], [k], **{k: v}) for k, v in kinds.items()]
    nodes += [
        helper.make_node("Constant", [], ["text"], value_string="a"),
        helper.make_node("Constant", [], ["texts"], value_strings=["a", "b"]),
    ]
    nodes += [helper.make_node("Cast", [k], [f"{k}_f"], to=1) for k in kinds]
    total = "x"
    for k in kinds:
        nodes.append(helper.make_node("Add", [total, f"{k}_f"], [f"{k}_sum"]))
        total = f"{k}_sum"
    graph = load(model(tmp_path, nodes, {"x": (1, [2])}, {total: 1}, []))
    np.testing.assert_allclose(run(graph, {"x": np.zeros(2, np.float32)})[total], [3 + 3 + 0.5 + 0.5 + 2, 3 + 4 + 0.5 + 1.5 + 2])


def half(folder: Path, number: int) -> Path:
    """A perceptron in 16 bits, with weights big enough to stay in the file, whose sum before the output is read twice."""
    rng = np.random.default_rng(2)
    numpy_type = np.float16 if number == TensorProto.FLOAT16 else ml_dtypes.bfloat16
    weights = {
        "w": rng.standard_normal((64, 64)) / 8,
        "b": rng.standard_normal(64),
        "v": rng.standard_normal((64, 64)) / 8,
        "h": np.array(0.5),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "first"),
        helper.make_node("Add", ["p", "b"], ["s"], "bias"),
        helper.make_node("Sigmoid", ["s"], ["g"], "gate"),
        helper.make_node("Mul", ["s", "g"], ["a"], "silu"),
        helper.make_node("Cast", ["a"], ["wide"], "widen", to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["wide", "axis"], ["mean"], "mean"),
        helper.make_node("Cast", ["mean"], ["narrow"], "narrow", to=number),
        helper.make_node("Sub", ["a", "narrow"], ["c"], "centre"),
        helper.make_node("MatMul", ["c", "v"], ["y"], "second"),
        helper.make_node("Mul", ["y", "h"], ["z"], "half"),
    ]
    values = [numpy_helper.from_array(v.astype(numpy_type), k) for k, v in weights.items()]
    values.append(numpy_helper.from_array(np.array([-1]), "axis"))
    return model(folder, nodes, {"x": (number, [3, 64])}, {"y": number, "z": number}, values, opset=18)


def test_float16_runs_in_float32_between_casts(tmp_path: Path) -> None:
    path = half(tmp_path, TensorProto.FLOAT16)
    graph = load(path)
    wide = standard(WidenFloats()(standard(graph)))
    narrow = {n for n, t in wide.tensors.items() if t.dtype is DType.F16 and n in {*wide.inputs, *wide.outputs}}
    assert narrow == {"x", "y", "z"}
    used = {n for op in wide.ops for n in (*op.inputs, *op.outputs) if n}
    assert {n for n in used if wide.tensors[n].dtype is DType.F16} == {"x", "y", "z"}
    assert [op.type for op in wide.ops].count("Cast") == 3
    assert all(wide.tensors[n].dtype is DType.F32 for op in wide.ops for n in wide.constants(op) if wide.tensors[n].dtype.is_float)
    feeds = {"x": np.random.default_rng(3).standard_normal((3, 64)).astype(np.float16)}
    expected = by_onnx_runtime(path, feeds)
    got = run(wide, feeds)
    for name, value in zip(("y", "z"), expected, strict=True):
        assert got[name].dtype == np.float16
        np.testing.assert_allclose(got[name].astype(np.float32), value.astype(np.float32), rtol=1e-2, atol=2e-2)


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    graph = WidenFloats()(load(half(tmp_path, TensorProto.BFLOAT16)))
    assert {graph.tensors[n].dtype for n in (*graph.inputs, *graph.outputs)} == {DType.F32}
    assert "Cast" not in [op.type for op in graph.ops]
    x = np.random.default_rng(3).standard_normal((3, 64)).astype(np.float32)
    got = run(graph, {"x": x})["y"]
    plain = load(half(tmp_path, TensorProto.FLOAT16))  # the same file, and the weights of the other are read by now
    expected = run(WidenFloats()(plain), {"x": x.astype(np.float16)})["y"].astype(np.float32)
    np.testing.assert_allclose(got, expected, atol=0.1)


def test_graphs_in_float32_are_left_alone(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    graph: Graph = load(model(tmp_path, nodes, {"x": (1, [2])}, {"y": 1}, []))
    assert WidenFloats()(graph) is graph
