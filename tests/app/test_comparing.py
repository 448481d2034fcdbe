"""The verb *compare*: verdicts, fallbacks, order, targets."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from hetsched.app.comparing import Matrix, cheapest_first, compare
from hetsched.errors import OptionError, SoCError
from hetsched.soc_files import load_soc

PHONE, OLD, APPLE = "snapdragon-8-gen-3", "snapdragon-888", "apple-a17-pro"
DIMS = {"width": 16}


@pytest.fixture
def refused_by_npus(tmp_path: Path) -> Path:
    """A product whose result goes through an operator that no NPU has."""
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["m"], "m"),
        helper.make_node("Det", ["m"], ["d"], "det"),
        helper.make_node("Relu", ["d"], ["y"], "r"),
    ]
    graph = helper.make_graph(
        nodes, "odd", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    path = tmp_path / "odd.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())
    return path


def one(matrix: Matrix, soc: str = PHONE) -> dict[str, object]:
    return matrix.cell(matrix.models[0], soc).as_dict()


def test_what_runs(two_branch_heavy: Path) -> None:
    matrix = compare([two_branch_heavy], [PHONE, APPLE], dims={"width": 96}, solver="vendor")
    for soc in (PHONE, APPLE):
        cell = one(matrix, soc)
        assert cell["verdict"] == "runs" and cell["fallbacks"] == [] and cell["warning"] == ""
        low, high = cell["latency_ms_interval"]  # type: ignore[misc]
        assert low < cell["latency_ms"] < high  # type: ignore[operator]
        assert cell["energy_mj"] > 0 and cell["npu_memory_mb"] > 0  # type: ignore[operator]
    assert one(matrix)["first_compile_s_estimated"] > 0.5  # type: ignore[operator]
    assert one(matrix, APPLE)["first_compile_s_estimated"] > 0.05  # type: ignore[operator]
    json.dumps(matrix.summary(), allow_nan=False)


def test_what_falls_back_is_named_with_its_reason(refused_by_npus: Path) -> None:
    cell = one(compare([refused_by_npus], [PHONE], solver="vendor"))
    assert cell["verdict"] == "falls back"
    (fallback,) = cell["fallbacks"]  # type: ignore[misc]
    assert (fallback["type"], fallback["count"]) == ("Det", 1)
    assert "Det is not in the operator list" in fallback["reason"]


def test_an_unknown_runtime_is_a_refusal_not_an_error(two_branch: Path) -> None:
    matrix = compare([two_branch], [PHONE, APPLE], dims=DIMS, runtime="coreml", solver="vendor")
    assert one(matrix)["verdict"] == "refused" and "does not know the runtime" in str(one(matrix)["reason"])
    assert one(matrix, APPLE)["verdict"] == "runs"


def test_a_target_names_the_cheapest_that_holds_it(two_branch: Path) -> None:
    matrix = compare([two_branch], [PHONE, OLD], dims=DIMS, target_s=1.0, duration_s=5.0, solver="vendor")
    assert [s.id for s in matrix.socs] == [OLD, PHONE]
    name = matrix.models[0]
    assert all(c.sustained is not None and c.sustained.holds for c in matrix.cells)
    assert matrix.cheapest(name) == OLD and matrix.summary()["cheapest"] == {name: OLD}
    impossible = compare([two_branch], [PHONE], dims=DIMS, target_s=1e-7, solver="vendor")
    assert impossible.cheapest(name) is None and impossible.cells[0].sustained is None


def test_the_order_is_by_the_npus_peak() -> None:
    found = cheapest_first([load_soc(s) for s in ("snapdragon-8-elite", PHONE, OLD)])
    assert [s.id for s in found] == [OLD, PHONE, "snapdragon-8-elite"]


def test_a_repeated_soc_and_models_of_one_name(two_branch: Path) -> None:
    matrix = compare([two_branch, two_branch], [PHONE, PHONE], dims=DIMS, solver="vendor")
    assert matrix.models == ("two_branch", "two_branch (2)") and len(matrix.cells) == 2


def test_progress_is_shown(two_branch: Path) -> None:
    seen: list[tuple[str, float]] = []
    compare([two_branch], [PHONE, OLD], dims=DIMS, solver="vendor", progress=lambda what, done: seen.append((what, done)))
    assert [done for _, done in seen] == [0.0, 0.5] and PHONE in seen[1][0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target_s": 0.0}, "--target must be"),
        ({"duration_s": 60.0}, "give --target too"),
        ({"target_s": 1.0, "duration_s": -1.0}, "--for must be"),
    ],
    ids=str,
)
def test_figures_that_make_no_sense(options: dict[str, float], said: str, two_branch: Path) -> None:
    with pytest.raises(OptionError, match=said):
        compare([two_branch], [PHONE], dims=DIMS, **options)  # type: ignore[arg-type]


def test_nothing_to_compare(two_branch: Path) -> None:
    with pytest.raises(OptionError, match="at least one model"):
        compare([two_branch], [])
    with pytest.raises(SoCError):
        compare([two_branch], ["nowhere"], dims=DIMS)
    assert onnx.load(two_branch).graph.name == "two_branch"


def test_from_cheap_to_dear_by_tier_then_age_then_peak() -> None:
    ids = [
        "snapdragon-8-elite",
        "apple-m1",
        "sa8295p",
        "snapdragon-7-gen-4",
        "snapdragon-888",
        "qcs6490",
        "dimensity-8300",
        "apple-a18-pro",
        "apple-a18",
    ]
    assert [s.id for s in cheapest_first([load_soc(i) for i in ids])] == [
        "qcs6490", "snapdragon-7-gen-4", "dimensity-8300", "snapdragon-888", "apple-a18", "apple-a18-pro", "snapdragon-8-elite", "apple-m1",
        "sa8295p",
    ]  # fmt: skip
    nowhere = load_soc("qcs6490").model_copy(update={"market": None, "id": "nowhere"})
    assert cheapest_first([nowhere, load_soc("sa8295p")])[-1].id == "nowhere"


def test_a_dimension_of_one_model(two_branch: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(two_branch.read_bytes())
    matrix = compare([two_branch, other], [PHONE], dims={"width": 16, "other:width": 64}, solver="vendor")
    first, second = matrix.cells
    assert first.latency_s is not None and second.latency_s is not None and second.latency_s > first.latency_s
    with pytest.raises(OptionError, match="nobody:width"):
        compare([two_branch], [PHONE], dims={"width": 16, "nobody:width": 64})
