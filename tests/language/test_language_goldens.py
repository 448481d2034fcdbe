"""Models against goldens made once with transformers (``make_goldens.py``): a real one, dequantized, and small ones in float16."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.language.session import LanguageModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench_perplexity import mean_loss

MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"
GOLDEN = Path(__file__).parent / "data" / "smollm2.npz"
PROMPTS = 8
needs_model = pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is absent: run 'make models'")
FLOAT = ("fp16", "fp16")


def correlation(a: Any, b: Any) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def answer(model: LanguageModel, prompt: list[int], most: int) -> list[int]:
    """Greedy tokens after a prompt."""
    table, new, got = model.sequence(), prompt, []
    for _ in range(most):
        got.append(int(model.compute(new, table)[0].argmax()))
        new = got[-1:]
    table.cut(0)
    return got


@pytest.mark.real_models
@needs_model
@pytest.mark.parametrize(
    ("precision", "kv", "least"),
    [("w4a16", FLOAT, 0.9999), ("w4a8", FLOAT, 0.999), ("w4a16", ("int8", "int8"), 0.9999), ("w4a8", ("int8", "int4"), 0.999)],
)
def test_scores_after_prompts(precision: str, kv: tuple[str, str], least: float) -> None:
    golden = np.load(GOLDEN)
    with LanguageModel(MODEL, context=32, precision=precision, kv=kv) as model:
        for n in range(PROMPTS):
            table = model.sequence()
            assert correlation(model.compute(golden[f"ids_{n}"].tolist(), table)[0], golden[f"logits_{n}"]) >= least, n
            table.cut(0)


@pytest.mark.real_models
@needs_model
@pytest.mark.parametrize(("kv", "least"), [(FLOAT, 8), (("int8", "int8"), 7), (("int8", "int4"), 7)])
def test_greedy_tokens_are_those_of_float32(kv: tuple[str, str], least: int) -> None:
    """With activations of 16 bits; of a cache of fewer bits, the newest page of these 64 tokens is float16, too."""
    golden = np.load(GOLDEN)
    with LanguageModel(MODEL, context=64, precision="w4a16", kv=kv) as model:
        answers = [answer(model, golden[f"ids_{n}"].tolist(), 32) for n in range(PROMPTS)]
    assert sum(got == golden[f"greedy_{n}"].tolist() for n, got in enumerate(answers)) >= least


@pytest.mark.real_models
@needs_model
def test_perplexity_of_a_text() -> None:
    """The beginning of the text, beside the float run; ``make bench-perplexity`` computes all of it."""
    ids = np.load(GOLDEN)["text_ids"].tolist()[:257]
    plain = mean_loss(MODEL, ids, "w4a16", FLOAT)
    for kv, most in ((("int8", "int8"), 0.01), (("int8", "int4"), 0.03)):
        assert 0 < abs(np.expm1(mean_loss(MODEL, ids, "w4a16", kv) - plain)) <= most, kv


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "mixtral", "mamba"])
def test_folders_with_safetensors(family: str) -> None:
    """Small models with random weights in float16: scores of every position, in a prompt's program too, and the greedy tokens."""
    folder = Path(__file__).parent / "data" / family
    golden = np.load(folder / "golden.npz")
    ids, want = golden["ids"].tolist(), golden["logits"]
    with LanguageModel(folder, context=64) as model:
        table = model.sequence()
        got = model.compute(ids, table, scored=len(ids))
        assert min(correlation(x, y) for x, y in zip(got, want, strict=True)) >= 0.9999
        np.testing.assert_allclose(got, want, atol=2e-3 * np.abs(want).max())
        table.cut(0)
        np.testing.assert_allclose(model.compute(ids, table)[0], want[-1], atol=2e-3 * np.abs(want).max())
        table.cut(0)
        assert answer(model, ids, 16) == golden["greedy"].tolist()
