"""SmolLM2-135M-Instruct (Q4_1): the reference executor says what the model says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.reference import run

MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"
#: ``<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n`` and the greedy answer in float32,
#: "The capital of France is Paris.".
PROMPT = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
ANSWER = [504, 3575, 282, 4649, 314, 7042, 30, 2]


@pytest.mark.real_models
@pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is absent: run 'make models'")
def test_the_capital_of_france(parameters: Callable[[Graph], int]) -> None:
    """One prefill of prompt and answer: every position predicts the next token of the answer."""
    ids = np.array([PROMPT + ANSWER[:-1]])
    graph = load(MODEL, {"tokens": ids.size, "past": 0, "logits": len(ANSWER)})
    assert parameters(graph) == 134_515_008
    logits = run(graph, {"input_ids": ids, "position_ids": np.arange(ids.size)[None]})["logits"]
    assert logits[0].argmax(-1).tolist() == ANSWER
