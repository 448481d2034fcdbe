"""The numba delegate: this machine's CPU, by the project's own kernels. The hot path."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.channels_last import FUNCTIONS, sum_before
from hetsched.errors import ExecutionError, UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.fences import AbortedError
from hetsched.runtime.support import MATRIX_TYPES, node_names, supported
from hetsched.runtime.team import Team

#: A Python function and its prepared arguments, called as ``function(*args)``.
PythonStep: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]
#: Steps of the compiled program, ``[begin, end)``, or a Python step between them.
Part: TypeAlias = tuple[int, int] | PythonStep


@dataclass(slots=True)
class _NumbaSegment:
    """A segment as a compiled program.

    ``parts`` holds what each op runs; ``ends`` how many steps are done after each op; ``native`` says that no op has a Python
    step. ``spared`` are ops whose result the next one computes as well: they run only for an observer. ``kept`` are arrays that
    kernels know by address only; they must live as long as the segment. ``again`` gives the steps of an op in float32, none where
    that is how it runs anyway.
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
    turn: int = 0
    stamps: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def run(self, begin: int, end: int) -> None:
        """Run steps of the program on the queue's threads.

        Raises:
            AbortedError: the run was given up meanwhile.
        """
        if begin < end:
            self.team.run(self.program.table, self.program.steps, self.shared, self.stop, self.stamps, begin, end, self.turn)
            if self.stop[0]:
                raise AbortedError("the run was given up")

    def forget(self) -> None:
        """After a run that was not whole: count anew, elsewhere, since another thread may still look at the counters."""
        self.shared, self.turn = np.zeros_like(self.shared), 0


class NumbaDelegate:
    """Runs ops in order on the queue's pinned threads; the GIL is not held."""

    name = "numba"

    def probe(self) -> Probe:
        """Available wherever numba is."""
        import numba

        return Probe(True, str(numba.__version__))

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """Whether there is a kernel for ``op``."""
        return supported(op, graph, precision)

    def compile(self, job: SegmentJob) -> _NumbaSegment:
        """Lower every op to kernel calls with prepared arguments, and those to one program."""
        from hetsched.runtime.lower import lower
        from hetsched_kernels.program import compile_program, counters

        steps: list[Any] = []
        parts: list[tuple[Part, ...]] = []
        ends: list[int] = []
        kept: list[Any] = []
        spared: set[int] = set()
        for position, op in enumerate(job.ops):
            reason = self.supports(op, job.graph, job.precision[op.name])
            if reason is not None:
                raise UnsupportedModelError(f"node {node_names(op)} ({op.type}) cannot run on the host: {reason}")
            job.scratch.reset()
            if _is_spared(position, job):
                spared.add(position)
                parts.append(((_run_calls, tuple(lower(op, job, kept))),))
            else:
                before = job.ops[position - 1] if position - 1 in spared else None
                parts.append(_parts(lower(op, job, kept, before), steps))
            ends.append(len(steps))
        native = all(isinstance(part[0], int) for i, op_parts in enumerate(parts) if i not in spared for part in op_parts)
        stop = np.zeros(1, np.int64) if job.stop is None else job.stop
        return _NumbaSegment(
            tuple(op.name for op in job.ops), tuple(f"{node_names(op)} ({op.type})" for op in job.ops), tuple(parts),
            np.array(ends, np.int64), native, compile_program(steps), counters(len(steps)), stop, job.team or Team("cpu", 1), tuple(kept),
            frozenset(spared),
            partial(_in_float, job),
            stamps=np.zeros(len(steps), np.int64),
        )  # fmt: skip

    def submit(self, compiled: _NumbaSegment, ticket: Ticket) -> None:
        """Run the segment's kernels one after another."""
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


def _parts(lowered: list[Any], steps: list[Any]) -> tuple[Part, ...]:
    """What an op runs, in order; its kernel calls go to the end of ``steps``, neighbours as one part."""
    from hetsched_kernels.program import Call

    parts: list[Part] = []
    for step in lowered:
        if not isinstance(step[0], Call):
            parts.append(step)
            continue
        begin = len(steps)
        steps.append(step)
        if parts and parts[-1][1] == begin:
            parts[-1] = (parts[-1][0], begin + 1)
        else:
            parts.append((begin, begin + 1))
    return tuple(parts)


def _is_spared(position: int, job: SegmentJob) -> bool:
    """Whether the next op computes this one's result as well, and may: it must not write over what it then reads."""
    if position + 1 >= len(job.ops):
        return False
    op, following = job.ops[position : position + 2]
    if following.type not in FUNCTIONS or sum_before(following, job.graph) is not op:
        return False
    out = job.buffers[following.outputs[0]]
    reads = [job.buffers[n] for n in op.inputs]
    return all(r.ctypes.data == out.ctypes.data or not np.shares_memory(r, out) for r in reads)


def _in_float(job: SegmentJob, position: int) -> tuple[Any, ...]:
    """The steps of an integer product in float32; none for any other op."""
    from hetsched.runtime.lower import lower

    op = job.ops[position]
    if job.precision[op.name] != "w8a8" or op.type not in MATRIX_TYPES or supported(op, job.graph, "f32") is not None:
        return ()
    job.scratch.reset()
    return tuple(lower(op, replace(job, precision={**job.precision, op.name: "f32"}), []))


def _guard(compiled: _NumbaSegment, position: int, ticket: Ticket) -> None:
    """Compute an op again in float32 whose result is not finite, where it ran otherwise, and say so."""
    steps, label = compiled.again(position), compiled.labels[position]
    _run_calls(*steps)
    done = "was computed again in float32" if steps else "has no higher precision to be computed in"
    ticket.notes.append(f"node {label} gave infinities or values that are no numbers, from finite inputs, and {done}")


def _run_calls(*steps: Any) -> None:
    """Run steps from Python."""
    for step in steps:
        for call in step:
            call.run()


def _one_by_one(compiled: _NumbaSegment, ticket: Ticket) -> None:
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
    except AbortedError:
        raise
    except Exception as e:
        raise ExecutionError(f"node {compiled.labels[position]} failed while running: {type(e).__name__}: {e}") from e
