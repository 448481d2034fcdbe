"""Q/DQ models after the standard passes: integer kernels and the float path, against ONNX Runtime's own Q/DQ arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Run = Callable[..., tuple[dict[str, Any], dict[str, Any]]]
quick = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
TYPES = {"u8": np.uint8, "i8": np.int8}


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Model:
    """Nodes of a Q/DQ model, built up."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def parameters(self, name: str, scale: Any, zero: Any) -> list[str]:
        self.constants |= {f"{name}_s": np.asarray(scale, np.float32), f"{name}_z": zero}
        return [f"{name}_s", f"{name}_z"]

    def quantized(self, name: str, scale: float, dtype: Any, zero: int) -> str:
        """Q then DQ of an activation; the name of the dequantized tensor."""
        p = self.parameters(name, scale, dtype(zero))
        self.nodes += [("QuantizeLinear", [name, *p], [f"{name}_q"], {}), ("DequantizeLinear", [f"{name}_q", *p], [f"{name}_d"], {})]
        return f"{name}_d"

    def weights(self, name: str, values: Any, axis: int | None, dtype: Any = np.int8, zero: int = 0) -> str:
        """DQ of constant integers; the name of the dequantized tensor."""
        others = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
        scale = np.abs(values).max(axis=others, keepdims=True) / 120
        info = np.iinfo(dtype)
        self.constants[f"{name}_q"] = np.clip(np.rint(values / scale) + zero, info.min, info.max).astype(dtype)
        flat = scale.reshape(-1) if axis is not None else scale.reshape(())
        p = self.parameters(name, flat, np.full(flat.shape, zero, dtype))
        self.nodes.append(("DequantizeLinear", [f"{name}_q", *p], [f"{name}_d"], {} if axis is None else {"axis": axis}))
        return f"{name}_d"

    def bias(self, name: str, values: Any, x: str, w: str) -> str:
        scale = self.constants[f"{x}_s"] * self.constants[f"{w}_s"]
        self.constants[f"{name}_q"] = np.rint(values / scale).astype(np.int32)
        p = self.parameters(name, scale, np.zeros(scale.shape, np.int32))
        self.nodes.append(("DequantizeLinear", [f"{name}_q", *p], [f"{name}_d"], {"axis": 0} if scale.ndim else {}))
        return f"{name}_d"

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        self.nodes.append((kind, inputs, [output], attributes))


def within_a_step(pair: tuple[dict[str, Any], dict[str, Any]], step: float, share: float = 0.01) -> None:
    """Equal up to one quantization step, and nearly everywhere equal: only ties may round differently."""
    ours, theirs = pair
    for name, want in theirs.items():
        error = np.abs(ours[name].astype(np.float64) - want)
        assert error.max() <= step * 1.001
        assert (error > step * 1e-3).mean() <= share


@pytest.mark.parametrize("precision", ["w8a8", "f32"])
@pytest.mark.parametrize("kind", ["u8", "i8"])
@pytest.mark.parametrize("case", ["plain", "per_tensor", "depthwise", "relu", "stride"])
def test_conv(against_ort: Run, precision: str, kind: str, case: str) -> None:
    m, dtype = Model(), TYPES[kind]
    groups = 8 if case == "depthwise" else 1
    w = noise(8 if groups == 8 else 12, 8 // groups, 3, 3, seed=1)
    x = m.quantized("x", 0.02, dtype, 3 if kind == "i8" else 120)
    wd = m.weights("w", w, None if case == "per_tensor" else 0)
    b = m.bias("b", noise(w.shape[0], seed=2), "x", "w")
    m.node("Conv", [x, wd, b], "c", pads=[1] * 4, group=groups, strides=[2, 2] if case == "stride" else [1, 1])
    if case == "relu":
        m.node("Relu", ["c"], "r")
    y = m.quantized("r" if case == "relu" else "c", 0.1, dtype, 0 if kind == "i8" else 100)
    m.node("Identity", [y], "y")
    within_a_step(against_ort(m.nodes, {"x": noise(1, 8, 9, 10)}, m.constants, precision, passes=True), 0.1)


@quick
@given(
    st.sampled_from(["w8a8", "f32"]), st.sampled_from(["u8", "i8"]), st.sampled_from(["u8", "i8"]), st.booleans(), st.integers(-5, 5),
    st.sampled_from([(3, 16, 5), (17, 33, 40), (1, 64, 1)]), st.booleans(),
)  # fmt: skip
def test_matmul_with_weights(
    against_ort: Run, precision: str, a: str, w: str, per_channel: bool, zero: int, shape: tuple[int, int, int], quantized: bool
) -> None:
    m, (rows, depth, cols) = Model(), shape
    x = m.quantized("x", 0.02, TYPES[a], 5)
    wd = m.weights("w", noise(depth, cols, seed=1), 1 if per_channel else None, TYPES[w], (128 if w == "u8" else 0) + zero)
    m.node("MatMul", [x, wd], "p")
    if quantized:
        m.node("Identity", [m.quantized("p", 0.2, TYPES[a], 7)], "y")
    pair = against_ort(m.nodes, {"x": noise(rows, depth)}, m.constants, precision, passes=True)
    within_a_step(pair, *((0.2,) if quantized else (1e-4, 1.0)))


@pytest.mark.parametrize("precision", ["w8a8", "f32"])
@pytest.mark.parametrize("quantized", [True, False])
def test_product_of_activations(against_ort: Run, precision: str, quantized: bool) -> None:
    m = Model()
    a, b = m.quantized("a", 0.02, np.uint8, 110), m.quantized("b", 0.03, np.int8, -4)
    m.node("MatMul", [a, b], "p")
    if quantized:
        m.node("Identity", [m.quantized("p", 0.2, np.uint8, 120)], "y")
    feeds = {"a": noise(2, 3, 7, 19), "b": noise(3, 19, 10, seed=1)}
    within_a_step(against_ort(m.nodes, feeds, m.constants, precision, passes=True), *((0.2,) if quantized else (1e-4, 1.0)))


@pytest.mark.parametrize("precision", ["w8a8", "f32"])
def test_gemm(against_ort: Run, precision: str) -> None:
    m = Model()
    x, w = m.quantized("x", 0.02, np.uint8, 110), m.weights("w", noise(10, 24, seed=1), 0)
    m.node("Gemm", [x, w, m.bias("b", noise(10), "x", "w")], "p", transB=1)
    m.node("Identity", [m.quantized("p", 0.1, np.uint8, 120)], "y")
    within_a_step(against_ort(m.nodes, {"x": noise(5, 24)}, m.constants, precision, passes=True), 0.1)


@pytest.mark.parametrize("kind", ["Add", "Mul", "Relu", "Sigmoid", "Softmax", "Transpose", "MaxPool", "GlobalAveragePool", "Concat"])
def test_other_ops_on_integers(against_ort: Run, kind: str) -> None:
    m = Model()
    inputs = [m.quantized("a", 0.02, np.uint8, 110)]
    feeds = {"a": noise(1, 4, 6, 6)}
    if kind in ("Add", "Mul", "Concat"):
        inputs.append(m.quantized("b", 0.03, np.uint8, 90))
        feeds["b"] = noise(1, 4, 6, 6, seed=1)
    attributes = {"MaxPool": {"kernel_shape": [2, 2]}, "Concat": {"axis": 1}}.get(kind, {})
    m.node(kind, inputs, "p", **attributes)
    m.node("Identity", [m.quantized("p", 0.05, np.uint8, 100)], "y")
    within_a_step(against_ort(m.nodes, feeds, m.constants, "w8a8", passes=True), 0.05)


def test_moving_integers_that_mean_the_same_changes_nothing(against_ort: Run) -> None:
    m = Model()
    x = m.quantized("x", 0.02, np.uint8, 110)
    m.node("Transpose", [x], "t", perm=[1, 0])
    m.nodes += [("QuantizeLinear", ["t", "x_s", "x_z"], ["q"], {}), ("DequantizeLinear", ["q", "x_s", "x_z"], ["y"], {})]
    ours, theirs = against_ort(m.nodes, {"x": noise(5, 7)}, m.constants, "w8a8", passes=True)
    np.testing.assert_array_equal(ours["y"], theirs["y"])


@pytest.mark.parametrize("source", [np.int32, np.bool_, np.float16])
def test_a_cast_into_quantized_integers(against_ort: Run, source: Any) -> None:
    """The cast's result is quantized, not reinterpreted: 1 is stored as 1 / scale."""
    m = Model()
    values = (noise(3, 7) * 3).astype(source)
    m.node("Cast", ["x"], "f", to=1)
    m.quantized("f", 0.05, np.uint8, 100)
    m.node("MatMul", ["f_d", m.weights("w", noise(7, 4), 1)], "y")
    within_a_step(against_ort(m.nodes, {"x": values}, m.constants, "f32", passes=True), 1e-4)


@pytest.mark.parametrize("kind", [np.int32, np.int8, np.uint8])
def test_a_cast_to_integers_that_are_dequantized_later(against_ort: Run, kind: Any) -> None:
    """The Cast itself writes the integers: its values are not divided by the scale that a later DequantizeLinear reads."""
    from onnx import helper

    m = Model()
    steps = m.constants.setdefault("steps", np.float32(0.05))
    m.nodes += [("Div", ["x", "steps"], ["d"], {}), ("Abs", ["d"], ["a"], {}), ("Round", ["a"], ["r"], {})]
    m.node("Cast", ["r"], "c", to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    m.node("DequantizeLinear", ["c", *m.parameters("c", steps, kind(0))], "f")
    m.node("Identity", ["f"], "y")
    within_a_step(against_ort(m.nodes, {"x": noise(4, 5)}, m.constants, passes=True), 1e-6)
