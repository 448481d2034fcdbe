"""How many layers a runtime leaves on the CPU: rules on small rows, and the score of the shipped ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.graph import DType, Graph
from hetsched_cost_models.fit import placement_data
from hetsched_cost_models.fit.extract_placement import form_of, operators_of
from hetsched_cost_models.fit.placement import is_right, judged, on_cpu, score, scores, without_family
from hetsched_cost_models.fit.placement_data import INPUT, OUTPUT, Operators, Row, operators, rows
from hetsched_cost_models.fit.placement_quantized import CAUSES, SPANS, concerns, exposed, fitted, left_alone

SHARED = Path(__file__).parents[3] / "shared" / "models" / "aihub"


def _row(unit: str, runtime: str = "tflite", release: str = "v0.47.0", cpu: int = 0, precision: str = "float") -> Row:
    return Row("fit", "m", precision, runtime, release, "a-chip", unit, 10, cpu)


def _quantized(release: str, cpu: int = 0, precision: str = "w8a8") -> Row:
    return _row("npu", "onnx", release, cpu, precision)


@pytest.fixture(autouse=True)
def _model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "shipped" not in request.node.name:
        lines = (
            Operators(INPUT, 4, False, "", 1),
            Operators(OUTPUT, 2, True, "", 1),
            Operators("Conv", 4, False, "activated", 5),
            Operators("Conv", 4, False, "biased", 3),
            Operators("ConvTranspose", 4, False, "biased", 1),
            Operators("MatMul", 3, False, "weighted", 2),
            Operators("Clip", 4, False, "bounding", 4),
            Operators("NoSuchOperator", 4, False, "", 2),
            Operators("Reshape", 6, False, "", 1),
            Operators("ArgMax", 4, True, "", 1),
            Operators("HardSigmoid", 4, False, "", 3),
            Operators("DepthToSpace/CRD", 4, False, "", 1),
        )
        monkeypatch.setattr(placement_data, "operators", lambda: {"m": lines})


def test_what_no_list_has_stays_and_so_do_tensors_of_too_many_dimensions() -> None:
    left = on_cpu(_row("npu"))
    assert left["NoSuchOperator"] == 2 and left["Reshape"] == 1 and "Conv" not in left and INPUT not in left


def test_only_a_gpu_leaves_integers() -> None:
    assert on_cpu(_row("gpu"))["ArgMax"] == 1
    assert "ArgMax" not in on_cpu(_row("npu"))


def test_earlier_converters_wrote_depth_to_space_in_six_dimensions() -> None:
    assert on_cpu(_row("npu", release="v0.31.0"))["DepthToSpace/CRD"] == 3
    assert "DepthToSpace/CRD" not in on_cpu(_row("npu"))


@pytest.mark.parametrize(("operator", "layers"), [("HardSigmoid", 3), ("ArgMax", 1)])
def test_onnx_runtime_learnt_operators_later(operator: str, layers: int) -> None:
    assert on_cpu(_row("npu", "onnx", "v0.12.0"))[operator] == layers
    assert operator not in on_cpu(_row("npu", "onnx", "v0.18.0"))
    assert operator not in on_cpu(_row("npu", "tflite", "v0.12.0"))


def test_a_runtime_that_compiles_whole_graphs_leaves_none() -> None:
    assert on_cpu(_row("npu", runtime="qnn_dlc")) == {}


@pytest.mark.parametrize(
    ("precision", "filters"),
    [("w8a8", 6), ("w8a16", 9), ("w8a8_mixed_int16", 9)],  # 16 bits: whatever follows; 8 bits: activated or transposed
)
def test_what_quantization_exposes(precision: str, filters: int) -> None:
    assert exposed(_quantized("v0.37.0", precision=precision)) == {"edges": 1, "filters": filters, "products": 2, "bounds": 4}


@pytest.mark.parametrize(
    "row",
    [_row("npu", "onnx"), _row("npu", "tflite", precision="w8a8"), _row("gpu", "onnx", precision="w8a8")],
    ids=["float", "tflite", "gpu"],
)
def test_quantization_concerns_only_the_npu_through_onnx_runtime(row: Row) -> None:
    layers = {(i, cause): 1 for i in range(len(SPANS)) for cause in CAUSES}
    assert not concerns(row) and "Conv" not in on_cpu(row, layers)
    assert on_cpu(_quantized("v0.47.0"), layers)["Conv"] == 6


def test_a_fit_finds_the_layers_of_each_span_and_nothing_where_none_are_left() -> None:
    found = fitted(
        [_quantized("v0.37.0", 6 + 2 + 4), _quantized("v0.38.0", 9 + 2 + 4, "w8a16"), _quantized("v0.47.0", 8), _quantized("v0.42.0")]
    )
    assert found == {(1, "filters"): 1, (1, "products"): 1, (1, "bounds"): 1, (3, "bounds"): 2}
    assert left_alone(_quantized("v0.39.0"), found) == {"Conv": 6, "MatMul": 2, "Clip": 4}
    assert left_alone(_quantized("v0.46.0"), found) == {}


def test_forms_of_operators(graph_of: Callable[..., Graph]) -> None:
    shapes = {"x": (1, 4, 8, 8), "w": (4, 4, 1, 1), "b": (4,), "y": (1, 4, 8, 8), "z": (1, 4, 8, 8), "o": (1, 4, 8, 8)}
    g = graph_of([("Conv", ["x", "w", "b"], ["y"]), ("Clip", ["y"], ["z"]), ("Conv", ["z", "w", "b"], ["o"])], shapes, constants=("w", "b"))
    assert [form_of(g, op) for op in g.ops] == ["activated", "bounding", "biased"]
    g = graph_of([("Conv", ["x", "w"], ["y"]), ("MatMul", ["y", "w"], ["z"]), ("MatMul", ["z", "y"], ["o"])], shapes, constants=("w",))
    assert [form_of(g, op) for op in g.ops] == ["", "weighted", ""]
    g = graph_of([("Clip", ["x"], ["y"])], shapes, dtypes={"x": DType.F32})
    assert form_of(g, g.ops[0]) == ""


@pytest.mark.parametrize(("predicted", "measured", "right"), [(0, 1, True), (0, 2, False), (90, 100, True), (89, 100, False), (3, 2, True)])
def test_right_is_within_one_layer_or_a_tenth(predicted: int, measured: int, right: bool) -> None:
    assert is_right(predicted, measured) is right


def test_a_score_counts_every_row() -> None:
    found = score("two", [_row("npu", cpu=sum(on_cpu(_row("npu")).values())), _row("npu", cpu=50)])
    assert (found.rows, found.right, found.never) == (2, 0.5, 0.0)


def test_the_shipped_rows_have_operators_and_scores_that_are_not_of_chance() -> None:
    assert {r.model for r in rows()} <= set(operators())
    found = {s.what: s for s in scores()}
    everything, fell_back, nothing = found["all rows"], found["rows with CPU layers"], found["rows without"]
    runtimes = {r.runtime for r in rows()}
    assert everything.rows == fell_back.rows + nothing.rows == sum(found[r].rows for r in runtimes) == len(rows())
    assert all(s.right >= s.never for s in found.values() if s is not nothing)
    assert fell_back.right >= 0.8 and nothing.right > 0.99
    assert min(found["with CPU layers: models not fitted"].right, found["with CPU layers: family left out"].right) > 0.75


def test_families_hardly_change_the_shipped_fit() -> None:
    mine = [r for r in rows() if concerns(r)]
    layers = without_family()
    assert {len(set(judged().items()) ^ set(layers(r).items())) for r in mine} <= {0, 1}


@pytest.mark.corpus
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared graphs")
def test_the_shipped_operators_are_those_of_the_graphs() -> None:
    lines = [
        Operators(r["operator"], int(r["rank"]), r["integers"] == "1", r["form"], int(r["count"]))
        for r in operators_of(SHARED / "vit.onnx")
    ]
    assert tuple(lines) == operators()["vit"]
