"""Speculated tokens change nothing but the time: lookup, a smaller model, sampling, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hetsched.app.generating import assistant
from hetsched.cli.commands import app
from hetsched.errors import OptionError
from hetsched.language.generation import Answer
from hetsched.language.sampling import Sampling
from hetsched.language.session import LanguageModel
from hetsched.language.speculation import DraftModel, Lookup

WriteDecoder = Callable[..., Path]
SMOLLM2 = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"


def answered(path: Path, prompt: str, most: int, **options: Any) -> Answer:
    answer = Answer()
    with assistant(path, context=256, cores=(0,), **options) as opened:
        tokens = list(opened.complete(prompt, most=most, answer=answer))
    assert [t.id for t in tokens] == answer.tokens and "".join(t.text for t in tokens) == answer.text
    assert answer.accepted <= answer.drafted and len(answer.steps_s) == len(answer.tokens) - 1
    return answer


def test_lookup_finds_the_latest_place() -> None:
    lookup = Lookup(3)
    assert lookup.propose([5, 6, 7, 8, 9, 5, 6], 9) == [7, 8, 9]
    assert lookup.propose([5, 6, 7, 5, 6, 8, 5, 6], 9) == [8, 5, 6]
    assert lookup.propose([1, 5, 6, 7, 2, 5, 6, 8, 1, 5, 6], 2) == [7, 2]  # three same tokens before two
    assert lookup.propose([5, 6, 7], 9) == lookup.propose([5], 9) == lookup.propose([5, 6, 5, 6, 7], 0) == []
    with pytest.raises(OptionError, match="--speculate 16 is out of range: use 0 to 15"):
        Lookup(16)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.3, seed=3), Sampling(repetition=1.2)])
def test_lookup_changes_no_token(write_decoder: WriteDecoder, sampling: Sampling) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    plain = answered(path, "the cat the cat the", 60, sampling=sampling)
    guessed = answered(path, "the cat the cat the", 60, sampling=sampling, speculate=4)
    assert guessed.tokens == plain.tokens and guessed.finish == plain.finish and not plain.drafted
    if sampling == Sampling():
        assert guessed.drafted >= guessed.accepted > 0
        assert guessed.summary()["acceptance"] == guessed.accepted / guessed.drafted
        assert sum(s == 0 for s in guessed.steps_s) == guessed.accepted


@pytest.mark.parametrize("kv", ["int8", "int8/int4"])
def test_caches_of_fewer_bits(write_decoder: WriteDecoder, kv: str) -> None:
    """Guesses that are taken back leave no trace in the newest tokens, which are kept in float16."""
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    plain = answered(path, "the cat the cat the", 120, kv=kv)
    guessed = answered(path, "the cat the cat the", 120, kv=kv, speculate=5)
    assert guessed.tokens == plain.tokens and guessed.drafted > 0


def test_a_model_that_guesses_itself_is_always_right(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    plain = answered(path, "the cat", 30)
    guessed = answered(path, "the cat", 30, speculate=3, draft=path)
    assert guessed.tokens == plain.tokens and guessed.accepted == guessed.drafted > 0


def test_a_coarser_model_guesses(write_decoder: WriteDecoder) -> None:
    path, coarse = write_decoder("llama", "Q8_0", vocabulary=True), write_decoder("llama", "Q4_1", vocabulary=True)
    plain = answered(path, "the cat", 40)
    guessed = answered(path, "the cat", 40, speculate=3, draft=coarse)
    assert guessed.tokens == plain.tokens and guessed.drafted > guessed.accepted > 0


def test_turns_with_speculation(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    texts = []
    for speculate in (0, 5):
        with assistant(path, context=256, cores=(0,), speculate=speculate) as opened:
            talk = opened.conversation("be kind")
            texts.append([[t.id for t in talk.say(said, most=20)] for said in ("the cat", "a hat?")])
            assert talk.answer.reused_tokens > 0
    assert texts[0] == texts[1]


def test_a_draft_follows_what_was_said(write_decoder: WriteDecoder) -> None:
    with LanguageModel(write_decoder(), context=32) as model:
        draft = DraftModel(model, 2)
        first = draft.propose([3, 4, 5], 9)
        assert len(first) == 2 and draft.propose([3, 4, 5], 1) == first[:1]
        draft.propose([9, 9, 9, 9], 2)
        assert draft.propose([3, 4, 5], 2) == first
        assert len(draft.propose(list(range(3, 34)), 9)) == 1 and draft.propose([1] * 32, 9) == []


def test_what_is_refused(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    with pytest.raises(OptionError, match="say how many with --speculate N"):
        assistant(path, draft=path)
    with pytest.raises(OptionError, match="--speculate 99 is out of range"):
        assistant(path, speculate=99)


def test_the_command_line_reports_acceptance(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    asked = ["run", str(path), "--prompt", "the cat the cat the", "--raw", "--generate", "40", "--context", "128", "--speculate", "4"]
    done = CliRunner().invoke(app, [*asked, "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["speculate"] == 4 and found["acceptance"] == found["accepted_tokens"] / found["drafted_tokens"]
    assert "guessed tokens were right" in CliRunner().invoke(app, asked).stdout
    plain = json.loads(CliRunner().invoke(app, [*asked[:-2], "--json"]).stdout)
    assert plain["token_ids"] == found["token_ids"] and plain["acceptance"] is None and plain["speculate"] == 0


@pytest.mark.real_models
@pytest.mark.skipif(not SMOLLM2.is_file(), reason=f"{SMOLLM2.name} is absent: run 'make models'")
def test_a_real_model_copies_its_prompt() -> None:
    prompt = (
        "<|im_start|>user\nWrite this again, word for word: one fish, two fish, red fish, blue fish.<|im_end|>\n<|im_start|>assistant\n"
        "one fish, two fish,"
    )
    plain, guessed = answered(SMOLLM2, prompt, 60), answered(SMOLLM2, prompt, 60, speculate=4)
    assert guessed.tokens == plain.tokens and guessed.accepted > 0
