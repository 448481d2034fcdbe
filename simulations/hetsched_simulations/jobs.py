"""What a phone is asked to do: jobs, one after another, and what became of them.

A job is an inference, or a turn of a conversation: stages, each so many repetitions of one part (the prefill, then decode steps at
growing contexts). A *part* is what is simulated op by op once a state: a phase, how many tokens it computes, and the context
that it is priced for. A *script* says which job comes next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from hetsched.costs import FloatArray
from hetsched_simulations.guessing import Guessed
from hetsched_simulations.workload import Command


class Part(NamedTuple):
    """``past`` are the tokens before that it is priced for.

    ``phase`` is ``inference``, ``prefill``, ``decode`` or ``verify``: guesses are made and verified, with a row more than there are.
    """

    phase: str = "inference"
    tokens: int = 1
    past: int = 0
    rested_s: float = 0.0
    """How long the queues have rested before (multi-rate runs tell first repetitions after a pause from the others)."""


#: Phases that make tokens of an answer.
ANSWERING = ("decode", "verify")
#: The commands of a part at a throttle level.
Parts = Callable[[int, Part], tuple[Command, ...]]


class Stage(NamedTuple):
    """So many repetitions of a part, each of which makes so many tokens of an answer."""

    part: Part
    times: int = 1
    each: int = 1


class Job(NamedTuple):
    """One job; ``past`` tokens are in the cache when a turn begins, ``prompt`` more are read and ``generate`` more are made."""

    arrived_s: float
    stages: tuple[Stage, ...] = (Stage(Part()),)
    prompt: int = 0
    generate: int = 0
    past: int = 0


class Script(Protocol):
    """Which job comes next. Scripts are small: multi-rate runs copy them (``copy.copy``) to look ahead."""

    dropped: int
    """Jobs that came while another was at work, and were not kept."""

    def next(self, now_s: float, level: int) -> Job | None:
        """The next job, once the last one has ended at ``now_s``; it may arrive later. None: there are no more."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Jobs:
    """What a run is about, where it is not one inference after another: which jobs come, and what their parts are."""

    script: Script
    parts: Parts
    deadline_s: float | None = None
    """From arrival to end; later ends are marked in the trace."""
    batch: int = 1
    """Answers that are made side by side: each decode step makes so many tokens."""
    level: int = 0
    """The throttle level that runs unless a policy wants another."""


class Done(NamedTuple):
    """A job that has ended; ``first_s`` is the end of its first stage (of a turn: its first token), all in seconds of the run."""

    job: Job
    began_s: float
    first_s: float
    ended_s: float
    level: int

    @property
    def latency_s(self) -> float:
        """From arrival to end."""
        return self.ended_s - self.job.arrived_s

    def late(self, deadline_s: float) -> bool:
        """Whether it ended after its deadline, counted from arrival."""
        return self.latency_s > deadline_s * (1 + 1e-9)


class Piece(NamedTuple):
    """Repetitions of a part, all as long; each makes so many tokens."""

    part: Part
    start_s: float
    end_s: float
    times: int
    each: int = 1

    @property
    def tokens(self) -> int:
        """Tokens that they make."""
        return self.times * self.each


@dataclass(slots=True)
class JobLog:
    """What became of the jobs of a run."""

    done: list[Done] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    """Of turns only: decode steps, in order."""
    dropped: int = 0

    @property
    def tokens(self) -> int:
        """Tokens generated, those of a turn cut off by the end of the run among them."""
        return sum(p.tokens for p in self.pieces)

    def latencies_s(self) -> FloatArray:
        """Of every decode step or, of jobs of one stage, from arrival to end."""
        if not self.pieces:
            return np.array([d.latency_s for d in self.done])
        return np.repeat([(p.end_s - p.start_s) / p.times for p in self.pieces], [p.times for p in self.pieces])

    def points(self) -> list[tuple[float, float]]:
        """When those ended, and the latency."""
        if not self.pieces:
            return [(d.ended_s, d.latency_s) for d in self.done]
        return [(p.end_s, (p.end_s - p.start_s) / p.times) for p in self.pieces]

    def late(self, deadline_s: float) -> int:
        """How many jobs ended after their deadline."""
        return sum(d.late(deadline_s) for d in self.done)


def stages_of(
    prompt: int, generate: int, past: int, widths: Sequence[int], steps: Sequence[Guessed] | None = None
) -> tuple[Stage, ...]:  # fmt: skip
    """The stages of a turn: its prefill, and decode steps by buckets of context.

    Args:
        prompt: tokens read; the prefill is priced for as many, up to the next multiple of :data:`PADDED`.
        generate: tokens made.
        past: tokens in the cache before.
        widths: upper ends of the buckets, ascending; each is priced for its middle.
        steps: the steps of the answer where tokens are guessed: how many guesses each has, and how many of them are accepted. Those of a
            bucket that do the same come together.
    """
    stages = [Stage(Part("prefill", _padded(prompt), _middle(past, widths) if past else 0))]
    at, end = past + prompt, past + prompt + generate
    if steps is not None:
        return (*stages, *_guessed_stages(at, widths, steps))
    for upper in (*(w for w in widths if w < end), end):
        if upper > at:
            stages.append(Stage(Part("decode", 1, _middle(at, widths)), upper - at))
            at = upper
    return tuple(stages)


def _guessed_stages(at: int, widths: Sequence[int], steps: Sequence[Guessed]) -> list[Stage]:
    alike = Counter[tuple[int, Guessed]]()
    for step in steps:
        alike[_middle(at, widths), step] += 1
        at += step.accepted + 1
    return [
        Stage(Part("verify" if step.guesses else "decode", step.guesses + 1, middle), times, step.accepted + 1)
        for (middle, step), times in sorted(alike.items())
    ]


PADDED = 32
"""Prompts are padded to multiples of this, as runtimes with compiled shapes do, so that few lengths are priced."""


def _padded(tokens: int) -> int:
    return -(-tokens // PADDED) * PADDED


def _middle(past: int, widths: Sequence[int]) -> int:
    """The context that stands for the bucket of ``past``."""
    lower = 0
    for upper in widths:
        if past < upper:
            return (lower + upper) // 2
        lower = upper
    return past


def middles(window: int) -> tuple[int, ...]:
    """All contexts that parts of a conversation in a window are priced for, but 0; ascending."""
    upper = buckets(window)
    return tuple((a + b) // 2 for a, b in zip((0, *upper), upper, strict=False))


def buckets(window: int, most: int = 8, least: int = 512) -> tuple[int, ...]:
    """Upper ends of at most ``most`` equal buckets of a window, each a multiple of ``least`` tokens but the last."""
    width = max(least, -(-window // most // least) * least)
    return (*range(width, window, width), window)
