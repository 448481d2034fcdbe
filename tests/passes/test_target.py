"""Undoing, and only what the target's compilers fuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.app.inputs import targeted
from hetsched.errors import SoCError
from hetsched.frontends import load
from hetsched.fusions import CONSERVATIVE, Fusions
from hetsched.graph import Graph, Op
from hetsched.passes import PassReport, for_soc, standard, undo, unfuse
from hetsched.reference import run
from hetsched.soc_files import list_socs, load_soc
from hetsched.socs import SoC
from hetsched_cost_models import build_table

Save = Callable[..., Path]
W = f"float[4,3,3,3] w = {{{','.join(str((7 * k % 11 - 5) / 20) for k in range(108))}}}"
NET = f"""g (float[1,3,8,8] x) => (float[1,4,6,6] y) <{W}, float[4,1,1] b = {{0.1,-0.2,0.3,0.4}}, float half = {{0.5}}> {{
    c = Conv(x, w)  d = Add(c, b)  e = Sigmoid(d)  f = Mul(d, e)
    h = Abs(f)  i = Mul(h, half)  j = Exp(i)  k = Relu(j)  y = Softmax <axis = 1> (k) }}"""


def soc_with(*value: Any) -> SoC:
    """The Snapdragon with the same fusions on every processor."""
    chip = load_soc("snapdragon-8-gen-3")
    fusions = Fusions(value=value, estimated="a test")
    return chip.model_copy(update={"processors": tuple(p.model_copy(update={"fusions": fusions}) for p in chip.processors)})


def same_values(a: Graph, b: Graph) -> None:
    feeds = {n: np.random.default_rng(0).standard_normal(a.tensors[n].shape).astype(np.float32) for n in a.inputs}
    want, got = run(a, feeds), run(b, feeds)
    for name in a.outputs:
        np.testing.assert_array_equal(got[name], want[name])


def kinds(graph: Graph) -> list[str]:
    return [op.type for op in graph.ops]


@pytest.fixture
def fused(save: Save) -> Graph:
    graph = standard(load(save(NET)))
    assert kinds(graph) == ["FusedConv", "FusedElementwise", "Softmax"] and graph.ops[0].attrs["activation"] == "Silu"
    return graph


def test_undo_only_what_is_named(fused: Graph) -> None:
    apart = undo(fused, ("FusedConv",))
    assert kinds(apart) == ["Conv", "Add", "Sigmoid", "Mul", "FusedElementwise", "Softmax"]
    assert undo(fused, ("Attention",)) is fused and undo(fused, ("Softmax",)) is fused
    assert undo(undo(fused, ("FusedElementwise",)), ("FusedConv",)).ops == unfuse(fused).ops
    same_values(fused, apart)


def test_undo_is_recursive_but_keeps_other_composites() -> None:
    inner = Op("n", "Silu", ("b",), ("c",), {}, "", ("n",), (Op("s", "Sigmoid", ("b",), ("t",)), Op("m", "Mul", ("b", "t"), ("c",))))
    outer = Op("n", "FusedElementwise", ("a",), ("c",), {}, "", ("n",), (Op("e", "Exp", ("a",), ("b",)), inner))
    again = Op("o", "FusedElementwise", ("a",), ("d",), {}, "", ("o",), (outer, Op("r", "Relu", ("c",), ("d",))))
    from hetsched.graph import DType, Role, Tensor

    tensors = {n: Tensor(n, (3,), DType.F32, Role.INPUT if n == "a" else Role.ACTIVATION) for n in "abcdt"}
    graph = Graph("nested", tensors, (again,), ("a",), ("d",))
    assert kinds(undo(graph, ("FusedElementwise",))) == ["Exp", "Silu", "Relu"]
    assert kinds(undo(graph, ("FusedElementwise", "Silu"))) == ["Exp", "Sigmoid", "Mul", "Relu"]
    assert again.is_fusion and not inner.body[0].is_fusion
    same_values(graph, undo(graph, ("FusedElementwise",)))


def test_integer_operators_stay_integer_when_fusions_are_undone(save: Save) -> None:
    scales = "float s = {0.05}, uint8 z = {128}, float t = {0.1}"
    text = f"""g (uint8[1,3,6,6] x) => (uint8[1,4,4,4] y) <{W}, {scales}> {{
        a = DequantizeLinear(x, s, z)  c = Conv(a, w)  r = Relu(c)  y = QuantizeLinear(r, t, z) }}"""
    graph = standard(load(save(text)))
    assert kinds(graph) == ["FusedConv"]
    apart = undo(graph, ("FusedConv",))
    assert kinds(apart) == ["Conv", "Relu"] and apart.ops[0].inputs[0] == "x" and apart.ops[1].outputs == ("y",)
    feeds = {"x": np.random.default_rng(0).integers(0, 256, (1, 3, 6, 6)).astype(np.uint8)}
    np.testing.assert_array_equal(run(apart, feeds)["y"], run(graph, feeds)["y"])


def test_conv_bn_relu_between_integers_is_one_operator(save: Save) -> None:
    vec = "float[4] g1 = {1.5,0.5,1,2}, float[4] b1 = {0.1,0.2,0,-0.3}, float[4] m = {0,0.1,0,0}, float[4] v = {1,0.5,2,0.1}"
    text = f"""g (uint8[1,3,6,6] x) => (uint8[1,4,4,4] y) <{W}, {vec}, float s = {{0.05}}, uint8 z = {{128}}, float t = {{0.1}}> {{
        a = DequantizeLinear(x, s, z)  c = Conv(a, w)  n = BatchNormalization(c, g1, b1, m, v)  r = Relu(n)
        y = QuantizeLinear(r, t, z) }}"""
    (op,) = standard(load(save(text))).ops
    assert op.type == "FusedConv" and op.attrs["batch_norm"] == 1 and op.inputs[0] == "x" and op.outputs == ("y",)


@pytest.mark.parametrize(
    ("fusions", "expected"),
    [
        (("FusedConv", "FusedElementwise", "Silu"), ["FusedConv", "FusedElementwise", "Softmax"]),
        (({"FusedConv": ("Relu",)}, "FusedElementwise", "Silu"), ["FusedConv", "Silu", "FusedElementwise", "Softmax"]),
        (({"FusedConv": ("Relu",)}, "Silu"), ["FusedConv", "Silu", "Abs", "Mul", "Exp", "Relu", "Softmax"]),
        (({"FusedConv": ()},), ["FusedConv", "Sigmoid", "Mul", "Abs", "Mul", "Exp", "Relu", "Softmax"]),
        ((), ["Conv", "Add", "Sigmoid", "Mul", "Abs", "Mul", "Exp", "Relu", "Softmax"]),
    ],
)
def test_only_what_the_soc_fuses(fused: Graph, fusions: tuple[Any, ...], expected: list[str]) -> None:
    chip = soc_with(*fusions)
    report: list[PassReport] = []
    graph = for_soc(fused, chip, report=report)
    assert kinds(graph) == expected
    assert [r.name for r in report] == [f"for-{chip.id}"] and report[0].changed == (expected != kinds(fused))
    assert {op.name for op in unfuse(graph).ops} == {op.name for op in unfuse(fused).ops}
    same_values(fused, graph)
    assert for_soc(graph, chip).ops == graph.ops


def test_a_composite_stays_if_any_processor_fuses_it(fused: Graph) -> None:
    chip = soc_with()
    one = chip.processors[0].model_copy(update={"fusions": Fusions(value=("FusedConv", "FusedElementwise"), estimated="a test")})
    graph = for_soc(fused, chip.model_copy(update={"processors": (one, *chip.processors[1:])}))
    assert graph.ops == fused.ops


def test_the_others_pay_for_the_parts(fused: Graph) -> None:
    chip = load_soc("snapdragon-8-gen-3")

    def seconds(*fusions: Any) -> float:
        on = {p.name: p for p in chip.processors}
        npu = on["npu"].model_copy(update={"fusions": Fusions(value=fusions, estimated="a test")})
        table = build_table(fused, SoC.model_validate(chip.model_dump() | {"processors": (on["cpu"], on["gpu"], npu)}))
        (a,) = (a for a in table.alternatives(0) if table.queues[table.alt_queue[a]].kind == "npu")
        return float(table.compute_s[a] + table.overhead_s[a])

    assert seconds("FusedConv") <= seconds({"FusedConv": ("Relu",)}) < seconds()


def test_on_the_host_only_what_its_kernels_have(fused: Graph) -> None:
    chip = load_soc("snapdragon-8-gen-3").model_copy(update={"id": "host"})
    assert kinds(targeted(fused, chip)) == kinds(fused)
    graph = for_soc(fused, chip, kernels=lambda op, g: op.type == "Silu")
    assert "FusedConv" not in kinds(graph) and "FusedElementwise" not in kinds(graph)
    same_values(fused, graph)


def test_shipped_files_name_known_composites() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "operators.md").read_text("utf-8") + (
        Path(__file__).parents[2] / "docs" / "language_models.md"
    ).read_text("utf-8")
    for name in list_socs():
        for p in load_soc(name).processors:
            assert p.fusions is not CONSERVATIVE, f"{name}: {p.name} says nothing about fusions"
            for entry in p.fusions.value:
                kind = entry if isinstance(entry, str) else next(iter(entry))
                assert f"`{kind}`" in documented, f"{name}: {p.name} fuses {kind}, which no document knows"


def test_a_soc_file_without_fusions_is_conservative_and_a_wrong_one_is_refused() -> None:
    assert CONSERVATIVE.fuses("FusedConv", "Relu") and not CONSERVATIVE.fuses("FusedConv", "Gelu") and not CONSERVATIVE.fuses("Attention")
    changed = load_soc("snapdragon-8-gen-3", overrides={"processors.npu.fusions": "[Gelu, {FusedConv: [Relu]}]"}).by_name["npu"].fusions
    assert changed.fuses("Gelu") and changed.fuses("FusedConv", "Relu") and not changed.fuses("FusedConv", "Clip")
    assert changed.source == "set by the user"
    for wrong in ("[Gelu, Gelu]", "{Gelu: 1}", "[{A: [B], C: [D]}]", "['a b']"):
        with pytest.raises(SoCError, match="fusions"):
            load_soc("snapdragon-8-gen-3", overrides={"processors.npu.fusions": wrong})


def test_the_whole_plan_is_rebuilt_alike(save: Save, tmp_path: Path) -> None:
    from hetsched import plan
    from hetsched.app.sessions import read_plan

    planned = plan(save(NET), "dimensity-9300", time_limit_s=0.1)
    names = Counter(r.name for r in planned.passes)
    assert names["for-dimensity-9300"] == 1 and names["fuse-conv"] == 1
    again = read_plan(planned.save(tmp_path / "plan.json"))
    assert again.graph.ops == planned.graph.ops and again.passes == planned.passes
    np.testing.assert_array_equal(again.table.compute_s, planned.table.compute_s)
