"""Segments as compiled programs, and how they run. Nothing here imports numba or lowers anything: stored executables run so, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError
from hetsched.runtime.delegates.base import Ticket
from hetsched.runtime.fences import AbortedError
from hetsched.runtime.team import Team
from hetsched_kernels.tables import refused

#: A Python function and its prepared arguments, called as ``function(*args)``.
PythonStep: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]
#: Steps of the compiled program, ``[begin, end)``, or a Python step between them.
Part: TypeAlias = tuple[int, int] | PythonStep


class RefusedError(ExecutionError):
    """A kernel refused what it was given; the message names the node."""


@dataclass(slots=True)
class ProgramSegment:
    """A segment as a compiled program.

    ``parts`` holds what each op runs; ``ends`` how many steps are done after each op; ``native`` says that no op has a Python
    step. ``spared`` are ops whose result the next one computes as well: they run only for an observer. ``kept`` are arrays that
    kernels know by address only; they must live as long as the segment. ``again`` gives the steps of an op in float32, none where
    that is how it runs anyway. ``refusals`` says what it means when the kernel of a call refuses what it was given.
    """

    stamped: tuple[str, ...]
    labels: tuple[str, ...]
    parts: tuple[tuple[Part, ...], ...]
    ends: npt.NDArray[np.int64]
    native: bool
    program: Any
    shared: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    team: Team
    kept: tuple[Any, ...]
    spared: frozenset[int]
    again: Callable[[int], tuple[Any, ...]]
    refusals: Mapping[int, str]
    turn: int = 0
    stamps: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def run(self, begin: int, end: int) -> None:
        """Run steps of the program on the queue's threads.

        Raises:
            AbortedError: the run was given up meanwhile.
            RefusedError: a kernel refused what it was given.
        """
        if begin < end:
            self.team.run(self.program.table, self.program.steps, self.shared, self.stop, self.stamps, begin, end, self.turn)
            if (call := refused(self.shared)) is not None:
                raise RefusedError(f"node {self._label_of(call)} failed while running: {self.refusals[call]}")
            if self.stop[0]:
                raise AbortedError("the run was given up")

    def _label_of(self, call: int) -> str:
        step = int(np.searchsorted(self.program.steps, call, side="right")) - 1
        return self.labels[int(np.searchsorted(self.ends, step, side="right"))]

    def forget(self) -> None:
        """After a run that was not whole: count anew, elsewhere, since another thread may still look at the counters."""
        self.shared, self.turn = np.zeros_like(self.shared), 0


def submit(compiled: ProgramSegment, ticket: Ticket) -> None:
    """Run a segment once: wait, run its kernels one after another, signal."""
    ticket.wait()
    start = time.perf_counter_ns()
    ticket.stamps.append(start)
    try:
        if compiled.native and ticket.observe is None and ticket.suspect is None:
            compiled.run(0, len(compiled.stamps))
            ticket.stamps.extend(np.concatenate([[start], compiled.stamps])[compiled.ends].tolist())
        else:
            _one_by_one(compiled, ticket)
    except BaseException:
        compiled.forget()
        raise
    compiled.turn += 1
    ticket.signal()


def _guard(compiled: ProgramSegment, position: int, ticket: Ticket) -> None:
    """Compute an op again in float32 whose result is not finite, where it ran otherwise, and say so."""
    steps, label = compiled.again(position), compiled.labels[position]
    run_calls(*steps)
    done = "was computed again in float32" if steps else "has no higher precision to be computed in"
    ticket.notes.append(f"node {label} gave infinities or values that are no numbers, from finite inputs, and {done}")


def run_calls(*steps: Any) -> None:
    """Run steps from Python."""
    for step in steps:
        for call in step:
            call.run()


def _one_by_one(compiled: ProgramSegment, ticket: Ticket) -> None:
    """Run op after op, where Python has something to do between them."""
    position = 0
    try:
        for position, parts in enumerate(compiled.parts):
            watched = ticket.observe is not None or ticket.suspect is not None
            for first, second in parts if watched or position not in compiled.spared else ():
                if isinstance(first, int):
                    compiled.run(first, second)  # type: ignore[arg-type]
                else:
                    first(*second)  # type: ignore[misc]
            if ticket.suspect is not None and ticket.suspect(compiled.stamped[position]):
                _guard(compiled, position, ticket)
            ticket.stamps.append(time.perf_counter_ns())
            if ticket.observe is not None:
                ticket.observe(compiled.stamped[position])
    except (AbortedError, RefusedError):
        raise
    except Exception as e:
        raise ExecutionError(f"node {compiled.labels[position]} failed while running: {type(e).__name__}: {e}") from e
