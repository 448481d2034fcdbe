"""What ``--help`` says: no verb is cut short, and every argument and option is explained."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest
import typer

from hetsched.cli import main
from hetsched.cli.commands import app

Runner = Callable[..., str]
VERBS = sorted(str(c.name or getattr(c.callback, "__name__", "")) for c in app.registered_commands)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    def go(*args: str) -> str:
        monkeypatch.setattr(sys, "argv", ["hetsched", *args, "--help"])
        with pytest.raises(SystemExit) as e:
            main()
        assert not e.value.code
        return capsys.readouterr().out

    return go


def test_the_list_of_verbs_is_not_cut_short(shown: Runner) -> None:
    out = shown()
    listed = dict(re.findall(r"^  ([a-z-]+) +(\S.*)$", out.partition("Commands:")[2], re.M))
    assert set(VERBS) <= set(listed) and not any(listed[verb].endswith("...") for verb in VERBS)
    assert "hetsched plan MODEL --soc" in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_and_option_is_explained(shown: Runner, verb: str) -> None:
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    assert not [p.name for p in command.params if not p.help]
    assert not re.search(r"^  -.*<(str|float|int|path|Path)>", shown(verb), re.M), "an option needs a word for its value (metavar)"
