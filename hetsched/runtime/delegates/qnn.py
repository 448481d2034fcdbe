"""The QNN delegate: segments for the Hexagon NPU (HTP), through ONNX Runtime's plug-in provider.

On x86-64 the vendor's emulator computes what the NPU would. Its results count; its times mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from hetsched.errors import DelegateError, UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.lowering.onnx_segment import Ends, ends_of, onnx_model
from hetsched.passes.unfuse import parts
from hetsched.runtime.delegates import qnn_context, qnn_target
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.delegates.chatter import without_chatter
from hetsched.runtime.delegates.qnn_target import PROVIDER, Target
from hetsched.runtime.delegates.segments import check_ops, uncalibrated
from hetsched.runtime.ort_session import OrtSegment, bound_segment, submit_segment
from hetsched.runtime.support import node_names, unreadable_constant

_RUNTIME = "QNN"
#: What the NPU computes in; integers need Q/DQ around the operator.
PRECISIONS = ("f16", "w8a8", "w8a16", "w4a16")
#: Makes an error of ONNX Runtime's into one that names the nodes, given the model, the target, the options and that error.
Refused: TypeAlias = Callable[[bytes, Target, Mapping[str, str], Exception], UnsupportedModelError]
_ABSENT = "the QNN provider of ONNX Runtime is not installed: install hetsched[qnn]"


class QnnDelegate:
    """One context binary a segment. Nothing falls back to the CPU: what the NPU does not take is an error."""

    name = "qnn"

    def probe(self) -> Probe:
        """Available where onnxruntime-qnn is installed and its library loads."""
        try:
            version = qnn_target.version()
        except ImportError:
            return Probe(False, reason=_ABSENT)
        try:
            qnn_target.devices()
        except DelegateError as e:
            return Probe(False, version, str(e))
        builds = "context binaries of SoCs with a compiler_target"
        if qnn_target.is_emulated():
            return Probe(True, version, "", ("HTP emulator",), "numerics of any HTP", builds, "the HTP emulator")
        return Probe(True, version, "", ("HTP",), "plans for this machine's SoC", builds)

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """What the provider's operator table says (:mod:`hetsched_cost_models.support`); compiling is the proof."""
        from hetsched_cost_models.support import support_table

        if precision not in PRECISIONS:
            return f"the NPU computes in {', '.join(PRECISIONS)}, not in {precision}"
        floats = uncalibrated(op, graph, precision) if precision != "f16" else None
        return (
            floats
            or unreadable_constant(op, graph)
            or support_table("hexagon-qnn").refusal(graph, op, "f16" if precision == "f16" else "w8a8")
        )

    def compile(self, job: SegmentJob) -> OrtSegment:
        """Write the segment as a model, compile it for the SoC (or take the stored context) and bind it to the arena."""
        check_ops(job, self.supports, "on the NPU with QNN")
        target = Target.of(job.soc)
        ends = ends_of(job.graph, job.ops)
        return bound_segment(
            job, _RUNTIME, compiled_session(job, target, ends), ends,
            lambda: compiled_session(job, target, ends_of(job.graph, job.ops, every=True)),
        )  # fmt: skip

    def submit(self, compiled: OrtSegment, ticket: Ticket) -> None:
        """Run the context on the arena."""
        submit_segment(compiled, ticket)


def compiled_session(job: SegmentJob, target: Target, ends: Ends) -> Any:
    """A session on the segment's context binary: the stored one, or one made now and stored.

    Raises:
        UnsupportedModelError: the NPU does not take all of it; the message names the nodes.
    """
    model = onnx_model(job.graph, job.ops, ends)
    runtime = qnn_target.version()
    options = options_for(target, half="f16" in {job.precision[op.name] for op in job.ops})
    context = qnn_context.folder_for(target) / f"{qnn_context.key_of(model, target, runtime, options)}.onnx"
    try:
        qnn_context.check_context(context, target)
        return open_session(context, options)
    except Exception:  # absent, or damaged: it is made again
        build_context(model, target, options, context, partial(_refused, job))
    return open_session(context, options)


def build_context(model: bytes, target: Target, options: Mapping[str, str], context: Path, refused: Refused) -> None:
    """Compile a model into a context file.

    Args:
        model: serialised ONNX.
        target: the SoC.
        options: of the provider.
        context: the file to write; its header is written beside it.
        refused: words for what fails.
    """
    context.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=context.parent) as folder:
        made = Path(folder) / "context.onnx"
        try:
            session = open_session(model, options, made)
        except Exception as e:
            raise refused(model, target, options, e) from e
        left = elsewhere(session)
        if left:
            raise refused(model, target, options, RuntimeError(f"{left[0]} was given to another provider"))
        made.replace(context)
    qnn_context.write_header(context, target, qnn_target.version(), model)


def options_for(target: Target, *, half: bool) -> dict[str, str]:
    """Options of the provider: everything on the HTP, the ends' quantization too.

    ``half``: float operators compute in float16. Without them the ends are quantized in float32, which is exact.
    """
    floats = {"enable_htp_fp16_precision": "1"} if half else {}
    return {"backend_type": "htp", "offload_graph_io_quantization": "0", **floats, **target.options}


def open_session(model: bytes | Path, chosen: Mapping[str, str], context: Path | None = None, *, guard: bool = True) -> Any:
    """A session of the provider.

    Args:
        model: serialised ONNX, or a file (a context).
        chosen: options of the provider.
        context: where to write the compiled context.
        guard: refuse a model of which anything would run on the CPU.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1" if guard else "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if context is not None:
        options.add_session_config_entry("ep.context_enable", "1")
        options.add_session_config_entry("ep.context_file_path", str(context))
        options.add_session_config_entry("ep.context_embed_mode", "1")
    options.add_provider_for_devices(list(qnn_target.devices()), dict(chosen))
    with without_chatter():
        return ort.InferenceSession(model if isinstance(model, bytes) else str(model), options)


def elsewhere(session: Any) -> list[str]:
    """Names of the nodes that are not on the NPU, as the session itself reports."""
    return [n.name for part in session.get_provider_graph_assignment_info() if part.ep_name != PROVIDER for n in part.get_nodes()]


def _refused(job: SegmentJob, model: bytes, target: Target, options: Mapping[str, str], error: Exception) -> UnsupportedModelError:
    """Which operators the NPU left to the CPU, by asking again without the guard."""
    try:
        left = elsewhere(open_session(model, options, guard=False))
    except Exception:
        left = []
    named = [op for op in job.ops if any(part.name in left for part in parts(op))]
    if not named:
        return UnsupportedModelError(f"QNN cannot compile segment {job.segment.index} for {target}: {str(error).splitlines()[0]}")
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    return UnsupportedModelError(
        f"node {node_names(named[0])} ({named[0].type}){more} is planned on the NPU, and QNN does not take it for {target}: place it"
        " elsewhere"
    )
