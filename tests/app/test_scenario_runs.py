"""Scenarios of studies: their keys, their columns, what a mistake is told, and figures that agree with a simulation."""

from __future__ import annotations

import json
import sys
from datetime import date
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from small_decoder import SMALL

import hetsched
from hetsched.acceptance import Acceptance
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
        ({"model": None}, "the scenarios have no model"),
        ({"model": 3}, "model = 3: it is a file or a folder; several models at once are told as plan files"),
        ({"chat.prompt": 9}, "chat: two_branch.onnx has no prompt and answer to chat with"),
        ({"prompt": 9, "generate": 9, "chat.prompt": 9}, "so no prompt can be planned"),
        ({"soc": "snapdragon-x-elite", "case": "hand"}, "Snapdragon X Elite is no phone: leave --case hand out"),
        ({"soc": "snapdragon-x-elite", "charging": 9, "battery": 0.5}, "has no battery to charge"),
        ({"plan": "p.json"}, "a plan file has its model, its SoC and its options; leave 'model' out"),
        ({"priority": 1}, "priority = 1: it is of plans that run at once"),
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


@pytest.fixture
def plans(two_branch_heavy: Path, tmp_path: Path) -> Path:
    """A folder with plans of a vision model and of a small decoder for one phone."""
    found = hetsched.plan(two_branch_heavy, PHONE, dims={"width": 96}, time_limit_s=0.3, solver="heft", levels=True)
    found.save(tmp_path / "cam.json")
    model = tmp_path / "decoder"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(SMALL))
    asked: dict[str, Any] = {"prompt": 96, "generate": 416, "solver": "heft", "simulated": False, "time_limit_s": 0.3}
    hetsched.plan(model, PHONE, **asked).save(tmp_path / "llm.json")
    return tmp_path


def of_files(folder: Path, **inputs: Any) -> Prepared:
    return Simulations().prepare({k.replace("__", "."): v for k, v in inputs.items()}, folder)


def test_plan_files_are_an_axis(plans: Path) -> None:
    """They are simulated as they are, and their content names the scenario."""
    first = of_files(plans, plan="cam.json", duration="1min")
    assert first.plan_key == "" and (first.inputs["plan"], first.inputs["soc"]) == ("cam", PHONE)
    found = Simulations().measure(first, Path(), False)
    run = hetsched.simulate(plans / "cam.json", duration_s=60.0)
    assert isinstance(run, Simulated) and found.figures["inferences"] == run.summary()["inferences"]
    assert of_files(plans, plan="cam.json", duration="1min", policy="battery-saver", battery=0.05).key != first.key
    for inputs, said in (
        ({"plan": "none.json"}, "no plan file 'none.json'"),
        ({"plan": 3}, "plan = 3: it is a plan file"),
        ({"plan": "cam.json", "precision": "w8a8"}, "leave 'precision' out"),
        ({"plan": "cam.json", "chat__prompt": 9}, "has no prompt and answer"),
        ({"plan": "llm.json", "policy": "reactive"}, "plan = llm.json: there is one level only"),
        ({"plan": ["cam.json", "llm.json"], "rate": [9, 9]}, "say with --duration"),
        ({"plan": ["cam.json", "llm.json"], "rate": [9], "duration": 9}, "1 --rate for 2 models"),
        ({"plan": ["cam.json", "llm.json"], "rate": ["x"], "duration": 9}, "rate = ['x']: it must be a list of numbers"),
        ({"plan": ["cam.json", "cam.json"], "rate": [9], "duration": 9, "chat__prompt": 9}, "none of the plans has a prompt"),
    ):
        with pytest.raises(InputError) as e:
            of_files(plans, **inputs)
        assert said in str(e.value), inputs
    with pytest.raises(InputError, match="not planned again"):
        Simulations().plan(first, plans / "again.json")


def test_a_chat_runs_beside_a_camera(plans: Path) -> None:
    asked: dict[str, Any] = {"duration": "1min", "chat__prompt": 40, "chat__generate": 60, "think": "2s"}
    scenario = of_files(plans, plan=["cam.json", "llm.json"], rate=[20], deadline=["50ms"], **asked)
    assert scenario.inputs["plan"] == "cam + llm" and scenario.inputs["rate"] == "[20]"
    found = Simulations().measure(scenario, Path(), True)
    alone = Simulations().measure(of_files(plans, plan="llm.json", **asked), Path(), False)
    f = found.figures
    assert f["inferences"] == pytest.approx(1200, abs=2) and f["missed"] == 0.0
    assert f["tokens"] == pytest.approx(alone.figures["tokens"], rel=0.2)
    name = next(k for k in f if k.endswith(".p99_ms"))
    assert 0 < f[name.replace("p99", "p50")] <= f[name]  # type: ignore[operator]
    assert {"rate", "power", "hottest"} <= found.curves.keys()


def test_guesses_are_inputs(tmp_path: Path) -> None:
    """Lookups that are always right take less energy a token the more they are; a file of accepted guesses is known by its content."""
    model = tmp_path / "config.json"
    model.write_text(json.dumps(SMALL))
    asked: dict[str, Any] = {"prompt": 96, "generate": 32, "solver": "heft", "chat.prompt": 40, "chat.generate": 60}
    inputs = {"model": model.name, "soc": PHONE, "duration": "10s", "think": "1s", **asked}
    scenarios = [Simulations().prepare({**inputs, "speculate": n, "acceptance": 1.0}, tmp_path) for n in (1, 3)]
    few, many = (float(measured(s, tmp_path).figures["energy_per_token_j"] or 0.0) for s in scenarios)
    assert scenarios[1].inputs["speculate"] == 3 and many < few
    keys, file = [], tmp_path / "acc.json"
    for steps in (((0,), (1, 2)), ((0,), (2, 1))):
        file.unlink(missing_ok=True)
        Acceptance(model="m", sha256="0" * 64, guesser="lookup", steps=steps).save(file)
        keys.append(Simulations().prepare({**inputs, "speculate": 1, "acceptance": file.name}, tmp_path).plan_key)
    assert keys[0] != keys[1]


def test_a_policy_of_ones_own_is_known_by_its_code(two_branch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "my_policy.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [EntryPoint("mine", "my_policy:Mine", group)])
    keys = []
    for level in (1, 2):
        module.write_text(f"class Mine:\n    period_s = 1.0\n    def wanted(self, seen):\n        return {level}\n")
        sys.modules.pop("my_policy", None)
        keys.append(prepared(two_branch, policy="mine").key)
    assert keys[0] != keys[1]
