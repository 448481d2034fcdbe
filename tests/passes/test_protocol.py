"""The sequence of passes: its order, its reports, and that the same graph always gives the same result."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.errors import OptionError
from hetsched.frontends import load
from hetsched.graph import DType, Graph, Op, Role, Tensor, WeightRef
from hetsched.passes import FUSING, SIMPLIFYING, STANDARD, PassReport, check_order, run_passes, standard
from hetsched.passes.dead_code import DropDeadCode
from hetsched.passes.fold_constants import FoldConstants
from hetsched.passes.fuse_conv import FuseConv
from hetsched.passes.fuse_quantization import FuseQuantization

Save = Callable[..., Path]


def test_the_standard_sequence_is_in_order() -> None:
    check_order(STANDARD)
    assert (*SIMPLIFYING, *FUSING) == STANDARD
    names = [p.name for p in STANDARD]
    assert len(set(names)) == len(names) and all(n == n.lower() and " " not in n for n in names)
    ensured = {e for p in STANDARD for e in p.ensures}
    assert all(set(p.requires) <= ensured for p in STANDARD)


def test_every_pass_that_requires_something_may_not_come_first() -> None:
    needy = [p for p in STANDARD if p.requires]
    assert len(needy) > len(STANDARD) / 2
    for p in needy:
        with pytest.raises(OptionError, match=p.name):
            check_order([p, *(q for q in STANDARD if q is not p)])


def test_a_swapped_pair_names_the_pass_and_the_property() -> None:
    with pytest.raises(OptionError, match="'fuse-conv' requires 'functions-named'"):
        check_order([FoldConstants(), DropDeadCode(), FuseConv()])


def test_reports_say_what_changed(save: Save) -> None:
    weight = f"float[2,1,1,1] w = {{{','.join(['0.5'] * 2)}}}"
    text = f"g (float[1,1,4,4] x) => (float[1,2,4,4] y) <{weight}> {{ c = Conv(x, w) dead = Exp(c) y = Relu(c) }}"
    graph = load(save(text))
    reports: list[PassReport] = []
    fused = standard(graph, reports)
    assert [r.name for r in reports] == [p.name for p in STANDARD]
    by_name = {r.name: r for r in reports}
    assert by_name["fuse-conv"] == PassReport("fuse-conv", 2, 1, {"FusedConv": 1}) and by_name["fuse-conv"].changed
    assert not by_name["fuse-softmax"].changed and by_name["fuse-softmax"].before == 2
    assert all(a.after == b.before for a, b in itertools.pairwise(reports)) and reports[-1].after == len(fused.ops)


def constant(name: str, *values: float) -> Tensor:
    return Tensor(name, (len(values),), DType.F32, Role.WEIGHT, None, WeightRef(array=np.array(values, np.float32)))


def small(ops: tuple[Op, ...], outputs: tuple[str, ...]) -> Graph:
    names = {o for op in ops for o in op.outputs}
    tensors = {n: Tensor(n, (2,), DType.F32) for n in sorted(names)} | {"x": Tensor("x", (2,), DType.F32, Role.INPUT)}
    return Graph("small", tensors | {"a": constant("a", 1, 2), "b": constant("b", 3, 5)}, ops, ("x",), outputs)


def test_every_pass_can_be_undone_from_its_report(save: Save) -> None:
    text = (
        "g (float[1,4] x) => (float[1,4] y) <float[4] k = {1,2,3,4}> "
        "{ a = Transpose(x) b = Transpose(a) c = Mul(b, k) dead = Exp(c) y = Relu(c) }"
    )
    graph = load(save(text))
    report: list[PassReport] = []
    fused = standard(graph, report)
    assert report[0].source is graph
    for i, r in enumerate(report):
        assert r.source is not None and len(r.source.ops) == r.before
        assert run_passes(r.source, STANDARD[i:]).ops == fused.ops


def test_constants_fold_through_chains_but_graph_outputs_stay() -> None:
    ops = (Op("sum", "Add", ("a", "b"), ("s",)), Op("twice", "Mul", ("s", "s"), ("t",)), Op("end", "Add", ("x", "t"), ("y",)))
    graph = FoldConstants()(small(ops, ("y", "s")))
    assert [op.name for op in graph.ops] == ["sum", "twice", "end"]  # s is an output, so all that reads it waits for it
    graph = FoldConstants()(small(ops, ("y",)))
    assert [op.name for op in graph.ops] == ["end"]
    np.testing.assert_array_equal(graph.tensors["t"].numpy(), [16, 49])
    assert FoldConstants()(graph) is graph


def test_large_and_absent_constants_are_not_folded(tmp_path: Path) -> None:
    ops = (Op("sum", "Add", ("a", "b"), ("s",)), Op("end", "Add", ("x", "s"), ("y",)))
    graph = small(ops, ("y",))
    assert FoldConstants(largest=5)(graph) is graph
    absent = Tensor("a", (2,), DType.F32, Role.WEIGHT, None, WeightRef(tmp_path / "nowhere", 0, 8))
    graph = graph.replace(tensors={**graph.tensors, "a": absent})
    assert FoldConstants()(graph) is graph


def test_dead_code_goes_with_all_that_only_it_reads() -> None:
    ops = (Op("p", "Exp", ("x",), ("p",)), Op("q", "Neg", ("p",), ("q",)), Op("end", "Abs", ("x",), ("y",)))
    graph = DropDeadCode()(small(ops, ("y",)))
    assert [op.name for op in graph.ops] == ["end"] and DropDeadCode()(graph) is graph


def test_quantization_comes_after_all_float_patterns() -> None:
    float_passes = [p for p in STANDARD if p.name in {"fuse-conv", "fuse-matmul", "fuse-softmax", "fuse-layer-norm"}]
    position = {p.name: i for i, p in enumerate(STANDARD)}
    assert all(position[p.name] < position[FuseQuantization.name] for p in float_passes)
