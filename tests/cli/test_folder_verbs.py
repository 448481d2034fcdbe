"""``hetsched run --prompt``, ``chat`` and ``delta`` on small Hugging Face folders."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDERS = Path(__file__).parents[1] / "language" / "data"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed weights go to a folder of the test's own."""
    monkeypatch.setattr("hetsched.language.weights.weights_folder", lambda: tmp_path / "cache" / "weights")


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "mixtral", "mamba"])
def test_a_folder_answers(run: Run, family: str) -> None:
    code, out, err = run("run", FOLDERS / family, "--prompt", "Name a city.", "--generate", 4, "--context", 128, "--json")
    assert code == 0, err
    keys = json.loads(out)
    assert 1 <= len(keys["token_ids"]) <= 4 and keys["weights"] == "f16" and keys["weights_mb"] > 0


def test_turns_with_a_folder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Name a city.\nAnother?\n"))
    code, out, err = run("chat", FOLDERS / "gemma3", "--generate", 2, "--context", 256, "--json")
    assert code == 0, err
    first, second = json.loads(out)["turns"]
    assert second["reused_tokens"] > first["prompt_tokens"] - 8


def test_an_update_from_one_version_to_the_next(run: Run, tmp_path: Path) -> None:
    old, new, update = tmp_path / "old", tmp_path / "new", tmp_path / "update.hsdelta"
    shutil.copytree(FOLDERS / "llama", old)
    shutil.copytree(FOLDERS / "llama", new)
    raw = bytearray((new / "model.safetensors").read_bytes())
    raw[-40000:] = raw[-80000:-40000]
    (new / "model.safetensors").write_bytes(raw)
    code, out, err = run("delta", old, new, "-o", update, "--json")
    assert code == 0, err
    assert json.loads(out)["bytes"] == update.stat().st_size
    answers = []
    for words in ((old,), (old, "--update", update), (new,)):
        code, out, err = run("run", *words, "--prompt", "Name a city.", "--generate", 8, "--context", 128, "--json")
        assert code == 0, err
        answers.append(json.loads(out)["token_ids"])
    assert answers[0] != answers[1] == answers[2]
    code, out, err = run("run", new, "--update", update, "--prompt", "Name a city.")
    assert code == 2 and "belongs to weights with the hash" in err and err.count("\n") == 1


def test_what_is_refused(run: Run, tmp_path: Path) -> None:
    shutil.copytree(FOLDERS / "llama", folder := tmp_path / "folder")
    (folder / "tokenizer.json").unlink()
    code, _, err = run("run", folder, "--prompt", "hi")
    assert code == 2 and "has no tokenizer.json" in err
    code, _, err = run("delta", folder, folder, "-o", tmp_path / "update.hsdelta")
    assert code == 2 and "have the same weights" in err
