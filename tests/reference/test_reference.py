"""Every reference function against ONNX Runtime on seeded inputs, and the executor's own rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import helper, numpy_helper

from hetsched.errors import ExecutionError, OptionError, UnsupportedModelError
from hetsched.graph import DType, Graph, Op, Role, Tensor
from hetsched.reference import attention, language, recurrent, run, run_op, supported_types
from hetsched.reference.quantized import dequantize, quantize

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def i(*values: int) -> Array:
    return np.array(values, np.int64)


def positive(*shape: int) -> Array:
    return np.abs(f(*shape)) + np.float32(0.1)


Case = tuple[str, list[Array | None], dict[str, Any]]
UNARY = ["Abs", "Neg", "Exp", "Erf", "Tanh", "Sigmoid", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Tan", "Atan"]
UNARY += ["Softsign", "Softplus", "Mish", "Relu", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Gelu", "Identity"]
BINARY = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]
REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"]
CASES: list[Case] = [
    *((kind, [3 * f(2, 3, 4)], {}) for kind in UNARY),
    *((kind, [f(2, 1, 4), f(3, 1)], {}) for kind in BINARY),
    *((f"Reduce{kind}", [f(2, 3, 4), i(1, -1)], {"keepdims": k}) for kind in REDUCTIONS for k in (0, 1)),
    ("ReduceLogSum", [positive(2, 3), i(1)], {}),
    ("ReduceSum", [f(2, 3)], {"noop_with_empty_axes": 1}),
    ("Sqrt", [positive(3, 3)], {}),
    ("Log", [positive(3, 3)], {}),
    ("Gelu", [f(5, 5)], {"approximate": "tanh"}),
    ("HardSigmoid", [3 * f(9)], {"alpha": 1 / 6, "beta": 0.5}),
    ("LeakyRelu", [f(9)], {"alpha": 0.3}),
    ("PRelu", [f(2, 3, 4), f(3, 1)], {}),
    ("Clip", [f(3, 4), np.float32(-0.5), np.float32(0.5)], {}),
    ("Clip", [f(3, 4), None, np.float32(0.5)], {}),
    ("Pow", [positive(3, 4), f(4)], {}),
    ("Mod", [i(7, -7, 7, -7), i(3, 3, -3, -3)], {}),
    ("Mod", [f(5), positive(5)], {"fmod": 1}),
    ("Div", [i(7, -7, 7, -7), i(2, 2, -2, -2)], {}),
    ("Where", [f(3, 1) > 0, f(3, 4), f(4)], {}),
    ("And", [f(4) > 0, f(4) > 0], {}),
    ("Or", [f(4) > 0, f(4) > 0], {}),
    ("Xor", [f(4) > 0, f(4) > 0], {}),
    ("Not", [f(4) > 0], {}),
    ("BitShift", [np.array([1, 200, 255], np.uint8), np.array([1, 4, 7], np.uint8)], {"direction": "RIGHT"}),
    ("BitShift", [np.array([1, 200, 255], np.uint8), np.array([1, 4, 7], np.uint8)], {"direction": "LEFT"}),
    *((f"Bitwise{kind}", [np.array([1, 200, 255], np.uint8), np.array([15, 4, 7], np.uint8)], {}) for kind in ("And", "Or", "Xor")),
    ("BitwiseNot", [np.array([1, 200, 255], np.uint8)], {}),
    ("IsNaN", [np.array([0, np.nan, np.inf], np.float32)], {}),
    ("IsInf", [np.array([-np.inf, np.nan, np.inf], np.float32)], {"detect_negative": 0}),
    ("Cast", [4 * f(3, 3)], {"to": 6}),
    ("Cast", [f(3, 3)], {"to": 9}),
    ("Cast", [f(3, 3)], {"to": 10}),
    ("Sum", [f(2, 3), f(3), f(2, 1)], {}),
    ("Reshape", [f(2, 3, 4), i(0, -1)], {}),
    ("Flatten", [f(2, 3, 4)], {"axis": -1}),
    ("Flatten", [f(2, 3, 4)], {"axis": 0}),
    ("Transpose", [f(2, 3, 4)], {}),
    ("Transpose", [f(2, 3, 4)], {"perm": [1, 2, 0]}),
    ("Squeeze", [f(1, 3, 1), i(-1)], {}),
    ("Squeeze", [f(1, 3, 1)], {}),
    ("Unsqueeze", [f(2, 3), i(0, -1)], {}),
    ("Concat", [f(2, 3), f(2, 1)], {"axis": -1}),
    ("Split", [f(2, 7), i(3, 4)], {"axis": 1}),
    ("Split", [f(2, 7)], {"axis": 1, "num_outputs": 3}),
    ("Slice", [f(5, 6), i(1, -1), i(4, -9), i(0, 1), i(2, -1)], {}),
    ("Slice", [f(5, 6), i(-3), i(100), i(1)], {}),
    ("Gather", [f(4, 3), i(0, -1, 2)], {"axis": 0}),
    ("Gather", [f(4, 3), np.int64(1)], {"axis": 1}),
    ("GatherElements", [f(3, 4), np.array([[0, -1], [2, 1]], np.int64)], {"axis": 1}),
    ("GatherND", [f(2, 3, 4), np.array([[0, 1], [1, 2]], np.int64)], {}),
    ("GatherND", [f(2, 3, 4), np.array([[1], [2]], np.int64)], {"batch_dims": 1}),
    ("ScatterElements", [f(3, 4), np.array([[0, 1], [2, 1]], np.int64), f(2, 2)], {"axis": 1}),
    ("ScatterElements", [f(3, 4), np.array([[0, 0]], np.int64), f(1, 2)], {"axis": 1, "reduction": "add"}),
    ("ScatterND", [f(4, 3), np.array([[1], [3]], np.int64), f(2, 3)], {}),
    ("Pad", [f(2, 3), i(0, 1, 2, 0), np.float32(7)], {}),
    ("Pad", [f(3, 4), i(1, 2), None, i(1)], {"mode": "reflect"}),
    ("Pad", [f(3, 4), i(0, -1, 1, 0)], {"mode": "edge"}),
    ("Expand", [f(3, 1), i(2, 1, 4)], {}),
    ("Tile", [f(2, 3), i(2, 1)], {}),
    ("Trilu", [f(4, 4), np.int64(1)], {"upper": 0}),
    ("Range", [np.int64(3), np.int64(11), np.int64(3)], {}),
    ("ConstantOfShape", [i(2, 3)], {"value": numpy_helper.from_array(np.array([4], np.int64))}),
    ("OneHot", [i(0, 2, -1), np.int64(3), np.array([0, 5], np.float32)], {"axis": 0}),
    ("DepthToSpace", [f(1, 8, 2, 3)], {"blocksize": 2}),
    ("DepthToSpace", [f(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", [f(1, 2, 4, 6)], {"blocksize": 2}),
    ("Softmax", [f(2, 3, 4)], {"axis": 1}),
    ("LogSoftmax", [f(2, 3)], {}),
    ("ArgMax", [f(3, 4)], {"axis": 1, "keepdims": 0}),
    ("ArgMin", [np.zeros((3, 4), np.float32)], {"axis": 1, "select_last_index": 1}),
    ("LayerNormalization", [f(2, 3, 8), f(8), f(8)], {"epsilon": 1e-3}),
    ("LayerNormalization", [f(2, 3, 8), f(3, 8)], {"axis": 1}),
    ("BatchNormalization", [f(2, 3, 4), f(3), f(3), f(3), positive(3)], {}),
    ("InstanceNormalization", [f(2, 3, 5, 4), f(3), f(3)], {}),
    ("LRN", [f(1, 6, 2, 2)], {"size": 5, "alpha": 0.1}),
    ("CumSum", [f(3, 4), np.int64(1)], {"exclusive": 1, "reverse": 1}),
    ("TopK", [f(3, 6), i(2)], {"largest": 0}),
    ("Conv", [f(2, 4, 7, 6), f(6, 2, 3, 2), f(6)], {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]}),
    ("Conv", [f(1, 3, 9), f(5, 3, 4)], {"auto_pad": "SAME_UPPER", "strides": [2]}),
    ("Conv", [f(1, 3, 9), f(5, 3, 4)], {"auto_pad": "SAME_LOWER", "strides": [2]}),
    (
        "ConvTranspose",
        [f(1, 4, 3, 4), f(4, 3, 3, 2), f(6)],
        {"group": 2, "strides": [2, 3], "pads": [1, 0, 1, 1], "output_padding": [1, 2]},
    ),
    ("ConvTranspose", [f(1, 2, 4), f(2, 3, 3)], {"dilations": [2]}),
    ("MatMul", [f(2, 1, 3, 4), f(5, 4, 2)], {}),
    ("MatMul", [f(4), f(3, 4, 2)], {}),
    ("Gemm", [f(4, 3), f(5, 4), f(5)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Einsum", [f(2, 3, 4), f(2, 4, 5)], {"equation": "bij,bjk->bik"}),
    ("MatMulInteger", [np.array([[1, 250]], np.uint8), np.array([[-5], [3]], np.int8), np.uint8(9), np.int8(1)], {}),
    ("ConvInteger", [np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4), np.ones((1, 1, 2, 2), np.uint8), np.uint8(3)], {}),
    ("MaxPool", [f(1, 2, 7, 7)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
    ("AveragePool", [f(1, 2, 7, 7)], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("AveragePool", [f(1, 2, 7, 7)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("GlobalAveragePool", [f(2, 3, 4, 5)], {}),
    ("GlobalMaxPool", [f(2, 3, 4, 5)], {}),
    ("QuantizeLinear", [4 * f(3, 4), np.float32(0.1), np.uint8(7)], {}),
    ("QuantizeLinear", [4 * f(3, 4), positive(3), np.zeros(3, np.int8)], {"axis": 0}),
    ("DequantizeLinear", [np.arange(12, dtype=np.int8).reshape(3, 4), positive(4), np.arange(4, dtype=np.int8)], {"axis": 1}),
    ("DequantizeLinear", [np.arange(4, dtype=np.int32), np.float32(0.5)], {}),
    ("DynamicQuantizeLinear", [f(3, 4)], {}),
    *(
        ("Resize", [f(1, 1, 4, 6), None, np.array([1, 1, 2, 0.5], np.float32)], {"mode": m, "coordinate_transformation_mode": c})
        for m in ("nearest", "linear", "cubic")
        for c in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        if (m, c) not in {("cubic", "align_corners"), ("linear", "align_corners")}
    ),
    ("Resize", [f(1, 1, 4, 6), None, None, i(1, 1, 9, 7)], {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ("Resize", [f(1, 1, 4, 4), None, np.array([1, 1, 3, 3], np.float32)], {"mode": "nearest", "nearest_mode": "ceil"}),
]


def both(kind: str, inputs: list[Array | None], attrs: dict[str, Any]) -> tuple[list[Array], list[Array]]:
    """The results of the reference function and of ONNX Runtime."""
    arrays_ = [None if a is None else np.asarray(a) for a in inputs]
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays_)]
    count = attrs.get("num_outputs", {"Split": 2, "TopK": 2, "DynamicQuantizeLinear": 3}.get(kind, 1))
    outs = [f"y{k}" for k in range(count)]
    opset = 21 if kind == "Gelu" else 18
    node = helper.make_node(kind, names, outs, "node", **attrs)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays_, strict=True)
        if a is not None
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(o) for o in outs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {n: a for n, a in zip(names, arrays_, strict=True) if a is not None})
    values = {
        k: numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else tuple(v) if isinstance(v, list) else v for k, v in attrs.items()
    }
    return run_op(Op("node", kind, tuple(names), tuple(outs), values), arrays_), expected


@pytest.mark.parametrize("case", CASES, ids=[f"{kind}-{k}" for k, (kind, _, _) in enumerate(CASES)])
def test_equals_onnx_runtime(case: Case) -> None:
    got, expected = both(*case)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_the_table_covers_the_reference() -> None:
    elsewhere = {"QuickGelu", "ThresholdedRelu"}  # by the tests of the readers that write them
    own = {"Silu", "RMSNormalization", "Constant", "Shape", "Size", *language.OPS, *attention.OPS, *elsewhere}
    assert supported_types() - {kind for kind, _, _ in CASES} - set(recurrent.OPS) == own


def test_silu_rms_norm_shape_and_size() -> None:
    x = f(2, 3)
    np.testing.assert_allclose(run_op(Op("s", "Silu", ("x",), ("y",)), [x])[0], x / (1 + np.exp(-x)), rtol=1e-6)
    scale = f(3)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(run_op(Op("r", "RMSNormalization", ("x", "w"), ("y",)), [x, scale])[0], expected, rtol=1e-5)
    assert run_op(Op("s", "Shape", ("x",), ("y",), {"start": 1}), [x])[0].tolist() == [3]
    assert run_op(Op("s", "Size", ("x",), ("y",)), [x])[0] == 6


@given(
    arrays(np.float32, st.integers(1, 40), elements=st.floats(-1000, 1000, width=32)),
    st.floats(0.0078125, 4.0, width=32),
    st.integers(0, 255),
)
def test_quantization_round_trip_is_within_half_a_step(x: Array, step: float, zero: int) -> None:
    scale, zero_point = np.array(step, np.float32), np.array(zero, np.uint8)
    q = quantize(x, scale, zero_point, DType.U8)
    back = dequantize(q, scale, zero_point)
    low, high = (np.float32(v - zero) * np.float32(step) for v in (0, 255))
    assert q.dtype == np.uint8
    assert (np.abs(back - np.clip(x, low, high)) <= step / 2 + 1e-3 * np.abs(x)).all()
    assert (quantize(back, scale, zero_point, DType.U8) == q).all()


def test_halves_go_to_the_even_neighbour() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9], np.float32)
    assert quantize(x, np.array(1, np.float32), np.array(0, np.int8), DType.I8).tolist() == [0, 2, 2, 0, -2, 127, -128]


def test_a_body_runs_with_constants_of_the_graph() -> None:
    from hetsched.graph import WeightRef

    def const(name: str, value: Array) -> Tensor:
        kinds = {np.dtype(np.float32): DType.F32, np.dtype(np.uint8): DType.U8}
        return Tensor(name, value.shape, kinds[value.dtype], Role.WEIGHT, None, WeightRef(array=value))

    tensors = {t.name: t for t in (const("s", np.array(0.5, np.float32)), const("z", np.array(4, np.uint8)))}
    body = (
        Op("dq", "DequantizeLinear", ("x", "s", "z"), ("xf",)), Op("relu", "Relu", ("xf",), ("yf",)),
        Op("q", "QuantizeLinear", ("yf", "s", "z"), ("y",)),
    )  # fmt: skip
    op = Op("relu", "Relu", ("x",), ("y",), body=body)
    assert run_op(op, [np.array([0, 4, 9], np.uint8)], tensors)[0].tolist() == [4, 4, 9]


def test_errors_name_the_node() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'nms'.*NonMaxSuppression"):
        run_op(Op("nms", "NonMaxSuppression", ("x",), ("y",)), [f(2)])
    with pytest.raises(ExecutionError, match=r"'mm' \(MatMul\)"):
        run_op(Op("mm", "MatMul", ("a", "b"), ("y",)), [f(2, 3), f(2, 3)])
    with pytest.raises(ExecutionError, match="input 1 of 'add'"):
        run_op(Op("add", "Add", ("a",), ("y",)), [f(2)])
    x, y = Tensor("x", (2,), DType.F32, Role.INPUT), Tensor("y", (2,), DType.F32, Role.OUTPUT)
    graph = Graph("g", {"x": x, "y": y}, (Op("r", "Relu", ("x",), ("y",)),), ("x",), ("y",), Path("g.onnx"))
    with pytest.raises(OptionError, match="input 'x' of 'g' is missing"):
        run(graph, {})
    with pytest.raises(OptionError, match=r"shape \[3\] where \[2\]"):
        run(graph, {"x": f(3)})
    assert set(run(graph, {"x": f(2)})) == {"x", "y"}
