"""Finding a graph's operators in a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.app.inputs import load
from hetsched.graph import Graph
from hetsched.profiles.matching import match, measured
from hetsched.profiles.timings import Profile, Timing


@pytest.fixture
def graph(two_branch: Path) -> Graph:
    return load(two_branch, {"width": 16})


def fused(graph: Graph, node: str) -> str:
    return next(op.name for op in graph.ops if node in op.origin)


@pytest.mark.parametrize("name", ["a1", "fused a1", "a1_nchwc", "_a1", "A1", "a1, side"])
def test_names_as_runtimes_spell_them(name: str, graph: Graph) -> None:
    found = match([Timing(name, "", 1.0)], graph)
    assert found.op == (fused(graph, "a1"),) and found.by_name == (True,)


def test_a_tensor_that_the_op_writes_names_it(graph: Graph) -> None:
    assert match([Timing("b1.act", "", 1.0)], graph).op == (fused(graph, "b1.act"),)


def test_parts_of_a_fused_op_add_up(graph: Graph) -> None:
    found = measured(Profile("f", (Timing("a1", "Conv", 2e-3), Timing("a1.relu", "Relu", 1e-3))), graph, "p")
    (row,) = found.ops
    assert (row.op, row.by) == (fused(graph, "a1"), "name")
    assert row.seconds == pytest.approx(3e-3)


def test_by_type_and_shape_where_no_name_fits(graph: Graph) -> None:
    rows = (
        Timing("", "CONV_2D", 2e-3, shape=(1, 16, 16, 8)),
        Timing("", "Conv2d", 4e-3, shape=(8, 16, 16)),
        Timing("x", "Conv", 9.0, shape=(1, 3)),
    )
    found = measured(Profile("f", rows), graph, "p")
    assert {o.op for o in found.ops} == {op.name for op in graph.ops if op.type in ("Conv", "FusedConv")}
    assert all(o.seconds == pytest.approx(3e-3) and o.by == "shape" for o in found.ops)  # the median of two


def test_a_name_beats_a_shape_and_queues_stay_apart(graph: Graph) -> None:
    rows = (Timing("a1", "Conv", 1e-3, "npu"), Timing("a1", "Conv", 5e-3, "cpu"), Timing("", "Conv", 7e-3, "cpu", (1, 8, 16, 16)))
    found = measured(Profile("f", rows), graph, "p")
    assert {(o.queue, o.seconds) for o in found.ops if o.op == fused(graph, "a1")} == {("npu", 1e-3), ("cpu", 5e-3)}
    assert {o.seconds for o in found.ops if o.by == "shape"} == {7e-3}


def test_the_median_over_the_runs_of_the_sum_within_a_run() -> None:
    rows = tuple(Timing("a", "", s, run=r) for r, s in ((0, 9.0), (1, 1.0), (1, 1.0), (2, 3.0)))
    assert [t.seconds for t in Profile("f", rows).per_op()] == [3.0]


def test_describe_says_how_many_were_found(graph: Graph) -> None:
    found = measured(Profile("f", (Timing("a1", "Conv", 1e-3),)), graph, "p")
    assert found.describe() == (
        f"times of 1 of {len(graph.ops)} operators ({1 / len(graph.ops):.0%}; by name) are those measured in p (f); the others are the "
        "model's, not scaled"
    )
