"""What arrives at a plan of one inference, and several plans at once: options, files, summaries, messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.app.sharing import simulate_together
from hetsched.app.simulating import Scenario, Simulated
from hetsched.app.workload_files import read_workload
from hetsched.errors import OptionError

PHONE = "snapdragon-8-gen-3"
Runner = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plan_file(two_branch_heavy: Path, tmp_path: Path) -> Path:
    return hetsched.plan(two_branch_heavy, PHONE, dims={"width": 96}, time_limit_s=0.5, solver="heft").save(tmp_path / "p.json")


def summary(plan: Path, **options: Any) -> dict[str, Any]:
    found = hetsched.simulate(plan, **{"duration_s": 20.0, **options})
    assert isinstance(found, Simulated)
    return found.summary()


def test_arrivals_of_every_kind(plan_file: Path, tmp_path: Path) -> None:
    each_s = summary(plan_file, duration_s=None)["latency_ms"]["mean"] / 1e3
    assert summary(plan_file)["arrivals"] is None
    paced = summary(plan_file, period_s=0.05, deadline_s=0.9 * each_s)["arrivals"]
    assert (paced["arrived"], paced["dropped"], paced["missed"]) == (400, 0, 1.0)
    fast = summary(plan_file, period_s=0.6 * each_s)["arrivals"]
    assert fast["dropped"] == pytest.approx(fast["done"], abs=1) and fast["late"] is None
    random = summary(plan_file, period_s=0.05, poisson=True, seed=1, queue=True)
    assert random == summary(plan_file, period_s=0.05, poisson=True, seed=1, queue=True)
    assert random["arrivals"]["arrived"] != summary(plan_file, period_s=0.05, poisson=True, seed=2, queue=True)["arrivals"]["arrived"]
    thought = summary(plan_file, think_s=0.1)
    assert thought["inferences"] == pytest.approx(20.0 / (0.1 + each_s), abs=2)
    (tmp_path / "w.csv").write_text("time\n3\n1s\n1000ms\n")
    listed = summary(plan_file, workload=str(tmp_path / "w.csv"), queue=True)
    assert listed["inferences"] == 3 and listed["latency_ms"]["p99"] > listed["latency_ms"]["median"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("w.csv", "time,prompts\n1,2\n", "there is no field .*prompts"),
        ("w.csv", "time\nsoon\n", "time = .soon.: it must be a number"),
        ("w.csv", "time\n", "arrivals"),
        ("w.yaml", "arrivals: [{time: -1}]\n", "it must be at least 0"),
        ("w.yaml", "arrivals: [\n", "is not valid YAML"),
        ("w.yaml", "- 1\n", "the workload"),
        ("w.csv", "time,time\n1,2\n", "two columns .time."),
        ("w.csv", "time\n1,2\n", "more cells than its header"),
    ],
)
def test_a_workload_that_makes_no_sense_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(OptionError, match=message) as e:
        read_workload(path)
    assert str(path) in str(e.value)


def test_a_workload_beyond_all_measure_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    with path.open("wb") as f:
        f.truncate((1 << 26) + 1)
    with pytest.raises(OptionError, match="at most 67108864 are read"):
        read_workload(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chat": ""}, "has no prompt and answer to chat with"),
        ({"think_s": 1.0, "duration_s": None}, "are of many inferences: give a duration"),
    ],
)
def test_what_does_not_fit_is_said(plan_file: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        summary(plan_file, **options)


def test_several_plans_share_a_phone(plan_file: Path, tmp_path: Path, run: Runner) -> None:
    base = ["simulate", plan_file, plan_file, "--rate", "20", "--rate", "5", "--duration", "30s", "--ambient", "35"]
    code, out, _ = run(*base, "--trace", tmp_path / "t.pftrace")
    assert code == 0
    assert all(text in out for text in ("deadline", "priority", "missed", "throttled:", "t.pftrace"))
    code, out, _ = run(*base, "--deadline", "40ms", "--deadline", "0.01ms", "--json")
    found = json.loads(out)
    assert [m["arrived"] for m in found["models"]] == [pytest.approx(600, abs=1), pytest.approx(150, abs=1)]
    assert [m["missed"] for m in found["models"]] == [0.0, 1.0]
    assert found["energy_j"]["base"] > 0 and found["duration_s"] == pytest.approx(30.0)
    for more, message in (
        (["--policy", "reactive"], "the policy reactive needs plans to switch between"),
        (["--policy", "reactive", "--policy", "static"], "under one policy at a time"),
        (["--think", "1s"], "several plans run at their --rate"),
        (["--rate", "3"], "3 --rate for 2 models"),
    ):
        code, _, err = run(*base, *more)
        assert code == 2 and message in err


def test_several_plans_feel_another_app_and_run_op_by_op(plan_file: Path) -> None:
    asked: dict[str, Any] = {"rates": (20.0, 5.0)}
    alone, beside, exact = (
        simulate_together([plan_file] * 2, Scenario.of({"duration": 60, **more}), **asked)
        for more in ({}, {"background": "npu=50%,cpu=50%,gpu=50%"}, {"exact": True})
    )
    assert alone.outcome.device.path == "multirate" and exact.outcome.device.path == "full"
    medians = [r.summary()["models"][0]["latency_ms"]["median"] for r in (alone, beside, exact)]
    assert medians[1] > 1.2 * medians[0] and medians[2] == pytest.approx(medians[0], rel=0.01)
    assert beside.summary()["average_power_w"] > alone.summary()["average_power_w"]


def test_a_policy_switches_several_plans_at_once(two_branch_heavy: Path, tmp_path: Path) -> None:
    made = hetsched.plan(two_branch_heavy, PHONE, dims={"width": 96}, time_limit_s=0.5, solver="heft", levels=True)
    paths = [made.save(tmp_path / name) for name in ("a.json", "b.json")]
    asked: dict[str, Any] = {"rates": (20.0, 5.0), "deadlines_s": (0.05, 0.2)}
    at = Scenario.of({"duration": 60, "battery": 0.05})
    static, saver = (simulate_together(paths, at, policy=p, **asked).summary() for p in ("static", "battery-saver"))
    assert static["levels"] is None and saver["policy"] == "battery-saver"
    assert saver["levels"]["first"][0]["before"] == 0 and saver["levels"]["seconds"]["0"] < 20.0
    assert saver["average_power_w"] <= 1.01 * static["average_power_w"]
    assert [m["missed"] for m in saver["models"]] == [0.0, 0.0]
    assert saver["models"][0]["arrived"] == pytest.approx(1200, abs=2)
    with pytest.raises(OptionError, match="leave --exact or --policy out"):
        simulate_together(paths, Scenario.of({"duration": 60, "exact": True}), policy="battery-saver", **asked)
