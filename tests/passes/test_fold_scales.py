"""A factor after a product with quantized weights goes into their scale, where that is the same number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import standard
from hetsched.passes.fold_scales import FoldScales
from hetsched.reference import run

Save = Callable[..., Path]
WEIGHT = "int8[3,2] w = {1,-2,3,4,-5,6}, float s = {0.5}, float[2] sc = {0.5,0.25}, float c = {0.125}, float n = {-1}, float[2] v = {2,4}"


def folded(save: Save, body: str) -> Graph:
    graph = load(save(f"g (float[4,3] x) => (float[4,2] y) <{WEIGHT}> {{ {body} }}"))
    after = FoldScales()(graph)
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)}
    for made in (after, standard(graph)):
        np.testing.assert_allclose(run(made, feeds)["y"], run(graph, feeds)["y"], rtol=1e-6)
    return after


@pytest.mark.parametrize("factor", ["y = Mul(p, c)", "y = Mul(c, p)", "y = Div(p, c)"])
def test_one_factor(save: Save, factor: str) -> None:
    graph = folded(save, f"d = DequantizeLinear(w, s)  p = MatMul(x, d)  {factor}")
    assert [op.type for op in graph.ops] == ["DequantizeLinear", "MatMul"]
    assert graph.tensors[graph.ops[0].inputs[1]].numpy().item() == (4 if "Div" in factor else 0.0625)


def test_a_factor_per_column_of_weights_quantized_per_column(save: Save) -> None:
    graph = folded(save, "d = DequantizeLinear <axis = 1> (w, sc)  p = MatMul(x, d)  y = Mul(p, v)")
    assert [op.type for op in graph.ops] == ["DequantizeLinear", "MatMul"]
    np.testing.assert_array_equal(graph.tensors[graph.ops[0].inputs[1]].numpy(), [1, 1])


@pytest.mark.parametrize(
    "body",
    [
        "d = DequantizeLinear(w, s)  p = MatMul(x, d)  y = Mul(p, v)",  # one scale, two factors
        "d = DequantizeLinear(w, s)  p = MatMul(x, d)  y = Mul(p, n)",  # a scale is positive
        "d = DequantizeLinear(w, s)  p = MatMul(x, d)  y = Div(c, p)",
        "d = DequantizeLinear(w, s)  p = MatMul(x, d)  m = Mul(p, c)  y = Add(m, p)",  # the product is read elsewhere
    ],
)
def test_what_stays(save: Save, body: str) -> None:
    graph = folded(save, body)
    assert "Mul" in {op.type for op in graph.ops} or "Div" in {op.type for op in graph.ops}


def test_other_readers_of_the_weight_keep_theirs(save: Save) -> None:
    graph = folded(save, "d = DequantizeLinear(w, s)  p = MatMul(x, d)  q = Mul(p, c)  r = MatMul(x, d)  y = Add(q, r)")
    assert [op.type for op in graph.ops].count("DequantizeLinear") == 2 and "Mul" not in {op.type for op in graph.ops}
