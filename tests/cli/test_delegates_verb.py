"""``hetsched delegates`` and ``hetsched run --delegate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hetsched
from hetsched.cli.commands import app
from hetsched.cli.running import delegates_of
from hetsched.errors import OptionError, PlanError
from hetsched.runtime.delegates import delegate_targets, load_delegate
from hetsched.runtime.delegates.base import Probe

COLUMNS = {"delegate", "present", "available", "version", "reason", "devices", "runs", "builds", "emulated"}


def run(*args: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args])


def test_rows_have_all_that_is_known() -> None:
    rows = json.loads(run("delegates", "--json").stdout)
    assert [r["delegate"] for r in rows] == list(delegate_targets()) and all(set(r) == COLUMNS for r in rows)
    by_name = {r["delegate"]: r for r in rows}
    assert by_name["numba"]["available"] and by_name["null"]["available"]
    assert all(r["available"] or r["reason"] for r in rows) and all(r["present"] == bool(r["version"]) for r in rows)
    assert all(r["runs"] for r in rows if r["available"])


def test_people_get_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {name: type(load_delegate(name)) for name in ("qnn", "openvino")}
    monkeypatch.setattr(kinds["qnn"], "probe", lambda self: Probe(True, "2.7.0", "", ("HTP",), "numerics", "contexts", "an emulator"))
    monkeypatch.setattr(kinds["openvino"], "probe", lambda self: Probe(False, reason="OpenVINO is not installed"))
    text = run("delegates").stdout
    assert "qnn 2.7.0 on HTP\n  runs here: numerics; emulated by an emulator: no times\n  builds: contexts\n" in text
    assert "openvino not present\n  does not run here: OpenVINO is not installed\n" in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["npu=qnn", "numba"], "'numba' names no queue"), (["npu=qnn", "npu=ort"], "npu has qnn already"),
        (["=qnn"], "names no queue"), (["npu="], "names no queue"),
    ],
)  # fmt: skip
def test_bad_choices(given: list[str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        delegates_of(given)


def test_queues_with_cores_have_a_colon() -> None:
    assert delegates_of(["cpu:0-3=numba", "npu=qnn"]) == {"cpu:0-3": "numba", "npu": "qnn"}


def test_a_phone_plan_runs_with_stand_ins(two_branch: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    plan = tmp_path / "plan.json"
    hetsched.plan(two_branch, "snapdragon-8-gen-3", dims={"batch": 1, "width": 16}, solver="rules", simulated=False).save(plan)
    refused = run("run", plan)
    assert isinstance(refused.exception, PlanError) and "say who stands in: --delegate" in str(refused.exception)
    stand_ins = [a for queue in ("cpu", "gpu", "npu") for a in ("--delegate", f"{queue}=numba,ort")]
    done = run("run", plan, *stand_ins, "--check", "--repeat", 1, "--json", "-o", tmp_path / "y.npz")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["check"]["passed"] and found["delegate"] == "as chosen"
    assert set(found["delegates"]) <= {"cpu", "gpu", "npu"} and np.isfinite(np.load(tmp_path / "y.npz")["y"]).all()
