"""How many layers a runtime leaves on the CPU: rules on small rows, and the score of the shipped ones."""

from __future__ import annotations

import pytest

from hetsched_cost_models.fit import placement
from hetsched_cost_models.fit.placement import Operators, Row, is_right, on_cpu, operators, rows, score, scores


def _row(model: str, unit: str, runtime: str = "tflite", release: str = "v0.47.0", cpu: int = 0) -> Row:
    return Row(model, "float", runtime, release, "a-chip", unit, 10, cpu)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> str:
    lines = (
        Operators("Conv", 4, False, 5),
        Operators("NoSuchOperator", 4, False, 2),
        Operators("Reshape", 6, False, 1),
        Operators("ArgMax", 4, True, 1),
        Operators("DepthToSpace/CRD", 4, False, 1),
    )
    monkeypatch.setattr(placement, "operators", lambda: {"m": lines})
    return "m"


def test_what_no_list_has_stays_and_so_do_tensors_of_too_many_dimensions(model: str) -> None:
    left = on_cpu(_row(model, "npu"))
    assert left["NoSuchOperator"] == 2 and left["Reshape"] == 1 and "Conv" not in left


def test_only_a_gpu_leaves_integers(model: str) -> None:
    assert on_cpu(_row(model, "gpu"))["ArgMax"] == 1
    assert "ArgMax" not in on_cpu(_row(model, "npu"))


def test_earlier_converters_wrote_depth_to_space_in_six_dimensions(model: str) -> None:
    assert on_cpu(_row(model, "npu", release="v0.31.0"))["DepthToSpace/CRD"] == 3
    assert "DepthToSpace/CRD" not in on_cpu(_row(model, "npu"))


def test_a_runtime_that_compiles_whole_graphs_leaves_none(model: str) -> None:
    assert on_cpu(_row(model, "npu", runtime="qnn_dlc")) == {}


@pytest.mark.parametrize(("predicted", "measured", "right"), [(0, 1, True), (0, 2, False), (90, 100, True), (89, 100, False), (3, 2, True)])
def test_right_is_within_one_layer_or_a_tenth(predicted: int, measured: int, right: bool) -> None:
    assert is_right(predicted, measured) is right


def test_a_score_counts_every_row(model: str) -> None:
    found = score("two", [_row(model, "npu", cpu=sum(on_cpu(_row(model, "npu")).values())), _row(model, "npu", cpu=50)])
    assert (found.rows, found.right, found.never) == (2, 0.5, 0.0)


def test_the_shipped_rows_have_operators_and_scores_that_are_not_of_chance() -> None:
    assert {r.model for r in rows()} <= set(operators())
    everything, fell_back, nothing, *by_runtime = scores()
    assert everything.rows == fell_back.rows + nothing.rows == sum(s.rows for s in by_runtime) == len(rows())
    assert all(s.right >= s.never for s in by_runtime) and fell_back.right > fell_back.never + 0.3
