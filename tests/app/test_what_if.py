"""Plans for what-if hardware: they follow what is set, say so, and rebuild the same SoC from their file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import hetsched
from hetsched.app.sessions import read_plan
from hetsched.errors import PlanError, SoCError, UnsupportedModelError
from hetsched.soc_files import load_soc, soc_paths, soc_sha256

PHONE = "snapdragon-8-gen-3"
DIMS = {"width": 16}


def planned(model: Path, soc: str | Path = PHONE, solver: str = "single:npu", **overrides: str) -> hetsched.Planned:
    fields = {k.replace("__", "."): v for k, v in overrides.items()}
    return hetsched.plan(model, soc, dims=DIMS, precision="w8a8", solver=solver, overrides=fields or None)


def latency(model: Path, place: str = "npu", **overrides: str) -> float:
    return planned(model, solver=f"single:{place}", **overrides).plan.prediction.latency_s


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        ("npu", "npu__launch_us", "0.01"),
        ("npu", "npu__op_overhead_us", "0.01"),
        ("npu", "npu__clock_ghz", "1000"),
        ("npu", "npu__vector_gbps", "100000"),
        ("npu", "cpu-npu__sync_us", "1"),
        ("npu", "memory__bandwidth_gbps", "6760"),
        ("gpu", "gpu__op_overhead_us", "0.01"),
        ("gpu", "gpu__launch_us", "0.01"),
        ("gpu", "gpu__fp16_tflops", "100"),
        ("cpu", "cpu__int8_tops", "100"),
        ("cpu", "cpu__clock_ghz", "30"),
    ],
)
def test_better_hardware_is_faster(two_branch: Path, place: str, field: str, value: str) -> None:
    assert latency(two_branch, place, **{field: value}) < latency(two_branch, place)


def test_worse_hardware_is_slower(two_branch: Path) -> None:
    base = latency(two_branch)
    for field, value in {
        "npu__int8_tops": "0.01",
        "npu__vector_gbps": "0.01",
        "npu__onchip_mb": "0.001",
        "npu__bandwidth_gbps": "0.1",
    }.items():
        assert latency(two_branch, **{field: value}) > base, field


def test_a_shorter_signal_is_not_eaten_by_a_longer_launch(two_branch: Path) -> None:
    """The runtime's fixed cost holds launch and signal of the file's chip: less signal is less in all."""
    before, after = planned(two_branch), planned(two_branch, **{"cpu-npu__sync_us": "5"})
    assert after.table.launch_s.tolist() == before.table.launch_s.tolist()
    link = before.soc.link("cpu", "npu")
    assert link is not None and link.sync_s.value > 5e-6
    assert after.plan.prediction.latency_s == pytest.approx(before.plan.prediction.latency_s - link.sync_s.value + 5e-6)


def test_a_launch_that_is_set_replaces_the_runtimes(two_branch: Path) -> None:
    table = planned(two_branch, npu__launch_us="7").table
    assert table.launch_s[[q.name for q in table.queues].index("npu")] == pytest.approx(7e-6)


def test_the_plan_says_what_was_set(two_branch: Path) -> None:
    notes = planned(two_branch, npu__int8_tops="100", npu__int4_tops="200").plan.notes
    assert "what-if hardware: npu.int4_tops = 200, npu.int8_tops = 100" in notes
    assert any(n.startswith("npu.int4_tops has no effect") for n in notes)
    assert not any(n.startswith("npu.int8_tops has no effect") for n in notes)
    assert not any("what-if" in n for n in planned(two_branch).plan.notes)


def test_figures_that_no_prediction_depends_on_say_so(two_branch: Path) -> None:
    fields = {"memory__capacity_gb": "64", "memory__peak_bytes_s": "1e12"}
    made = planned(two_branch, **fields)
    assert made.plan.prediction == planned(two_branch).plan.prediction
    assert [n for n in made.plan.notes if "no prediction depends on it" in n] == [
        f"{field.replace('__', '.')} has no effect: no prediction depends on it" for field in sorted(fields)
    ]


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("memory__system_cache_gbps", "300", "adds nothing to the file's cache"),
        ("memory__pim_gbps", "9", "every processor reads the DRAM faster"),
        ("npu__fp8_tops", "90", "computes at that rate"),
    ],
)
def test_what_needs_something_else_says_so(two_branch: Path, field: str, value: str, why: str) -> None:
    made = planned(two_branch, **{field: value})
    assert made.plan.prediction == planned(two_branch).plan.prediction
    assert any(n.startswith(f"{field.replace('__', '.')} has no effect") and n.endswith(why) for n in made.plan.notes)


def test_an_fp8_rate_serves_fp8_plans(two_branch: Path) -> None:
    made = hetsched.plan(two_branch, PHONE, dims=DIMS, precision="fp8", solver="single:npu", overrides={"npu.fp8_tops": "90"})
    assert "f8" in made.table.alt_precision and not any("has no effect" in n for n in made.plan.notes)
    with pytest.raises(UnsupportedModelError, match="no accelerator of it has an FP8 rate; set one"):
        hetsched.plan(two_branch, PHONE, dims=DIMS, precision="fp8")


def test_a_saved_plan_rebuilds_the_same_soc(two_branch: Path, tmp_path: Path) -> None:
    made = planned(two_branch, npu__int8_tops="10", memory__bandwidth_gbps="120")
    path = made.save(tmp_path / "plan.json")
    stored = json.loads(path.read_text())["soc"]
    assert stored["overrides"] == {"memory.bandwidth_gbps": "120", "npu.int8_tops": "10"}
    assert stored["spec"] is None
    again = read_plan(path)
    assert again.soc == made.soc
    assert soc_sha256(again.soc) == soc_sha256(made.soc)
    assert again.plan == made.plan
    assert list(hetsched.simulate(path).outcome.latencies_s) == list(hetsched.simulate(made).outcome.latencies_s)


@pytest.mark.parametrize("change", [{"npu.int8_tops": "11"}, {}, {"npu.int8_tops": "10", "npu.launch_us": "1"}])
def test_a_plan_whose_overrides_were_edited_is_refused(two_branch: Path, tmp_path: Path, change: dict[str, str]) -> None:
    path = planned(two_branch, npu__int8_tops="10").save(tmp_path / "plan.json")
    stored = json.loads(path.read_text())
    stored["soc"]["overrides"] = change
    path.write_text(json.dumps(stored))
    with pytest.raises(PlanError, match="has changed since"):
        read_plan(path)


def test_the_users_own_file_is_embedded_with_what_was_set(two_branch: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(soc_paths()[PHONE].read_text().replace(f"id: {PHONE}", "id: mine"))
    path = planned(two_branch, own, npu__launch_us="20").save(tmp_path / "plan.json")
    own.unlink()
    again = read_plan(path)
    assert again.soc.by_name["npu"].launch_s.value == pytest.approx(20e-6)
    assert again.deployment.soc.overrides == {"npu.launch_us": "20"}


def test_a_file_with_a_shipped_id_and_fields_of_its_own(two_branch: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    shutil.copy(soc_paths()[PHONE], own)
    own.write_text(own.read_text().replace("queues: {", "queues: {prime: 'cpu:7', ").replace('cpu: "cpu:2-7"', 'cpu: "cpu:2-6"'))
    path = planned(two_branch, own, queues__prime="cpu:2").save(tmp_path / "plan.json")
    assert read_plan(path).soc.queues["prime"] == "cpu:2"


def test_the_api_takes_fields_too() -> None:
    assert hetsched.soc(PHONE, {"npu.launch_us": "20"}) == hetsched.soc(load_soc(PHONE), {"npu.launch_us": "20"})
    with pytest.raises(SoCError, match=r"did you mean npu\.launch_us"):
        hetsched.soc(PHONE, {"npu.lanch_us": "20"})


def test_an_int4_rate_serves_four_bit_weights(two_branch: Path) -> None:
    plain, faster = (hetsched.plan(two_branch, PHONE, dims=DIMS, precision="w4a16", overrides=o) for o in (None, {"npu.int4_tops": "4000"}))
    assert not any("has no effect" in n for n in faster.plan.notes)
    assert min(_matrix_s(faster)) < min(_matrix_s(plain))


def _matrix_s(found: hetsched.Planned) -> list[float]:
    """Compute seconds of the alternatives with 4-bit weights."""
    return [float(s) for s, p in zip(found.table.compute_s, found.table.alt_precision, strict=True) if p == "w4a16"]
