"""What the steps of generating text did when: spans of a :class:`hetsched.trace.Trace`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.runtime.timeline import HOST
from hetsched.trace import Span, Trace
from hetsched.trace.turns import Turn

_NS = 1e-9


class Recorder:
    """Collects the spans of a model's steps.

    Attributes:
        trace: what they are added to; time zero is when the recorder was made.
    """

    def __init__(self, trace: Trace, queue: str, origin_ns: int, predicted_s: Mapping[str, float] | None = None) -> None:
        """Prepare for steps.

        Args:
            trace: what spans are added to.
            queue: the queue that computes.
            origin_ns: time zero, on the clock of ``time.perf_counter_ns``.
            predicted_s: how long a step of the kind ``prefill`` (a whole prompt) or ``decode`` was said to take.
        """
        self.trace, self._queue, self._origin, self._predicted = trace, queue, origin_ns, predicted_s or {}
        self._steps = self._turns = 0
        self._chosen_s: float | None = None
        trace.queues = tuple(dict.fromkeys((*trace.queues, queue, HOST)))

    @staticmethod
    def stamps(steps: int) -> npt.NDArray[np.int64]:
        """Where a program of so many steps writes when each was done."""
        return np.zeros(steps, np.int64)

    def step(self, labels: Sequence[str], rows: int, position: int, begin_ns: int, stamps: npt.NDArray[np.int64]) -> None:
        """Add one run of a program.

        Args:
            labels: what each of the program's steps computes.
            rows: new tokens.
            position: position of the first.
            begin_ns: when it began.
            stamps: when each step was done.
        """
        kind = "decode" if rows == 1 else "prefill" if position == 0 else "several"
        name = f"token {position}" if rows == 1 else f"tokens {position} to {position + rows - 1}"
        end = int(stamps.max(initial=begin_ns))
        self._add("segment", name, begin_ns, end, self._predicted.get(kind))
        previous = begin_ns
        for label, at in zip(labels, stamps.tolist(), strict=True):
            self._add("op", label, previous, at)
            previous = at
        self._steps += 1

    def chosen(self, begin_ns: int, end_ns: int, tokens: int) -> None:
        """Add the choice of the tokens that the last step gave."""
        begin, end = self._seconds(begin_ns), self._seconds(end_ns)
        self.trace.spans.append(Span(HOST, "op", "choose", begin, end, iteration=self._steps - 1))
        if self._chosen_s is not None:
            self.trace.counter("rate/tokens", "1/s").sample(end, tokens / (end - self._chosen_s))
        self._chosen_s = end

    def turn(self, past: int, prompt: int, generated: int, first_s: float, later_s: float) -> None:
        """Add a whole answer that has just ended.

        Args:
            past: tokens of the prompt that were in the cache already.
            prompt: tokens of the whole prompt.
            generated: tokens of the answer.
            first_s: from the prompt to the first of them, in seconds.
            later_s: from there to the last.
        """
        began = self._seconds(time.perf_counter_ns()) - first_s - later_s
        rate = (generated - 1) / later_s if later_s else 0.0
        self.trace.instants.append(Turn(self._turns, max(began, 0.0), past, prompt - past, generated - 1, first_s, rate).instant())
        self._turns, self._chosen_s = self._turns + 1, None

    def _add(self, kind: Any, name: str, begin_ns: int, end_ns: int, predicted_s: float | None = None) -> None:
        self.trace.spans.append(Span(self._queue, kind, name, self._seconds(begin_ns), self._seconds(end_ns), -1, self._steps, predicted_s))

    def _seconds(self, stamp_ns: int) -> float:
        return (stamp_ns - self._origin) * _NS
