"""Operators alike: one answer for each class is the answer that every operator would have had on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.costs import CostTable
from hetsched.frontends import load
from hetsched.graph import DType, Graph, Op
from hetsched.passes import standard
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table
from hetsched_cost_models.alike import Alike, alike, names_of
from hetsched_cost_models.features import features_of
from hetsched_cost_models.work import work_of

Build = Callable[..., Graph]
EXPORTS = Path(__file__).parent.parent / "passes" / "exports"
CHIP = load_soc("snapdragon-8-gen-3")


def _apart(groups: Alike, a: int, b: int) -> bool:
    return bool(groups.kind[a] != groups.kind[b])


def _pair(graph_of: Build, first: dict[str, Any], second: dict[str, Any], a: Any = (1, 8, 8, 8), b: Any = (1, 8, 8, 8)) -> Graph:
    ops = [("MaxPool", ["x"], ["y"], {"kernel_shape": (2, 2), **first}), ("MaxPool", ["u"], ["v"], {"kernel_shape": (2, 2), **second})]
    return graph_of(ops, {"x": a, "y": (1, 8, 4, 4), "u": b, "v": (1, 8, 4, 4)})


def test_names_do_not_matter_and_the_pattern_of_equal_names_does(graph_of: Build) -> None:
    ops = [("Mul", ["a", "b"], ["c"]), ("Mul", ["c", "b"], ["d"]), ("Mul", ["d", "d"], ["e"])]
    graph = graph_of(ops, dict.fromkeys("abcde", (4, 4)))
    groups = alike(graph, graph.ops)
    assert groups.kind.tolist() == [0, 0, 1] and groups.example == (graph.ops[0], graph.ops[2])


@pytest.mark.parametrize("change", [{"strides": (2, 2)}, {"dilations": (1, 2)}, {"kernel_shape": (3, 3)}, {"layout": 1}])
def test_an_attribute_sets_apart(graph_of: Build, change: dict[str, Any]) -> None:
    graph = _pair(graph_of, {}, change)
    assert _apart(alike(graph, graph.ops), 0, 1)


@pytest.mark.parametrize("b", [(1, 8, 8, 9), (8, 8, 8), (1, 8, 8, 8, 1)])
def test_a_shape_sets_apart(graph_of: Build, b: tuple[int, ...]) -> None:
    graph = _pair(graph_of, {}, {}, b=b)
    assert _apart(alike(graph, graph.ops), 0, 1)


def test_types_constants_and_arrays_set_apart(graph_of: Build) -> None:
    graph = graph_of([("Add", ["a", "k"], ["b"]), ("Add", ["b", "a"], ["c"])], dict.fromkeys("akbc", (4, 4)), constants=("k",))
    assert _apart(alike(graph, graph.ops), 0, 1)
    narrow = replace(graph.tensors["c"], dtype=DType.F16)
    halves = [Op("p", "Cast", ("a",), ("b",)), Op("q", "Cast", ("a",), ("c",))]
    mixed = graph.replace(ops=tuple(halves), tensors={**graph.tensors, "c": narrow})
    assert _apart(alike(mixed, mixed.ops), 0, 1)
    tables = [Op(n, "T", ("a",), (o,), {"table": np.array([v])}) for n, o, v in (("p", "b", 1), ("q", "c", 2))]
    valued = graph.replace(ops=tuple(tables))
    assert _apart(alike(valued, valued.ops), 0, 1)


@pytest.mark.parametrize("limits", [{"strides": (4, 4)}, {"kernel_shape": (14, 14)}])
def test_ops_of_one_type_are_decided_by_their_own_constraints(graph_of: Build, limits: dict[str, Any]) -> None:
    """In one graph, in two graphs of the same names one after the other, and in the first again."""
    apple = load_soc("apple-a17-pro")
    npu = next(i for i, q in enumerate(build_table(_pair(graph_of, {}, {}), apple).queues) if q.kind == "npu")

    def refused(graph: Graph) -> list[bool]:
        return [any(r.queue == npu for r in row) for row in build_table(graph, apple).refusals]

    mixed, fine, bad = _pair(graph_of, {}, limits), _pair(graph_of, {}, {}), _pair(graph_of, limits, limits)
    assert [refused(g) for g in (mixed, fine, bad, fine)] == [[False, True], [False, False], [True, True], [False, False]]


def test_a_refusal_names_the_tensor_of_its_own_op(graph_of: Build) -> None:
    """Reasons against 64-bit tensors name them, so ops on such tensors share no answer."""
    graph = graph_of([("Add", ["a", "b"], ["c"]), ("Add", ["c", "b"], ["d"])], dict.fromkeys("abcd", (4, 4)))
    wide = graph.replace(tensors={n: replace(t, dtype=DType.I64) for n, t in graph.tensors.items()})
    said = [[r.reason for r in row if "holds i64" in r.reason] for row in build_table(wide, CHIP).refusals]
    assert all("'c'" in reason for reason in said[0]) and all("'d'" in reason for reason in said[1]) and said[0] and said[1]


@pytest.mark.parametrize("name", sorted(p.stem for p in EXPORTS.glob("*.onnx")))
def test_the_work_of_a_class_is_that_of_each_of_its_ops(name: str) -> None:
    graph = standard(load(EXPORTS / f"{name}.onnx"))
    work, groups = work_of(graph), alike(graph, graph.ops)
    assert len(groups.example) <= len(graph.ops)
    for i, op in enumerate(graph.ops):
        own = work_of(graph, (op,))
        assert all(getattr(own, f)[0] == getattr(work, f)[i] for f in ("macs", "m", "n", "k", "float_elems", "state_bytes", "extra_elems"))
        assert len(names_of(op)) == len(names_of(groups.example[groups.kind[i]]))


@pytest.mark.parametrize("precision", ["auto", "w8a8"])
@pytest.mark.parametrize("name", sorted(p.stem for p in EXPORTS.glob("*.onnx")))
def test_the_table_is_that_of_ops_unlike_each_other(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = standard(load(EXPORTS / f"{name}.onnx"))
    shared = build_table(graph, CHIP, precision=precision)

    def unlike(_: Graph, ops: tuple[Op, ...]) -> Alike:
        return Alike(np.arange(len(ops)), tuple(ops))

    for module in ("features", "work", "composites"):
        monkeypatch.setattr(f"hetsched_cost_models.{module}.alike", unlike)
    own = build_table(graph.replace(), CHIP, precision=precision)
    assert _same(shared, own)


def _same(a: CostTable, b: CostTable) -> bool:
    columns = ("compute_s", "overhead_s", "dram_bytes", "weight_bytes", "energy_j", "macs", "alt_start", "alt_queue", "alt_domain")
    return a.refusals == b.refusals and a.alt_precision == b.alt_precision and all(
        np.array_equal(getattr(a, c), getattr(b, c)) for c in columns
    )  # fmt: skip


def test_features_are_counted_once_a_graph(graph_of: Build) -> None:
    graph = graph_of([("Relu", ["x"], ["y"])], {"x": (4,), "y": (4,)})
    assert features_of(graph) is features_of(graph)
    assert features_of(graph) is not features_of(graph.replace())


def test_a_graph_without_operators_has_no_class(graph_of: Build) -> None:
    graph = graph_of([("Relu", ["x"], ["y"])], {"x": (4,), "y": (4,)})
    groups = alike(graph, ())
    assert groups.example == () and work_of(graph, ()).macs.shape == (0,)
