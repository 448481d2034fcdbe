"""Tables corrected by anchors and by measured times, and the shipped table of public anchors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hetsched.anchors import Anchor
from hetsched.app.inputs import load, targeted
from hetsched.costs import CostTable
from hetsched.errors import OptionError
from hetsched.measured import Measured, MeasuredOp
from hetsched.segments import schedule
from hetsched.soc_files import load_soc
from hetsched_cost_models import accuracy_npu, anchoring, build_table
from hetsched_cost_models.accuracy import Point
from hetsched_cost_models.anchor_table import measured_rows, misses, quantile
from hetsched_cost_models.measured import applies, with_measured

PHONE = "snapdragon-8-gen-3"


@pytest.fixture
def table(two_branch: Path) -> CostTable:
    chip = load_soc(PHONE)
    return build_table(targeted(load(two_branch, {"width": 16}), chip), chip)


def anchor(factor: float, unit: str = "npu") -> Anchor:
    return Anchor(chip="a", latency_s=factor * 1e-3, predicted_s=1e-3, unit=unit)  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_everything_on_the_anchored_unit_changes_by_the_factor(factor: float, table: CostTable) -> None:
    corrected = anchoring.anchored(table, [anchor(factor)])
    assert anchoring.on_kind(corrected, "npu") == pytest.approx(factor * anchoring.on_kind(table, "npu"), rel=1e-9)
    assert anchoring.on_kind(corrected, "cpu") == pytest.approx(anchoring.on_kind(table, "cpu"), rel=1e-12)


def test_a_cpu_anchor_leaves_the_npu_alone(table: CostTable) -> None:
    corrected = anchoring.anchored(table, [anchor(2.0, "cpu")])
    assert anchoring.on_kind(corrected, "npu") == pytest.approx(anchoring.on_kind(table, "npu"), rel=1e-12)
    assert anchoring.on_kind(corrected, "cpu") == pytest.approx(2 * anchoring.on_kind(table, "cpu"), rel=1e-9)


def test_energy_of_the_anchored_alternatives_changes_too(table: CostTable) -> None:
    corrected = anchoring.anchored(table, [anchor(2.0)])
    npu = np.array([table.queues[q].kind == "npu" for q in table.alt_queue.tolist()])
    assert corrected.energy_j[npu] == pytest.approx(2 * table.energy_j[npu])
    assert corrected.energy_j[~npu] == pytest.approx(table.energy_j[~npu])


def test_without_anchors_it_is_the_same_table(table: CostTable) -> None:
    assert anchoring.anchored(table, []) is table


def test_a_kind_that_the_soc_does_not_have(table: CostTable) -> None:
    with pytest.raises(OptionError, match="no queue is called"):
        anchoring.queues_of_kind(table, "dsp")


def measured(*rows: MeasuredOp) -> Measured:
    return Measured(source="x", total=1, ops=rows)


def test_a_measured_op_takes_what_was_measured(table: CostTable) -> None:
    name, queue = table.op_names[1], anchoring.queues_of_kind(table, "npu")[0]
    changed = with_measured(table, measured(MeasuredOp(op=name, queue="npu", seconds=5e-3)))
    for a in range(len(table.alt_queue)):
        mine = int(table.alt_op[a]) == 1 and int(table.alt_queue[a]) == queue
        assert changed.time_s[a] == pytest.approx(5e-3 if mine else table.time_s[a])
        if mine:
            assert changed.energy_j[a] == pytest.approx(table.energy_j[a] * 5e-3 / table.time_s[a])


def test_a_measured_time_of_another_precision_or_queue_changes_nothing(table: CostTable) -> None:
    rows = [
        MeasuredOp(op=table.op_names[0], queue="npu", precision="w4a8", seconds=1.0),
        MeasuredOp(op=table.op_names[0], queue="dsp", seconds=1.0),
        MeasuredOp(op="nobody", queue="npu", seconds=1.0),
    ]
    assert not any(applies(table, r) for r in rows)
    assert with_measured(table, measured(*rows)).time_s == pytest.approx(table.time_s)


def test_a_faster_measurement_lowers_the_traffic_with_it(table: CostTable) -> None:
    changed = with_measured(table, measured(MeasuredOp(op=table.op_names[0], queue="npu", seconds=1e-9)))
    order = range(len(table.op_names))
    npu = anchoring.queues_of_kind(table, "npu")[0]
    choice = [next(a for a in table.alternatives(i) if table.alt_queue[a] == npu) for i in order]
    assert changed.time_s[choice[0]] == pytest.approx(1e-9)
    assert schedule(changed, order, choice).latency_s < schedule(table, order, choice).latency_s


def test_the_shipped_table_is_whole() -> None:
    rows = [r for found in anchoring._table().values() for r in found]
    assert len(rows) > 1000
    assert all(len(r.graph) == 32 and 1e-5 < r.latency_s < 100 and "AI Hub" in r.source for r in rows)
    keys = [(r.graph, r.chip, r.runtime, r.precision) for r in rows]
    assert len(set(keys)) == len(keys)
    assert {"snapdragon-8-gen-3", "snapdragon-8-elite", "qcs8550"} <= {r.chip for r in rows}


def test_intervals_bracket_one_and_narrow_with_closeness() -> None:
    found = anchoring.intervals()
    assert set(found) == {"same-chip", "same-chip-other-runtime", "similar-chip", "other-chip"}
    assert all(i.low < 1 < i.high for i in found.values())
    width = {k: i.high / i.low for k, i in found.items()}
    assert width["same-chip"] < width["similar-chip"] < width["other-chip"]


def public(chip: str, runtime: str = "qnn", precision: str = "float") -> anchoring.PublicAnchor:
    return anchoring.PublicAnchor("h", "m", chip, runtime, precision, 1e-3, "s")


def test_the_closest_row_is_of_the_chip_then_of_the_runtime_then_of_the_rate() -> None:
    elite = load_soc("snapdragon-8-elite")
    rows = [public("qcs8550"), public(PHONE, "ort"), public(PHONE), public("snapdragon-8-elite", "ort")]
    assert anchoring.closest(rows, elite, "qnn", "float") == public("snapdragon-8-elite", "ort")
    assert anchoring.closest(rows[:3], elite, "default", "float") == public(PHONE)
    assert anchoring.closest(rows[:2], elite, "qnn", "float") == public("qcs8550")
    assert anchoring.closest(rows, elite, "qnn", "w8a8") is None


def test_another_family_of_npus_has_no_public_anchor() -> None:
    assert anchoring.closest([public(PHONE)], load_soc("apple-a17-pro"), "default", "float") is None
    assert not anchoring.are_similar(load_soc(PHONE), load_soc("apple-a17-pro"))
    assert anchoring.are_similar(load_soc(PHONE), load_soc("snapdragon-8-elite"))


def test_relations() -> None:
    assert anchoring.relation("qnn", "default", same_chip=True, similar=True) == "same-chip"
    assert anchoring.relation("ort", "qnn", same_chip=True, similar=True) == "same-chip-other-runtime"
    assert anchoring.relation("qnn", "qnn", same_chip=False, similar=True) == "similar-chip"
    assert anchoring.relation("qnn", "qnn", same_chip=False, similar=False) == "other-chip"


def aihub(**change: str) -> dict[str, str]:
    base = {
        "model": "net", "component": "net", "release": "v0.47.0", "layers_cpu": "0", "layers_gpu": "0", "shared_job": "0",
        "chipset": "qualcomm-snapdragon-8gen3", "precision": "float", "runtime": "onnx", "inference_time_ms": "2.0", "device": "S24",
    }  # fmt: skip
    return base | change


def test_rows_that_are_kept_and_their_mean() -> None:
    rows = [
        aihub(),
        aihub(runtime="precompiled_qnn_onnx", inference_time_ms="8.0"),
        aihub(layers_cpu="3"),
        aihub(release="v0.42.0"),
        aihub(model="b"),
    ]
    found = measured_rows(rows, lambda m: m == "net")
    assert [(r.model, r.chip, r.runtime, r.precision) for r in found] == [("net", PHONE, "ort", "float")]
    assert found[0].latency_s == pytest.approx(4e-3)


def test_misses_are_measured_over_corrected() -> None:
    figures = (("a", 1e-3, 1e-3), ("b", 4e-3, 2e-3), ("c", 1e-3, 1e-3))
    rows = [Point(chip, "npu", "float", "qnn", "m", "fit", measured_s, predicted_s) for chip, measured_s, predicted_s in figures]
    found = misses(rows, lambda a, b: {a, b} == {"a", "b"})
    assert sorted(found["similar-chip"]["m"]) == [pytest.approx(0.5), pytest.approx(2.0)]
    assert len(found["other-chip"]["m"]) == 4


def test_shipped_intervals_hold_what_they_say() -> None:
    """If this fails after a fit, run ``make anchors``."""
    found = [p for p in accuracy_npu.points() if p.unit == "npu"]
    chips = {c: load_soc(c) for c in {p.chip for p in found}}
    for shared, by_model in misses(found, lambda a, b: anchoring.are_similar(chips[a], chips[b])).items():
        span = anchoring.intervals()[shared]
        inside = [np.mean([span.low <= v <= span.high for v in values]) for values in by_model.values()]
        assert 0.72 <= float(np.mean(inside)) <= 0.88, shared


def test_quantiles_count_models_alike() -> None:
    assert quantile({"many": [1.0] * 99, "one": [5.0]}, 0.5) == 1.0
    assert quantile({"many": [1.0] * 99, "one": [5.0]}, 0.6) == 5.0
