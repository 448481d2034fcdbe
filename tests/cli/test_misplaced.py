"""No option of ``run`` is ignored: each belongs to a plan's operators, to generating text, or to both."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main

from hetsched.cli import commands, misplaced
from hetsched.errors import OptionError


def _options(generating: bool) -> list[str]:
    """Options of the verb that belong to the other way of running."""
    run = typer.main.get_command(commands.app).commands["run"]  # type: ignore[attr-defined]
    other = [p for p in run.params if p.name not in misplaced.BOTH | {"prompt", "help"}]
    return [p.opts[-1] for p in other if (getattr(p, "rich_help_panel", None) == misplaced.LANGUAGE) != generating]


VALUES = {"--check": [], "--raw": [], "--shrink-cache": []}


@pytest.mark.parametrize("option", _options(generating=True))
def test_an_option_of_operators_beside_a_prompt(option: str, tmp_path: Path) -> None:
    _refused([option], True, tmp_path)


@pytest.mark.parametrize("option", _options(generating=False))
def test_an_option_of_text_without_a_prompt(option: str, tmp_path: Path) -> None:
    _refused([option], False, tmp_path)


def _refused(option: list[str], generating: bool, tmp_path: Path) -> None:
    given = ["1"] if option[0] not in VALUES else []
    words = [str(tmp_path / "absent.gguf"), *option, *given, *(["--prompt", "hi"] if generating else [])]
    with pytest.raises(OptionError, match=f"^{option[0]} belongs to "):
        typer.main.get_command(commands.app)(["run", *words], standalone_mode=False)


def test_what_both_know_is_taken(tmp_path: Path) -> None:
    for words in (["--seed", "3"], ["--prompt", "hi", "--seed", "3", "--precision", "w4a8"]):
        with pytest.raises(Exception, match=r"absent\.gguf"):
            typer.main.get_command(commands.app)(["run", str(tmp_path / "absent.gguf"), *words], standalone_mode=False)
