"""Spellings of norms, rotary embeddings, gates, merged products and attention, and what only looks like them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import SIMPLIFYING, run_passes, standard, unfuse
from hetsched.reference import run, run_op

Save = Callable[..., Path]
AXIS = "int64[1] ax = {-1}, float two = {2}, float eps = {0.001}, float one = {1}, float[4] g = {1,2,3,4}, float[4] b = {0,1,0.5,1}"


def check(path: Path) -> Graph:
    """The fused graph: it computes the same, each composite alone too, and fusion can be undone."""
    graph = load(path)
    fused = standard(graph)
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {n: rng.standard_normal(graph.tensors[n].shape).astype(graph.tensors[n].dtype.numpy) for n in graph.inputs}
    before, after = run(graph, feeds), run(fused, feeds)
    for name in graph.outputs:
        np.testing.assert_array_equal(before[name], after[name])
    assert {op.name: op for op in unfuse(fused).ops} == {op.name: op for op in run_passes(graph, SIMPLIFYING).ops}
    values = {**{n: t.numpy() for n, t in fused.tensors.items() if t.is_constant}, **after}
    for op in fused.ops:
        if op.body and not op.type.startswith("Fused") and not op.attr_int("joined", 0):
            own = run_op(replace(op, body=()), [values[n] if n else None for n in op.inputs])
            for out, value in zip(op.outputs, own, strict=True):
                np.testing.assert_allclose(value, after[out], rtol=1e-5, atol=1e-6)
    return fused


def types(graph: Graph) -> list[str]:
    return [op.type for op in graph.ops]


RMS = {
    "torch": "p = Pow(x, two) m = ReduceMean(p, ax) e = Add(m, eps) r = Sqrt(e) i = Reciprocal(r) n = Mul(x, i) y = Mul(g, n)",
    "division": "p = Mul(x, x) m = ReduceMean(p, ax) e = Add(eps, m) r = Sqrt(e) n = Div(x, r) y = Mul(n, g)",
    "one over": "p = Mul(x, x) m = ReduceMean(p, ax) e = Add(eps, m) r = Sqrt(e) i = Div(one, r) n = Mul(i, x) y = Mul(n, g)",
    "weight first": "p = Mul(x, x) m = ReduceMean(p, ax) e = Add(m, eps) r = Sqrt(e) w = Div(g, r) y = Mul(x, w)",
}


@pytest.mark.parametrize("form", RMS)
def test_rms_norm(save: Save, form: str) -> None:
    (op,) = check(save(f"q (float[2,3,4] x) => (float[2,3,4] y) <{AXIS}> {{ {RMS[form]} }}")).ops
    assert op.type == "RMSNorm" and op.inputs == ("x", "g") and op.attr_float("epsilon", 0) == pytest.approx(1e-3)


def test_rms_norm_of_gemma(save: Save) -> None:
    text = f"{RMS['torch'].replace('Mul(g, n)', 'Mul(w, n)')}".replace("p = Pow", "w = Add(g2, one) p = Pow")
    (op,) = check(save(f"q (float[2,3,4] x, float[4] g2) => (float[2,3,4] y) <{AXIS}> {{ {text} }}")).ops[-1:]
    assert op.type == "RMSNorm" and (op.attrs["offset"], op.inputs) in ((1.0, ("x", "g2")), (0.0, ("x", "w")))


LAYER = {
    "tflite": "m = ReduceMean(x, ax) d = Sub(x, m) p = Mul(d, d) v = ReduceMean(p, ax) e = Add(v, eps) s = Sqrt(e) r = Reciprocal(s)"
    " w = Mul(r, g) t = Mul(x, w) u = Mul(m, w) k = Sub(b, u) y = Add(t, k)",
    "scale before": "m = ReduceMean(x, ax) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, ax) e = Add(v, eps) s = Sqrt(e)"
    " t = Mul(d, g) n = Div(t, s) y = Add(n, b)",
    "two differences": "m = ReduceMean(x, ax) d = Sub(x, m) d2 = Sub(x, m) p = Mul(d2, d2) v = ReduceMean(p, ax) e = Add(v, eps)"
    " s = Sqrt(e) i = Reciprocal(s) n = Mul(i, d) t = Mul(n, g) y = Add(t, b)",
}


@pytest.mark.parametrize("form", LAYER)
def test_layer_norm_in_unusual_spellings(save: Save, form: str) -> None:
    (op,) = check(save(f"q (float[2,3,4] x) => (float[2,3,4] y) <{AXIS}> {{ {LAYER[form]} }}")).ops
    assert op.type == "LayerNormalization" and op.inputs == ("x", "g", "b") and op.attr_float("epsilon", 0) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "text",
    [
        RMS["torch"].replace("Mul(x, i)", "Mul(z, i)"),
        RMS["torch"].replace("Pow(x, two)", "Pow(x, eps)"),
        LAYER["tflite"].replace("Sub(b, u)", "Sub(u, b)"),
        RMS["division"].replace("ax)", "first)"),
    ],
)
def test_what_only_looks_like_a_norm(save: Save, text: str) -> None:
    graph = check(save(f"q (float[2,3,4] x, float[2,3,4] z) => (float[2,3,4] y) <{AXIS}, int64[1] first = {{0}}> {{ {text} }}"))
    assert not {"RMSNorm", "LayerNormalization"} & set(types(graph))


def test_an_inner_reader_keeps_a_norm_apart(save: Save) -> None:
    graph = check(save(f"q (float[2,3,4] x) => (float[2,3,4] y, float[2,3,4] n) <{AXIS}> {{ {RMS['torch']} }}"))
    assert "RMSNorm" not in types(graph)


CUT = (
    "int64[1] z = {0}, int64[1] h = {2}, int64[1] f = {4}, int64[1] last = {-1}, "
    "int64[1] s2 = {2}, int64[1] o = {1}, int64[4] to = {1,2,3,4}"
)
HALVES = "a = Slice(x, z, h, last) c = Slice(x, h, f, last)"
EVERY = "a = Slice(x, z, f, last, s2) c = Slice(x, o, f, last, s2)"
ROTARY = {
    "rotate half": (4, 0, f"{HALVES} n = Neg(c) r = Concat <axis = -1> (n, a) t = Mul(x, cos) u = Mul(r, sin) y = Add(t, u)"),
    "halves apart": (
        2, 0,
        f"{HALVES} p = Mul(a, cos) q = Mul(c, sin) d = Sub(p, q) v = Mul(c, cos) w = Mul(sin, a) e = Add(v, w)"
        " y = Concat <axis = -1> (d, e)",
    ),
    "neighbours": (
        2, 1,
        f"{EVERY} p = Mul(a, cos) q = Mul(c, sin) d = Sub(p, q) v = Mul(a, sin) w = Mul(c, cos) e = Add(v, w)"
        " d2 = Unsqueeze(d, last) e2 = Unsqueeze(e, last) j = Concat <axis = -1> (d2, e2) y = Reshape(j, to)",
    ),
    "neighbours, rotated": (
        4, 1,
        f"{EVERY} n = Neg(c) n2 = Unsqueeze(n, last) a2 = Unsqueeze(a, last) j = Concat <axis = -1> (n2, a2) r = Reshape(j, to)"
        " t = Mul(x, cos) u = Mul(r, sin) y = Add(t, u)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ROTARY)
def test_rotary_embedding(save: Save, form: str) -> None:
    width, interleaved, text = ROTARY[form]
    head = f"q (float[1,2,3,4] x, float[1,1,3,{width}] cos, float[1,1,3,{width}] sin) => (float[1,2,3,4] y)"
    (op,) = check(save(f"{head} <{CUT}> {{ {text} }}")).ops
    assert op.type == "RotaryEmbedding" and op.inputs == ("x", "cos", "sin") and op.attrs["interleaved"] == interleaved


def test_a_rotation_the_wrong_way_is_kept(save: Save) -> None:
    text = ROTARY["halves apart"][2].replace("Concat <axis = -1> (d, e)", "Concat <axis = -1> (e, d)")
    graph = check(save(f"q (float[1,2,3,4] x, float[1,1,3,2] cos, float[1,1,3,2] sin) => (float[1,2,3,4] y) <{CUT}> {{ {text} }}"))
    assert "RotaryEmbedding" not in types(graph)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("s = Sigmoid(a) t = Mul(a, s) y = Mul(t, c)", "SwiGLU"),
        ("s = Sigmoid(a) t = Mul(s, a) y = Mul(c, t)", "SwiGLU"),
        ("d = Div(a, r2) e = Erf(d) f = Add(e, k1) h = Mul(a, f) i = Mul(h, half) y = Mul(i, c)", "GeGLU"),
    ],
)
def test_gated_units(save: Save, text: str, kind: str) -> None:
    constants = "float k1 = {1}, float half = {0.5}, float r2 = {1.41421354}"
    (op,) = check(save(f"q (float[2,3] a, float[2,3] c) => (float[2,3] y) <{constants}> {{ {text} }}")).ops
    assert op.type == kind and op.inputs == ("a", "c") and op.attr_str("approximate", "none") == "none"


def test_quick_gelu(save: Save) -> None:
    (op,) = check(save("q (float[2,3] x) => (float[2,3] y) <float c = {1.702}> { a = Mul(x, c) s = Sigmoid(a) y = Mul(x, s) }")).ops
    assert op.type == "QuickGelu" and op.attr_float("alpha", 0) == pytest.approx(1.702)


@pytest.mark.parametrize(("tail", "outputs"), [("y = Exp(n)", ("n",)), ("e = Add(s, n) y = Exp(e)", ("n", "s"))])
def test_residual_and_norm(save: Save, tail: str, outputs: tuple[str, ...]) -> None:
    text = f"s = Add(x, z) n = LayerNormalization(s, g, b) {tail}"
    graph = check(save(f"q (float[2,3,4] x, float[2,3,4] z) => (float[2,3,4] y) <{AXIS}> {{ {text} }}"))
    op = graph.ops[0]
    assert op.type == "SkipLayerNorm" and op.inputs == ("x", "z", "g", "b") and op.outputs == outputs


def test_a_sum_that_is_read_before_the_norm(save: Save) -> None:
    text = "s = Add(x, z) e = Exp(s) n = LayerNormalization(s, g, b) y = Mul(n, e)"
    graph = check(save(f"q (float[2,3,4] x, float[2,3,4] z) => (float[2,3,4] y) <{AXIS}> {{ {text} }}"))
    assert types(graph)[0] == "SkipLayerNorm" and graph.ops[0].outputs == ("n", "s")


@pytest.mark.parametrize("addend", ["b", "e"])
def test_embeddings_and_their_norm_stay_apart(save: Save, addend: str) -> None:
    table = f"float[5,4] t = {{{','.join(str(i / 7) for i in range(20))}}}"
    text = f"i = Cast <to = 7> (x) a = Gather(t, i) e = Gather(t, i2) s = Add(a, {addend}) y = LayerNormalization(s, g, b)"
    graph = check(save(f"q (bool[2,3] x) => (float[2,3,4] y) <{AXIS}, {table}, int64[2,3] i2 = {{0,1,2,3,4,0}}> {{ {text} }}"))
    assert "SkipLayerNorm" not in types(graph) and "LayerNormalization" in types(graph)


def matrix(name: str, rows: int, columns: int) -> str:
    values = ",".join(str((7 * i % 13 - 6) / 9) for i in range(rows * columns))
    return f"float[{rows},{columns}] {name} = {{{values}}}"


def test_gate_and_up_are_merged(save: Save) -> None:
    text = "a = MatMul(x, w) c = MatMul(x, v) e = MatMul(x, u) s = Sigmoid(a) t = Mul(a, s) d = Mul(t, c) y = Add(d, e)"
    head = f"q (float[2,3] x) => (float[2,4] y) <{matrix('w', 3, 4)}, {matrix('v', 3, 4)}, {matrix('u', 3, 4)}>"
    graph = check(save(f"{head} {{ {text} }}"))
    merged = next(op for op in graph.ops if op.type == "MergedMatMul")
    assert merged.inputs == ("x", "w", "v", "", "") and merged.outputs == ("a", "c") and merged.attrs["count"] == 2
    assert Counter(types(graph)) == {"MergedMatMul": 1, "SwiGLU": 1, "MatMul": 1, "Add": 1}


def test_a_joined_product_is_taken_apart(save: Save) -> None:
    text = "p = MatMul(x, w) a, c = Split <axis = -1> (p, parts) s = Sigmoid(a) t = Mul(a, s) y = Mul(t, c)"
    graph = check(save(f"q (float[2,3] x) => (float[2,4] y) <{matrix('w', 3, 8)}, int64[2] parts = {{4,4}}> {{ {text} }}"))
    assert types(graph) == ["MergedMatMul", "SwiGLU"] and graph.ops[0].outputs == ("a", "c") and graph.ops[0].attrs["joined"] == 1


FULLY = "r{0} = Reshape(x, rows) m{0} = Gemm <transB = 1> (r{0}, w{0}, b{0}) n{0} = Reshape(m{0}, back) h{0} = Reshape(n{0}, heads)"


def test_attention_as_tflite_has_it(save: Save) -> None:
    text = "".join(f"{FULLY.format(i)} " for i in range(3))
    text += "t0 = Transpose <perm = [0,2,1,3]> (h0) t2 = Transpose <perm = [0,2,1,3]> (h2) k = Transpose <perm = [0,2,3,1]> (h1)"
    text += " sq = Mul(t0, half) s = MatMul(sq, k) a = Add(s, mask) p = Softmax <axis = -1> (a)"
    text += " o = MatMul(p, t2) u = Transpose <perm = [0,2,1,3]> (o) y = Reshape(u, back)"
    weights = ", ".join(f"{matrix(f'w{i}', 6, 6)}, float[6] b{i} = {{1,0,-1,0.5,{i},0}}" for i in range(3))
    shapes = "int64[2] rows = {8,6}, int64[3] back = {2,4,6}, int64[4] heads = {2,4,2,3}, float half = {0.5}"
    graph = check(save(f"q (float[2,4,6] x, float[2,1,1,4] mask) => (float[2,4,6] y) <{weights}, {shapes}> {{ {text} }}"))
    assert types(graph) == ["MergedMatMul", "Attention"]
    assert graph.ops[0].inputs[0] == "x" and graph.ops[1].inputs == ("m0", "m1", "m2", "mask") and graph.ops[1].attrs["batch"] == 2


CORE = "k = Transpose <perm = [0,1,3,2]> (b) s = MatMul(a, k) p = Softmax <axis = -1> (s)"


@pytest.mark.parametrize(
    ("text", "fuses"),
    [
        (f"{CORE} y = MatMul(p, c)", True),
        (f"{CORE} i = IsNaN(p) q2 = Where(i, zero, p) y = MatMul(q2, c)", True),
        (f"{CORE} v = Transpose <perm = [0,1,3,2]> (c) pt = Transpose <perm = [0,1,3,2]> (p) w = MatMul(v, pt)"
         " y = Transpose <perm = [0,1,3,2]> (w)", True),
        (f"{CORE.replace('axis = -1', 'axis = 2')} y = MatMul(p, c)", False),
        (f"{CORE} e = Exp(p) t = MatMul(p, c) u = MatMul(e, c) y = Add(t, u)", False),
        (f"{CORE} y = MatMul(p, p)", False),
        (CORE.replace("p = Softmax <axis = -1> (s)", "d = Add(s, s) p = Softmax <axis = -1> (d) y = MatMul(p, c)"), False),
    ],
)  # fmt: skip
def test_what_is_an_attention(save: Save, text: str, fuses: bool) -> None:
    shape = "float[1,2,4,4]"
    graph = check(save(f"q ({shape} a, {shape} b, {shape} c) => ({shape} y) <float zero = {{0}}> {{ {text} }}"))
    assert ("Attention" in types(graph)) == fuses


def test_scores_that_are_an_output_stay(save: Save) -> None:
    shape = "float[1,2,4,4]"
    graph = check(save(f"q ({shape} a, {shape} b, {shape} c) => ({shape} y, {shape} p) {{ {CORE} y = MatMul(p, c) }}"))
    assert "Attention" not in types(graph)


def test_a_mask_for_every_matrix_is_no_mask_of_an_attention(save: Save) -> None:
    text = "k = Transpose <perm = [0,2,1]> (b) s = MatMul(a, k) d = Add(s, mask) p = Softmax <axis = -1> (d) y = MatMul(p, c)"
    shape = "float[2,4,4]"
    head = f"q ({shape} a, {shape} b, {shape} c"
    assert "Attention" not in types(check(save(f"{head}, {shape} mask) => ({shape} y) {{ {text} }}")))
    assert "Attention" in types(check(save(f"{head}, float[1,4,4] mask) => ({shape} y) {{ {text} }}")))
