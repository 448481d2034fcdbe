"""Each pass on small graphs: what is fused, what must not be, and that the results stay the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.errors import ModelError
from hetsched.frontends import load
from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.passes import SIMPLIFYING, run_passes, standard, unfuse
from hetsched.passes.fuse_elementwise import FuseElementwise
from hetsched.reference import run

Save = Callable[..., Path]
CONV = f"float[4,3,3,3] w = {{{','.join(str((7 * k % 11 - 5) / 20) for k in range(108))}}}"
VEC = (
    "float[4,1,1] b = {0.1,-0.2,0.3,0.4}, float[4] s = {1.5,0.5,-1.0,2.0}, float[4] m = {0.1,0.2,0.0,-0.3}, float[4] v = {1.0,0.5,2.0,0.1}"
)


def types(graph: Graph) -> list[str]:
    return [op.type for op in graph.ops]


def check(path: Path, **dims: int) -> Graph:
    """The fused graph, after checking that it computes the same and that fusion can be undone."""
    graph = load(path, dims)
    fused = standard(graph)
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for name in graph.inputs:
        t = graph.tensors[name]
        feeds[name] = (
            (2 * rng.standard_normal(t.shape)).astype(t.dtype.numpy)
            if t.dtype.is_float
            else rng.integers(0, 99, t.shape).astype(t.dtype.numpy)
        )
    before, after = run(graph, feeds), run(fused, feeds)
    for name in graph.outputs:
        np.testing.assert_array_equal(before[name], after[name])
    assert set(after) <= set(before)
    assert {op.name: op for op in unfuse(fused).ops} == {op.name: op for op in graph.ops}
    assert sorted({o for op in fused.ops for o in op.origin}) == sorted({o for op in graph.ops for o in op.origin})
    assert standard(fused).ops == fused.ops
    return fused


def conv(save: Save, tail: str, outputs: str = "float[a,b,c,d] y") -> Graph:
    return check(
        save(
            f"g (float[1,3,6,6] x) => ({outputs}) <{CONV}, {VEC}, float lo = {{0}}, float hi = {{6}}, float k = {{3}}>"
            f"{{ c = Conv(x, w) {tail} }}"
        )
    )


def test_conv_bias_norm_clip(save: Save) -> None:
    graph = conv(save, "d = Add(c, b)  e = BatchNormalization <epsilon = 0.01> (d, s, b2, m, v)  y = Clip(e, lo, hi)".replace("b2", "m"))
    (op,) = graph.ops
    assert op.type == "FusedConv" and op.inputs == ("x", "w", "Conv_0/bias", "s", "m", "m", "v")
    assert op.attrs["batch_norm"] == 1 and op.attr_float("epsilon", 0) == pytest.approx(0.01)
    assert (op.attrs["activation"], op.attrs["activation_alpha"], op.attrs["activation_beta"]) == ("Clip", 0.0, 6.0)
    assert graph.tensors["Conv_0/bias"].shape == (4,)
    assert [part.type for part in op.body] == ["Conv", "Add", "BatchNormalization", "Clip"]
    assert op.name == "Clip_3" and op.origin == ("Conv_0", "Add_1", "BatchNormalization_2", "Clip_3")


def test_conv_with_scale_and_shift_per_channel(save: Save) -> None:
    graph = conv(save, "d = Mul(b, c)  e = Add(d, k)  y = Relu(e)")
    (op,) = graph.ops
    assert op.type == "FusedConv" and op.inputs[2] == "" and op.attrs["batch_norm"] == 1 and op.attrs["epsilon"] == 0.0
    scale, shift, mean, variance = (graph.tensors[n].numpy() for n in op.inputs[3:])
    assert scale.tolist() == pytest.approx([0.1, -0.2, 0.3, 0.4]) and shift.tolist() == [3.0] * 4
    assert mean.tolist() == [0.0] * 4 and variance.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("tail", "outputs", "expected"),
    [
        ("y = Relu(c)  z = Exp(c)", "float[a,b,c2,d] y, float[e,f,g2,h] z", ["Conv", "Relu", "Exp"]),
        ("y = Relu(c)", "float[a,b,c2,d] y, float[e,f,g2,h] c", ["Conv", "Relu"]),
        ("y = Add(c, c)", "float[a,b,c2,d] y", ["Conv", "Add"]),
        ("r = Relu(c)  y = Add(r, c)", "float[a,b,c2,d] y", ["Conv", "FusedElementwise"]),
        ("y = Add(c, x2)", "float[a,b,c2,d] y", ["Conv", "Add"]),
    ],
)
def test_conv_is_not_fused_across_readers_and_outputs(save: Save, tail: str, outputs: str, expected: list[str]) -> None:
    if "x2" in tail:
        graph = check(save(f"g (float[1,3,6,6] x, float[1,4,4,4] x2) => ({outputs}) <{CONV}> {{ c = Conv(x, w) {tail} }}"))
    else:
        graph = conv(save, tail, outputs)
    assert types(graph) == expected


def test_conv_keeps_a_bias_that_varies_in_space(save: Save) -> None:
    plane = f"float[1,1,4,4] p = {{{','.join(['1.0'] * 16)}}}"
    graph = check(save(f"g (float[1,3,6,6] x) => (float[a,b,c2,d] y) <{CONV}, {plane}> {{ c = Conv(x, w)  y = Add(c, p) }}"))
    assert types(graph) == ["Conv", "Add"]


HARD_SWISH = {
    "div last": "a = Add(x, k3)  b = Clip(a, k0, k6)  c = Mul(x, b)  y = Div(c, k6)",
    "mul by a sixth": "a = Add(k3, x)  b = Clip(a, k0, k6)  c = Mul(b, sixth)  y = Mul(c, x)",
    "hard sigmoid": "a = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x)  y = Mul(x, a)",
}
GELU = {
    "torch": "a = Div(x, r2)  b = Erf(a)  c = Add(b, k1)  d = Mul(x, c)  y = Mul(d, half)",
    "half first": "h = Mul(x, half)  a = Mul(x, ir2)  b = Erf(a)  c = Add(k1, b)  y = Mul(h, c)",
    "half inside": "a = Div(x, r2)  b = Erf(a)  c = Add(b, k1)  d = Mul(half, c)  y = Mul(x, d)",
}
TANH = {
    "pow": "p = Pow(x, k3)  q = Mul(p, c44)  r = Add(x, q)  s = Mul(r, s2pi)  t = Tanh(s)  u = Add(t, k1)  v = Mul(x, half)  y = Mul(v, u)",
    "jax": "p = Mul(c44, x)  q = Mul(x, p)  r = Mul(x, q)  s = Add(x, r)  t = Mul(s2pi, s)  u = Tanh(t)"
    "  v = Add(k1, u)  w = Mul(half, v)  y = Mul(x, w)",
}
SILU = {"silu": "s = Sigmoid(x)  y = Mul(s, x)"}
CONSTANTS = (
    "float k0 = {0}, float k1 = {1}, float k3 = {3}, float k6 = {6}, float sixth = {0.16666667}, float half = {0.5}, "
    "float r2 = {1.41421354}, float ir2 = {0.70710677}, float c44 = {0.044715}, float s2pi = {0.7978846}"
)
WRITTEN = [
    (kind, text)
    for kind, forms in (("HardSwish", HARD_SWISH), ("Gelu", GELU), ("GeluTanh", TANH), ("Silu", SILU))
    for text in forms.values()
]


@pytest.mark.parametrize(("kind", "text"), WRITTEN)
def test_functions_written_out(save: Save, kind: str, text: str) -> None:
    graph = check(save(f"g (float[2,3] x) => (float[2,3] y) <{CONSTANTS}> {{ {text} }}"))
    (op,) = graph.ops
    assert op.type == kind.removesuffix("Tanh") and op.inputs == ("x",)
    assert op.attr_str("approximate", "none") == ("tanh" if kind == "GeluTanh" else "none")


@pytest.mark.parametrize(
    "text",
    [
        "a = Add(x, k3)  b = Clip(a, k0, k6)  c = Mul(x, b)  y = Div(c, k3)",
        "a = Div(x, k1)  b = Erf(a)  c = Add(b, k1)  d = Mul(x, c)  y = Mul(d, half)",
        "s = Sigmoid(x)  t = Mul(s, x)  y = Mul(t, x)",
    ],
)
def test_functions_that_only_look_alike(save: Save, text: str) -> None:
    kinds = types(check(save(f"g (float[2,3] x) => (float[2,3] y) <{CONSTANTS}> {{ {text} }}")))
    assert not set(kinds) & {"HardSwish", "Gelu"} and kinds == ["FusedElementwise"]


def test_function_with_an_inner_reader_is_kept(save: Save) -> None:
    graph = check(save(f"g (float[2,3] x) => (float[2,3] y, float[2,3] s) <{CONSTANTS}> {{ s = Sigmoid(x)  y = Mul(s, x) }}"))
    assert types(graph) == ["Sigmoid", "Mul"]


LAYER_NORM = {
    "pow div": "m = ReduceMean <keepdims = 1> (x, ax)  d = Sub(x, m)  p = Pow(d, two)  v = ReduceMean <keepdims = 1> (p, ax)"
    "  e = Add(v, eps)  r = Sqrt(e)  n = Div(d, r)  g1 = Mul(n, gamma)  y = Add(g1, beta)",
    "mul reciprocal": "m = ReduceMean(x, ax)  d = Sub(x, m)  p = Mul(d, d)  v = ReduceMean(p, ax)  e = Add(eps, v)  r = Sqrt(e)"
    "  i = Reciprocal(r)  n = Mul(d, i)  g1 = Mul(gamma, n)  y = Add(beta, g1)",
    "difference twice": "m = ReduceMean(x, ax)  d = Sub(x, m)  d2 = Sub(x, m)  p = Pow(d2, two)  v = ReduceMean(p, ax)  e = Add(v, eps)"
    "  r = Sqrt(e)  n = Div(d, r)  y = Mul(n, gamma)",
}


@pytest.mark.parametrize("form", LAYER_NORM)
def test_layer_norm_written_out(save: Save, form: str) -> None:
    constants = "int64[1] ax = {-1}, float two = {2}, float eps = {0.001}, float[4] gamma = {1,2,3,4}, float[4] beta = {0,1,0,1}"
    graph = check(save(f"g (float[2,3,4] x) => (float[2,3,4] y) <{constants}> {{ {LAYER_NORM[form]} }}"))
    (op,) = graph.ops
    assert op.type == "LayerNormalization" and op.attrs["axis"] == -1 and op.attr_float("epsilon", 0) == pytest.approx(1e-3)
    assert op.inputs == (("x", "gamma") if "twice" in form else ("x", "gamma", "beta"))
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    direct = Op("n", op.type, op.inputs, op.outputs, op.attrs)
    values = run(graph.replace(ops=(direct,)), {"x": x})["y"]
    np.testing.assert_allclose(values, run(graph, {"x": x})["y"], rtol=1e-5, atol=1e-6)


def test_layer_norm_over_another_axis_is_kept(save: Save) -> None:
    constants = "int64[1] ax = {1}, float two = {2}, float eps = {0.001}, float[4] gamma = {1,2,3,4}, float[4] beta = {0,1,0,1}"
    graph = check(save(f"g (float[2,3,4] x) => (float[2,3,4] y) <{constants}> {{ {LAYER_NORM['pow div']} }}"))
    assert "LayerNormalization" not in types(graph)


SCORES = "s = MatMul(q, k)"


@pytest.mark.parametrize(
    ("text", "inputs", "scale"),
    [
        ("t = Div(s, four)  u = Add(t, mask)  y = Softmax <axis = -1> (u)", ("s", "mask"), 0.25),
        ("t = Mul(four, s)  y = Softmax <axis = -1> (t)", ("s", ""), 4.0),
        ("u = Add(mask, s)  y = Softmax <axis = -1> (u)", ("s", "mask"), 1.0),
        ("u = Add(full, s)  y = Softmax <axis = -1> (u)", ("s", "full"), 1.0),
    ],
)
def test_softmax_with_scale_and_mask(save: Save, text: str, inputs: tuple[str, str], scale: float) -> None:
    head = "g (float[2,3,4] q, float[2,4,5] k, float[1,1,5] mask, float[2,3,5] full) => (float[2,3,5] y) <float four = {4}>"
    graph = check(save(f"{head} {{ {SCORES} {text} }}"))
    op = graph.ops[-1]
    assert types(graph) == ["MatMul", "FusedSoftmax"] and op.inputs == inputs and op.attrs == {"scale": scale, "axis": -1}


def test_softmax_of_a_sum_of_equals_is_kept(save: Save) -> None:
    graph = check(save("g (float[2,3] a, float[2,3] b) => (float[2,3] y) { u = Add(a, b)  y = Softmax(u) }"))
    assert types(graph) == ["Add", "Softmax"]


def test_matmul_and_gemm(save: Save) -> None:
    constants = (
        f"{CONSTANTS}, float[3,2] w = {{1,2,3,4,5,6}}, float[1,1,2] b = {{1,-1}}, float[2,2] w2 = {{1,-1,2,0.5}}, float[2] c = {{0.5,1}}"
    )
    gelu = "a = Div(n, r2)  e = Erf(a)  f1 = Add(e, k1)  h = Mul(n, f1)  o = Mul(h, half)"
    text = f"m = MatMul(x, w)  n = Add(b, m)  {gelu}  p = Reshape(o, to)  g1 = Gemm(p, w2, c)  y = LeakyRelu <alpha = 0.2> (g1)"
    graph = check(save(f"g (float[2,4,3] x) => (float[8,2] y) <{constants}, int64[2] to = {{8,2}}> {{ {text} }}"))
    assert types(graph) == ["FusedMatMul", "Reshape", "FusedGemm"]
    matmul, _, gemm = graph.ops
    assert matmul.attrs["activation"] == "Gelu" and matmul.inputs[:2] == ("x", "w") and graph.tensors[matmul.inputs[2]].shape == (2,)
    assert (gemm.attrs["activation"], gemm.attr_float("activation_alpha", 0)) == ("LeakyRelu", pytest.approx(0.2))
    assert [part.type for part in matmul.body] == ["MatMul", "Add", "Div", "Erf", "Add", "Mul", "Mul"]


def test_matmul_keeps_a_residual(save: Save) -> None:
    graph = check(save("g (float[2,3] x, float[3,3] w, float[2,3] r) => (float[2,3] y) { m = MatMul(x, w)  y = Add(m, r) }"))
    assert types(graph) == ["MatMul", "Add"]


QDQ = (
    "float s = {0.05}, uint8 z = {120}, float t = {0.1}, uint8 u = {3}, "
    "int8[2,2] w = {1,-2,3,4}, float[2] ws = {0.1,0.2}, int8[2] wz = {0,0}"
)


def test_q_and_dq_are_absorbed(save: Save) -> None:
    graph = check(
        save(f"""
        g (uint8[3,2] x) => (float[3,2] y) <{QDQ}> {{
            a = DequantizeLinear(x, s, z)
            b = DequantizeLinear <axis = 1> (w, ws, wz)
            c = MatMul(a, b)
            d = QuantizeLinear(c, t, u)
            e = DequantizeLinear(d, t, u)
            f = Add(a, e)
            h = QuantizeLinear(f, t, u)
            y = DequantizeLinear(h, t, u)
        }}""")
    )
    assert types(graph) == ["MatMul", "Add", "DequantizeLinear"]
    matmul, add, _ = graph.ops
    assert (matmul.name, matmul.inputs, matmul.outputs) == ("MatMul_2", ("x", "w"), ("d",))
    assert [p.type for p in matmul.body] == ["DequantizeLinear", "DequantizeLinear", "MatMul", "QuantizeLinear"]
    assert add.inputs == ("x", "d") and add.outputs == ("h",)
    x, w, d = (graph.tensors[n].quantization for n in ("x", "w", "d"))
    assert x is not None and (x.scale, x.zero_point, x.granularity) == ("s", "z", "tensor")
    assert w is not None and (w.scale, w.granularity, w.axis) == ("ws", "channel", 1)
    assert d is not None and d.scale == "t"


def test_q_with_another_reader_remains(save: Save) -> None:
    graph = check(save(f"g (float[2] x) => (uint8[2] q, float[2] y) <{QDQ}> {{ r = Relu(x)  q = QuantizeLinear(r, s, z)  y = Exp(r) }}"))
    assert types(graph) == ["Relu", "QuantizeLinear", "Exp"]


def test_dq_with_a_computed_scale_remains(save: Save) -> None:
    graph = check(save("g (uint8[2] x, float s) => (float[2] y) { a = DequantizeLinear(x, s)  y = Relu(a) }"))
    assert types(graph) == ["DequantizeLinear", "Relu"] and graph.tensors["x"].quantization is None


def test_two_meanings_of_one_tensor(save: Save) -> None:
    nodes = "a = DequantizeLinear(x, s, z)  y = Relu(a)  b = DequantizeLinear(x, t, u)  w2 = Exp(b)"
    text = f"g (uint8[2] x) => (float[2] y, float[2] w2) <{QDQ}> {{ {nodes} }}"
    graph = check(save(text))
    assert types(graph) == ["Relu", "DequantizeLinear", "Exp"]
    meaning = graph.tensors["x"].quantization
    assert meaning is not None and meaning.scale == "s"


def test_activations_join_before_integers(save: Save) -> None:
    graph = check(
        save(f"g (uint8[1,3,6,6] x) => (uint8[1,4,4,4] y) <{CONV}, {QDQ.replace('int8[2,2] w', 'int8[2,2] w9')}> {{"
             " a = DequantizeLinear(x, s, z)  c = Conv(a, w)  r = Relu(c)  y = QuantizeLinear(r, t, u) }")
    )  # fmt: skip
    (op,) = graph.ops
    assert op.type == "FusedConv" and op.attrs["activation"] == "Relu" and op.inputs[0] == "x" and op.outputs == ("y",)
    assert [p.type for p in op.body] == ["DequantizeLinear", "Conv", "Relu", "QuantizeLinear"] and op.name == "Relu_2"


def test_elementwise_chains(save: Save) -> None:
    graph = check(
        save("""
        g (float[2,3] x, float[3] b, float[2,3] c, float[4,2,3] big) => (float[2,3] y) <float two = {2}> {
            p = Mul(x, two)  q = Sub(b, p)  r = Pow(q, two)  s = Div(r, c)
            t = Add(s, big)
            u = Abs(t)
            v = ReduceMax <keepdims = 0> (u, zero)
            y = Exp(v)
        }""".replace("float two = {2}", "float two = {2}, int64[1] zero = {0}"))
    )  # fmt: skip
    assert types(graph) == ["FusedElementwise", "FusedElementwise", "ReduceMax", "Exp"]
    first, second = graph.ops[:2]
    assert first.inputs == ("x", "two", "b", "c") and first.outputs == ("s",) and first.name == "Div_3"
    assert [p.type for p in first.body] == ["Mul", "Sub", "Pow", "Div"] and [p.type for p in second.body] == ["Add", "Abs"]


def test_chain_limits(save: Save) -> None:
    graph = load(save("g (float[2] x) => (float[2] y) { a = Abs(x)  b = Exp(a)  c = Neg(b)  d = Abs(c)  y = Exp(d) }"))
    assert types(FuseElementwise(longest=2)(graph)) == ["FusedElementwise", "FusedElementwise", "Exp"]
    assert types(FuseElementwise(most_inputs=0)(graph)) == types(graph)


KINDS = ("Relu", "Sigmoid", "Add", "Mul", "Softmax", "MatMul", "Transpose", "Exp")


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """Random DAGs over square matrices, with constants, shared readers and several outputs."""
    names = ["x", "k", "m"]
    tensors = {
        "x": Tensor("x", (4, 4), DType.F32, Role.INPUT),
        "k": Tensor("k", (), DType.F32, Role.WEIGHT, None, WeightRef(array=np.array(0.5, np.float32))),
        "m": Tensor("m", (4,), DType.F32, Role.WEIGHT, None, WeightRef(array=np.linspace(-1, 1, 4, dtype=np.float32))),
    }
    ops = []
    wide = ["x"]
    for i in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(KINDS))
        first = draw(st.sampled_from(wide[-3:]))
        second = draw(st.sampled_from(wide[-3:] if kind == "MatMul" else [*names[-4:], "k", "m"]))
        inputs = (first, second) if kind in {"Add", "Mul", "MatMul"} else (first,)
        ops.append(Op(f"n{i}", kind, inputs, (f"t{i}",), {}, "", (f"n{i}",)))
        tensors[f"t{i}"] = Tensor(f"t{i}", (4, 4), DType.F32)
        names.append(f"t{i}")
        wide.append(f"t{i}")
    outputs = {f"t{len(ops) - 1}", *draw(st.lists(st.sampled_from(wide[1:]), max_size=2))}
    return Graph("random", tensors, tuple(ops), ("x",), tuple(sorted(outputs)))


@settings(max_examples=150, deadline=None)
@given(random_graphs())
def test_fusion_of_any_graph_is_right_and_can_be_undone(whole: Graph) -> None:
    fused, graph = standard(whole), run_passes(whole, SIMPLIFYING)
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32) / 4
    first, before, after = (run(g, {"x": x}) for g in (whole, graph, fused))
    for name in graph.outputs:
        np.testing.assert_array_equal(after[name], before[name])
        np.testing.assert_allclose(before[name], first[name], rtol=1e-4, atol=1e-5)  # a transposed sum adds in another order
    assert {op.name: op for op in unfuse(fused).ops} == {op.name: op for op in graph.ops}
    assert {o for op in fused.ops for o in op.origin} == {o for op in graph.ops for o in op.origin}
    assert len({op.name for op in fused.ops}) == len(fused.ops)
    for op in fused.ops:
        inner = {o for part in op.body for o in part.outputs} - set(op.outputs)
        assert not inner & set(graph.outputs)
        assert not inner & {i for other in fused.ops if other is not op for i in other.inputs}


def test_weightless_constants_are_not_read(tmp_path: Path) -> None:
    absent = Tensor("b", (1, 4, 1, 1), DType.F32, Role.WEIGHT, None, WeightRef(tmp_path / "gone.bin", 0, 16))
    tensors = {
        "x": Tensor("x", (1, 3, 6, 6), DType.F32, Role.INPUT), "b": absent,
        "w": Tensor("w", (4, 3, 3, 3), DType.F32, Role.WEIGHT, None, WeightRef(tmp_path / "gone.bin", 16, 432)),
        "c": Tensor("c", (1, 4, 4, 4), DType.F32), "y": Tensor("y", (1, 4, 4, 4), DType.F32, Role.OUTPUT),
    }  # fmt: skip
    ops = (Op("conv", "Conv", ("x", "w"), ("c",)), Op("add", "Add", ("c", "b"), ("y",)))
    (op,) = standard(Graph("g", tensors, ops, ("x",), ("y",))).ops
    fused = standard(Graph("g", tensors, ops, ("x",), ("y",)))
    assert op.type == "FusedConv" and fused.tensors["conv/bias"].shape == (4,)
    with pytest.raises(ModelError, match="weights of 'conv/bias' are absent"):
        fused.tensors["conv/bias"].numpy()
