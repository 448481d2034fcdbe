"""Who runs what, and the reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched.graph import DType, Graph, Op
from hetsched_cost_models.parameters import support_table_name
from hetsched_cost_models.support import support_table

SHARED = Path(__file__).parents[3] / "shared" / "models" / "aihub"
TABLES = ("hexagon-qnn", "hexagon-litert", "apu-litert", "gpu-litert", "ane-coreml")


def _one(graph_of: Callable[..., Graph], op_type: str, shape: tuple[int, ...] = (1, 8, 4, 4), **attrs: object) -> Graph:
    return graph_of([(op_type, ["x"], ["y"], attrs)], {"x": shape, "y": shape})


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_well_formed(name: str) -> None:
    table = support_table(name)
    assert table.title and "#" not in table.title
    assert len(table.rules) > 10
    assert table.everywhere
    assert table.rules["Conv"].f16


@pytest.mark.parametrize(
    ("accelerator", "runtime", "expected"),
    [
        ("hexagon", "default", "hexagon-qnn"),
        ("hexagon", "litert", "hexagon-litert"),
        ("hexagon", "ort", "hexagon-qnn"),
        ("apu", "neuropilot", "apu-litert"),
        ("mali", "default", "gpu-litert"),
        ("ane", "coreml", "ane-coreml"),
        (None, "default", None),
    ],
)
def test_runtime_picks_the_table(accelerator: str | None, runtime: str, expected: str | None) -> None:
    assert support_table_name(accelerator, runtime) == expected


@pytest.mark.parametrize(
    ("table", "op_type", "precision", "reason"),
    [
        ("hexagon-qnn", "Relu", "f16", None),
        ("hexagon-qnn", "Softmax", "w8a8", None),
        ("hexagon-qnn", "LpPool", "w8a8", "only in float.*QDQ not supported"),
        ("hexagon-qnn", "ConvInteger", "f16", "only in integers"),
        ("hexagon-qnn", "Loop", "f16", "control flow not supported"),
        ("hexagon-qnn", "Erf", "f16", "only inside a Gelu"),
        ("hexagon-qnn", "NoSuchOp", "f16", "NoSuchOp is not in the operator list of Qualcomm HTP"),
        ("apu-litert", "Clip", "w8a8", None),  # as Min and Max
        ("apu-litert", "Erf", "f16", None),  # as Tanh, Mul, Add
        ("apu-litert", "Sin", "f16", "Sin is not in the operator list of MediaTek APU"),
        ("apu-litert", "CumSum", "f16", "not in the operator list"),
        ("gpu-litert", "Relu", "w8a8", "only in float"),
        ("gpu-litert", "HardSigmoid", "f16", None),
        ("ane-coreml", "LSTM", "f16", "RNN layers fall back"),
        ("ane-coreml", "AnythingElse", "f16", None),
    ],
)
def test_listed_or_not(graph_of: Callable[..., Graph], table: str, op_type: str, precision: str, reason: str | None) -> None:
    g = _one(graph_of, op_type)
    got = support_table(table).refusal(g, g.ops[0], precision)
    if reason is None:
        assert got is None
    else:
        assert got is not None
        import re

        assert re.search(reason, got), got


def test_conditions(graph_of: Callable[..., Graph]) -> None:
    ane = support_table("ane-coreml")
    wide = _one(graph_of, "MaxPool", kernel_shape=(14, 14))
    assert "kernel is 14" in (ane.refusal(wide, wide.ops[0], "f16") or "")
    fine = _one(graph_of, "MaxPool", kernel_shape=(3, 3), strides=(2, 2))
    assert ane.refusal(fine, fine.ops[0], "f16") is None
    dilated = graph_of(
        [("Conv", ["x", "w"], ["y"], {"dilations": (2, 2)})], {"x": (1, 4, 9, 9), "w": (4, 4, 3, 3), "y": (1, 4, 5, 5)}, constants=("w",)
    )
    assert "dilated" in (ane.refusal(dilated, dilated.ops[0], "f16") or "")
    up = graph_of([("Resize", ["x"], ["y"])], {"x": (1, 4, 5, 5), "y": (1, 4, 20, 20)})
    assert "scale is 4" in (ane.refusal(up, up.ops[0], "f16") or "")


@pytest.mark.parametrize(
    ("table", "op_type", "shape", "attrs", "reason"),
    [
        ("hexagon-qnn", "ArgMax", (1, 8, 4, 4), {}, None),
        ("hexagon-qnn", "ArgMax", (1, 8, 4, 4, 4), {}, "rank is 5"),
        ("hexagon-qnn", "ArgMax", (1, 8, 4, 4), {"select_last_index": 1}, "select last index is 1"),
        ("hexagon-qnn", "MaxPool", (1, 8, 4, 4), {"dilations": (2, 2)}, "dilation is 2"),
        ("hexagon-qnn", "MaxPool", (1, 8, 4, 4, 4), {}, "no volumes"),
        ("hexagon-qnn", "LayerNormalization", (1, 8, 16), {"axis": 2}, None),
        ("hexagon-qnn", "LayerNormalization", (1, 8, 16), {"axis": -2}, "normalized axes is 2"),
        ("hexagon-qnn", "LayerNormalization", (1, 8, 16), {"axis": 1}, "only along the last axis"),
        ("hexagon-qnn", "ReduceProd", (1, 8), {}, "not on the HTP"),
        ("hexagon-qnn", "Resize", (1, 8, 4, 4), {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, None),
        ("hexagon-qnn", "Resize", (1, 8, 4, 4), {"coordinate_transformation_mode": "asymmetric"}, "rounds asymmetric is 1"),
        ("hexagon-qnn", "Resize", (1, 8, 4, 4), {"coordinate_transformation_mode": "asymmetric", "mode": "linear"}, None),
        ("hexagon-qnn", "Resize", (1, 8, 4, 4), {"antialias": 1}, "antialias is 1"),
        ("gpu-litert", "Slice", (1, 8, 4), {}, None),
        ("gpu-litert", "Slice", (8, 4), {}, "rank is 2"),
    ],
)
def test_what_the_runtimes_sources_say(
    graph_of: Callable[..., Graph], table: str, op_type: str, shape: tuple[int, ...], attrs: dict[str, object], reason: str | None
) -> None:
    g = _one(graph_of, op_type, shape, **attrs)
    got = support_table(table).refusal(g, g.ops[0], "f16")
    assert got is None if reason is None else reason in (got or "")


@pytest.mark.parametrize(
    ("source", "target", "taken"),
    [(DType.F32, DType.I32, True), (DType.BOOL, DType.F32, True), (DType.I32, DType.U8, False), (DType.BOOL, DType.I32, False)],
)
def test_a_gpu_casts_between_few_types(graph_of: Callable[..., Graph], source: DType, target: DType, taken: bool) -> None:
    g = graph_of([("Cast", ["x"], ["y"])], {"x": (1, 4), "y": (1, 4)}, dtypes={"x": source, "y": target})
    assert (support_table("gpu-litert").refusal(g, g.ops[0], "f16") is None) is taken


def test_rank_limits(graph_of: Callable[..., Graph]) -> None:
    g = _one(graph_of, "Add", shape=(1, 2, 3, 4, 5))
    assert "at most 4 dimensions (rank is 5)" in (support_table("gpu-litert").refusal(g, g.ops[0], "f16") or "")
    assert support_table("hexagon-qnn").refusal(g, g.ops[0], "f16") is None


def test_64_bit_integers_stay_on_the_cpu(graph_of: Callable[..., Graph]) -> None:
    g = graph_of([("Add", ["a", "b"], ["y"])], {"a": (4,), "b": (4,), "y": (4,)}, dtypes=dict.fromkeys("aby", DType.I64))
    assert "'y' holds i64" in (support_table("hexagon-qnn").refusal(g, g.ops[0], "f16") or "")
    g = graph_of(
        [("Gather", ["table", "ids"], ["y"])], {"table": (9, 8), "ids": (4,), "y": (4, 8)}, constants=("table",), dtypes={"ids": DType.I64}
    )
    assert support_table("hexagon-qnn").refusal(g, g.ops[0], "f16") is None
    g = graph_of([("Neg", ["a"], ["y"])], {"a": (4,), "y": (4,)}, dtypes={"a": DType.I64})
    assert "its input 'a' holds i64" in (support_table("hexagon-qnn").refusal(g, g.ops[0], "f16") or "")


def test_a_cast_may_widen_indices_of_gathers_and_nothing_else(graph_of: Callable[..., Graph]) -> None:
    shapes = {"ids": (4,), "wide": (4,), "table": (9, 8), "y": (4, 8), "z": (4,)}
    types = {"ids": DType.I32, "wide": DType.I64, "z": DType.I64}
    ops = [("Cast", ["ids"], ["wide"]), ("Gather", ["table", "wide"], ["y"])]
    g = graph_of(ops, {n: s for n, s in shapes.items() if n != "z"}, constants=("table",), dtypes=types)
    assert all(support_table("hexagon-qnn").refusal(g, op, "f16") is None for op in g.ops)
    g = graph_of([*ops, ("Neg", ["wide"], ["z"])], shapes, constants=("table",), dtypes=types)
    assert "'wide' holds i64" in (support_table("hexagon-qnn").refusal(g, g.ops[0], "f16") or "")


@pytest.mark.parametrize(("parts", "fails"), [(("Add", "Relu"), None), (("Add", "Sin"), "Sin is not in the operator list")])
def test_fused_ops_need_all_their_parts(graph_of: Callable[..., Graph], parts: tuple[str, ...], fails: str | None) -> None:
    body = tuple(Op(f"p{i}", t, ("x",), ("y",)) for i, t in enumerate(parts))
    g = graph_of([("FusedElementwise", ["x"], ["y"], {}, body)], {"x": (1, 8, 4, 4), "y": (1, 8, 4, 4)})
    got = support_table("apu-litert").refusal(g, g.ops[0], "f16")
    assert (got is None) if fails is None else (got is not None and fails in got)


def test_batch_norm_and_qdq_inside_a_fused_op_are_folded(graph_of: Callable[..., Graph]) -> None:
    body = tuple(Op(f"p{i}", t, ("x",), ("y",)) for i, t in enumerate(("Conv", "BatchNormalization", "Relu", "QuantizeLinear")))
    g = graph_of(
        [("FusedConv", ["x", "w"], ["y"], {"activation": "Relu"}, body)],
        {"x": (1, 8, 4, 4), "w": (8, 8, 1, 1), "y": (1, 8, 4, 4)},
        constants=("w",),
    )
    for name in TABLES:
        assert support_table(name).refusal(g, g.ops[0], "f16") is None, name


@pytest.mark.corpus
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared graphs")
@pytest.mark.parametrize(
    ("model", "table", "left"),  # what AI Hub measured: nothing on an NPU in 0.47, two layers on a GPU in 0.31
    [
        ("bert_base_uncased_hf", "hexagon-qnn", []),
        ("bert_base_uncased_hf", "hexagon-litert", []),
        ("yolov8_det", "hexagon-qnn", []),
        ("deeplabv3_resnet50", "hexagon-qnn", []),
        ("deeplabv3_resnet50", "gpu-litert", ["ArgMax", "Cast"]),
    ],
)
def test_real_graphs_leave_what_was_measured(model: str, table: str, left: list[str]) -> None:
    from hetsched import passes
    from hetsched.app.inputs import load

    graph = passes.standard(load(SHARED / f"{model}.onnx"))
    assert [op.type for op in graph.ops if support_table(table).refusal(graph, op, "f16")] == left


def test_the_error_function_of_a_gelu_belongs_to_it(graph_of: Callable[..., Graph]) -> None:
    g = _one(graph_of, "FusedConv", activation="Gelu")
    types = ("Conv", "Div", "Erf", "Add", "Mul", "Mul")
    names = ("x", *(f"t{i}" for i in range(len(types) - 1)), "y")
    body = tuple(Op(f"p{i}", t, (names[i],), (names[i + 1],)) for i, t in enumerate(types))
    fused = replace(g.ops[0], body=body)
    table = support_table("hexagon-qnn")
    assert table.refusal(g, fused, "f16") is None
    assert "only inside a Gelu" in (table.refusal(g, replace(fused, attrs={"activation": "Erf"}), "f16") or "")


def test_functions_that_the_htp_has_on_four_dimensions(graph_of: Callable[..., Graph]) -> None:
    table = support_table("hexagon-qnn")
    for op_type in ("Tanh", "Sqrt", "Neg", "LogSoftmax"):
        four, five = (_one(graph_of, op_type, shape) for shape in ((1, 8, 4, 4), (1, 8, 2, 4, 4)))
        assert table.refusal(four, four.ops[0], "f16") is None
        assert "at most 4 dimensions (rank is 5)" in (table.refusal(five, five.ops[0], "f16") or "")
    five = _one(graph_of, "Sigmoid", (1, 8, 2, 4, 4))
    assert table.refusal(five, five.ops[0], "f16") is None
