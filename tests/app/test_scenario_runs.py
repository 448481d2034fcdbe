"""Scenarios of studies: their keys, their columns, what a mistake is told, and figures that agree with a simulation."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.app.scenario_runs import Simulations
from hetsched.app.simulating import Simulated
from hetsched.errors import InputError
from hetsched.scenarios import Findings, Prepared

PHONE = "snapdragon-8-gen-3"
BASE: dict[str, Any] = {"soc": PHONE, "dims.width": 96, "time_limit_s": 0.3, "duration": "2min"}


def prepared(model: Path, **more: Any) -> Prepared:
    return Simulations().prepare({"model": model.name, **BASE, **{k.replace("__", "."): v for k, v in more.items()}}, model.parent)


def measured(scenario: Prepared, folder: Path, curves: bool = False) -> Findings:
    path = folder / f"{scenario.plan_key}.json"
    if not path.is_file():
        Simulations().plan(scenario, path)
    return Simulations().measure(scenario, path, curves)


def test_keys_follow_what_a_result_depends_on(two_branch: Path) -> None:
    first = prepared(two_branch)
    assert prepared(two_branch, duration="120s").key == first.key
    assert prepared(two_branch, duration=120, ambient_c=25).key == first.key
    warm = prepared(two_branch, ambient=35)
    assert warm.key != first.key and warm.plan_key == first.plan_key
    fast = prepared(two_branch, set__npu__int8_tops=90)
    assert fast.key != first.key and fast.plan_key != first.plan_key
    assert fast.inputs["set.npu.int8_tops"] == 90
    two_branch.write_bytes(two_branch.read_bytes() + b"\x72\x00")
    assert prepared(two_branch).plan_key != first.plan_key


def test_columns_are_the_inputs_with_their_defaults(two_branch: Path) -> None:
    columns = prepared(two_branch, ambient=35).inputs
    assert columns["model"] == "two_branch" and columns["soc"] == PHONE and columns["policy"] == "static"
    assert columns["ambient_c"] == 35.0 and columns["duration_s"] == 120.0 and columns["dims.width"] == 96


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"ambiant": 3}, "ambiant = 3: no scenario has 'ambiant'; did you mean 'ambient_c'?"),
        ({"ambient": 300}, "ambient_c = 300"),
        ({"duration": "soon"}, "duration_s = 'soon'"),
        ({"soc": "snapdragon-9"}, "no SoC is called 'snapdragon-9'"),
        ({"model": "none.onnx"}, "no model file 'none.onnx'"),
        ({"model": 3}, "the scenarios have no model"),
        ({"model": "."}, "neither a plain file nor a folder with config.json"),
        ({"model": "/"}, "neither a plain file nor a folder with config.json"),
        ({"model": "/dev/zero"}, "neither a plain file"),
        ({"workload": "/dev/zero"}, "the workload file '/dev/zero' is neither a plain file"),
        ({"objective": date(2020, 1, 1)}, "objective = datetime.date(2020, 1, 1): it must be text"),
        ({"dims.width": b"x"}, "dims.width = b'x': it must be text"),
        ({"memory_limit_bytes": float("inf")}, "memory_limit_bytes = inf: it must be text, a finite number"),
        ({"forbidden.op": [float("nan")]}, "it must be text, a finite number"),
        ({"set.npu.int8_tops": {"a", "b"}}, "it must be text, a finite number"),
        ({"variant": ["a"]}, "variant = ['a']: it is the name of one of the variants"),
        ({"dims": 3}, "dims = 3: 'dims' needs parts"),
        ({"precision.x": 3}, "precision.x = 3: 'precision' has no parts"),
        ({"level": 7}, "level = 7"),
        ({"policy": "nonsense"}, "no policy is called 'nonsense'"),
        ({"case": "none.yaml"}, "no case file 'none.yaml'"),
        ({"set.npu.magic": 1}, "npu.magic"),
        ({"workload": "none.csv"}, "no workload file 'none.csv'"),
    ],
)
def test_a_mistake_is_told_with_its_key(two_branch: Path, inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as e:
        Simulations().prepare({"model": two_branch.name, **BASE, **inputs}, two_branch.parent)
    assert said in str(e.value) and "\n" not in str(e.value)


def test_figures_are_those_of_the_simulation(two_branch_heavy: Path, tmp_path: Path) -> None:
    found = measured(prepared(two_branch_heavy, ambient=38), tmp_path, curves=True)
    run = hetsched.simulate(two_branch_heavy, PHONE, dims={"width": 96}, time_limit_s=0.3, duration_s=120.0, ambient_c=38.0)
    assert isinstance(run, Simulated)
    s, f = run.summary(), found.figures
    assert f["inferences"] == s["inferences"] and f["p99_ms"] == pytest.approx(s["latency_ms"]["p99"])
    assert f["energy_j"] == pytest.approx(sum(s["energy_j"].values())) and f["rate"] == pytest.approx(s["inferences"] / 120, rel=1e-3)
    assert f["held"] == pytest.approx(f["rate_last_minute"] / f["rate_first_minute"])  # type: ignore[operator]
    assert f["skin_c"] == s["thermal_status"]["skin_c"]["max"] and f["throttled_s"] == s["throttled"]["seconds"]
    rate = found.curves["rate"]
    assert len(rate.times_s) == 120 and sum(rate.values) * 1.0 == pytest.approx(s["inferences"], rel=1e-2)
    assert {"rate", "skin", "hottest", "power"} <= found.curves.keys()
    assert max(found.curves["hottest"].values) == pytest.approx(f["hottest_c"], abs=1.0)


def test_a_policy_gets_a_plan_with_levels(two_branch_heavy: Path, tmp_path: Path) -> None:
    scenario = prepared(two_branch_heavy, policy="battery-saver", battery=0.05)
    found = measured(scenario, tmp_path, curves=True)
    assert found.figures["switches"] == 1 and max(found.curves["level"].values) >= 1


def test_arrivals_that_leave_time_give_their_own_rate(two_branch: Path, tmp_path: Path) -> None:
    found = measured(prepared(two_branch, rate=20), tmp_path, curves=True)
    assert found.figures["rate"] == pytest.approx(20, rel=2e-2)
    assert found.figures["rate_last_minute"] == pytest.approx(20, rel=2e-2) and found.figures["held"] == pytest.approx(1, rel=1e-2)


def test_every_scenario_of_the_shipped_studies_makes_sense() -> None:
    from hetsched.studies.shipped import shipped
    from hetsched.studies.study_file import read_study

    for name, path in shipped().items():
        inputs = read_study(path).scenarios()
        keys = {Simulations().prepare(i, path.parent).key for i in inputs}
        assert len(keys) == len(inputs), name
