"""Drawn steps of answers whose tokens are guessed, their stages, and inferences that follow each other as one."""

from __future__ import annotations

import pytest

from hetsched.acceptance import independent, tokens_per_step
from hetsched_simulations.guessing import Guessed, Guessing
from hetsched_simulations.jobs import JobLog, Part, Piece, Stage, stages_of
from hetsched_simulations.scripts import Conversation
from hetsched_simulations.workload import Command, Work, chained


def test_steps_make_exactly_the_answer() -> None:
    guessing = Guessing(independent(0.6, 4), seed=7, by_level={3: ((1.0,),)})
    steps = guessing.steps(1000)
    assert sum(s.accepted + 1 for s in steps) == 1000 and {s.guesses for s in steps[:-4]} == {4}
    assert len(steps) == pytest.approx(1000 / tokens_per_step(independent(0.6, 4)), rel=0.05)
    assert steps == guessing.steps(1000) and steps != guessing.steps(1000, number=1) and steps != Guessing(guessing.shares).steps(1000)
    assert guessing.steps(5, level=3) == [Guessed(0, 0)] * 5
    assert Guessing(independent(1.0, 4)).steps(7) == [Guessed(4, 4), Guessed(1, 1)]


def test_steps_of_a_bucket_come_together() -> None:
    steps = [Guessed(2, 0), Guessed(2, 2), Guessed(0, 0), Guessed(2, 2), Guessed(2, 0)]  # at 10, 11, 14, 15, 18
    assert stages_of(10, 9, 0, (16, 32), steps) == (
        Stage(Part("prefill", 32, 0)),
        Stage(Part("decode", 1, 8), 1, 1), Stage(Part("verify", 3, 8), 1, 1), Stage(Part("verify", 3, 8), 2, 3),
        Stage(Part("verify", 3, 24), 1, 1),
    )  # fmt: skip


def test_conversations_guess_turn_by_turn() -> None:
    talk = Conversation(2048, 64, 100, guessing=Guessing(independent(0.5, 3), 1))
    turns = [talk.next(float(k), 0) for k in range(2)]
    made = [sum(s.times * s.each for s in t.stages[1:]) for t in turns if t is not None]
    assert made == [100, 100] and turns[0] is not None and turns[1] is not None and turns[0].stages[1:] != turns[1].stages[1:]


def test_a_log_counts_tokens_not_steps() -> None:
    log = JobLog(pieces=[Piece(Part("verify", 3, 8), 0.0, 1.0, 2, 3), Piece(Part("decode", 1, 8), 1.0, 1.2, 1)])
    assert log.tokens == 7 and [p.tokens for p in log.pieces] == [6, 1]


def test_one_inference_after_another_as_one() -> None:
    work = (Work("op", "x", 1e-3),)
    first = (Command(0, 0, "a", work, (), None, 1e-3), Command(1, 1, "b", work, ((0, 2e-6),), 3e-6, 1e-3, 1))
    both = chained([first, first])
    assert [(c.index, c.queue, c.segment) for c in both] == [(0, 0, 0), (1, 1, 1), (2, 0, 2), (3, 1, 3)]
    assert [c.waits for c in both] == [(), ((0, 2e-6),), ((1, 3e-6),), ((2, 2e-6),)]
