"""Answers: streamed, seeded, ended, with turns that reuse the cache; the golden answer of a real model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.app.generating import assistant
from hetsched.errors import ExecutionError, OptionError, PlanError
from hetsched.language.generation import Answer
from hetsched.language.sampling import Chooser, Sampling

MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"
WriteDecoder = Callable[..., Path]
PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
ANSWER = [504, 3575, 282, 4649, 314, 7042, 30, 2]


@pytest.mark.real_models
@pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is absent: run 'make models'")
@pytest.mark.parametrize("precision", ["w4a8", "w4a16"])
def test_the_capital_of_france(precision: str) -> None:
    """Token for token the greedy answer in float32 of the dequantized weights."""
    answer = Answer()
    with assistant(MODEL, precision=precision, context=64, cores=(0,)) as opened:
        tokens = list(opened.complete(PROMPT, most=32, answer=answer))
    assert [t.id for t in tokens] == ANSWER
    assert "".join(t.text for t in tokens) == answer.text == "The capital of France is Paris."
    assert answer.finish == "stop" and answer.prompt_tokens == 16 and len(answer.steps_s) == len(ANSWER) - 1


@pytest.mark.real_models
@pytest.mark.skipif(not MODEL.is_file(), reason=f"{MODEL.name} is absent: run 'make models'")
def test_the_documented_question_gets_the_right_answer() -> None:
    """By the model's own chat template, with its system message, and with what the command line takes by default."""
    with assistant(MODEL, context=64, cores=(0,)) as opened:
        said = opened.conversation().say("What is the capital of France?", most=16)
        assert "".join(t.text for t in said) == "The capital of France is Paris."


def test_seeds_decide(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)

    def ids(**options: float) -> list[int]:
        with assistant(path, context=64, cores=(0,), sampling=Sampling(**options)) as opened:  # type: ignore[arg-type]
            return [t.id for t in opened.complete("the cat", most=12)]

    greedy = ids()
    assert ids() == greedy and ids(temperature=1.0, top_k=1) == greedy
    hot = {tuple(ids(temperature=5.0, seed=s)) for s in range(4)}
    assert len(hot) > 1 and ids(temperature=5.0, seed=2) == ids(temperature=5.0, seed=2)
    with pytest.raises(OptionError, match="--top-p 2 is out of range"):
        Sampling(top_p=2)
    with pytest.raises(OptionError, match="--top-k 16777217 is out of range: use 0 to 16777216"):
        Sampling(top_k=(1 << 24) + 1)


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-40, 1e-37, 1e-9, 1e-3])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (1, 1.0), (2, 1.0), (1 << 24, 1.0), (0, 1e-6), (2, 0.5)])
def test_cold_choices_are_the_best_score(temperature: float, top_k: int, top_p: float) -> None:
    """However little of it there is, and of however few tokens; masked ones (-inf) are never chosen."""
    for scores in ([1.0, 3.0, 2.0], [-np.inf, -5.0, -np.inf], [-3e38, 3e38, 0.0]):
        chooser = Chooser(Sampling(temperature, top_k, top_p), 3)
        assert [chooser.choose(np.array(scores, np.float32), [0, 1, 99, -5]) for _ in range(4)] == [1] * 4


@pytest.mark.parametrize("scores", [[1, np.nan, 2], [1, np.inf, 2], [-np.inf] * 3])
@pytest.mark.parametrize("options", [Sampling(), Sampling(1.0), Sampling(1.0, 2), Sampling(1.0, 0, 0.5)])
def test_scores_that_are_no_numbers_are_no_choice(scores: list[float], options: Sampling) -> None:
    with pytest.raises(ExecutionError, match="the best of the model's scores is"):
        Chooser(options, 3).choose(np.array(scores, np.float32), [])


def test_a_model_may_score_more_tokens_than_its_vocabulary_has(write_decoder: WriteDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that make a matrix even: they say nothing, and end nothing."""
    with assistant(write_decoder("llama", "Q8_0", vocabulary=True), context=64) as opened:
        want = [t.id for t in opened.complete("the cat", most=9)]
        monkeypatch.setattr(type(opened.vocabulary), "__len__", lambda _: min(want))
        got = list(opened.complete("the cat", most=9))
        assert [t.id for t in got] == want and {t.text for t in got} == {""}


def test_turns_compute_only_what_is_new(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    with assistant(path, context=128, cores=(0,)) as opened:
        talk = opened.conversation("be kind")
        said = "".join(t.text for t in talk.say("the cat", most=6))
        assert said == talk.answer.text and talk.answer.reused_tokens == 0
        assert [m["role"] for m in talk.messages] == ["system", "user", "assistant"]
        first = talk.prompt_of(talk.messages[:2])
        list(talk.say("a hat?", most=6))
        reused = talk.answer
        assert reused.reused_tokens >= len(first) - 1
        fresh = opened.conversation("be kind")
        fresh.messages = talk.messages[:-2]
        talk.table.cut(0)
        list(fresh.say("a hat?", most=6))
        assert fresh.answer.reused_tokens == 0 and fresh.answer.tokens == reused.tokens


def test_figures_of_an_answer(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    with assistant(path, context=64, cores=(0,), kv="int8/int4", precision="float") as opened:
        answer = Answer()
        list(opened.complete("the", most=3, answer=answer))
        keys = opened.summary(answer)
    assert keys["kv"] == "int8/int4" and keys["precision"] == "w4a16" and keys["threads"] == 1
    assert keys["generated_tokens"] == 3 and keys["finish"] == "length"
    assert keys["ttft_ms"] > 0 and keys["decode_tok_s"] > 0 and keys["peak_memory_mb"] > 0


def test_limits(write_decoder: WriteDecoder, tmp_path: Path) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    with assistant(path, context=16, cores=(0,)) as opened:
        with pytest.raises(OptionError, match="exceed the context limit of 16: raise --context"):
            list(opened.complete("the cat", most=12))
        with pytest.raises(OptionError, match="the prompt is empty"):
            list(opened.complete("", most=2))
    with pytest.raises(OptionError, match="--precision w8a8 is not one that text is generated with"):
        assistant(path, precision="w8a8")
    with pytest.raises(PlanError):
        plan = tmp_path / "plan.json"
        plan.write_text("{}")
        assistant(plan)
