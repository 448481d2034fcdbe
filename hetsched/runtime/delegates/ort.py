"""The ORT delegate: segments run by ONNX Runtime on the CPU, in float, from the operators' original nodes."""

from __future__ import annotations

from typing import Any

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.lowering.onnx_segment import Ends, ends_of, onnx_model
from hetsched.runtime.affinity import usable
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.delegates.segments import check_ops
from hetsched.runtime.ort_session import OrtSegment, bound_segment, submit_segment
from hetsched.runtime.ort_support import ort_supported

_RUNTIME = "ONNX Runtime"


class OrtDelegate:
    """One session a segment, on the queue's own cores. Q/DQ operators run as the file has them; ``w8a8`` of a float model is refused."""

    name = "ort"

    def probe(self) -> Probe:
        """Available where onnxruntime is installed."""
        try:
            import onnxruntime
        except ImportError:
            return Probe(False, reason="ONNX Runtime is not installed: install hetsched[ort]")
        runs = "float and Q/DQ operators of ONNX and com.microsoft, control flow"
        return Probe(True, str(onnxruntime.__version__), devices=("CPU",), runs=runs)

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """What the installed ONNX Runtime has a CPU kernel for; composites through their body."""
        return ort_supported(op, graph, precision)

    def compile(self, job: SegmentJob) -> OrtSegment:
        """Write the segment as a model, open a session on it and bind it to the arena."""
        check_ops(job, self.supports, "with ONNX Runtime")
        ends = ends_of(job.graph, job.ops)
        return bound_segment(job, _RUNTIME, _session(job, ends), ends, lambda: _session(job, ends_of(job.graph, job.ops, every=True)))

    def submit(self, compiled: OrtSegment, ticket: Ticket) -> None:
        """Run the session on the arena."""
        submit_segment(compiled, ticket)


def _session(job: SegmentJob, ends: Ends) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    cores = usable(job.segment.queue)
    options.intra_op_num_threads = max(1, len(cores))
    if len(cores) > 1:  # the calling thread is the first; cores count from 1 here
        options.add_session_config_entry("session.intra_op_thread_affinities", ";".join(str(c + 1) for c in cores[1:]))
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails is raised, and said once
    try:
        return ort.InferenceSession(onnx_model(job.graph, job.ops, ends), options, providers=["CPUExecutionProvider"])
    except Exception as e:
        raise UnsupportedModelError(f"ONNX Runtime does not accept a segment: {str(e).splitlines()[0]}") from e
