"""Conversions between NHWC and NCHW as operators: right, minimal at the borders, and undone without a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes.insert_layout import InsertLayout, RemoveLayout
from hetsched.reference import run


@pytest.fixture
def graph(two_branch: Path) -> Graph:
    return load(two_branch, {"width": 16})


def converted(graph: Graph, layouts: Mapping[str, str]) -> Graph:
    after = InsertLayout(layouts)(graph)
    feeds = {"x": np.random.default_rng(0).standard_normal(graph.tensors["x"].shape).astype(np.float32)}
    np.testing.assert_array_equal(run(after, feeds)["y"], run(graph, feeds)["y"])
    back = RemoveLayout()(after)
    assert back.ops == graph.ops and dict(back.tensors) == dict(graph.tensors)
    return after


def transposes(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops if op.type == "Transpose"]


def test_one_layout_needs_nothing(graph: Graph) -> None:
    for layout in ("native", "nchw"):
        assert transposes(converted(graph, {op.name: layout for op in graph.ops})) == []


def test_borders_of_a_segment(graph: Graph) -> None:
    after = converted(graph, dict.fromkeys(("b1", "b1.act", "b2"), "nhwc"))
    assert transposes(after) == ["stem.relu/nhwc", "stem.relu/nchw", "b2/nhwc", "b2/nchw"]
    assert after.tensors["b2/nhwc"].shape == (1, 16, 16, 8)
    reads = {op.name: op.inputs[0] for op in after.ops}
    assert reads["b1"] == "stem.relu/nchw" and reads["a1"] == "stem.relu" and reads["b1.act"] == "b1"


def test_the_whole_graph_in_nhwc_converts_its_input(graph: Graph) -> None:
    after = converted(graph, {op.name: "nhwc" for op in graph.ops})
    assert transposes(after) == ["x/nhwc", "x/nchw"]


@pytest.mark.parametrize("seed", range(12))
def test_any_assignment(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    converted(graph, {op.name: ("nhwc", "nchw")[int(rng.integers(2))] for op in graph.ops})


def test_conversion_pairs_cancel_where_a_layout_is_dropped(graph: Graph, save: Callable[..., Path]) -> None:
    from hetsched.passes.sink_transposes import SinkTransposes

    after = converted(graph, dict.fromkeys(("a1", "b2"), "nhwc"))
    assert len(transposes(after)) == 8
    assert transposes(SinkTransposes()(after)) == []
