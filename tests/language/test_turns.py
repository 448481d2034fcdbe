"""Threads take turns with a model; interrupts and ends in the middle of an answer leave nothing half done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hetsched.app.generating import assistant
from hetsched.errors import ExecutionError, OptionError
from hetsched.language.session import LanguageModel

WriteDecoder = Callable[..., Path]
PROMPTS = ("the cat", "he a the", "abc def", "a hat?")


def test_threads_that_share_a_model_take_turns(write_decoder: WriteDecoder) -> None:
    """Every answer is what it is alone, and all pages are free afterwards."""
    with assistant(write_decoder("llama", "Q8_0", vocabulary=True), context=128, cores=(0, 1), kv="int8", speculate=2) as opened:
        want = {p: [t.id for t in opened.complete(p, most=40)] for p in PROMPTS}
        got: dict[str, list[int]] = {}

        def ask(prompt: str) -> None:
            got[prompt] = [t.id for t in opened.complete(prompt, most=40)]

        threads = [threading.Thread(target=ask, args=(p,), daemon=True) for p in PROMPTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        pool = opened.model.pool
        assert got == want and pool.free == pool.capacity and len(pool.stored) == 0


def test_what_is_closed_computes_no_more(write_decoder: WriteDecoder) -> None:
    for cores in ((0,), (0, 1)):
        with assistant(write_decoder("llama", "Q8_0", vocabulary=True), context=64, cores=cores) as opened:
            tokens = opened.complete("the cat", most=20)
            next(tokens)
            opened.close()
            with pytest.raises(ExecutionError, match="what was closed computes no more"):
                list(tokens)
            assert opened.model.pool.free == opened.model.pool.capacity


def test_a_sequence_belongs_to_its_model(write_decoder: WriteDecoder) -> None:
    path = write_decoder()
    with LanguageModel(path, context=32) as one, LanguageModel(path, context=32) as other:
        with pytest.raises(OptionError, match="the sequence belongs to another model"):
            one.compute([1], other.sequence())
        for wrong in (-1, 60, 1 << 40):
            with pytest.raises(OptionError, match="is none of the model's 60"):
                one.compute([1, wrong], one.sequence())


def interrupted(opened: Any, at: int, where: tuple[str, ...]) -> bool:
    """Interrupt a turn at its ``at``-th line inside some functions; whether it came so far."""
    lines = 0

    def look(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_name not in where or "hetsched" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        if lines == at and event == "line":
            sys.settrace(None)
            raise KeyboardInterrupt
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        list(opened.say("he the cat a", most=3))
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize(("family", "cores", "kv"), [("llama", (0, 1), "fp16"), ("qwen3", (0,), "int8/int4"), ("mamba", (0,), "fp16")])
def test_an_interrupt_at_any_line_of_a_step_changes_no_later_answer(
    write_decoder: WriteDecoder, family: str, cores: tuple[int, ...], kv: str
) -> None:
    path = write_decoder(family, "Q8_0", vocabulary=True)
    with assistant(path, context=256, cores=cores, kv=kv) as opened:
        want = opened.conversation()
        answers = [[t.id for t in want.say(said, most=3)] for said in ("the cat", "he the cat a")]
        for at in range(2, 400, 2):
            talk = opened.conversation()
            assert [t.id for t in talk.say("the cat", most=3)] == answers[0]
            if not interrupted(talk, at, ("_run", "run", "_call", "use", "extend")):
                break
            assert [t.id for t in talk.say("he the cat a", most=3)] == answers[1]
        assert at > 20


def test_an_answer_that_is_left_early_goes_on(write_decoder: WriteDecoder) -> None:
    """Answers that nobody reads to the end: the next answer is that of a new conversation."""
    with assistant(write_decoder("llama", "Q8_0", vocabulary=True), context=128, speculate=4) as opened:
        want = [t.id for t in opened.conversation().say("the cat", most=20)]
        talk = opened.conversation()
        for read in (1, 2, 7):
            tokens = talk.say("the cat", most=20)
            for _ in range(read):
                next(tokens)
            del tokens  # which ends it
            assert talk.messages == []
        assert [t.id for t in talk.say("the cat", most=20)] == want


def test_what_a_lower_level_computed_is_not_taken_over_at_the_own_precision(write_decoder: WriteDecoder) -> None:
    with assistant(write_decoder("llama", "Q4_1", vocabulary=True), context=256) as opened:
        plain = opened.conversation("be kind")
        want = [t.id for t in plain.say("the cat", most=12)]
        plain.table.cut(0)
        opened.work_at("critical")
        first, second = opened.conversation("be kind"), opened.conversation("be kind")
        for talk in (first, second):
            list(talk.say("the cat", most=12))
        assert not first.table.exact and second.answer.reused_tokens > 0  # at the same level they share
        opened.work_at("normal")
        talk = opened.conversation("be kind")
        assert [t.id for t in talk.say("the cat", most=12)] == want and talk.answer.reused_tokens == 0
