"""The trace of generated text: a segment a step, its operators inside, the choice of tokens between, a turn an answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from hetsched.app.generating import assistant
from hetsched.language.generation import Answer
from hetsched.trace.files import read, write
from hetsched.trace.turns import turns

WriteDecoder = Callable[..., Path]


def test_every_step_is_in_the_trace(write_decoder: WriteDecoder, tmp_path: Path) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    answer = Answer()
    with assistant(path, context=64, cores=(0,)) as opened:
        plain = [t.id for t in opened.complete("the cat", most=6)]
        trace = opened.record()
        assert [t.id for t in opened.complete("the cat", most=6, answer=answer)] == plain
    segments = [s for s in trace.spans if s.kind == "segment"]
    assert trace.origin == "measured" and trace.queues == ("cpu:0", "host") and len(segments) == len(answer.tokens)
    assert segments[0].name == f"tokens 0 to {answer.prompt_tokens - 1}" and segments[1].name == f"token {answer.prompt_tokens}"
    for number, segment in enumerate(segments):
        inside = [s for s in trace.spans if s.kind == "op" and s.queue == "cpu:0" and s.iteration == number]
        assert inside and inside[0].start_s == segment.start_s and inside[-1].end_s == segment.end_s
        assert all(a.end_s == b.start_s for a, b in pairwise(inside))
        (chosen,) = (s for s in trace.spans if s.name == "choose" and s.iteration == number)
        assert chosen.start_s >= segment.end_s and (number + 1 == len(segments) or chosen.end_s <= segments[number + 1].start_s)
    names = {s.name for s in trace.spans}
    assert {"blk.0.attn_norm", "blk.0.attention", "blk.1.ffn_down"} <= names
    (turn,) = turns(trace.instants)
    assert (turn.past, turn.prompt, turn.generate) == (0, answer.prompt_tokens, len(answer.tokens) - 1)
    write(trace, tmp_path / "said.pftrace")
    assert [s.name for s in read(tmp_path / "said.pftrace").spans if s.kind == "segment"] == [s.name for s in segments]


def test_guesses_of_a_smaller_model_have_a_queue_of_their_own(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    with assistant(path, context=64, cores=(0,), speculate=3, draft=path) as opened:
        trace = opened.record()
        list(opened.complete("the cat", most=8))
    assert trace.queues == ("cpu:0", "host", "cpu:0 drafts")
    assert {s.queue for s in trace.spans if s.kind == "segment"} == {"cpu:0", "cpu:0 drafts"}
