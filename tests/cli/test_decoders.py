"""Language models at the command line: planning works, running without weights says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

GGUF = Path(__file__).parents[3] / "shared" / "models" / "gguf" / "smollm2_135m_q4_1.header.gguf"
CONFIG = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 64, "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "tie_word_embeddings": True,
}  # fmt: skip


def hetsched(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "hetsched", *map(str, args)], capture_output=True, text=True, cwd=cwd, timeout=120)


def folder(parent: Path, dtype: str) -> Path:
    path = parent / "decoder"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({**CONFIG, "dtype": dtype}))
    return path


def refused(done: subprocess.CompletedProcess[str], sentence: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("hetsched: ") and len(done.stderr.splitlines()) == 1
    assert sentence in done.stderr


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_running_a_decoder_without_weights_names_them(tmp_path: Path, dtype: str) -> None:
    refused(hetsched("run", folder(tmp_path, dtype), cwd=tmp_path), "the weights of 'decoder' are absent (20 tensors")


def test_planning_a_decoder_needs_no_generic_costs(tmp_path: Path) -> None:
    model = folder(tmp_path, "bfloat16")
    done = hetsched("plan", model, "--soc", "snapdragon-8-gen-3", "-o", "p.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "does not know" not in done.stdout + done.stderr
    assert json.loads((tmp_path / "p.json").read_text())


@pytest.mark.corpus
@pytest.mark.skipif(not GGUF.is_file(), reason=f"the shared corpus is absent ({GGUF})")
def test_a_gguf_file(tmp_path: Path) -> None:
    refused(hetsched("run", GGUF, "--check", cwd=tmp_path), "the first is 'token_embd.weight')")
    done = hetsched("plan", GGUF, "--soc", "snapdragon-8-gen-3", "-o", "p.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "does not know" not in done.stdout + done.stderr
