"""The numba delegate: this machine's CPU, by the project's own kernels. The hot path."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hetsched.channels_last import FUNCTIONS, added, sum_after, sum_before
from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.delegates.programs import Part, ProgramSegment, run_calls, submit
from hetsched.runtime.support import MATRIX_TYPES, node_names, supported
from hetsched.runtime.team import Team


class NumbaDelegate:
    """Runs ops in order on the queue's pinned threads; the GIL is not held."""

    name = "numba"

    def probe(self) -> Probe:
        """Available wherever numba is."""
        import numba

        return Probe(True, str(numba.__version__), devices=("CPU",), runs="the kernels of this project: f32, w8a8, weights in blocks")

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """Whether there is a kernel for ``op``."""
        return supported(op, graph, precision)

    def compile(self, job: SegmentJob) -> ProgramSegment:
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
                parts.append(((run_calls, tuple(lower(op, job, kept))),))
            else:
                before = job.ops[position - 1] if position - 1 in spared else None
                parts.append(_parts(lower(op, job, kept, before), steps))
            ends.append(len(steps))
        native = all(isinstance(part[0], int) for i, op_parts in enumerate(parts) if i not in spared for part in op_parts)
        stop = np.zeros(1, np.int64) if job.stop is None else job.stop
        return ProgramSegment(
            tuple(op.name for op in job.ops), tuple(f"{node_names(op)} ({op.type})" for op in job.ops), tuple(parts),
            np.array(ends, np.int64), native, compile_program(steps), counters(len(steps)), stop, job.team or Team("cpu", 1), tuple(kept),
            frozenset(spared),
            partial(_in_float, job),
            {number: call.refusal for number, call in enumerate(call for step in steps for call in step) if call.refusal},
            stamps=np.zeros(len(steps), np.int64),
        )  # fmt: skip

    def submit(self, compiled: ProgramSegment, ticket: Ticket) -> None:
        """Run the segment's kernels one after another."""
        submit(compiled, ticket)


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
    if job.precision[op.name] == "f32" and sum_after(op, job.graph) is following:
        image, reads = job.buffers[op.inputs[0]], [job.buffers[added(op, following)]]
    elif following.type in FUNCTIONS and sum_before(following, job.graph) is op:
        image, reads = None, [job.buffers[n] for n in op.inputs]
    else:
        return False
    out = job.buffers[following.outputs[0]]
    if image is not None and image.nbytes > out.nbytes and np.shares_memory(image, out):
        return False  # a copy of it, which would be needed, costs more than the pass that is saved
    return all(r.ctypes.data == out.ctypes.data or not np.shares_memory(r, out) for r in reads)


def _in_float(job: SegmentJob, position: int) -> tuple[Any, ...]:
    """The steps of an integer product in float32; none for any other op."""
    from hetsched.runtime.lower import lower

    op = job.ops[position]
    if job.precision[op.name] != "w8a8" or op.type not in MATRIX_TYPES or supported(op, job.graph, "f32") is not None:
        return ()
    job.scratch.reset()
    return tuple(lower(op, replace(job, precision={**job.precision, op.name: "f32"}), []))
