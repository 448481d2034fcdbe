"""What ``run --prompt`` and ``chat`` write: text as it is, without what a terminal would obey, wherever it goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hetsched.cli.commands import app
from hetsched.cli.language_commands import harmless, write
from hetsched.errors import OptionError
from hetsched.language.generation import Token

MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"


def test_texts_of_all_languages_are_written_as_they_are() -> None:
    for text in ("a\tb\n", "a\u00a0b\u3000c", "\U0001f468\u200d\U0001f469", "na\u00efve \u202bשלום\u202c", ""):
        assert harmless(text) == text
    assert harmless("\x1b[31m\r\x9b\x00\ud800") == r"\x1b[31m\r\x9b\x00\ud800"


def test_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standard output that was closed before the program began."""
    monkeypatch.setattr(sys, "stdout", None)
    write([Token(1, "the cat")], quiet=False)


def test_an_option_that_would_be_ignored(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    done = CliRunner().invoke(app, ["run", str(model), "--prompt", "hi", "--raw", "--system", "be kind"])
    assert isinstance(done.exception, OptionError) and "--system belongs to the chat template" in str(done.exception)


@pytest.mark.real_models
@pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is absent: run 'make models'")
@pytest.mark.parametrize("closed", ["<&-", ">&- <&-", "</dev/null"])
def test_a_chat_without_input_or_output_ends(closed: str) -> None:
    asked = f"exec {sys.executable} -m hetsched chat {MODEL} --context 64 {closed}"  # the shell closes what the program would inherit
    done = subprocess.run(["/bin/sh", "-c", asked], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
