"""Static integers made of ranges: where they go, what they compute, and that planning reads no weight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hetsched.frontends import load
from hetsched.graph import DType, Graph, Op, Tensor
from hetsched.passes import standard, unfuse
from hetsched.passes.quantize_static import affine_parameters, quantize
from hetsched.passes.static_weights import quantized_bias, quantized_weight, weight_codes, weight_scales
from hetsched.ranges import ActivationRanges, CalibratedModel, ChannelRange, TensorRange
from hetsched.reference import run
from hetsched.reference.quantized import dequantize
from hetsched.reference.quantized import quantize as to_integers
from hetsched.tensors import Role, WeightRef

FINITE = st.floats(-1e6, 1e6, width=32)


def ranges_of(graph: Graph, feeds: dict[str, Any], symmetric: bool = False, without: tuple[str, ...] = ()) -> ActivationRanges:
    """Min-max ranges of one sample, of every float tensor that the reference executor sees."""
    values = run(graph, feeds)
    found = {n: TensorRange(min=float(v.min()), max=float(v.max())) for n, v in values.items() if v.dtype.kind == "f" and n not in without}
    return ActivationRanges(
        model=CalibratedModel(name=graph.name, sha256=graph.sha256), method="minmax", granularity="tensor", symmetric=symmetric, samples=1,
        ranges=found,
    )  # fmt: skip


def snr_db(got: Any, want: Any) -> float:
    return float(10 * np.log10((want**2).sum() / ((got - want) ** 2).sum()))


@pytest.fixture
def net(two_branch: Path) -> tuple[Graph, dict[str, Any]]:
    graph = load(two_branch, {"width": 16})
    return graph, {"x": np.random.default_rng(3).standard_normal((1, 3, 16, 16)).astype(np.float32)}


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_integer_graph_computes_nearly_the_same(net: tuple[Graph, dict[str, Any]], symmetric: bool) -> None:
    graph, feeds = net
    fused = standard(graph)
    quantized = quantize(fused, ranges_of(graph, feeds, symmetric))
    want, got = run(fused, feeds)["y"], run(quantized, feeds)["y"]
    assert 20 < snr_db(got, want) < 70
    assert np.array_equal(run(unfuse(quantized), feeds)["y"], got)


def test_everything_between_two_convolutions_is_integers(net: tuple[Graph, dict[str, Any]]) -> None:
    graph, feeds = net
    quantized = quantize(standard(graph), ranges_of(graph, feeds))
    kinds = {n: quantized.tensors[n].dtype for op in quantized.ops for n in op.outputs}
    assert kinds.pop("y") is DType.F32 and set(kinds.values()) == {DType.U8}
    assert [op.type for op in quantized.ops].count("QuantizeLinear") == 1, "only the input is quantized on its own"
    weights = [quantized.tensors[op.inputs[1]] for op in quantized.ops if "Conv" in op.type]
    assert weights and all(w.dtype is DType.I8 and w.quantization is not None and w.quantization.axis == 0 for w in weights)
    biases = [
        quantized.tensors[op.inputs[2]] for op in quantized.ops if op.type in ("FusedConv", "Gemm") and op.inputs[2:3] not in ((), ("",))
    ]
    assert any(b.dtype is DType.I32 for b in biases)


def test_planning_reads_no_weight(net: tuple[Graph, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    graph, feeds = net
    fused, ranges = standard(graph), ranges_of(graph, feeds)
    read: list[str] = []
    whole = Tensor.numpy
    monkeypatch.setattr(Tensor, "numpy", lambda self: (read.append(self.name), whole(self))[1])
    quantized = quantize(fused, ranges)
    assert not [n for n in read if n.endswith((".w", ".b"))] and not [n for n in read if "/quantized" in n]
    stored = next(t for n, t in quantized.tensors.items() if n == "a1.w/quantized")
    assert stored.numpy().dtype == np.int8 and "a1.w" in read


def test_an_operator_without_a_range_stays_float(net: tuple[Graph, dict[str, Any]]) -> None:
    graph, feeds = net
    fused = standard(graph)
    quantized = quantize(fused, ranges_of(graph, feeds, without=("x",)))
    stem = next(op for op in quantized.ops if "stem" in op.origin)
    assert stem.inputs[0] == "x" and quantized.tensors[stem.inputs[1]].dtype is DType.F32
    nothing = ranges_of(graph, feeds, without=tuple(run(graph, feeds)))
    assert quantize(fused, nothing) is fused


def test_ranges_per_channel_are_of_no_use(net: tuple[Graph, dict[str, Any]]) -> None:
    graph, feeds = net
    ranges = ranges_of(graph, feeds).model_copy(
        update={"granularity": "channel", "ranges": {"x": ChannelRange(axis=1, min=(-1, -1, -1), max=(1, 1, 1))}}
    )
    assert quantize(standard(graph), ranges).ops == standard(graph).ops


def test_softmax_and_the_ends_stay_float(save: Callable[..., Path]) -> None:
    text = "g (float[2, 4] x) => (float[2, 3] y) <float[4, 4] w, float[4, 3] v> { a = MatMul(x, w) b = Softmax(a) y = MatMul(b, v) }"
    import onnx
    from onnx import numpy_helper

    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')
    rng = np.random.default_rng(0)
    del model.graph.initializer[:]
    model.graph.initializer.extend(
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in (("w", (4, 4)), ("v", (4, 3)))]
    )
    graph = load(save(model))
    feeds = {"x": rng.standard_normal((2, 4)).astype(np.float32)}
    quantized = quantize(standard(graph), ranges_of(graph, feeds))
    softmax = next(op for op in quantized.ops if op.type == "Softmax")
    assert quantized.tensors[softmax.inputs[0]].dtype is DType.F32, "what only softmax reads is not rounded"
    assert quantized.tensors[softmax.outputs[0]].dtype is DType.U8, "what a product reads is"
    assert quantized.tensors["y"].dtype is DType.F32
    assert snr_db(run(quantized, feeds)["y"], run(graph, feeds)["y"]) > 25


def test_a_moved_tensor_keeps_its_integers(save: Callable[..., Path]) -> None:
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(1)
    weights = [numpy_helper.from_array(rng.standard_normal((4, 4, 1, 1)).astype(np.float32), n) for n in ("w", "v")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["m", "v"], ["y"]),
    ]
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", [1, 4, 4, 4]), ("y", [1, 4, 2, 2]))]
    graph = load(
        save(
            helper.make_model(
                helper.make_graph(nodes, "g", info[:1], info[1:], weights), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
            )
        )
    )
    quantized = quantize(standard(graph), ranges_of(graph, {"x": rng.standard_normal((1, 4, 4, 4)).astype(np.float32)}))
    pool = next(op for op in quantized.ops if op.type == "MaxPool")
    before, after = (quantized.tensors[n].quantization for n in (pool.inputs[0], pool.outputs[0]))
    assert before is not None and before == after


@given(FINITE, FINITE, st.booleans())
def test_zero_is_exact_and_the_range_is_covered(a: float, b: float, symmetric: bool) -> None:
    r = TensorRange(min=min(a, b), max=max(a, b))
    scale, zero = affine_parameters(r, symmetric)
    low, high = (-127, 127) if symmetric else (0, 255)
    assert scale > 0 and low <= zero <= high
    if max(-r.min, r.max) < 1e-30:
        return
    slack = scale * (0.5 + 1e-3)
    assert (low - zero) * scale <= min(r.min, 0.0) + slack and (high - zero) * scale >= max(r.max, 0.0) - slack
    dtype, z = (DType.I8, np.int8(zero)) if symmetric else (DType.U8, np.uint8(zero))
    ends = np.array([r.min, 0.0, r.max], np.float32)
    back = dequantize(to_integers(ends, np.float32(scale), z, dtype), np.asarray(scale, np.float32), z)
    assert back[1] == 0 and np.abs(back - ends).max() <= slack * 1.01


@given(arrays(np.float32, (3, 4, 2, 2), elements=st.floats(-100, 100, width=32)), st.integers(0, 1))
def test_weights_are_within_half_a_step(weight: Any, axis: int) -> None:
    scales, codes = weight_scales(weight, axis), weight_codes(weight, axis)
    assert codes.min() >= -127
    shape = [-1 if i == axis else 1 for i in range(4)]
    error = np.abs(codes * scales.reshape(shape) - weight)
    assert (error <= scales.reshape(shape) * 0.5001).all()


def constant(name: str, value: Any) -> Tensor:
    array = np.asarray(value, np.float32)
    return Tensor(name, array.shape, DType.F32, Role.WEIGHT, None, WeightRef(array=array))


def test_a_bias_that_would_overflow_gets_a_coarser_step() -> None:
    _, weight_scale = quantized_weight(constant("w", [[1e-12, 1.0]]), 1, "w/quantized")
    bias, scale = quantized_bias(constant("b", [1e6, -2.5]), weight_scale, 0.01, "b/quantized")
    real = bias.numpy() * scale.numpy().astype(np.float64)
    assert bias.numpy().dtype == np.int32
    np.testing.assert_allclose(real, [1e6, -2.5], rtol=1e-4)


def test_a_batch_norm_keeps_its_float_bias() -> None:
    from hetsched.passes.static_weights import has_integer_bias

    op = Op("c", "FusedConv", ("x", "w", "b"), ("y",), {"batch_norm": 1})
    assert not has_integer_bias(op, constant("b", [1.0, 2.0]), 2)
    assert has_integer_bias(Op("c", "FusedConv", ("x", "w", "b"), ("y",)), constant("b", [1.0, 2.0]), 2)
