"""The null delegate: takes the predicted time and writes zeros, so that any plan runs without its hardware."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from hetsched.graph import Graph, Op
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket

#: Sleeping is this imprecise on a desktop kernel; the rest of a delay is spun.
_SLEEP_MARGIN_S = 2e-3


@dataclass(frozen=True, slots=True)
class _NullSegment:
    stamped: tuple[str, ...]
    entry_s: float
    seconds: tuple[float, ...]
    outputs: tuple[tuple[npt.NDArray[Any], ...], ...]


class NullDelegate:
    """Computes nothing. Its outputs are zeros and prove nothing."""

    name = "null"

    def probe(self) -> Probe:
        """Always available."""
        return Probe(True, "1", runs="any plan: takes the predicted times and computes nothing")

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """Everything."""
        return None

    def compile(self, job: SegmentJob) -> _NullSegment:
        """Note the predicted time and those outputs of each op that have a buffer."""
        return _NullSegment(
            tuple(op.name for op in job.ops),
            job.segment.launch_s + job.segment.transfer_s,
            tuple(job.predicted_s[op.name] for op in job.ops),
            tuple(tuple(job.buffers[o] for o in op.outputs if o in job.buffers) for op in job.ops),
        )

    def submit(self, compiled: _NullSegment, ticket: Ticket) -> None:
        """Take launch and transfer time, then each op's."""
        ticket.wait()
        ticket.stamps.append(time.perf_counter_ns())
        until = time.perf_counter() + compiled.entry_s
        for name, seconds, outputs in zip(compiled.stamped, compiled.seconds, compiled.outputs, strict=True):
            for array in outputs:
                array.fill(0)
            until += seconds
            _sleep_until(until)
            ticket.stamps.append(time.perf_counter_ns())
            if ticket.observe is not None:
                ticket.observe(name)
        ticket.signal()


def _sleep_until(until: float) -> None:
    """Return at ``until`` on the ``time.perf_counter`` clock: sleep most of the way, spin the rest."""
    if (rest := until - time.perf_counter() - _SLEEP_MARGIN_S) > 0:
        time.sleep(rest)
    while time.perf_counter() < until:
        time.sleep(0)
