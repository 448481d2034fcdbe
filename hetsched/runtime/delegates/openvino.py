"""The OpenVINO delegate: segments on Intel CPUs, through asynchronous inference requests over the arena."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hetsched.errors import DelegateError, ExecutionError, UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.lowering.onnx_segment import Ends, ends_of, onnx_model
from hetsched.passes.unfuse import parts
from hetsched.runtime.affinity import usable
from hetsched.runtime.arena import aligned_empty
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.delegates.segments import span_and_label, store_observed
from hetsched.runtime.fences import Completion
from hetsched.runtime.ort_session import Array, outputs_beside
from hetsched.runtime.support import node_names, unreadable_constant

#: The only device that plans are run on; others are listed where OpenVINO finds them.
DEVICE = "CPU"


@dataclass(slots=True)
class _OpenvinoSegment:
    """``moved`` are outputs written beside the arena, with where they belong; ``running`` is the end of the last submission.

    ``written`` is what each op writes; ``watched`` the request whose outputs are all of that, made on first use.
    """

    stamped: tuple[str, ...]
    label: str
    request: Any
    moved: tuple[tuple[Array, Array], ...]
    job: SegmentJob
    running: Completion | None = None
    watched: tuple[Any, dict[str, Array]] | None = None


class OpenvinoDelegate:
    """One compiled model and one request a segment. Float operators compute in float32, Q/DQ operators in integers."""

    name = "openvino"

    def probe(self) -> Probe:
        """Available where openvino is installed and has its CPU plug-in."""
        try:
            import openvino
        except ImportError:
            return Probe(False, reason="OpenVINO is not installed: install hetsched[openvino]")
        version = str(openvino.__version__).partition("-")[0]
        devices = tuple(str(d) for d in _core().available_devices)
        if DEVICE not in devices:
            return Probe(False, version, "OpenVINO has no CPU plug-in on this machine", devices)
        return Probe(True, version, "", devices, "float and Q/DQ operators on the CPU")

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """What OpenVINO says of a model of this operator alone."""
        quantized = any(graph.tensors[n].quantization is not None for n in (*op.inputs, *op.outputs) if n)
        if precision != "f32" and not quantized:
            return f"OpenVINO runs this op in f32 only, not in {precision}: the model has no Q/DQ around it"
        unreadable = unreadable_constant(op, graph)
        if unreadable is not None:
            return unreadable
        try:
            left = _left_out(onnx_model(graph, [op], ends_of(graph, [op], every=True)))
        except Exception as e:
            return f"OpenVINO does not read it: {_said(e)}"
        return f"OpenVINO's {DEVICE} plug-in has no {op.type}" if left else None

    def compile(self, job: SegmentJob) -> _OpenvinoSegment:
        """Compile the segment for the CPU, on the queue's cores, and bind it to the arena."""
        for op in job.ops:
            quantized = any(job.graph.tensors[n].quantization is not None for n in (*op.inputs, *op.outputs) if n)
            reason = unreadable_constant(op, job.graph)
            if reason is None and job.precision[op.name] != "f32" and not quantized:
                reason = self.supports(op, job.graph, job.precision[op.name])
            if reason is not None:
                raise UnsupportedModelError(f"node {node_names(op)} ({op.type}) cannot run with OpenVINO: {reason}")
        ends = ends_of(job.graph, job.ops)
        feeds, outputs = ({n: job.buffers[n] for n in names} for names in (ends.inputs, ends.outputs))
        beside = outputs_beside(feeds, outputs)
        request = _request(job, ends, feeds, {n: beside.get(n, a) for n, a in outputs.items()})
        span, label = span_and_label(job)
        return _OpenvinoSegment((span,), label, request, tuple((a, job.buffers[n]) for n, a in beside.items()), job)

    def submit(self, compiled: _OpenvinoSegment, ticket: Ticket) -> None:
        """Start the request and wait for its callback."""
        if compiled.running is not None:
            compiled.running.settle(ticket.check)
        ticket.wait()
        ticket.stamps.append(time.perf_counter_ns())
        if ticket.observe is None:
            _infer(compiled, compiled.request, ticket)
            for source, target in compiled.moved:
                target[...] = source
                ticket.copies.append(target.nbytes)
        else:
            _observed(compiled, ticket)
        ticket.stamps.append(time.perf_counter_ns())
        ticket.signal()


def _infer(compiled: _OpenvinoSegment, request: Any, ticket: Ticket) -> None:
    completion = Completion()
    compiled.running = completion
    request.set_callback(lambda _: completion.done(), None)
    try:
        request.start_async()
        completion.wait(ticket.check)
        request.wait()  # ended already; this raises what the inference failed with
    except ExecutionError:
        request.cancel()
        raise
    except Exception as e:
        completion.done()
        raise ExecutionError(f"OpenVINO failed in {compiled.stamped[0]} (nodes {compiled.label}, …): {_said(e)}") from e


def _observed(compiled: _OpenvinoSegment, ticket: Ticket) -> None:
    """Every op's results, from a request of its own whose outputs they are."""
    job = compiled.job
    if compiled.watched is None:
        every = ends_of(job.graph, job.ops, every=True)
        arrays = {n: aligned_empty(job.buffers[n].shape, job.buffers[n].dtype) for n in every.outputs}
        compiled.watched = _request(job, every, {n: job.buffers[n] for n in every.inputs}, arrays), arrays
    request, arrays = compiled.watched
    _infer(compiled, request, ticket)
    store_observed(job, arrays, ticket)


@lru_cache(maxsize=1)
def _core() -> Any:
    import openvino

    return openvino.Core()


def _request(job: SegmentJob, ends: Ends, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> Any:
    """An inference request that reads and writes these arrays themselves."""
    import openvino

    model = onnx_model(job.graph, job.ops, ends)
    settings = {
        "INFERENCE_NUM_THREADS": max(1, len(usable(job.segment.queue))), "INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False,
    }  # fmt: skip
    try:
        left = _left_out(model)
        if left:
            raise _refused(job, left)
        compiled = _core().compile_model(_core().read_model(model), DEVICE, settings)
    except UnsupportedModelError:
        raise
    except Exception as e:
        raise DelegateError(f"OpenVINO cannot compile segment {job.segment.index}: {_said(e)}") from e
    request = compiled.create_infer_request()
    for name, array in {**feeds, **outputs}.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
    return request


def _left_out(model: bytes) -> list[str]:
    """Names of the operators that the CPU plug-in does not take; HETERO or another device would quietly take them."""
    read = _core().read_model(model)
    taken = _core().query_model(read, DEVICE)
    return [op.get_friendly_name() for op in read.get_ops() if taken.get(op.get_friendly_name(), "").partition(".")[0] != DEVICE]


def _refused(job: SegmentJob, left: list[str]) -> UnsupportedModelError:
    named = next((op for op in job.ops if any(part.name in left or part.outputs[0] in left for part in parts(op))), None)
    what = f"the operator {left[0]!r}" if named is None else f"node {node_names(named)} ({named.type})"
    return UnsupportedModelError(f"{what} cannot run with OpenVINO: its {DEVICE} plug-in does not take it")


def _said(error: Exception) -> str:
    """The last line of an error that says something: OpenVINO puts where in its sources first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
