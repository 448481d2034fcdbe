"""``hetsched study``: run, run again, asked, listed; what a mistake is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.app.scenario_runs import of_plan

Runner = Callable[..., tuple[int, str, str]]


@pytest.fixture
def study(two_branch: Path, tmp_path: Path) -> Path:
    path = tmp_path / "warm.yaml"
    path.write_text(
        f"title: How warm?\nbase: {{model: {two_branch.name}, dims: {{width: 32}}, duration: 1min, time_limit_s: 0.3}}\n"
        "grid:\n  soc: [snapdragon-8-gen-3, apple-a17-pro]\n  ambient: [25, 35]\n"
    )
    return path


def test_a_study_is_run_kept_and_asked(run: Runner, study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    code, out, _ = run("study", study, "-o", folder, "--workers", 1, "--json")
    found = json.loads(out)
    assert code == 0 and (found["ran"], found["kept"], found["refused"], found["failed"]) == (4, 0, 0, [])
    assert Path(found["results_path"]).is_file() and Path(found["page_path"]).stat().st_size > 1e6
    code, out, _ = run("study", study, "-o", folder, "--workers", 1)
    assert code == 0 and "0 ran, 4 were there" in out and "apple-a17-pro" in out
    assert max(len(line) for line in out.splitlines() if not line.startswith(("results:", "page:"))) <= 80
    code, out, _ = run("study", "query", folder, "select soc, ambient_c, rate from results order by rate desc", "--json")
    rows = json.loads(out)
    assert code == 0 and len(rows) == 4 and rows[0]["rate"] >= rows[-1]["rate"] > 0 and set(rows[0]) == {"soc", "ambient_c", "rate"}
    code, out, _ = run("study", "query", folder, "select * from results")
    assert code == 0 and max(map(len, out.splitlines())) <= 80 and "(4 row(s)" in out
    code, out, _ = run("study", study, "-o", folder, "--workers", 1, "--with", "ambient=30", "--json")
    assert code == 0 and (json.loads(out)["ran"], json.loads(out)["scenarios"]) == (2, 2)
    code, out, _ = run("study", study, "-o", folder, "--workers", 1, "--with", "ambient_c=30")
    assert code == 0 and "0 ran, 2 were there" in out


def test_what_is_damaged_is_told_in_one_sentence_before_anything_runs(run: Runner, study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    asked = ("study", study, "-o", folder, "--workers", 1, "--with", "soc=apple-a17-pro")
    assert run(*asked, "--with", "ambient=25")[0] == 0
    (folder / "study.json").write_text("{")
    code, out, err = run(*asked)
    assert code == 2 and not out and f"{folder / 'study.json'} is damaged" in err and err.count("\n") == 1
    (folder / "study.json").write_text("{}")
    of_plan.cache_clear()
    (plan,) = (folder / "plans").iterdir()
    plan.write_text("{")
    code, out, _ = run(*asked)
    assert code == 2 and "failed: the plan" in out and "is damaged or of another version: remove it, and run the study again" in out
    plan.unlink()
    assert run(*asked)[0] == 0
    record = next((folder / "records").iterdir())
    record.write_bytes(record.read_bytes()[:100])
    code, out, err = run(*asked)
    assert code == 2 and not out and f"the record {record} cannot be read: remove it" in err and err.count("\n") == 1


def test_the_shipped_studies_are_listed(run: Runner) -> None:
    code, out, _ = run("study", "--list", "--json")
    assert code == 0 and {"name", "title", "question", "scenarios"} == set(json.loads(out)[0])
    assert run("study", "--list")[0] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "takes one study"),
        (("query", "x"), "takes one study"),
        (("nonsense",), "no study is called 'nonsense'"),
        (("none.yaml",), "no study file 'none.yaml'"),
        (("{study}", "--with", "ambient"), "--with 'ambient' is not of the form KEY=VALUE"),
        (("{study}", "--with", "ambiant=3"), "did you mean 'ambient_c'?"),
        (("{study}", "--with", "model=none.onnx"), "no model file 'none.onnx'"),
        (("{study}", "--cluster", "tcp://127.0.0.1:9", "-o", "{folder}"), "no Dask scheduler answers"),
        (("{study}", "--workers", "257", "-o", "{folder}"), "--workers 257 are too many processes"),
        (("{study}", "--workers", "2", "--cluster", "tcp://127.0.0.1:9"), "leave one out"),
        (("--list", "--workers", "2"), "belong to running a study"),
        (("query", "{folder}", "select 1"), "is not the folder of a study"),
    ],
)
def test_a_mistake_is_one_sentence(
    run: Runner, study: Path, tmp_path: Path, args: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched.studies.cluster.CONNECT_S", 1)
    code, out, err = run("study", *(a.format(study=study, folder=tmp_path / "f") for a in args))
    assert code == 2 and not out and said in err and err.count("\n") == 1
