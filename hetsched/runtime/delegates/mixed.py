"""A segment whose ops are run by several delegates of one CPU: kernels of this project, and ONNX Runtime for what they lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from hetsched.errors import HetschedError
from hetsched.graph import Graph, Op
from hetsched.runtime.delegates.base import Delegate, Probe, SegmentJob, Ticket
from hetsched.runtime.failures import blamed, compiling


@dataclass(frozen=True, slots=True)
class _MixedSegment:
    """``parts``: what compiled each part, and the part."""

    stamped: tuple[str, ...]
    parts: tuple[tuple[Delegate, Any], ...]


class MixedDelegate:
    """Runs the parts of a segment one after another on the queue's own thread, as one segment: one wait, one signal.

    Args:
        delegates: the delegate of each op, by name.
    """

    name = "mixed"

    def __init__(self, delegates: Mapping[str, Delegate]) -> None:
        self._delegates = delegates

    def probe(self) -> Probe:
        """Available if all of its delegates are."""
        probes = [d.probe() for d in {id(d): d for d in self._delegates.values()}.values()]
        return next((p for p in probes if not p.available), Probe(True, ", ".join(p.version for p in probes)))

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """What the op's own delegate says."""
        return self._delegates[op.name].supports(op, graph, precision)

    def compile(self, job: SegmentJob) -> _MixedSegment:
        """Compile each run of ops of one delegate. ONNX Runtime gets every op alone, as it was priced."""
        parts: list[tuple[Delegate, Any]] = []
        for _, run in groupby(enumerate(job.ops), lambda item: self._part(*item)):
            ops = tuple(op for _, op in run)
            delegate = self._delegates[ops[0].name]
            segment = job.segment.model_copy(update={"ops": tuple(op.name for op in ops)})
            with compiling(delegate.name, segment.index):
                parts.append((delegate, delegate.compile(replace(job, segment=segment, ops=ops))))
        return _MixedSegment(tuple(name for _, part in parts for name in part.stamped), tuple(parts))

    def _part(self, position: int, op: Op) -> tuple[str, int]:
        name = self._delegates[op.name].name
        return name, position if name == "ort" else -1

    def submit(self, compiled: _MixedSegment, ticket: Ticket) -> None:
        """Run the parts in order: only the first one waits, and the segment signals once."""
        waits = iter((ticket.wait,))
        for number, (delegate, part) in enumerate(compiled.parts):
            stamps: list[int] = []
            try:
                delegate.submit(part, replace(ticket, wait=next(waits, _nothing), signal=_nothing, stamps=stamps))
            except HetschedError as e:
                blamed(e, delegate.name)
                raise
            ticket.stamps.extend(stamps if number == 0 else stamps[1:])
        ticket.signal()


def _nothing() -> None:
    """What a part within a segment waits for, and signals."""
