"""Chains of views become one."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hetsched.frontends.decoder_builder import GraphBuilder
from hetsched.graph import DType, Graph, Tensor
from hetsched.passes.merge_views import VIEWS, MergeViews
from hetsched.reference import run

SHAPES = ((2, 3, 4), (6, 4), (24,), (1, 24), (2, 12), (4, 6, 1), (1, 2, 3, 4))


def chained(shapes: list[tuple[int, ...]], between: list[bool]) -> Graph:
    """Reshapes in a row from one input; after those where ``between`` is true stands an operator that computes."""
    b = GraphBuilder("chain")
    b.input("x", shapes[0])
    last = "x"
    for i, (shape, works) in enumerate(zip(shapes[1:], between, strict=True)):
        wanted = b.array(f"shape{i}", np.asarray(shape, np.int64))
        last = b.emit_many("Reshape", f"view{i}", [last, wanted], [Tensor(f"view{i}", shape, DType.F32)], {})[0]
        if works:
            last = b.emit_many("Relu", f"relu{i}", [last], [Tensor(f"relu{i}", shape, DType.F32)], {})[0]
    b.output(last)
    return Graph(b.name, b.tensors, tuple(b.ops), tuple(b.inputs), tuple(b.outputs))


@given(st.lists(st.tuples(st.sampled_from(SHAPES), st.booleans()), min_size=1, max_size=8), st.sampled_from(SHAPES))
def test_no_two_views_in_a_row_and_the_same_values(steps: list[tuple[tuple[int, ...], bool]], first: tuple[int, ...]) -> None:
    graph = chained([first, *(s for s, _ in steps)], [works for _, works in steps])
    merged = MergeViews()(graph)
    x = np.random.default_rng(0).standard_normal(first).astype(np.float32)
    np.testing.assert_array_equal(run(merged, {"x": x})[graph.outputs[0]], run(graph, {"x": x})[graph.outputs[0]])
    assert merged.inputs == graph.inputs and merged.outputs == graph.outputs
    for op in merged.ops:
        if op.type in VIEWS:
            assert op.inputs[0] not in merged.producer or merged.ops[merged.producer[op.inputs[0]]].type not in VIEWS
            same = merged.tensors[op.inputs[0]].shape == merged.tensors[op.outputs[0]].shape
            assert not same or op.outputs[0] in merged.outputs


def test_a_view_that_others_read_stays() -> None:
    b = GraphBuilder("two")
    b.input("x", (2, 3))
    one = b.reshape("one", "x", (6,))
    two = b.reshape("two", one, (3, 2))
    b.output(b.unary("Relu", "a", one))
    b.output(b.unary("Relu", "b", two))
    graph = Graph(b.name, b.tensors, tuple(b.ops), tuple(b.inputs), tuple(b.outputs))
    merged = MergeViews()(graph)
    assert [op.inputs[0] for op in merged.ops if op.type == "Reshape"] == ["x", "x"]
    assert {op.origin for op in merged.ops if op.outputs == ("two",)} == {("one", "two")}


def test_without_chains_the_graph_is_the_same_object() -> None:
    graph = chained([(6, 4), (24,)], [True])
    assert MergeViews()(graph) is graph and math.prod(graph.tensors["view0"].shape) == 24
