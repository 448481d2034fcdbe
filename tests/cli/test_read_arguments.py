"""Every verb reads its arguments alike: what is taken once is given once, numbers are numbers, the help has headings."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, get_args

import pytest
import typer

from hetsched.cli import headings, main
from hetsched.cli.commands import app

Runner = Callable[..., str]
VERBS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
TAKING = [(v, p) for v, verb in VERBS.items() for p in verb.params if p.param_type_name == "option" and not p.is_flag]
ONCE = [(v, p.opts[-1]) for v, p in TAKING if not p.multiple]
NUMBERS = [
    (v, p.opts[-1]) for v, p in TAKING if (get_args(p.type_descriptor.annotation) or (p.type_descriptor.annotation,))[0] in (int, float)
]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    """The one sentence that a command ends with."""

    def go(*args: str) -> str:
        monkeypatch.setattr(sys, "argv", ["hetsched", *args])
        with pytest.raises(SystemExit) as e:
            main()
        out, err = capsys.readouterr()
        assert e.value.code == 2 and not out and len(err.splitlines()) == 1
        return err.strip()

    return go


@pytest.mark.parametrize(("verb", "option"), ONCE, ids=" ".join)
def test_what_is_taken_once_is_not_given_twice(refused: Runner, verb: str, option: str) -> None:
    assert refused(verb, "x", option, "1", option, "2").startswith(f"hetsched: {option} is given 2 times, and '{verb}' takes one")


def test_several_socs_are_compared(refused: Runner) -> None:
    assert refused("plan", "x", "--soc", "a", "--soc", "b").endswith("'hetsched compare' takes several")


@pytest.mark.parametrize(("verb", "option"), NUMBERS, ids=" ".join)
def test_a_number_has_no_unit(refused: Runner, verb: str, option: str) -> None:
    assert f"{option} '30fps' is not a" in refused(verb, "x", option, "30fps")


@pytest.mark.parametrize("verb", sorted({v for v, _ in ONCE}))
def test_a_missing_value_points_to_the_verb(refused: Runner, verb: str) -> None:
    option = next(o for v, o in ONCE if v == verb)
    assert refused(verb, "x", option).endswith(f"requires an argument; see 'hetsched {verb} --help'")


def test_options_of_plan_stand_under_headings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["hetsched", "plan", "--help"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    found = re.findall(r"^(\S.*):$", shown, re.M)
    assert found == ["Arguments", *headings.ORDER, "Options"]
    last = shown.partition("\nOptions:")[2]
    assert re.findall(r"--[a-z-]+", last) == ["--output", "--verbose", "--json", "--help"]
