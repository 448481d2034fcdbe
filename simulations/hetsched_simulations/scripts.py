"""Scripts: closed loops with time to think, open arrivals (periodic, at random, from a list), conversations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hetsched_simulations.flow import SOON_S
from hetsched_simulations.guessing import Guessing
from hetsched_simulations.jobs import Job, buckets, stages_of


@dataclass(slots=True)
class Loop:
    """An inference ``think_s`` after the end of the last one."""

    think_s: float = 0.0
    dropped: int = 0
    _begun: bool = field(default=False, repr=False)

    def next(self, now_s: float, level: int) -> Job:
        """The first at once, the others after a thought."""
        arrived, self._begun = now_s + (self.think_s if self._begun else 0.0), True
        return Job(arrived)


@dataclass(slots=True)
class Arrivals:
    """Inferences that arrive at given times (ascending seconds), whatever happens; ``queue``: those that come during another wait."""

    times_s: Sequence[float]
    queue: bool = False
    dropped: int = 0
    _at: int = field(default=0, repr=False)

    def next(self, now_s: float, level: int) -> Job | None:
        """The next in line, or the next to arrive."""
        while not self.queue and self._at < len(self.times_s) and self.times_s[self._at] < now_s - SOON_S:
            self._at += 1
            self.dropped += 1
        if self._at == len(self.times_s):
            return None
        self._at += 1
        return Job(self.times_s[self._at - 1])


class Said(NamedTuple):
    """A turn that is asked for at a time; ``past`` None: it goes on where the last one ended."""

    time_s: float
    prompt: int
    generate: int
    past: int | None = None


@dataclass(slots=True)
class Conversation:
    """Turns of a conversation. When the next one would not fit into the window, or after ``turns``, a new conversation begins.

    ``windows``: shorter ones of deeper throttle levels. ``said``: turns at given times, in place of a loop with time to think; one
    that comes during another waits for it. ``guessing``: tokens of the answers are guessed.
    """

    window: int
    prompt: int = 0
    generate: int = 0
    think_s: float = 0.0
    turns: int | None = None
    windows: Mapping[int, int] = field(default_factory=dict)
    said: Sequence[Said] | None = None
    guessing: Guessing | None = None
    dropped: int = 0
    _past: int = field(default=0, repr=False)
    _turn: int = field(default=0, repr=False)
    _at: int = field(default=0, repr=False)

    def next(self, now_s: float, level: int) -> Job | None:
        """The next turn; one that is longer than the window of its level is answered as far as fits."""
        if self.said is None:
            ask = Said(now_s + (self.think_s if self._at else 0.0), self.prompt, self.generate)
        elif self._at < len(self.said):
            ask = self.said[self._at]
        else:
            return None
        window = min(self.windows.get(level, self.window), self.window)
        prompt = min(ask.prompt, window - 1)
        past = self._past if ask.past is None else ask.past
        if past + prompt + ask.generate > window or self._turn == self.turns:
            past, self._turn = 0, 0
        generate = min(ask.generate, window - prompt)
        steps = None if self.guessing is None else self.guessing.steps(generate, self._at, level)
        self._at, self._turn, self._past = self._at + 1, self._turn + 1, past + prompt + generate
        return Job(ask.time_s, stages_of(prompt, generate, past, buckets(self.window), steps), prompt, generate, past)


def periodic(period_s: float, duration_s: float) -> list[float]:
    """Arrivals at 0, one period, two periods, ... before ``duration_s``."""
    count = math.ceil(duration_s / period_s - SOON_S)
    return [k * period_s for k in range(count)]


def poisson(period_s: float, duration_s: float, seed: int) -> list[float]:
    """Arrivals at random, ``period_s`` apart on average (exponential distances), before ``duration_s``."""
    draw, out, last = np.random.default_rng(seed), list[float](), 0.0
    while last < duration_s:
        times = last + np.cumsum(draw.exponential(period_s, 1024))
        out += times[times < duration_s].tolist()
        last = float(times[-1])
    return out
