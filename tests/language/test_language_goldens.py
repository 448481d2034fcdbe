"""Models against goldens made once with transformers (``make_goldens.py``): a real one, dequantized, and small ones in float16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.language.session import LanguageModel

MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"
GOLDEN = Path(__file__).parent / "data" / "smollm2.npz"
PROMPTS = 4
needs_model = pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is absent: run 'make models'")


def correlation(a: Any, b: Any) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


@pytest.mark.real_models
@needs_model
@pytest.mark.parametrize(
    ("precision", "kv", "least"),
    [
        ("w4a16", ("fp16", "fp16"), 0.9999), ("w4a8", ("fp16", "fp16"), 0.999), ("w4a16", ("int8", "int8"), 0.9999),
        ("w4a16", ("int8", "int4"), 0.996),
    ],
)  # fmt: skip
def test_scores_after_prompts(precision: str, kv: tuple[str, str], least: float) -> None:
    golden = np.load(GOLDEN)
    with LanguageModel(MODEL, context=32, precision=precision, kv=kv) as model:
        for n in range(PROMPTS):
            table = model.sequence()
            assert correlation(model.compute(golden[f"ids_{n}"].tolist(), table)[0], golden[f"logits_{n}"]) >= least, n
            table.cut(0)


@pytest.mark.real_models
@needs_model
def test_greedy_tokens_are_those_of_float32() -> None:
    """With activations of 16 bits every token of every answer is the golden one."""
    golden = np.load(GOLDEN)
    with LanguageModel(MODEL, context=64, precision="w4a16") as model:
        for n in range(PROMPTS):
            table, want, got = model.sequence(), golden[f"greedy_{n}"].tolist(), []
            new = golden[f"ids_{n}"].tolist()
            for _ in want:
                got.append(int(model.compute(new, table)[0].argmax()))
                new = got[-1:]
            assert got == want, n
            table.cut(0)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "mixtral"])
def test_folders_with_safetensors(family: str) -> None:
    """Small models with random weights in float16: scores of every position, and the greedy tokens where nothing is a near tie."""
    folder = Path(__file__).parent / "data" / family
    golden = np.load(folder / "golden.npz")
    ids, want = golden["ids"].tolist(), golden["logits"]
    with LanguageModel(folder, context=64) as model:
        table = model.sequence()
        np.testing.assert_allclose(model.compute(ids, table, scored=len(ids)), want, atol=2e-3 * np.abs(want).max())
        table.cut(0)
        new = ids
        for token in golden["greedy"].tolist():
            scores = model.compute(new, table)[0]
            assert scores.max() - scores[token] <= 2e-3 * np.abs(want).max()
            new = [token]
