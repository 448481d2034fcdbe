"""The ORT delegate: segments run by ONNX Runtime on the CPU, in float, from the operators' original nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.onnx_model import onnx_model
from hetsched.runtime.ort_support import ort_supported
from hetsched.runtime.support import node_names


@dataclass(frozen=True, slots=True)
class _OrtSegment:
    """``written``: what each op writes, in order: later ops may write over what earlier ones wrote."""

    stamped: tuple[str, ...]
    session: Any
    feeds: dict[str, npt.NDArray[Any]]
    outputs: dict[str, npt.NDArray[Any]]
    written: tuple[tuple[str, tuple[str, ...]], ...]
    label: str


class OrtDelegate:
    """One session a segment, one thread. Q/DQ operators run as the file has them; ``w8a8`` of a float model is refused."""

    name = "ort"

    def probe(self) -> Probe:
        """Available where onnxruntime is installed."""
        try:
            import onnxruntime
        except ImportError:
            return Probe(False, reason="ONNX Runtime is not installed: install hetsched[ort]")
        return Probe(True, str(onnxruntime.__version__))

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """What the installed ONNX Runtime has a CPU kernel for; composites through their body."""
        return ort_supported(op, graph, precision)

    def compile(self, job: SegmentJob) -> _OrtSegment:
        """Write the segment as a model and open a session on it."""
        for op in job.ops:
            reason = self.supports(op, job.graph, job.precision[op.name])
            if reason is not None:
                raise UnsupportedModelError(f"node {node_names(op)} ({op.type}) cannot run with ONNX Runtime: {reason}")
        written = [o for op in job.ops for o in op.outputs if o]
        read = [n for op in job.ops for n in job.graph.activations(op) if n not in written]
        inputs = list(dict.fromkeys(read))
        session = _session(onnx_model(job.graph, job.ops, inputs, written))
        name = job.ops[0].name if len(job.ops) == 1 else f"segment {job.segment.index}"
        return _OrtSegment(
            (name,), session, {n: job.buffers[n] for n in inputs}, {n: job.buffers[n] for n in written},
            tuple((op.name, tuple(o for o in op.outputs if o)) for op in job.ops), ", ".join(node_names(op) for op in job.ops[:3]),
        )  # fmt: skip

    def submit(self, compiled: _OrtSegment, ticket: Ticket) -> None:
        """Run the session and copy its outputs into the arena."""
        ticket.wait()
        ticket.stamps.append(time.perf_counter_ns())
        try:
            values = compiled.session.run(list(compiled.outputs), compiled.feeds)
        except Exception as e:
            raise ExecutionError(
                f"ONNX Runtime failed in {compiled.stamped[0]} (nodes {compiled.label}, …): {str(e).splitlines()[0]}"
            ) from e
        results = dict(zip(compiled.outputs, values, strict=True))
        for op, names in compiled.written:
            for name in names:
                _store(compiled, name, results[name])
            if ticket.observe is not None:
                ticket.observe(op)
        ticket.stamps.append(time.perf_counter_ns())
        ticket.signal()


def _store(compiled: _OrtSegment, name: str, value: Any) -> None:
    target = compiled.outputs[name]
    if np.shape(value) != target.shape:
        raise ExecutionError(
            f"ONNX Runtime returned {name!r} as {list(np.shape(value))} in {compiled.stamped[0]} (nodes {compiled.label}), and the "
            f"plan is for {list(target.shape)}: the file declares a shape that depends on the data"
        )
    target[...] = value


def _session(model: bytes) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails is raised, and said once
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as e:
        raise UnsupportedModelError(f"ONNX Runtime does not accept a segment: {str(e).splitlines()[0]}") from e
