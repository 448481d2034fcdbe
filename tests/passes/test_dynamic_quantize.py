"""Dynamic quantization that is written out is recognised by what it computes, and only where that is bit for bit the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard, unfuse
from hetsched.passes.recognise_dynamic_quantize import RecogniseDynamicQuantize
from hetsched.reference import run

Save = Callable[..., Path]
CONSTANTS = "float zero = {0}, float n255 = {255}, float n127 = {127}, float m127 = {-127}, float m128 = {-128}, int64[1] last = {-1}"
ASYMMETRIC = """
    low = ReduceMin <keepdims = 0> (x)  low0 = Min(low, zero)  high = ReduceMax <keepdims = 0> (x)  high0 = Max(high, zero)
    range = Sub(high0, low0)  scale = Div(range, n255)  shift = Div(low0, scale)  negated = Neg(shift)  rounded = Round(negated)
    clipped = Clip(rounded, zero, n255)  point = Cast <to = 2> (clipped)
    divided = Div(x, scale)  near = Round(divided)  moved = Add(near, clipped)  kept = Clip(moved, zero, n255)  q = Cast <to = 2> (kept)
"""
SYMMETRIC = """
    size = Abs(x)  most = ReduceMax <keepdims = 1> (size{axes})  scale = Div(most, n127)
    divided = Div(x, scale)  near = Round(divided)  kept = Clip(near, {low}, n127)  q = Cast <to = 3> (kept)
"""
REAL = "a = Cast <to = 1> (q)  b = Cast <to = 1> (point)  c = Sub(a, b)  y = Mul(c, scale)"
PLAIN = "a = Cast <to = 1> (q)  y = Mul(a, scale)"


def samples(graph: Graph) -> list[dict[str, npt.NDArray[Any]]]:
    rng = np.random.default_rng(3)
    shape = graph.tensors["x"].shape
    return [{"x": (s * rng.standard_normal(shape) + d).astype(np.float32)} for s, d in ((1, 0), (30, 5), (0.01, 1), (2, -9))]


def recognised(path: Path) -> Graph:
    """The graph after the pass, which must compute the same and can be undone."""
    before = load(path)
    after = RecogniseDynamicQuantize()(before)
    for feeds in samples(before):
        want, got = run(before, feeds), run(after, feeds)
        for name in before.outputs:
            np.testing.assert_array_equal(got[name], want[name])
    assert {op.name: op for op in unfuse(after).ops} == {op.name: op for op in before.ops}
    return after


def test_asymmetric_is_onnx_own_operator(save: Save) -> None:
    graph = recognised(save(f"g (float[2,3,4] x) => (float[2,3,4] y) <{CONSTANTS}> {{ {ASYMMETRIC} {REAL} }}"))
    found = [op for op in graph.ops if op.type == "DynamicQuantizeLinear"]
    assert [(op.inputs, op.outputs, dict(op.attrs)) for op in found] == [(("x",), ("q", "scale", "point"), {})]
    assert [op.type for op in graph.ops[1:]] == ["Cast", "Cast", "Sub", "Mul"]


def test_it_gives_what_the_operator_gives(save: Save) -> None:
    text = f"g (float[2,3,4] x) => (uint8[2,3,4] q, float scale, uint8 point) <{CONSTANTS}> {{"
    spelled = recognised(save(f"{text} {ASYMMETRIC} }}"))
    assert [op.type for op in spelled.ops] == ["DynamicQuantizeLinear"]
    whole = load(save(f"{text} q, scale, point = DynamicQuantizeLinear(x) }}", name="whole.onnx"))
    for feeds in samples(whole):
        a, b = run(spelled, feeds), run(whole, feeds)
        for name in whole.outputs:
            np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize("low", ["m127", "m128"])  # nothing is below -127, since the range is that of 127
@pytest.mark.parametrize(("axes", "over"), [("", None), (", last", (2,))])
def test_symmetric(save: Save, low: str, axes: str, over: tuple[int, ...] | None) -> None:
    text = SYMMETRIC.format(axes=axes, low=low)
    graph = recognised(save(f"g (float[2,3,4] x) => (float[2,3,4] y) <{CONSTANTS}> {{ {text} {PLAIN} }}"))
    (op,) = (op for op in graph.ops if op.type == "DynamicQuantizeLinear")
    assert op.outputs == ("q", "scale") and op.attrs["symmetric"] == 1 and op.attrs.get("axes") == over


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n255)  shift", "n127)  shift"),  # another number of steps
        ("low0 = Min(low, zero)", "low0 = Identity(low)"),  # the range need not hold zero
        ("divided = Div(x, scale)", "back = Reciprocal(scale)  divided = Mul(x, back)"),  # rounds differently
        ("kept = Clip(moved, zero, n255)", "kept = Clip(moved, zero, n127)"),
        ("scale = Div(range, n255)", "part = Reciprocal(n255)  scale = Mul(range, part)"),
        ("near = Round(divided)", "near = Floor(divided)"),
        ("high = ReduceMax <keepdims = 0> (x)", "x2 = Mul(x, n127)  high = ReduceMax <keepdims = 0> (x2)"),
    ],
)
def test_what_is_not_the_same_stays(save: Save, old: str, new: str) -> None:
    assert old in ASYMMETRIC
    text = ASYMMETRIC.replace(old, new)
    graph = recognised(save(f"g (float[64] x) => (float[64] y) <{CONSTANTS}> {{ {text} {REAL} }}"))
    assert "DynamicQuantizeLinear" not in {op.type for op in graph.ops}


def test_a_range_of_another_tensor_stays(save: Save) -> None:
    text = SYMMETRIC.format(axes="", low="m127").replace("Abs(x)", "Abs(z)")
    graph = recognised(save(f"g (float[2,3] x) => (float[2,3] y) <{CONSTANTS}> {{ z = Exp(x) {text} {PLAIN} }}"))
    assert "DynamicQuantizeLinear" not in {op.type for op in graph.ops}


def test_spelled_out_and_followed_by_an_integer_product_it_is_one_operator(save: Save) -> None:
    weight = "int8[4,2] w = {1,-2,3,4,-5,6,7,-8}, int8 wz = {0}, float ws = {0.02}"
    body = "p = MatMulInteger(q, w, point, wz)  f = Cast <to = 1> (p)  both = Mul(scale, ws)  y = Mul(f, both)"
    graph = load(save(f"g (float[3,4] x) => (float[3,2] y) <{CONSTANTS}, {weight}> {{ {ASYMMETRIC} {body} }}"))
    fused = standard(graph)
    assert [(op.type, op.attrs["dynamic"]) for op in fused.ops] == [("FusedMatMul", 1)]
    for feeds in samples(graph):
        np.testing.assert_allclose(run(fused, feeds)["y"], run(graph, feeds)["y"], rtol=1e-6)
