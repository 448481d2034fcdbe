"""Segments in sessions of ONNX Runtime, on whatever provider: opened, bound to the arena, run, and stopped.

Inputs and outputs are bound to the arena's own bytes, so nothing is copied. The exceptions are outputs that share bytes with an input or
another output (the plan writes them there later, when those are no longer needed, but the runtime writes when it likes): they
are written beside the arena and copied. ``run_async`` would return outputs in memory of its own, a copy each, and needs a second
thread; the queue's own thread runs the session instead, without the GIL, and ``RunOptions.terminate`` stops it between nodes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError
from hetsched.graph import Graph
from hetsched.lowering.onnx_segment import Ends
from hetsched.reference.element_types import NUMBER_OF
from hetsched.runtime.arena import aligned_empty
from hetsched.runtime.delegates.base import SegmentJob, Ticket
from hetsched.runtime.delegates.segments import span_and_label, written_by

Array = npt.NDArray[Any]
#: How it says that a bound output has another shape than what came out.
_OTHER_SHAPE = re.compile(r"output '([^']+)' of node .*computed output shape for this run is \{([\d,]*)\}", re.DOTALL)


@dataclass(slots=True)
class OrtSegment:
    """A segment bound to the arena.

    ``moved`` are outputs written beside the arena, with where they belong; ``written`` is what each op writes, in order: later
    ops may write over what earlier ones wrote. ``observed`` opens a session whose outputs are everything that the ops write, on first use.
    """

    stamped: tuple[str, ...]
    runtime: str
    label: str
    session: Any
    binding: Any
    options: Any
    feeds: dict[str, Array]
    outputs: dict[str, Array]
    moved: tuple[tuple[Array, Array], ...]
    written: tuple[tuple[str, tuple[str, ...]], ...]
    observed: Callable[[], Any]
    watched: Any = None


def bound_segment(job: SegmentJob, runtime: str, session: Any, ends: Ends, observed: Callable[[], Any]) -> OrtSegment:
    """Bind a session to the buffers of its segment.

    Args:
        job: the segment.
        runtime: what to call the runtime in messages.
        session: of a model with these ends.
        ends: names of its inputs and outputs.
        observed: opens a session that returns everything that the ops write.
    """
    import onnxruntime as ort

    feeds = {n: job.buffers[n] for n in ends.inputs}
    beside = outputs_beside(feeds, {n: job.buffers[n] for n in ends.outputs})
    options = ort.RunOptions()
    job.stoppers.append(lambda: setattr(options, "terminate", True))
    span, label = span_and_label(job)
    targets = {n: beside.get(n, job.buffers[n]) for n in ends.outputs}
    return OrtSegment(
        (span,), runtime, label, session, _binding(session, job.graph, feeds, targets), options,
        feeds, {n: job.buffers[n] for op in job.ops for n in op.outputs if n},
        tuple((private, job.buffers[n]) for n, private in beside.items()),
        tuple((op.name, written_by(op)) for op in job.ops), observed,
    )  # fmt: skip


def submit_segment(compiled: OrtSegment, ticket: Ticket) -> None:
    """Run a segment once: wait, execute, signal.

    Raises:
        ExecutionError: the runtime failed; the message names the user's nodes.
    """
    ticket.wait()
    ticket.stamps.append(time.perf_counter_ns())
    if ticket.observe is None:
        _run(compiled, ticket)
    else:
        _run_observed(compiled, ticket, ticket.observe)
    ticket.stamps.append(time.perf_counter_ns())
    ticket.signal()


def _run(compiled: OrtSegment, ticket: Ticket) -> None:
    compiled.options.terminate = False
    ticket.check()  # the run may have been given up before the line above
    try:
        compiled.session.run_with_iobinding(compiled.binding, compiled.options)
    except Exception as e:
        ticket.check()  # stopped: that is no failure of the runtime
        raise _failed(compiled, e) from e
    for source, target in compiled.moved:
        target[...] = source
        ticket.copies.append(target.nbytes)


def _run_observed(compiled: OrtSegment, ticket: Ticket, observe: Callable[[str], None]) -> None:
    """Every op's results, put into the arena in the order of the ops."""
    if compiled.watched is None:
        compiled.watched = compiled.observed()
    names = [n for _, written in compiled.written for n in written]
    try:
        values = compiled.watched.run(names, compiled.feeds)
    except Exception as e:
        raise _failed(compiled, e) from e
    results = dict(zip(names, values, strict=True))
    for op, written in compiled.written:
        for name in written:
            _store(compiled, name, results[name])
            ticket.copies.append(compiled.outputs[name].nbytes)
        observe(op)


def _store(compiled: OrtSegment, name: str, value: Any) -> None:
    target = compiled.outputs[name]
    if np.shape(value) != target.shape:
        raise _misshapen(compiled, name, list(np.shape(value)))
    target[...] = value


def _misshapen(compiled: OrtSegment, name: str, shape: list[int]) -> ExecutionError:
    return ExecutionError(
        f"{compiled.runtime} returned {name!r} as {shape} in {compiled.stamped[0]} (nodes {compiled.label}), and the plan is for "
        f"{list(compiled.outputs[name].shape)}: the file declares a shape that depends on the data"
    )


def _failed(compiled: OrtSegment, error: Exception) -> ExecutionError:
    found = _OTHER_SHAPE.search(str(error))
    if found is not None and found[1] in compiled.outputs:
        return _misshapen(compiled, found[1], [int(n) for n in found[2].split(",") if n])
    return ExecutionError(f"{compiled.runtime} failed in {compiled.stamped[0]} (nodes {compiled.label}, …): {str(error).splitlines()[0]}")


def outputs_beside(feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays of their own, by name, for outputs that share bytes with an input or with an earlier output."""
    out: dict[str, Array] = {}
    taken = list(feeds.values())
    for name, array in outputs.items():
        if any(np.may_share_memory(array, other) for other in taken):
            out[name] = aligned_empty(array.shape, array.dtype)
        else:
            taken.append(array)
    return out


def _binding(session: Any, graph: Graph, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> Any:
    binding = session.io_binding()
    for bind, arrays in ((binding.bind_input, feeds), (binding.bind_output, outputs)):
        for name, array in arrays.items():
            kind: Any = NUMBER_OF[graph.tensors[name].dtype]
            bind(name, "cpu", 0, kind, list(graph.tensors[name].shape), array.ctypes.data)
    return binding
