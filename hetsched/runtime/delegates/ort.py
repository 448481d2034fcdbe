"""The ORT delegate: segments run by ONNX Runtime on the CPU, in float, from the operators' original nodes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import ExecutionError, UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.support import node_names, unreadable_constant

#: The loader's operator forms are those of opset 18; 21 adds Gelu and 16-bit Q/DQ and changes none of them.
_OPSET = 21
_IR_VERSION = 10


@dataclass(frozen=True, slots=True)
class _OrtSegment:
    stamped: tuple[str, ...]
    session: Any
    feeds: dict[str, npt.NDArray[Any]]
    outputs: dict[str, npt.NDArray[Any]]
    ops: tuple[str, ...]
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
        """Standard ONNX operators, and fused ones through their body."""
        quantized = any(graph.tensors[n].quantization is not None for n in (*op.inputs, *op.outputs) if n)
        if precision != "f32" and not quantized:
            return f"ONNX Runtime runs this op in f32 only, not in {precision}: the model has no Q/DQ around it"
        nodes = _flatten([op])
        foreign = next((o.domain for o in nodes if o.domain not in ("", "ai.onnx")), None)
        if foreign is not None:
            return f"operators of the domain {foreign} are not lowered to ONNX"
        unknown = next((o.type for o in nodes if not _is_standard(o.type)), None)
        if unknown is not None:
            return f"ONNX (opset {_OPSET}) has no operator {unknown}, and the op keeps no nodes that it was made of"
        return unreadable_constant(op, graph)

    def compile(self, job: SegmentJob) -> _OrtSegment:
        """Write the segment as a model and open a session on it."""
        for op in job.ops:
            reason = self.supports(op, job.graph, job.precision[op.name])
            if reason is not None:
                raise UnsupportedModelError(f"node {node_names(op)} ({op.type}) cannot run with ONNX Runtime: {reason}")
        written = [o for op in job.ops for o in op.outputs if o]
        read = [n for op in job.ops for n in job.graph.activations(op) if n not in written]
        inputs = list(dict.fromkeys(read))
        session = _session(_model(job.graph, job.ops, inputs, written))
        name = f"segment {job.segment.index}"
        return _OrtSegment(
            (name,), session, {n: job.buffers[n] for n in inputs}, {n: job.buffers[n] for n in written},
            tuple(op.name for op in job.ops), ", ".join(node_names(op) for op in job.ops[:3]),
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
        for target, value in zip(compiled.outputs.values(), values, strict=True):
            target[...] = value
        ticket.stamps.append(time.perf_counter_ns())
        if ticket.observe is not None:
            for op in compiled.ops:
                ticket.observe(op)
        ticket.signal()


@lru_cache(maxsize=256)
def _is_standard(op_type: str) -> bool:
    """Whether ONNX itself has the operator at the opset that segments are written in."""
    from onnx import defs

    return bool(defs.has(op_type, _OPSET, "")) and not defs.get_schema(op_type, _OPSET, "").deprecated


def _flatten(ops: Iterable[Op]) -> list[Op]:
    """The original nodes of ``ops``; one that is in several bodies (a DequantizeLinear with several readers) once."""
    out: dict[tuple[str, ...], Op] = {}
    for op in ops:
        for node in _flatten(op.body) if op.body else (op,):
            out.setdefault(node.outputs, node)
    return list(out.values())


def _session(model: bytes) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as e:
        raise UnsupportedModelError(f"ONNX Runtime does not accept a segment: {str(e).splitlines()[0]}") from e


def _model(graph: Graph, ops: Iterable[Op], inputs: list[str], outputs: list[str]) -> bytes:
    """The segment as a serialized ONNX model."""
    import onnx
    from onnx import helper, numpy_helper

    nodes = _flatten(ops)
    produced = {o for op in nodes for o in op.outputs}
    constants = dict.fromkeys(n for op in nodes for n in op.inputs if n and n not in produced and n not in inputs)

    def info(name: str) -> Any:
        tensor = graph.tensors[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensor.dtype.numpy), tensor.shape)

    proto = helper.make_graph(
        [helper.make_node(op.type, op.inputs, op.outputs, name=op.name, **_attributes(op)) for op in nodes],
        "segment", [info(n) for n in inputs], [info(n) for n in outputs],
        [numpy_helper.from_array(graph.tensors[n].numpy(), n) for n in constants],
    )  # fmt: skip
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _attributes(op: Op) -> dict[str, Any]:
    from onnx import numpy_helper

    return {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in op.attrs.items()}
