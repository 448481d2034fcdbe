"""Workers: one pinned thread per queue that runs the queue's segments in order, once per iteration."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from hetsched.runtime.affinity import pin
from hetsched.runtime.delegates.base import Delegate, Ticket
from hetsched.runtime.failures import failure
from hetsched.runtime.fences import AbortedError, FenceBoard


class Awaited(Protocol):
    """A fence: the segment that signals it, and how it is waited for."""

    @property
    def signal(self) -> int:
        """The segment."""
        ...

    @property
    def mode(self) -> Literal["spin", "block"]:
        """Spin a while, or block at once."""
        ...


class Inspector(Protocol):
    """What looks at a segment's inputs and outputs (:class:`hetsched.runtime.finite.Inspection`)."""

    def before(self, segment: int) -> None:
        """Once its inputs are there."""
        ...

    def after(self, segment: int) -> None:
        """Once its outputs are; an error from here is the segment's."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A compiled segment, the delegate that runs it and the fences it waits for."""

    index: int
    delegate: Delegate
    compiled: Any
    waits: tuple[Awaited, ...]


class Gate:
    """Where workers wait for the next iteration and the host waits for them."""

    def __init__(self, workers: int) -> None:
        self._changed = threading.Condition()
        self._workers = workers
        self.epoch = 0
        self._finished = workers
        self.closed = False

    def open(self) -> int:
        """Release the workers into the next iteration; returns its number."""
        with self._changed:
            self.epoch += 1
            self._finished = 0
            self._changed.notify_all()
            return self.epoch

    def close(self) -> None:
        """Tell the workers to end."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def enter(self, seen: int) -> int | None:
        """Wait for an iteration after ``seen``; None when closed."""
        with self._changed:
            while self.epoch == seen and not self.closed:
                self._changed.wait()
            return None if self.closed else self.epoch

    def leave(self) -> None:
        """Say that the calling worker has finished the iteration."""
        with self._changed:
            self._finished += 1
            if self._finished == self._workers:
                self._changed.notify_all()

    def join(self, timeout_s: float | None) -> bool:
        """Wait until every worker has finished the iteration; False if ``timeout_s`` passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._finished == self._workers, timeout_s)


class Worker(threading.Thread):
    """The thread of one queue.

    After an iteration, ``stamps`` holds for each job: the time before its wait, the delegate's stamps (after the wait, then
    after each timed part) and the time after its signal, all in ``time.perf_counter_ns``; ``copies`` holds the bytes of each
    copy to or from a runtime's own memory.
    """

    def __init__(self, queue: str, jobs: tuple[Job, ...], board: FenceBoard, gate: Gate) -> None:
        super().__init__(name=f"hetsched {queue}", daemon=True)
        self.queue = queue
        self.jobs = jobs
        self.stamps: list[int] = []
        self.failure: BaseException | None = None
        self.observe: Callable[[str], None] | None = None
        self.suspect: Callable[[str], bool] | None = None
        self.notes: list[str] = []
        self.copies: list[int] = []
        self.note: str | None = None
        self.inspection: Inspector | None = None
        #: The job whose inputs were there and whose end was not yet seen.
        self.running: Job | None = None
        self._board = board
        self._gate = gate
        self._pinned = threading.Event()

    def start(self) -> None:
        """Start the thread and return once it is pinned."""
        super().start()
        self._pinned.wait()

    def run(self) -> None:
        """Run every iteration until the gate closes."""
        self.note = pin(self.queue)
        self._pinned.set()
        seen = 0
        while (epoch := self._gate.enter(seen)) is not None:
            seen = epoch
            try:
                self._iterate(epoch)
            except AbortedError:
                pass
            except BaseException as e:  # a worker must never die silently: the host raises it
                at = self.running
                self.failure = failure(e, at.delegate.name, at.index) if isinstance(e, Exception) and at is not None else e
                self._board.abort()
            finally:
                self._gate.leave()

    def _iterate(self, epoch: int) -> None:
        stamps, self.running = self.stamps, None
        for job in self.jobs:
            self._board.check(f"starting segment {job.index} on queue {self.queue}")
            stamps.append(time.perf_counter_ns())
            wait, signal = partial(self._wait, job, epoch), partial(self._signal, job, epoch)
            check = partial(self._board.check, f"running segment {job.index} on queue {self.queue}")
            ticket = Ticket(wait, signal, stamps, self.observe, self.suspect, self.notes, check, self.copies)
            job.delegate.submit(job.compiled, ticket)
            self.running = None
            stamps.append(time.perf_counter_ns())

    def _wait(self, job: Job, epoch: int) -> None:
        for fence in job.waits:
            self._board.wait(fence.signal, epoch, fence.mode)
        self.running = job
        if self.inspection is not None:
            self.inspection.before(job.index)

    def _signal(self, job: Job, epoch: int) -> None:
        if self.inspection is not None:
            self.inspection.after(job.index)
        self._board.signal(job.index, epoch)
