"""Core ML packages: written, read again, and interpreted; what cannot be written is refused by name."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import DelegateError, ExecutionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.lowering.mil import mil_package, names_in, refusal
from hetsched.lowering.onnx_segment import ends_of
from hetsched.passes import standard
from hetsched.plans import Plan
from hetsched.reference.executor import run
from hetsched.runtime import compile as compile_plan
from hetsched.runtime.delegates import coreml, load_delegate

HandPlan = Callable[..., Plan]
Save = Callable[..., Path]
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("coremltools") is None, reason="coremltools is not installed"),
    pytest.mark.skipif(sys.platform == "darwin", reason="these tests are of the interpreter that stands in for Core ML"),
]

# Every line is a node of its own output; one package holds them all, because writing one takes most of the time.
ARITHMETIC = """
    a = Relu(x)  b = Sigmoid(x)  c = Tanh(x)  d = Erf(x)  e = Abs(x)  f = Neg(x)  g = LeakyRelu <alpha = 0.3> (x)  h = Elu(x)
    i = HardSigmoid(x)  j = HardSwish(x)  k = Clip(x, low, high)  l = Softmax <axis = 1> (x)  m = PRelu(x, slope)
    n = ReduceMean <keepdims = 0> (x, axes)  o = ReduceMax(x, axes)  p = Add(x, slope)  q = Sub(slope, x)  r = Div(x, slope)
    s = Max(x, slope, half)  u = Softplus(x)  v = Exp(x)  positive = Abs(x)  shifted = Add(positive, half)  w = Sqrt(shifted)
    ab = Log(shifted)  ac = Reciprocal(shifted)  ad = Pow(shifted, half)  cond = Greater(x, half)  ae = Where(cond, x, slope)
    af = Gelu(x)  ag = Gelu <approximate = "tanh"> (x)  ah = Clip(x)"""
MOVEMENT = """
    a = Reshape(x, shape)  b = Transpose <perm = [0, 2, 3, 1]> (x)  c = Concat <axis = 1> (x, x)  d = Slice(x, from, to, axes, steps)
    e = Slice(x, back_from, back_to, axes, back_steps)  f = Pad(x, pads, half)  g = Gather <axis = 2> (x, rows)  h = Flatten(x)
    part, rest = Split <axis = 1, num_outputs = 2> (x)  i = Relu(part)  j = Relu(rest)  k = Tile(x, reps)
    l = DepthToSpace <blocksize = 2> (x)  m = DepthToSpace <blocksize = 2, mode = "CRD"> (x)
    n = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , twice)
    o = Resize <mode = "linear"> (x, , twice)  p = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , twice)
    q = GlobalAveragePool(x)  r = MaxPool <kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]> (x)
    s = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)  t = Expand(one, wide)"""


def written(save: Save, tmp_path: Path, text: str, *, half: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the graph's outputs are by the reference, and by the package."""
    graph = load(save(text))
    rng = np.random.default_rng(5)
    feeds = {n: rng.standard_normal(graph.tensors[n].shape).astype(np.float32) for n in graph.inputs}
    ends = ends_of(graph, graph.ops)
    mil_package(graph, graph.ops, ends, tmp_path / "m.mlpackage", half=half, units="npu")
    named = names_in((*ends.inputs, *ends.outputs))
    got = coreml.interpreter(tmp_path / "m.mlpackage", graph, ends)({named[n]: feeds[n] for n in ends.inputs})
    wanted = run(graph, feeds)
    return {n: wanted[n] for n in ends.outputs}, {n: got[named[n]].reshape(wanted[n].shape) for n in ends.outputs}


def outputs(lines: str, *inner: str) -> str:
    """The outputs of a table of nodes."""
    names = [n.strip() for part in lines.replace("\n", "  ").split("  ") if "=" in part for n in part.split("=")[0].split(",")]
    return ", ".join(f"float[] {n}" for n in names if n not in inner)


def test_arithmetic(save: Save, tmp_path: Path) -> None:
    consts = "float[3,1,1] slope = {0.5, -2, 3}, float half = {0.25}, float low = {-0.5}, float high = {0.75}, int64[2] axes = {2, 3}"
    text = f"g (float[1,3,4,5] x) => ({outputs(ARITHMETIC, 'positive', 'shifted', 'cond')}) <{consts}> {{{ARITHMETIC}\n}}"
    wanted, got = written(save, tmp_path, text)
    assert len(wanted) == 29
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_movement(save: Save, tmp_path: Path) -> None:
    consts = (
        "int64[2] shape = {4, 30}, int64[2] from = {1, -4}, int64[2] to = {4, 5}, int64[2] axes = {1, 3}, int64[2] steps = {1, 2}, "
        "int64[2] back_from = {3, 4}, int64[2] back_to = {0, -9}, int64[2] back_steps = {-1, -2}, "
        "int64[8] pads = {0, 0, 1, 2, 0, 0, 0, 3}, "
        "float half = {0.25}, int64[2] rows = {-1, 0}, int64[4] reps = {1, 1, 2, 1}, float[4] twice = {1, 1, 2, 2}, "
        "float[1,1] one = {3}, int64[2] wide = {2, 4}"
    )
    text = f"g (float[1,4,6,5] x) => ({outputs(MOVEMENT, 'part', 'rest')}) <{consts}> {{{MOVEMENT}\n}}"
    wanted, got = written(save, tmp_path, text)
    assert len(wanted) >= 19
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_convolutions_and_norms(save: Save, tmp_path: Path, weights: Callable[..., str]) -> None:
    nodes = """
    a = Conv <strides = [2, 1], pads = [1, 0, 0, 1], dilations = [1, 2]> (x, w, bias)
    b = Conv <group = 4, auto_pad = "SAME_UPPER", strides = [2, 2]> (x, each)
    c = ConvTranspose <strides = [2, 2], pads = [1, 0, 0, 1]> (x, turned)
    d = BatchNormalization(x, one, two, one, two)  e = LayerNormalization <axis = -1> (x, row, row)  f = InstanceNormalization(x, one, two)
    g = RMSNormalization(x, row)  flat = Flatten <axis = 3> (x)  h = Gemm <alpha = 0.5, transB = 1> (flat, b2, c2)  i = MatMul(flat, b3)"""
    consts = ", ".join((
        weights("w", 6, 4, 3, 2), weights("bias", 6), weights("each", 4, 1, 3, 3), weights("turned", 4, 3, 3, 2),
        weights("one", 4, positive=True), weights("two", 4, positive=True), weights("row", 5),
        weights("b2", 7, 5), weights("c2", 7), weights("b3", 5, 3),
    ))  # fmt: skip
    wanted, got = written(save, tmp_path, f"g (float[1,4,7,5] x) => ({outputs(nodes, 'flat')}) <{consts}> {{{nodes}\n}}")
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.fixture
def weights() -> Callable[..., str]:
    """An initializer in ONNX's text form, with seeded values."""
    rng = np.random.default_rng(2)

    def one(name: str, *shape: int, positive: bool = False) -> str:
        values = rng.standard_normal(shape).reshape(-1)
        values = np.abs(values) + 0.5 if positive else values
        return f"float[{','.join(map(str, shape))}] {name} = {{{', '.join(f'{v:.4f}' for v in values)}}}"

    return one


def test_float16_inside(save: Save, tmp_path: Path) -> None:
    wanted, got = written(save, tmp_path, "g (float[2,8] x) => (float[2,8] y) { a = Exp(x) y = Tanh(a) }", half=True)
    assert np.abs(got["y"] - wanted["y"]).max() < 2e-3
    assert (got["y"] != wanted["y"]).any(), "it did not compute in float16"


QDQ = """
    g (float[1,2,4,4] x) => (float[1,3,4,4] y) <float s = {0.05}, uint8 z = {120}, float[3] t = {0.01, 0.02, 0.03}, float u = {0.1},
        int8[3,2,1,1] w = {10, -20, 127, 3, -128, 5}, int32[3] b = {100, -50, 7}, float[3] bs = {0.0005, 0.001, 0.0015},
        int8[3] zero = {0, 0, 0}, int32[3] izero = {0, 0, 0}> {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  v = DequantizeLinear <axis = 0> (w, t, zero)
        c = DequantizeLinear <axis = 0> (b, bs, izero)  k = Conv(d, v, c)  l = QuantizeLinear(k, u, z)  y = DequantizeLinear(l, u, z) }"""


def test_integers_come_as_quantize_and_dequantize(save: Save, tmp_path: Path) -> None:
    wanted, got = written(save, tmp_path, QDQ)
    np.testing.assert_allclose(got["y"], wanted["y"], atol=0.1001)  # one step of the result
    assert (np.abs(got["y"] - wanted["y"]) < 1e-5).mean() > 0.95


def test_a_plan_runs_through_the_arena(save: Save, plan_by_hand: HandPlan, alternate: Any) -> None:
    graph = standard(load(save(QDQ)))
    x = {"x": np.random.default_rng(1).standard_normal((1, 2, 4, 4)).astype(np.float32)}
    with compile_plan(graph, plan_by_hand(graph, precision=lambda i: "w8a8", delegate="coreml", queue_of=lambda i: "npu")) as executable:
        result = executable.run(x, repeat=2)
        observed = executable.run(x, observe=True).observed
    wanted = run(graph, x)
    np.testing.assert_allclose(result.outputs["y"], wanted["y"], atol=0.1001)
    assert set(observed) == {o for op in graph.ops for o in op.outputs} and result.copied_bytes > 0


def test_what_cannot_be_written_is_refused_by_name(save: Save, plan_by_hand: HandPlan) -> None:
    graph = load(save("g (float[4] x) => (float[4] y) { a = Relu(x) y = Sinh(a) }"))
    assert refusal(graph, graph.ops[0]) is None
    assert refusal(graph, graph.ops[1]) == "there is no Core ML operation for Sinh"
    with pytest.raises(UnsupportedModelError, match=r"Sinh\) cannot run with Core ML: there is no Core ML operation for Sinh"):
        compile_plan(graph, plan_by_hand(graph, delegate="coreml", queue_of=lambda i: "npu"))
    delegate = load_delegate("coreml")
    assert "calibrate ranges" in (delegate.supports(graph.ops[0], graph, "w8a8") or "")
    assert "not in w4a8" in (delegate.supports(graph.ops[0], graph, "w4a8") or "")


def test_a_package_that_is_not_the_plan_is_refused(save: Save, tmp_path: Path) -> None:
    graph = load(save("g (float[4] x) => (float[4] y) { y = Relu(x) }"))
    other = load(save("g (float[5] x) => (float[5] y) { y = Relu(x) }", name="other"))
    mil_package(other, other.ops, ends_of(other, other.ops), tmp_path / "m.mlpackage", half=False, units="cpu")
    with pytest.raises(DelegateError, match=r"has \[5\] f32 where the plan has 'x', \[4\] f32"):
        coreml.interpreter(tmp_path / "m.mlpackage", graph, ends_of(graph, graph.ops))


def test_a_failing_prediction_names_the_node(chain: Any, plan_by_hand: HandPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def opened(job: Any, ends: Any) -> Any:
        def predict(feeds: Any) -> Any:
            calls.append(1)
            if len(calls) == 3:
                raise RuntimeError("the device is lost\nmore")
            return {n: np.maximum(a, 0) for n, a in (("t0", feeds["x"]),)}

        return predict

    monkeypatch.setattr(coreml, "opened", opened)
    graph = chain("Relu")
    x = {"x": np.linspace(-1, 1, 8, dtype=np.float32)}
    with compile_plan(graph, plan_by_hand(graph, delegate="coreml", queue_of=lambda i: "npu")) as executable:
        executable.run(x, repeat=2)
        with pytest.raises(ExecutionError, match=r"Core ML failed in op0 \(nodes '/user/node_0', …\): the device is lost$"):
            executable.run(x)
        np.testing.assert_array_equal(executable.run(x).outputs["t0"], np.maximum(x["x"], 0))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(coreml, "version", absent)
    probe = load_delegate("coreml").probe()
    assert not probe.available and "hetsched[coreml]" in probe.reason


def test_names_of_ends_are_core_mls() -> None:
    assert names_in(("a/b:0", "a_b_0", "0", "ü")) == {"a/b:0": "a_b_0", "a_b_0": "a_b_0_", "0": "t_0", "ü": "t__"}
