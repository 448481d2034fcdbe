"""What delegates that run a segment in one piece have in common, and segments of runtimes with memory of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy.typing as npt

from hetsched.errors import ExecutionError, UnsupportedModelError, first_line
from hetsched.graph import Graph, Op
from hetsched.lowering.onnx_segment import Ends, ends_of
from hetsched.runtime.delegates.base import SegmentJob, Ticket
from hetsched.runtime.support import node_names

Array: TypeAlias = npt.NDArray[Any]
#: What a segment computes with these inputs: its outputs, by the graph's names.
Predict: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass(slots=True)
class CopiedSegment:
    """A segment whose inputs are given to the runtime and whose results are copied into the arena.

    ``opened`` makes what predicts outputs; ``watched`` predicts all that the ops write, made on first use.
    """

    stamped: tuple[str, ...]
    label: str
    runtime: str
    job: SegmentJob
    ends: Ends
    opened: Callable[[SegmentJob, Ends], Predict]
    predict: Predict
    watched: tuple[Predict, Ends] | None = None
    notes: list[str] = field(default_factory=list)
    """What is to be said of it once, in the trace."""


def span_and_label(job: SegmentJob) -> tuple[str, str]:
    """What a segment is called in a trace (its op, if it has one only), and the first of the user's nodes, for messages."""
    span = job.ops[0].name if len(job.ops) == 1 else f"segment {job.segment.index}"
    return span, ", ".join(node_names(op) for op in job.ops[:3])


def check_ops(job: SegmentJob, supports: Callable[[Op, Graph, str], str | None], where: str) -> None:
    """Whether a delegate takes every op of a segment; ``where`` is how messages go on ("with Core ML").

    Raises:
        UnsupportedModelError: it does not; the message names the user's nodes and says why.
    """
    for op in job.ops:
        reason = supports(op, job.graph, job.precision[op.name])
        if reason is not None:
            raise UnsupportedModelError(f"node {node_names(op)} ({op.type}) cannot run {where}: {reason}")


def uncalibrated(op: Op, graph: Graph, precision: str) -> str | None:
    """Why an op that is planned in integers cannot be, where the model has none around it."""
    if any(graph.tensors[n].quantization is not None for n in (*op.inputs, *op.outputs) if n):
        return None
    return f"it is planned in {precision}, and the model has no Q/DQ around it: calibrate ranges and plan again"


def copied_segment(job: SegmentJob, runtime: str, opened: Callable[[SegmentJob, Ends], Predict]) -> CopiedSegment:
    """Open a segment; ``runtime`` is what messages call it."""
    ends = ends_of(job.graph, job.ops)
    span, label = span_and_label(job)
    return CopiedSegment((span,), label, runtime, job, ends, opened, opened(job, ends))


def submit_copied(compiled: CopiedSegment, ticket: Ticket) -> None:
    """Run a segment once: wait, execute, signal.

    Raises:
        ExecutionError: the runtime failed; the message names the user's nodes.
    """
    ticket.wait()
    ticket.stamps.append(time.perf_counter_ns())
    ticket.notes.extend(compiled.notes)
    compiled.notes.clear()
    if ticket.observe is None:
        store(compiled.job, compiled.ends.outputs, _predicted(compiled, compiled.predict, compiled.ends, ticket), ticket)
    else:
        if compiled.watched is None:
            every = ends_of(compiled.job.graph, compiled.job.ops, every=True)
            compiled.watched = compiled.opened(compiled.job, every), every
        store_observed(compiled.job, _predicted(compiled, *compiled.watched, ticket), ticket)
    ticket.stamps.append(time.perf_counter_ns())
    ticket.signal()


def _predicted(compiled: CopiedSegment, predict: Predict, ends: Ends, ticket: Ticket) -> Mapping[str, Array]:
    feeds = {n: compiled.job.buffers[n] for n in ends.inputs}
    ticket.copies.extend(a.nbytes for a in feeds.values())
    ticket.check()
    try:
        return predict(feeds)
    except Exception as e:
        ticket.check()  # given up: that is no failure of the runtime
        said = f"{compiled.runtime} failed in {compiled.stamped[0]} (nodes {compiled.label}, …): {first_line(e)}"
        raise ExecutionError(said) from e


def store(job: SegmentJob, names: tuple[str, ...], results: Mapping[str, Array], ticket: Ticket) -> None:
    """Copy results into the arena."""
    for name in names:
        target = job.buffers[name]
        target[...] = results[name].reshape(target.shape)
        ticket.copies.append(target.nbytes)


def store_observed(job: SegmentJob, results: Mapping[str, Array], ticket: Ticket) -> None:
    """Every op's results, put into the arena in the order of the ops: later ones may write over earlier ones."""
    for op in job.ops:
        store(job, written_by(op), results, ticket)
        if ticket.observe is not None:
            ticket.observe(op.name)


def written_by(op: Op) -> tuple[str, ...]:
    """Names of what an op writes."""
    return tuple(o for o in op.outputs if o)
