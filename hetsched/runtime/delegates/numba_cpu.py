"""The numba delegate: this machine's CPU, by the project's own kernels. The hot path."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from hetsched.errors import ExecutionError, UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.support import node_names, supported

#: A function and its prepared arguments, called as ``function(*args)``.
Step: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _NumbaSegment:
    """``kept`` are arrays that kernels know by address only; they must live as long as the segment."""

    stamped: tuple[str, ...]
    programs: tuple[tuple[Step, ...], ...]
    labels: tuple[str, ...]
    kept: tuple[Any, ...]


class NumbaDelegate:
    """Runs ops in order on the calling (pinned) thread; kernels release the GIL."""

    name = "numba"

    def probe(self) -> Probe:
        """Available wherever numba is."""
        import numba

        return Probe(True, str(numba.__version__))

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """Whether there is a kernel for ``op``."""
        return supported(op, graph, precision)

    def compile(self, job: SegmentJob) -> _NumbaSegment:
        """Lower every op to kernel calls with prepared arguments."""
        from hetsched.runtime.lower import lower

        programs: list[tuple[Step, ...]] = []
        kept: list[Any] = []
        for op in job.ops:
            reason = self.supports(op, job.graph, job.precision[op.name])
            if reason is not None:
                raise UnsupportedModelError(f"node {node_names(op)} ({op.type}) cannot run on the host: {reason}")
            job.scratch.reset()
            programs.append(tuple(lower(op, job, kept)))
        labels = tuple(f"{node_names(op)} ({op.type})" for op in job.ops)
        return _NumbaSegment(tuple(op.name for op in job.ops), tuple(programs), labels, tuple(kept))

    def submit(self, compiled: _NumbaSegment, ticket: Ticket) -> None:
        """Run the segment's kernels one after another."""
        clock, stamp, observe = time.perf_counter_ns, ticket.stamps.append, ticket.observe
        ticket.wait()
        stamp(clock())
        position = 0
        try:
            for position, program in enumerate(compiled.programs):
                for function, args in program:
                    function(*args)
                stamp(clock())
                if observe is not None:
                    observe(compiled.stamped[position])
        except Exception as e:
            raise ExecutionError(f"node {compiled.labels[position]} failed while running: {type(e).__name__}: {e}") from e
        ticket.signal()
