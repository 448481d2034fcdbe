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

    def add_queue(self, queue: str, jobs: Sequence[Job], stamps: Sequence[int], iteration: int) -> None:
        """Everything one queue did in one iteration.

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

    def _add_job(self, queue: str, job: Job, times: Iterator[int], iteration: int) -> None:
        spans = self.trace.spans
        before = self.seconds(next(times))
        start = previous = self.seconds(next(times))
        if job.waits:
            spans.append(Span(queue, "wait", f"wait {job.index}", before, start, job.index, iteration))
        at = len(spans)
        for name in job.compiled.stamped:
            end = self.seconds(next(times))
            spans.append(Span(queue, "op", name, previous, end, job.index, iteration, self._predicted.get(name)))
            previous = end
        end = self.seconds(next(times))
        spans.insert(at, Span(queue, "segment", f"segment {job.index}", start, end, job.index, iteration))
        if job.index in self._signalled:
            self.trace.instants.append(Instant("fence", f"segment {job.index}", end, queue))
