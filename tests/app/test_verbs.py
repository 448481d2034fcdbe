"""The verbs together, on a small model: plan, save, read back, explain, diff, simulate, run, report."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hetsched
from hetsched.app.sessions import read_plan
from hetsched.errors import OptionError, PlanError, SoCError
from hetsched.soc_files import load_soc

PHONE = "snapdragon-8-gen-3"
DIMS = {"width": 16}


@pytest.fixture
def planned(two_branch: Path) -> hetsched.Planned:
    return hetsched.plan(two_branch, PHONE, dims=DIMS)


def test_summary_has_the_stable_keys(planned: hetsched.Planned) -> None:
    assert list(planned.summary()) == [
        "model", "soc", "solver", "status", "objective", "latency_ms", "latency_ms_interval", "simulated_ms", "energy_mj",
        "power_basis", "peak_memory_mb", "lower_bound_ms", "gap", "segments", "ops_by_processor", "baselines", "wall_s", "plan_path",
        "period_ms", "accounts", "losses",
    ]  # fmt: skip
    json.dumps(planned.summary(), allow_nan=False)


def test_auto_is_no_worse_than_any_baseline(planned: hetsched.Planned) -> None:
    best = min(b.latency_s for b in planned.plan.baselines if b.latency_s is not None)
    assert planned.plan.prediction.latency_s <= best * (1 + 1e-9)
    assert planned.plan.bound_s <= planned.plan.prediction.latency_s * (1 + 1e-9)


def test_a_saved_plan_reads_back_equal_and_simulates_the_same(planned: hetsched.Planned, tmp_path: Path) -> None:
    path = planned.save(tmp_path / "plan.json")
    again = read_plan(path)
    assert again.plan == planned.plan
    assert again.placement == planned.placement
    assert list(hetsched.simulate(path).outcome.latencies_s) == list(hetsched.simulate(planned).outcome.latencies_s)


def test_the_plan_finds_its_model_after_both_moved(planned: hetsched.Planned, tmp_path: Path) -> None:
    planned.save(tmp_path / "plan.json")
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("plan.json", "two_branch.onnx"):
        shutil.move(tmp_path / name, moved / name)
    assert read_plan(moved / "plan.json").plan == planned.plan


def test_a_changed_model_is_noticed(planned: hetsched.Planned, two_branch: Path, tmp_path: Path) -> None:
    path = planned.save(tmp_path / "plan.json")
    two_branch.write_bytes(two_branch.read_bytes() + b"\x82\x01\x00")
    with pytest.raises(PlanError, match="two_branch"):
        read_plan(path)


def test_no_machine_path_or_time_in_a_plan_file(planned: hetsched.Planned, tmp_path: Path) -> None:
    text = planned.save(tmp_path / "plan.json").read_text()
    assert str(tmp_path) not in text
    assert "wall" not in text


def test_same_bytes_whatever_the_hash_seed(two_branch: Path, tmp_path: Path) -> None:
    found = []
    for seed in ("0", "1", "4711"):
        out = tmp_path / f"plan.{seed}.json"
        command = [sys.executable, "-m", "hetsched", "plan", str(two_branch), "--soc", PHONE, "--dim", "width=16", "-o", str(out)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": seed})
        found.append(out.read_bytes())
    assert found[0] == found[1] == found[2]


def test_single_queue_plan_simulates_to_the_tables_sum(two_branch: Path) -> None:
    planned = hetsched.plan(two_branch, PHONE, dims=DIMS, solver="single:cpu")
    serial = planned.plan.prediction.serial_s
    assert float(hetsched.simulate(planned).outcome.latencies_s[0]) == pytest.approx(serial, rel=1e-9)


def test_explain_names_the_users_nodes(planned: hetsched.Planned) -> None:
    found = hetsched.explain(planned, "stem.relu")
    assert "stem" in " ".join(found.lines())
    with pytest.raises(OptionError, match="stem"):
        hetsched.explain(planned, "stemm")


def test_diff_of_a_plan_with_itself_is_empty(planned: hetsched.Planned) -> None:
    assert hetsched.diff(planned.deployment, planned.deployment).same


def test_forcing_an_op_moves_it(two_branch: Path) -> None:
    planned = hetsched.plan(two_branch, PHONE, dims=DIMS, forced={"fc": "gpu"})
    assert next(p for p in planned.plan.placements if "fc" in p.origin).queue == "gpu"


def test_host_plan_runs_checks_and_reports(two_branch: Path, tmp_path: Path) -> None:
    planned = hetsched.plan(two_branch, "host", dims=DIMS)
    ran = hetsched.run(planned, check=True, repeat=3)
    assert ran.check is not None and ran.check.passed
    simulated = hetsched.simulate(planned, duration_s=5, ambient_c=30)
    page = hetsched.report([planned, simulated, ran], tmp_path / "report.html").read_text()
    assert "stem.relu" in page and "two_branch" in page


def test_null_delegate_runs_a_phone_plan_without_computing(planned: hetsched.Planned) -> None:
    ran = hetsched.run(planned, delegate="null")
    assert (ran.outputs["y"] == 0).all()


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [("minimum_runtime", "99.0.0", "99.0.0"), ("minimum_runtime", "soon", "soon"), ("operator_set", "other", "other")],
)
def test_a_plan_of_another_version_is_refused(planned: hetsched.Planned, tmp_path: Path, where: str, value: str, said: str) -> None:
    path = planned.save(tmp_path / "plan.json")
    raw = json.loads(path.read_text())
    raw["header"][where] = value
    path.write_text(json.dumps(raw))
    with pytest.raises(PlanError, match=said):
        read_plan(path)


def test_a_plan_priced_with_other_parameters_is_refused(planned: hetsched.Planned, tmp_path: Path) -> None:
    path = planned.save(tmp_path / "plan.json")
    raw = json.loads(path.read_text())
    raw["parameters"] = "9-deadbeef"
    path.write_text(json.dumps(raw))
    with pytest.raises(PlanError, match="9-deadbeef"):
        read_plan(path)


def test_a_plan_for_the_users_own_soc_file_reads_back(two_branch: Path, tmp_path: Path) -> None:
    import yaml

    raw = hetsched.soc(PHONE).model_dump(mode="json", exclude_none=True) | {"id": "my-chip"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(raw))
    path = hetsched.plan(two_branch, tmp_path / "mine.yaml", dims=DIMS).save(tmp_path / "plan.json")
    (tmp_path / "mine.yaml").unlink()
    assert read_plan(path).soc.id == "my-chip"


def test_two_host_queues_really_overlap(two_branch_heavy: Path) -> None:
    """On real kernels, planned by the real planner: both queues are busy at once, so the run is shorter than its parts."""
    teams = [q for q in hetsched.soc("host").queues if "-" in q]
    if not teams:
        pytest.skip("this machine has one core: there is one queue only")
    planned = hetsched.plan(two_branch_heavy, "host", dims={"width": 96}, forbidden={"*": teams[0]})
    queues = {s.queue for s in planned.plan.segments}
    assert len(queues) == 2
    ran = hetsched.run(planned, repeat=5)
    shared = []
    for iteration in range(5):
        spans = {q: [s for s in ran.trace.spans if s.kind == "op" and s.queue == q and s.iteration == iteration] for q in queues}
        a, b = spans.values()
        both = sum(max(0.0, min(x.end_s, y.end_s) - max(x.start_s, y.start_s)) for x in a for y in b)
        shared.append(both / min(sum(x.end_s - x.start_s for x in a), sum(y.end_s - y.start_s for y in b)))
    assert max(shared) > 0.5


def test_a_thermal_network_that_runs_away_is_named(two_branch: Path) -> None:
    hot = load_soc(PHONE, overrides={"base_w": "10000"})
    with pytest.raises(SoCError, match="runs away"):
        hetsched.simulate(two_branch, hot, dims=DIMS, duration_s=3600.0)


def test_plans_of_different_models_are_not_compared(planned: hetsched.Planned, two_branch_heavy: Path) -> None:
    other = hetsched.plan(two_branch_heavy, PHONE, dims=DIMS)
    with pytest.raises(PlanError, match="different models"):
        hetsched.diff(planned.deployment, other.deployment)


def test_nobody_prints_a_whole_plan(planned: hetsched.Planned) -> None:
    assert len(repr(planned)) < 200
    assert len(repr(hetsched.simulate(planned))) < 400
    assert len(repr(hetsched.run(planned, delegate="null", repeat=1))) < 400


def test_notes_on_the_model_are_before_those_that_every_plan_for_the_soc_has(two_branch: Path) -> None:
    from hetsched.app.static_ranges import WITHOUT_RANGES

    planned = hetsched.plan(two_branch, "snapdragon-8-gen-3", precision="w8a8", dims={"width": 16}, overrides={"npu.int8_tops": "50"})
    general = [n in planned.soc.notes for n in planned.plan.notes]
    assert WITHOUT_RANGES in planned.plan.notes and any(general) and general == sorted(general)
