"""The NeuroPilot delegate: segments for MediaTek's APU, as TFLite models for LiteRT.

Compiling ahead of time for an APU needs MediaTek's SDK. Its Python package installs without an error where the vendor's files could
not be fetched, and is then empty: what counts is the library in it. Here LiteRT's interpreter runs the models on the CPU: the
numbers count, the times mean nothing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hetsched.errors import DelegateError, UnsupportedModelError, first_line
from hetsched.graph import Graph, Op
from hetsched.lowering.onnx_segment import Ends
from hetsched.lowering.tflite import refusal, tflite_model
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.delegates.chatter import without_chatter
from hetsched.runtime.delegates.segments import Array, CopiedSegment, Predict, check_ops, copied_segment, submit_copied, uncalibrated
from hetsched.runtime.support import node_names, unreadable_constant

_SDK = "ai_edge_litert_sdk_mediatek"
#: LiteRT's plug-in that compiles for an APU.
_COMPILER = "libLiteRtCompilerPlugin_MediaTek.so"
_PRECISIONS = ("f32", "f16", "w8a8")
_ABSENT = "LiteRT is not installed: install hetsched[litert]"
_STAND_IN = "LiteRT's interpreter on the CPU"


class NeuropilotDelegate:
    """One TFLite model a segment."""

    name = "neuropilot"

    def probe(self) -> Probe:
        """Available where LiteRT is installed; whether it can compile for an APU is said apart."""
        try:
            found = version("ai-edge-litert")
        except PackageNotFoundError:
            return Probe(False, reason=_ABSENT)
        try:
            compiler_plugin()
            builds = "TFLite models; MediaTek's SDK is here, and they are not compiled with it yet"
        except DelegateError as e:
            builds = f"TFLite models, not compiled for an APU: {e}"
        return Probe(True, found, devices=("CPU",), runs="numerics, on the CPU", builds=builds, emulated=_STAND_IN)

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """What can be written as TFLite operators."""
        if precision not in _PRECISIONS:
            return f"TFLite models are written in {', '.join(_PRECISIONS)}, not in {precision}"
        floats = uncalibrated(op, graph, precision) if precision == "w8a8" else None
        return floats or unreadable_constant(op, graph) or refusal(graph, op)

    def compile(self, job: SegmentJob) -> CopiedSegment:
        """Write the segment as a model and open it in the interpreter."""
        check_ops(job, self.supports, "with LiteRT")
        return copied_segment(job, "LiteRT", lambda part, ends: opened(part, ends))

    def submit(self, compiled: CopiedSegment, ticket: Ticket) -> None:
        """Invoke the interpreter, and copy inputs and results: its tensors are its own."""
        submit_copied(compiled, ticket)


def compiled_for(model: bytes, soc_model: str) -> bytes:
    """A TFLite model compiled ahead of time for an APU, by LiteRT with MediaTek's SDK.

    Args:
        model: the flatbuffer.
        soc_model: MediaTek's name of the chip, ``MT6989``.

    Raises:
        DelegateError: the SDK is absent or empty, does not know the chip, or refuses the model.
    """
    from tempfile import TemporaryDirectory

    compiler_plugin()
    try:
        from ai_edge_litert.aot.aot_compile import aot_compile
        from ai_edge_litert.aot.vendors.mediatek import target

        with TemporaryDirectory() as folder:
            path = Path(folder) / "segment.tflite"
            path.write_bytes(model)
            result = aot_compile(str(path), folder, target.Target(target.SocModel(soc_model)), keep_going=False)
            result.load()
            return bytes(result.models[0].model_bytes)
    except Exception as e:
        raise DelegateError(f"MediaTek's compiler does not compile a segment for {soc_model}: {first_line(e)}") from e


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


def opened(job: SegmentJob, ends: Ends) -> Predict:
    """An interpreter of the segment's model.

    Raises:
        UnsupportedModelError: TFLite has no such operator, or LiteRT refuses the model.
        DelegateError: LiteRT is not installed.
    """
    interpreter = interpreted(job.graph, job.ops, ends)[1]
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()

    def predict(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        for detail, name in zip(inputs, ends.inputs, strict=True):
            interpreter.set_tensor(detail["index"], feeds[name].reshape(detail["shape"]))
        interpreter.invoke()
        return {name: interpreter.get_tensor(detail["index"]) for detail, name in zip(outputs, ends.outputs, strict=True)}

    return predict


def interpreted(graph: Graph, ops: Sequence[Op], ends: Ends) -> tuple[bytes, Any]:
    """Operators as a TFLite model, and LiteRT's interpreter of it, which has the graph's shapes.

    Raises:
        UnsupportedModelError: TFLite has no such operator, or LiteRT refuses the model.
        DelegateError: LiteRT is not installed.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as e:
        raise DelegateError(_ABSENT) from e
    model = tflite_model(graph, ops, ends)
    try:
        with without_chatter():
            interpreter = Interpreter(model_content=model, num_threads=1)
            interpreter.allocate_tensors()
    except Exception as e:
        raise UnsupportedModelError(f"LiteRT refuses the segment of {node_names(ops[0])}, …: {first_line(e)}") from e
    for detail, name in zip(interpreter.get_output_details(), ends.outputs, strict=True):
        found, wanted = tuple(int(n) for n in detail["shape"]), graph.tensors[name].shape
        if found != wanted:
            raise UnsupportedModelError(f"LiteRT gives {name!r} as {list(found)}, and the plan has {list(wanted)}")
    return model, interpreter
