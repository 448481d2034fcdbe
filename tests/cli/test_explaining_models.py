"""``explain`` of a model takes what planning it takes; what is off at a level is not priced."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.cli import main, show

Runner = Callable[..., str]
PHONE = ("--soc", "snapdragon-8-gen-3", "--dim", "width=16")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    """What a command prints, on either stream."""

    def go(*args: object) -> str:
        monkeypatch.setattr(sys, "argv", ["hetsched", *map(str, args)])
        with pytest.raises(SystemExit):
            main()
        return "".join(capsys.readouterr())

    return go


def test_a_model_is_planned_for_the_soc_that_is_named(shown: Runner, two_branch: Path) -> None:
    assert "runs on npu" in shown("explain", two_branch, "stem.relu", *PHONE)
    assert "vendor" in shown("explain", two_branch, *PHONE, "--set", "npu.int8_tops=100")
    assert "runs on cpu" in shown("explain", two_branch, "fc", "--dim", "width=16")


def test_a_plan_takes_none_of_it(shown: Runner, two_branch: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p.json"
    shown("plan", two_branch, *PHONE, "-o", plan)
    assert "is already a plan" in shown("explain", plan, "fc", "--dim", "width=16")
    assert "is already a plan" in shown("explain", plan, "fc", "--soc", "qcs6490")


def test_what_is_off_has_no_price(shown: Runner, two_branch: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p.json"
    out = shown("plan", two_branch, *PHONE, "--levels", "-o", plan)
    assert "level 3 stays in float" in out or "w8a8-dynamic" in out
    for level in ("2", "3"):
        said = shown("explain", plan, "stem.relu", "--level", level)
        assert "npu is off in this plan" in said and not [t for t in said.splitlines() if t.startswith("npu ") and "s " in t[20:]]
        found = json.loads(shown("explain", plan, "stem.relu", "--level", level, "--json"))
        assert found["off"] == ["npu"] and "npu" not in {a["queue"] for a in found["alternatives"]}
    entries = json.loads(plan.read_text())["entries"]
    offered = [{a["queue"] for p in e["plan"]["placements"] for a in p["alternatives"]} for e in entries]
    assert "npu" in offered[0] and "npu" in offered[1] and not {"npu"} & (offered[2] | offered[3])


def test_a_whole_plan_says_what_costs_most(shown: Runner, two_branch: Path) -> None:
    found = json.loads(shown("explain", two_branch, *PHONE, "--json"))["most"]
    assert [x["amount"] for x in found] == sorted((x["amount"] for x in found), reverse=True)
    assert all(x["ops"] and x["type"] and x["where"] for x in found)
    said = shown("explain", two_branch, *PHONE)
    assert "what costs most, and what would bring it elsewhere:" in said and f"{len(found[0]['ops'])} {found[0]['type']}: " in said


def test_a_long_line_is_broken_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "  note: " + " ".join(f"word{k}" for k in range(40))
    show.line(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr(show.console, "_force_terminal", True)
    monkeypatch.setattr(show.console, "_width", 80)
    show.line(text)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 80 and all(x.startswith("    word") for x in lines[1:])
    assert " ".join(lines).split() == text.split()


def test_what_the_user_forbids_is_off_too(shown: Runner, two_branch: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p.json"
    shown("plan", two_branch, *PHONE, "--forbid", "*=npu", "--forbid", "fc=gpu", "-o", plan)
    said = shown("explain", plan, "fc")
    assert "npu is off in this plan" in said and "gpu is off" not in said and "\nnpu " not in said.replace("\nnpu is off", "")
