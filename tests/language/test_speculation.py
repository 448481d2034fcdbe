"""Speculated tokens change nothing but the time: lookup, a smaller model, sampling, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hetsched
from hetsched.acceptance import Acceptance, accepted_share, tokens_per_step
from hetsched.app.generating import assistant
from hetsched.cli.commands import app
from hetsched.errors import OptionError
from hetsched.language.generation import Answer
from hetsched.language.sampling import Sampling
from hetsched.language.session import LanguageModel
from hetsched.language.speculation import DraftModel, EarlyDraft, Lookup

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


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.3, seed=3), Sampling(repetition=1.2)])
def test_early_layers_change_no_token(write_decoder: WriteDecoder, sampling: Sampling) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    plain = answered(path, "the cat the cat the", 60, sampling=sampling)
    guessed = answered(path, "the cat the cat the", 60, sampling=sampling, speculate=4, draft_layers=1)
    assert guessed.tokens == plain.tokens and guessed.finish == plain.finish
    assert guessed.drafted > guessed.accepted and sum(1 + k for _, k in guessed.guessed) == len(guessed.tokens) - 1


@pytest.mark.parametrize("family", ["gemma3", "phi2", "qwen2"])
@pytest.mark.parametrize("kv", ["fp16", "int8/int4"])
def test_early_layers_of_other_families(write_decoder: WriteDecoder, family: str, kv: str) -> None:
    """Across pages, and beside a cache of fewer bits with the newest tokens in float16."""
    path = write_decoder(family, "Q8_0", vocabulary=True)
    plain, guessed = answered(path, "the cat", 140, kv=kv), answered(path, "the cat", 140, kv=kv, speculate=15, draft_layers=1)
    assert guessed.tokens == plain.tokens and guessed.drafted > 0


def test_early_layers_take_no_second_copy_of_weights_and_leave_no_trace(write_decoder: WriteDecoder) -> None:
    with LanguageModel(write_decoder(), context=96) as model:
        table, ids = model.sequence(), [7, 3, 9, 4]
        model.compute(ids, table)
        weights, pages = model.weight_bytes, list(table.pages)
        guesses = EarlyDraft(model, 1, 5).propose([*ids, 8], 3, table)
        assert len(guesses) == 3 and model.weight_bytes == weights
        assert (table.length, table.tokens, table.pages) == (4, ids, pages)
        after = model.compute([8], table)[0].copy()
    with LanguageModel(write_decoder(), context=96) as model:
        table = model.sequence()
        model.compute(ids, table)
        assert (model.compute([8], table)[0] == after).all()


def test_turns_with_early_layers(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    texts = []
    for speculate, layers in ((0, None), (3, 1)):
        with assistant(path, context=256, cores=(0,), speculate=speculate, draft_layers=layers) as opened:
            talk = opened.conversation("be kind")
            texts.append([[t.id for t in talk.say(said, most=20)] for said in ("the cat", "a hat?")])
    assert texts[0] == texts[1]


def test_what_early_layers_refuse(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    with pytest.raises(OptionError, match=r"--draft-layers 99: the model '.*' has \d layers of attention: use 1 to"):
        assistant(path, speculate=2, draft_layers=99)
    with pytest.raises(OptionError, match="--draft-layers 1 guesses no token: say how many with --speculate N"):
        assistant(path, draft_layers=1)
    with pytest.raises(OptionError, match="both guess: leave one out"):
        assistant(path, speculate=2, draft=path, draft_layers=1)


def test_accepted_guesses_are_counted_in_a_file(write_decoder: WriteDecoder, tmp_path: Path) -> None:
    path, file = write_decoder("llama", "Q8_0", vocabulary=True), tmp_path / "acc.json"
    asked = ["run", str(path), "--prompt", "the cat the", "--raw", "--generate", "30", "--context", "128", "--speculate", "2"]
    asked += ["--draft-layers", "1", "--save-acceptance", str(file), "--json"]
    found = json.loads(CliRunner().invoke(app, asked).stdout)
    once = Acceptance.from_file(file)
    assert once.guesser == "layers:1" and once.length == 2 and found["drafter"] == "layers"
    assert sum(map(sum, once.steps)) * found["tokens_per_step"] == pytest.approx(found["generated_tokens"] - 1)
    assert tokens_per_step(once.shares) == pytest.approx(found["tokens_per_step"])
    assert accepted_share(once.shares) == pytest.approx(found["acceptance"])
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert Acceptance.from_file(file).steps == tuple(tuple(2 * n for n in row) for row in once.steps)
    refused = CliRunner().invoke(app, [*asked[:10], "3", *asked[11:]])
    assert isinstance(refused.exception, OptionError) and "choose another file with --save-acceptance" in str(refused.exception)
    refused = CliRunner().invoke(app, [*asked[:9], "--save-acceptance", str(file)])
    assert isinstance(refused.exception, OptionError) and "say how many with --speculate N" in str(refused.exception)


def test_a_plan_says_who_guesses(write_decoder: WriteDecoder, tmp_path: Path) -> None:
    """Unless an option of guesses says otherwise; the rate that stands beside is the one with the plan's guesses."""
    path, file = write_decoder("llama", "Q8_0", vocabulary=True), tmp_path / "acc.json"
    options: dict[str, Any] = {"prompt": 8, "generate": 24, "solver": "heft", "simulated": False}
    found = hetsched.plan(path, "host", **options, speculate=3, acceptance=0.5, draft_layers=1)
    plan, said = found.save(tmp_path / "p.json"), found.summary()
    asked = ["run", str(plan), "--prompt", "the cat", "--raw", "--generate", "8", "--json"]
    taken = json.loads(CliRunner().invoke(app, [*asked, "--save-acceptance", str(file)]).stdout)
    assert (taken["speculate"], taken["drafter"], Acceptance.from_file(file).guesser) == (3, "layers", "layers:1")
    assert taken["predicted_decode_tok_s"] == said["speculation"]["decode_tok_s"]
    for given, expected in ((["--speculate", "0"], (0, None)), (["--speculate", "2"], (2, "lookup"))):
        other = json.loads(CliRunner().invoke(app, [*asked, *given]).stdout)
        assert (other["speculate"], other["drafter"]) == expected and other["predicted_decode_tok_s"] == said["decode_tok_s"]
    plain = hetsched.plan(path, "host", **options).save(tmp_path / "plain.json")
    for target in (plain, path):
        refused = CliRunner().invoke(app, ["run", str(target), *asked[2:], "--save-acceptance", str(file)])
        assert isinstance(refused.exception, OptionError) and "say how many with --speculate N" in str(refused.exception)


@pytest.mark.real_models
@pytest.mark.skipif(not SMOLLM2.is_file(), reason=f"{SMOLLM2.name} is absent: run 'make models'")
def test_early_layers_of_a_real_model() -> None:
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    plain, guessed = answered(SMOLLM2, prompt, 30), answered(SMOLLM2, prompt, 30, speculate=3, draft_layers=24)
    assert guessed.tokens == plain.tokens and guessed.accepted > 0
