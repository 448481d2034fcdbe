"""The NeuroPilot delegate: segments for MediaTek's APU, as TFLite models for LiteRT.

Compiling ahead of time for an APU needs MediaTek's SDK. Its Python package installs without an error where the vendor's files could
not be fetched, and is then empty: what counts is the library in it. Here LiteRT's interpreter runs the models on the CPU: the
numbers count, the times mean nothing.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hetsched.errors import DelegateError, ExecutionError, UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.lowering.onnx_segment import Ends, ends_of
from hetsched.lowering.tflite import refusal, tflite_model
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.support import node_names, unreadable_constant

_SDK = "ai_edge_litert_sdk_mediatek"
#: LiteRT's plug-in that compiles for an APU.
_COMPILER = "libLiteRtCompilerPlugin_MediaTek.so"
_PRECISIONS = ("f32", "f16", "w8a8")
_STAND_IN = "LiteRT's interpreter on the CPU"


@dataclass(slots=True)
class _TfliteSegment:
    stamped: tuple[str, ...]
    label: str
    interpreter: Any
    job: SegmentJob
    ends: Ends
    watched: tuple[Any, Ends] | None = None


class NeuropilotDelegate:
    """One TFLite model a segment."""

    name = "neuropilot"

    def probe(self) -> Probe:
        """Available where LiteRT is installed; whether it can compile for an APU is said apart."""
        try:
            found = version("ai-edge-litert")
        except PackageNotFoundError:
            return Probe(False, reason="LiteRT is not installed: install hetsched[litert]")
        try:
            compiler_plugin()
            builds = "TFLite models, compiled for MT69xx by MediaTek's SDK"
        except DelegateError as e:
            builds = f"TFLite models, not compiled for an APU: {e}"
        return Probe(True, found, devices=("CPU",), runs="numerics, on the CPU", builds=builds, emulated=_STAND_IN)

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """What can be written as TFLite operators."""
        if precision not in _PRECISIONS:
            return f"TFLite models are written in {', '.join(_PRECISIONS)}, not in {precision}"
        if precision == "w8a8" and not any(graph.tensors[n].quantization is not None for n in (*op.inputs, *op.outputs) if n):
            return "it is planned in w8a8, and the model has no Q/DQ around it: calibrate ranges and plan again"
        return unreadable_constant(op, graph) or refusal(graph, op)

    def compile(self, job: SegmentJob) -> _TfliteSegment:
        """Write the segment as a model and open it in the interpreter."""
        for op in job.ops:
            reason = self.supports(op, job.graph, job.precision[op.name])
            if reason is not None:
                raise UnsupportedModelError(f"node {node_names(op)} ({op.type}) cannot run with LiteRT: {reason}")
        ends = ends_of(job.graph, job.ops)
        name = job.ops[0].name if len(job.ops) == 1 else f"segment {job.segment.index}"
        return _TfliteSegment((name,), ", ".join(node_names(op) for op in job.ops[:3]), opened(job, ends), job, ends)

    def submit(self, compiled: _TfliteSegment, ticket: Ticket) -> None:
        """Invoke the interpreter, and copy inputs and results: its tensors are its own."""
        ticket.wait()
        ticket.stamps.append(time.perf_counter_ns())
        if ticket.observe is None:
            _invoke(compiled, compiled.interpreter, compiled.ends, ticket)
        else:
            _observed(compiled, ticket, ticket.observe)
        ticket.stamps.append(time.perf_counter_ns())
        ticket.signal()


def compiler_plugin() -> Path:
    """The library that compiles for an APU.

    Raises:
        DelegateError: MediaTek's SDK is not installed, or its package is empty.
    """
    found = importlib.util.find_spec(_SDK)
    if found is None:
        raise DelegateError("MediaTek's SDK is not installed (pip install ai-edge-litert-sdk-mediatek, on a machine that reaches MediaTek)")
    folders = [Path(p) for p in found.submodule_search_locations or ()]
    library = next((path for folder in folders for path in sorted(folder.rglob(_COMPILER))), None)
    if library is None:
        raise DelegateError(f"MediaTek's SDK is installed but empty: {_COMPILER} is missing, because its files could not be fetched then")
    return library


def opened(job: SegmentJob, ends: Ends) -> Any:
    """An interpreter of the segment's model.

    Raises:
        UnsupportedModelError: TFLite has no such operator, or LiteRT refuses the model.
        DelegateError: LiteRT is not installed.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as e:
        raise DelegateError("LiteRT is not installed: install hetsched[litert]") from e
    model = tflite_model(job.graph, job.ops, ends)
    try:
        interpreter = Interpreter(model_content=model, num_threads=1)
        interpreter.allocate_tensors()
    except Exception as e:
        raise UnsupportedModelError(f"LiteRT refuses segment {job.segment.index} ({node_names(job.ops[0])}, …): {_first_line(e)}") from e
    return interpreter


def _invoke(compiled: _TfliteSegment, interpreter: Any, ends: Ends, ticket: Ticket) -> None:
    buffers = compiled.job.buffers
    _feed(interpreter, ends, buffers, ticket)
    ticket.check()
    try:
        interpreter.invoke()
    except Exception as e:
        ticket.check()
        raise ExecutionError(f"LiteRT failed in {compiled.stamped[0]} (nodes {compiled.label}, …): {_first_line(e)}") from e
    for name, value in _results(interpreter, ends).items():
        buffers[name][...] = value.reshape(buffers[name].shape)
        ticket.copies.append(buffers[name].nbytes)


def _feed(interpreter: Any, ends: Ends, buffers: Any, ticket: Ticket) -> None:
    for detail, name in zip(interpreter.get_input_details(), ends.inputs, strict=True):
        interpreter.set_tensor(detail["index"], buffers[name].reshape(detail["shape"]))
        ticket.copies.append(buffers[name].nbytes)


def _results(interpreter: Any, ends: Ends) -> dict[str, Any]:
    details = interpreter.get_output_details()
    return {name: interpreter.get_tensor(detail["index"]) for detail, name in zip(details, ends.outputs, strict=True)}


def _observed(compiled: _TfliteSegment, ticket: Ticket, observe: Callable[[str], None]) -> None:
    """Every op's results, put into the arena in the order of the ops: later ones may write over earlier ones."""
    job = compiled.job
    if compiled.watched is None:
        every = ends_of(job.graph, job.ops, every=True)
        compiled.watched = opened(job, every), every
    interpreter, every = compiled.watched
    _feed(interpreter, every, job.buffers, ticket)
    interpreter.invoke()
    results = _results(interpreter, every)
    for op in job.ops:
        for name in filter(None, op.outputs):
            job.buffers[name][...] = results[name].reshape(job.buffers[name].shape)
            ticket.copies.append(job.buffers[name].nbytes)
        observe(op.name)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
