"""Anchors and measured times through the verbs: plan, save, read back, simulate, report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hetsched
from hetsched.app import corrections
from hetsched.app.sessions import read_plan
from hetsched.errors import OptionError, PlanError, TraceError
from hetsched_cost_models import anchoring

PHONE, OTHER = "snapdragon-8-gen-3", "snapdragon-8-elite"
DIMS = {"width": 16}


def planned(model: Path, soc: str = PHONE, **options: object) -> hetsched.Planned:
    return hetsched.plan(model, soc, dims=DIMS, simulated=False, solver="single:npu", **options)  # type: ignore[arg-type]


def on_npu(model: Path, soc: str = PHONE, **options: object) -> float:
    return planned(model, soc, **options).plan.prediction.latency_s


def test_on_its_own_chip_the_prediction_becomes_the_measurement(two_branch: Path) -> None:
    found = planned(two_branch, anchors=[f"chip={PHONE},latency_ms=1.58"])
    assert found.plan.prediction.latency_s == pytest.approx(1.58e-3)
    assert found.plan.notes[0].startswith(f"anchored to 1.58 ms on {PHONE} (default, float): NPU times x ")
    low, high = found.plan.prediction.latency_interval_s
    same = anchoring.intervals()["same-chip"]
    assert (low, high) == (pytest.approx(1.58e-3 * same.low), pytest.approx(1.58e-3 * same.high))


def test_on_another_chip_it_is_a_ratio_of_two_predictions(two_branch: Path) -> None:
    at_a, at_b = on_npu(two_branch, PHONE), on_npu(two_branch, OTHER)
    found = planned(two_branch, OTHER, anchors=[f"chip={PHONE},latency_ms=1.58,runtime=qnn,precision=float"])
    (anchor,) = found.deployment.anchors
    assert found.plan.prediction.latency_s == pytest.approx(at_b * 1.58e-3 / anchor.predicted_s)
    assert anchor.predicted_s == pytest.approx(at_a)
    plain, (low, high) = at_b, found.plan.prediction.latency_interval_s
    wide = planned(two_branch, OTHER).plan.prediction
    assert high / low < wide.latency_interval_s[1] / wide.latency_interval_s[0]
    assert plain == pytest.approx(wide.latency_s)


def test_a_saved_plan_keeps_its_anchor(two_branch: Path, tmp_path: Path) -> None:
    found = hetsched.plan(two_branch, OTHER, dims=DIMS, anchors=[f"chip={PHONE},latency_ms=1.58"])
    path = found.save(tmp_path / "plan.json")
    again = read_plan(path)
    assert again.deployment.anchors == found.deployment.anchors
    assert again.table.time_s == pytest.approx(found.table.time_s)
    assert list(hetsched.simulate(path).outcome.latencies_s) == list(hetsched.simulate(found).outcome.latencies_s)
    assert found.summary()["anchored_to"][0]["chip"] == PHONE
    assert "Anchored to 1.58 ms" in hetsched.report(path, tmp_path / "r.html").read_text("utf-8")


def test_a_damaged_anchor_in_a_plan_file_is_refused(two_branch: Path, tmp_path: Path) -> None:
    path = hetsched.plan(two_branch, PHONE, dims=DIMS, anchors=[f"chip={PHONE},latency_ms=1"]).save(tmp_path / "plan.json")
    document = json.loads(path.read_text("utf-8"))
    document["anchors"][0]["predicted_s"] = 0
    path.write_text(json.dumps(document), "utf-8")
    with pytest.raises(PlanError, match="anchors"):
        read_plan(path)


def test_an_anchor_file_with_several(two_branch: Path, tmp_path: Path) -> None:
    at = on_npu(two_branch)
    file = tmp_path / "anchors.yaml"
    file.write_text(f"- {{chip: {PHONE}, latency_ms: {at * 2e3}}}\n- {{chip: {PHONE}, latency_ms: {at * 8e3}, unit: npu}}\n", "utf-8")
    assert on_npu(two_branch, anchors=[file]) == pytest.approx(4 * at)


def test_a_cpu_anchor_corrects_the_cpu(two_branch: Path) -> None:
    found = hetsched.plan(
        two_branch, PHONE, dims=DIMS, solver="single:cpu", simulated=False, anchors=[f"chip={PHONE},latency_ms=7,unit=cpu"]
    )
    assert found.plan.prediction.latency_s == pytest.approx(7e-3)


def test_all_units_are_what_the_vendor_does(two_branch: Path) -> None:
    found = hetsched.plan(two_branch, PHONE, dims=DIMS, solver="vendor", simulated=False, anchors=[f"chip={PHONE},latency_ms=7,unit=all"])
    assert found.plan.prediction.latency_s == pytest.approx(7e-3)


def test_a_plan_that_avoids_the_anchored_unit_keeps_the_wide_interval(two_branch: Path) -> None:
    anchored = hetsched.plan(two_branch, PHONE, dims=DIMS, solver="single:cpu", simulated=False, anchors=[f"chip={PHONE},latency_ms=1"])
    free = hetsched.plan(two_branch, PHONE, dims=DIMS, solver="single:cpu", simulated=False)
    assert anchored.plan.prediction.latency_interval_s == pytest.approx(free.plan.prediction.latency_interval_s)
    assert any("only 0% of the operators' time" in n for n in anchored.plan.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("chip=snapdragon-8-gen-3", "the field 'latency_ms' is missing: write a number of milliseconds"),
        ("latency_ms=3", "the field 'chip' is missing"),
        (f"chip={PHONE},latency_ms=fast", "latency_ms = 'fast': it must be a number of milliseconds, without a unit"),
        (f"chip={PHONE},latency_ms=-1", "it must be at least 0.0001 (milliseconds)"),
        (f"chip={PHONE},latency_ms=1,unit=dsp", "unit = 'dsp': it must be one of cpu, gpu, npu or all"),
        (f"chip={PHONE},latency_ms=1,speed=2", "no field 'speed'; use one of chip, latency_ms"),
        (f"chip={PHONE},latency_ms=1,chip=b", "each key once"), ("nowhere.yaml", "neither KEY=VALUE"),
        (f"chip={PHONE},latency_ms=1,runtime=coreml", "does not know the runtime"),
        (f"chip={PHONE},latency_ms=1,precision=w1a1", "w1a1"), ("chip=snapdragon-9000,latency_ms=1", "no SoC is called"),
    ],
)  # fmt: skip
def test_bad_anchors_get_one_sentence(text: str, said: str, two_branch: Path) -> None:
    from hetsched.errors import InputError

    with pytest.raises(InputError) as caught:
        planned(two_branch, anchors=[text])
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "3", "[]", "- chip", "a: [1", "!!python/object:os.system {}", "{chip: 3, latency_ms: 1}", "{chip: a, latency_ms: true}",
        "{chip: a, latency_ms: 1, precision: 8}", "{chip: a, latency_ms: [1]}", "{chip: a, latency_ms: 1, runtime: ''}",
        "[{chip: a, latency_ms: 1}, {chip: b, latency: 1}]",
    ],
    ids=str,
)  # fmt: skip
def test_bad_anchor_files(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(OptionError, match="anchor file"):
        corrections.read_anchor(file)


def test_a_known_network_is_anchored_whatever_its_file_is_called(two_branch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hetsched.app import load
    from hetsched.graph_hash import graph_hash

    row = anchoring.PublicAnchor(graph_hash(load(two_branch, DIMS)), "famous", PHONE, "qnn", "float", 3e-3, "AI Hub")
    monkeypatch.setattr(anchoring, "_table", lambda: {row.graph: (row,)})
    renamed = two_branch.rename(two_branch.with_name("zzz.onnx"))
    found = planned(renamed)
    assert found.plan.prediction.latency_s == pytest.approx(3e-3)
    assert "recognised as famous" in found.plan.notes[0]
    assert not planned(renamed, public_anchors=False).deployment.anchors
    assert not planned(renamed, anchors=[f"chip={PHONE},latency_ms=2"]).deployment.anchors[0].source
    assert not planned(renamed, precision="w8a8").deployment.anchors  # the row is of float
    assert planned(renamed, overrides={"processors.npu.launch_s": "1e-3"}).plan.prediction.latency_s != pytest.approx(3e-3)


def test_measured_times_take_the_place_of_the_models(two_branch: Path, tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    file.write_text("name,op,unit,time_ms\nfc,Gemm,npu,5\n", "utf-8")
    found = planned(two_branch, measured=file)
    placement = next(p for p in found.plan.placements if "fc" in p.origin)
    assert placement.seconds == pytest.approx(5e-3)
    assert found.plan.notes[0].startswith("times of 1 of ")
    assert found.summary()["measured"] == {"source": "times.csv (latency table)", "ops": 1}
    path = found.save(tmp_path / "plan.json")
    file.unlink()
    assert read_plan(path).table.time_s == pytest.approx(found.table.time_s)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,op,time_ms\nzzz,Frob,5\n", "no operator of the profile"),
        ("name,op,unit,bits,time_ms\nfc,Gemm,npu,32,5\n", "cannot run these"),
    ],
)
def test_measured_times_of_nothing_here(text: str, said: str, two_branch: Path, tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    file.write_text(text, "utf-8")
    with pytest.raises(OptionError, match=said):
        planned(two_branch, measured=file)


def test_a_profile_that_cannot_be_read(two_branch: Path) -> None:
    with pytest.raises(TraceError):
        planned(two_branch, measured=two_branch)
