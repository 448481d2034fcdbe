"""``hetsched run --prompt`` and ``hetsched chat`` on a real model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"
QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
pytestmark = [
    pytest.mark.real_models,
    pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is absent: run 'make models'"),
]


def hetsched(*args: object, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hetsched", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, input=said, timeout=300)


def test_an_answer_and_its_figures() -> None:
    done = hetsched("run", MODEL, "--prompt", QUESTION, "--raw", "--generate", 32, "--context", 64, "--json")
    assert done.returncode == 0, done.stderr
    keys = json.loads(done.stdout)
    assert keys["text"] == "The capital of France is Paris." and keys["finish"] == "stop"
    assert keys["token_ids"] == [504, 3575, 282, 4649, 314, 7042, 30, 2]
    assert keys["ttft_ms"] > 0 and keys["decode_tok_s"] > 0 and keys["peak_memory_mb"] > keys["weights_mb"]


def test_turns_of_a_chat() -> None:
    done = hetsched("chat", MODEL, "--generate", 4, "--context", 256, "--json", said="What is the capital of France?\nAnd of Italy?\n")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["turns"]
    assert first["reused_tokens"] == 0 and second["reused_tokens"] > first["prompt_tokens"] - 8
    assert len(first["token_ids"]) <= 4


def test_what_is_refused() -> None:
    done = hetsched("run", MODEL, "--prompt", "hi", "--context", 8)
    assert done.returncode == 2 and "exceed the context limit of 8: raise --context" in done.stderr
    done = hetsched("run", MODEL, "--prompt", "hi", "--kv", "int4")
    assert done.returncode == 2 and "there is no cache of int4 keys and int4 values" in done.stderr
