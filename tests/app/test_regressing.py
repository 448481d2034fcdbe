"""Baselines: what is kept, what counts as moved, and what the command line says and returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hetsched.app.regressing import check_place, read_baseline, record, regress
from hetsched.errors import OptionError

INPUTS = {"soc": "snapdragon-8-gen-3", "dims.width": 96, "time_limit_s": 0.3, "duration": "5s"}
Runner = Callable[..., tuple[int, str, str]]


@pytest.fixture
def baseline(two_branch: Path) -> Path:
    path = two_branch.parent / "baseline.json"
    record([{"model": two_branch.name, **INPUTS}, {"model": two_branch.name, **INPUTS, "soc": "host"}], two_branch.parent, path)
    return path


def edited(path: Path, change: Callable[[Any], None]) -> Path:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def test_every_kind_of_figure_is_kept_with_an_interval(baseline: Path) -> None:
    phone, host = (c.figures for c in read_baseline(baseline).cases)
    assert {"latency_ms", "energy_mj", "peak_memory_mb", "simulated rate", "simulated energy_j", "simulated p99_ms"} <= phone.keys()
    assert {"peak_memory_mb", "run latency_ms", "tensors that fail", "y cosine", "y max_abs"} <= host.keys()
    assert {f.origin for c in (phone, host) for f in c.values()} == {"predicted", "simulated", "measured", "numerics"}
    assert all(f.low <= f.value <= f.high for c in (phone, host) for f in c.values())
    assert phone["simulated rate"].better == "more" and phone["latency_ms"].better == "less"


def test_nothing_moves_by_itself_and_what_moves_is_told(baseline: Path) -> None:
    # the latency of a run depends on who else uses this machine: its interval is not tried here
    edited(baseline, lambda d: d["cases"][1]["figures"]["run latency_ms"].update(high=1e9))
    found = regress(baseline)
    assert not found.moved and not found.skipped and found.cases == 2 and found.figures > 12

    def change(data: Any) -> None:
        phone = data["cases"][0]["figures"]
        phone["latency_ms"].update(value=phone["latency_ms"]["value"] / 2, low=0.0, high=phone["latency_ms"]["value"] / 2)
        phone["simulated rate"].update(value=1.0, low=0.9, high=1.1)
        phone["ttft_ms"] = phone["latency_ms"]
        data["cases"][1]["figures"]["y cosine"].update(value=1.5, low=1.5, high=1.5)

    moved = {m.figure: m for m in regress(edited(baseline, change)).moved}
    assert {k: m.verdict for k, m in moved.items()} == {
        "latency_ms": "worse", "simulated rate": "better", "ttft_ms": "gone", "y cosine": "worse",
    }  # fmt: skip
    assert moved["latency_ms"].change == pytest.approx(1.0) and "not told" in moved["ttft_ms"].reason


def test_latencies_of_another_machine_are_passed_over(baseline: Path) -> None:
    def other(data: Any) -> None:
        data["machine"] = "elsewhere"
        data["cases"][1]["figures"]["run latency_ms"].update(high=0.0)

    found = regress(edited(baseline, other))
    assert not found.moved and len(found.skipped) == 1 and "run latency_ms was measured on another machine" in found.skipped[0]


def test_a_scenario_that_fails_now_has_lost_all_its_figures(baseline: Path, two_branch: Path) -> None:
    edited(baseline, lambda d: d.update(cases=d["cases"][:1]))
    edited(baseline, lambda d: d["cases"][0]["inputs"].update({"runtime": "unheard-of"}))
    found = regress(baseline)
    assert {m.verdict for m in found.moved} == {"gone"} and len(found.moved) == found.figures
    assert all("unheard-of" in m.reason for m in found.moved)


def test_the_command_line(run: Runner, two_branch: Path, tmp_path: Path) -> None:
    study, base = tmp_path / "set.yaml", tmp_path / "b.json"
    study.write_text(f"title: t\nbase: {json.dumps({'model': two_branch.name, **INPUTS})}\ngrid: {{ambient: [25, 35]}}\n")
    code, out, _ = run("regress", base, "--record", study)
    assert code == 0 and "2 cases" in out and "predicted: latency_ms, energy_mj" in out and "simulated: rate, " in out
    code, out, _ = run("regress", base, "--json")
    assert code == 0 and json.loads(out)["passed"] is True and json.loads(out)["cases"] == 2
    edited(base, lambda d: d["cases"][0]["figures"]["latency_ms"].update(value=1e-6, low=0.0, high=1e-6))
    code, out, _ = run("regress", base)
    assert code == 1 and "what moved" in out and "worse" in out and "--update" in out
    code, out, _ = run("regress", base, "--json")
    assert code == 1 and json.loads(out)["moved"][0]["figure"] == "latency_ms"
    assert run("regress", base, "--update")[0] == 0
    assert run("regress", base)[0] == 0


def test_bad_baselines(tmp_path: Path, run: Runner) -> None:
    path = tmp_path / "b.json"
    with pytest.raises(OptionError, match="there is no baseline"):
        read_baseline(path)
    path.write_text("{}")
    with pytest.raises(OptionError, match="not a valid baseline"):
        read_baseline(path)
    code, out, err = run("regress", path)
    assert code == 2 and not out and err.count("\n") == 1


def test_files_beside_the_study_are_found_from_another_folder(two_branch: Path, tmp_path: Path) -> None:
    study, elsewhere = two_branch.parent, tmp_path / "ci"
    elsewhere.mkdir()
    (study / "arrivals.csv").write_text("time\n0\n1\n")
    record([{"model": two_branch.name, **INPUTS, "workload": "arrivals.csv"}], study, elsewhere / "baseline.json")
    assert regress(elsewhere / "baseline.json").summary()["passed"]


def test_only_a_baseline_is_replaced(baseline: Path, two_branch: Path) -> None:
    check_place(baseline, None)
    check_place(edited(baseline, lambda b: b["cases"].clear()), None)
    for text in ("", "{", "[" * 100_000):
        baseline.write_text(text)
        check_place(baseline, None)
    baseline.write_text('{"header": {}}')
    with pytest.raises(OptionError, match="a file that is no baseline is there"):
        check_place(baseline, None)
    with pytest.raises(OptionError, match=r"it would replace .*; choose another place$"):
        check_place(two_branch, str(two_branch))


def test_what_is_missing_is_told_without_words_of_a_study(two_branch: Path, run: Runner) -> None:
    baseline = two_branch.with_name("baseline.json")
    record([{"model": two_branch.name, **INPUTS}], two_branch.parent, baseline)
    edited(baseline, lambda d: d["cases"][0]["inputs"].update({"model": "gone.onnx"}))
    code, out, err = run("regress", baseline)
    assert code == 2 and not out and "gone.onnx" in err and "study" not in err and "-o" not in err
