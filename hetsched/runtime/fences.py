"""Fences between queues: a flag per segment, signalled once an iteration, waited for by spinning and then by blocking.

A flag holds the number of the last iteration (*epoch*) that its segment finished, so it never has to be reset. Work that a vendor's
runtime does elsewhere ends with a :class:`Completion`, whatever tells of it: a callback of the runtime, a queue of a device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError
from hetsched.runtime.code import Code, compiled
from hetsched.spinning import SPIN_LIMIT_S

#: A blocked waiter looks at the abort flag and the deadline this often.
_POLL_S = 0.1
#: int64 flags are one cache line apart, so that two queues never write to the same line.
_STRIDE = 8


_PAUSES = 1000


def _spins(pause: Callable[[int], None]) -> int:
    """How many spins fit in :data:`~hetsched.spinning.SPIN_LIMIT_S` on this machine; only how long a waiter spins depends on it."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        pause(_PAUSES)
        best = min(best, time.perf_counter() - start)
    return max(1, round(SPIN_LIMIT_S / best * _PAUSES))


class AbortedError(ExecutionError):
    """Another queue failed; this one stops."""


class Completion:
    """The end of one piece of work that is done elsewhere: set once, from any thread."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._error: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether the work has ended, well or not."""
        return self._ended.is_set()

    def done(self, error: BaseException | None = None) -> None:
        """Say that the work has ended, and with which error, if it failed."""
        self._error = error
        self._ended.set()

    def wait(self, check: Callable[[], None]) -> None:
        """Return once the work has ended.

        Args:
            check: raises when there is no more reason to wait (:attr:`hetsched.runtime.delegates.base.Ticket.check`).

        Raises:
            BaseException: what the work failed with, or what ``check`` raised.
        """
        self.settle(check)
        if self._error is not None:
            raise self._error

    def settle(self, check: Callable[[], None]) -> None:
        """Return once the work has ended, however it did: what has been given up must be over before its memory is used again."""
        while not self._ended.wait(_POLL_S):
            check()


class FenceBoard:
    """The flags of one plan's segments, the abort flag and the deadline."""

    def __init__(self, segments: int, code: Code | None = None) -> None:
        code = code or compiled()
        self._signal, self._spin = code.signal, code.wait_ge
        self.spins = _spins(code.pause)
        self.flags: npt.NDArray[np.int64] = np.zeros(max(segments, 1) * _STRIDE, np.int64)
        self._changed = threading.Condition()
        self._blocked = 0
        #: What compiled code looks at: not 0 while the run is being given up.
        self.stop: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        #: Called when the run is given up, to stop what runs in a vendor's runtime.
        self.stoppers: list[Callable[[], None]] = []
        self.aborted = False
        self.deadline = float("inf")

    def reset(self, deadline: float) -> None:
        """Clear the abort flag and set the deadline (``time.monotonic`` seconds). Only while no worker runs."""
        self.aborted = False
        self.stop[0] = 0
        self.deadline = deadline

    def signal(self, segment: int, epoch: int) -> None:
        """Say that ``segment`` has finished iteration ``epoch``; its writes are visible to whoever sees the flag."""
        self._signal(self.flags, segment * _STRIDE, epoch)
        # A waiter counts itself before it looks at the flag, and we look at the count after setting it: one of us sees the other.
        if self._blocked:
            with self._changed:
                self._changed.notify_all()

    def abort(self) -> None:
        """Make every present and future wait end with :class:`AbortedError` until :meth:`reset`."""
        self.aborted = True
        self.stop[0] = 1
        for stop in self.stoppers:
            stop()
        with self._changed:
            self._changed.notify_all()

    def wait(self, segment: int, epoch: int, mode: Literal["spin", "block"]) -> None:
        """Return once ``segment`` has finished iteration ``epoch``.

        Raises:
            AbortedError: another queue failed.
            ExecutionError: the deadline passed.
        """
        index = segment * _STRIDE
        if self.flags[index] >= epoch or (mode == "spin" and self._spin(self.flags, index, epoch, self.spins)):
            return
        with self._changed:
            self._blocked += 1
            try:
                while self.flags[index] < epoch:
                    self.check(f"waiting for segment {segment}")
                    self._changed.wait(_POLL_S)
            finally:
                self._blocked -= 1

    def check(self, doing: str) -> None:
        """Raise if the run was aborted or its time is up; ``doing`` says what the caller was at."""
        if self.aborted:
            raise AbortedError("another queue failed")
        if time.monotonic() > self.deadline:
            raise ExecutionError(
                f"the run took longer than its time limit while {doing}: raise --timeout (timeout_s), or look for a stuck kernel"
            )
