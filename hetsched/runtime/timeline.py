"""From the workers' time stamps to a :class:`hetsched.trace.Trace`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hetsched.errors import ExecutionError
from hetsched.runtime.worker import Job
from hetsched.trace import Instant, Span, Trace

#: The queue name of what the calling thread does.
HOST = "host"
_NS = 1e-9


class Timeline:
    """Collects spans; ``origin_ns`` is time zero on the ``time.perf_counter_ns`` clock."""

    def __init__(self, trace: Trace, origin_ns: int, predicted_s: Mapping[str, float], signalled: frozenset[int]) -> None:
        self.trace = trace
        self._origin = origin_ns
        self._predicted = predicted_s
        self._signalled = signalled

    def seconds(self, stamp_ns: int) -> float:
        """Seconds from the start of the trace."""
        return (stamp_ns - self._origin) * _NS

    def add_submit(self, start_ns: int, end_ns: int, iteration: int) -> None:
        """The host copied the inputs and released the workers."""
        self.trace.spans.append(Span(HOST, "submit", "submit", self.seconds(start_ns), self.seconds(end_ns), iteration=iteration))

    def add_queue(self, queue: str, jobs: Sequence[Job], stamps: Sequence[int], iteration: int, copied_bytes: int = 0) -> None:
        """Everything one queue did in one iteration, and how much it copied to and from the memory of a vendor's runtime.

        Raises:
            ExecutionError: a delegate gave another number of time stamps than it promised.
        """
        expected = sum(len(job.compiled.stamped) + 3 for job in jobs)
        if len(stamps) != expected:
            raise ExecutionError(
                f"a delegate on queue {queue} left {len(stamps)} time stamps instead of {expected}: it is not a valid delegate"
            )
        times = iter(stamps)
        for job in jobs:
            self._add_job(queue, job, times, iteration)
        if copied_bytes:
            self.trace.counter(f"memory/copied by {queue}", "B").sample(self.seconds(stamps[-1]), float(copied_bytes))

    def _add_job(self, queue: str, job: Job, times: Iterator[int], iteration: int) -> None:
        spans = self.trace.spans
        before = self.seconds(next(times))
        start = previous = self.seconds(next(times))
        if job.waits:
            spans.append(Span(queue, "wait", f"wait {job.index}", before, start, job.index, iteration))
        at = len(spans)
        names = job.compiled.stamped
        ends = [self.seconds(next(times)) for _ in names]
        for position in sorted(getattr(job.compiled, "spared", ())):
            ends[position] = self._divided(names[position : position + 2], ends[position - 1] if position else start, ends[position + 1])
        for name, end in zip(names, ends, strict=True):
            spans.append(Span(queue, "op", name, previous, end, job.index, iteration, self._predicted.get(name)))
            previous = end
        end = self.seconds(next(times))
        spans.insert(at, Span(queue, "segment", f"segment {job.index}", start, end, job.index, iteration))
        if job.index in self._signalled:
            self.trace.instants.append(Instant("fence", f"segment {job.index}", end, queue))

    def _divided(self, names: Sequence[str], start: float, end: float) -> float:
        """Where the first of two ops that are computed in one pass ends: their time is divided as it was predicted, and a note says so."""
        first, second = (self._predicted.get(name) or 0.0 for name in names)
        note = "operators that are computed in one pass with the next one share its time: their spans divide it as predicted"
        if note not in self.trace.notes:
            self.trace.notes.append(note)
        return start + (end - start) * (first / (first + second) if first + second > 0.0 else 0.5)
