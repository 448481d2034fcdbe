"""Bundles for ONNX Runtime: a model a segment, the provider and its options, and a runner that needs nothing else.

For Android also a script that runs the segments on a phone (:mod:`hetsched.export.phone`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from hetsched.cores import cores_of
from hetsched.export import phone
from hetsched.export.bundle import BundleFolder, BundleSegment
from hetsched.export.segments import Source, file_name
from hetsched.lowering.onnx_segment import onnx_model
from hetsched.plans import PlanSegment

RUNTIME = "ONNX Runtime"
#: IR version 10 and opset 21.
MINIMUM_RUNTIME = "1.18"
_CPU = {"provider": "CPUExecutionProvider"}
#: Processor's delegate and kind -> provider, and its options that do not depend on the SoC. What is absent runs on the CPU provider.
_PROVIDERS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("qnn", "npu"): {"provider": "QNNExecutionProvider", "backend_type": "htp", "offload_graph_io_quantization": "0"},
    ("coreml", "npu"): {"provider": "CoreMLExecutionProvider", "ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndNeuralEngine"},
    ("coreml", "gpu"): {"provider": "CoreMLExecutionProvider", "ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"},
    ("neuropilot", "npu"): {"provider": "NnapiExecutionProvider"},
    ("wgpu", "gpu"): {"provider": "WebGpuExecutionProvider"},
}


def write(source: Source, folder: BundleFolder) -> tuple[BundleSegment, ...]:
    """Write the segments and the runner; returns what the manifest says of the segments.

    Raises:
        UnsupportedModelError: a segment is not an ONNX model.
    """
    out = []
    for segment in source.plan.segments:
        model = onnx_model(source.graph, source.ops(segment), source.ends(segment), metadata={"hetsched.segment": str(segment.index)})
        name = folder.write(file_name(segment, ".onnx"), model)
        out.append(source.described(segment, name, settings(source, segment)))
    folder.write("run.py", (files("hetsched.export") / "run_ort.py").read_bytes())
    phone.write(source.soc, out, folder)
    return tuple(out)


def settings(source: Source, segment: PlanSegment) -> dict[str, str]:
    """The provider of a segment and its options."""
    processor = source.processor(segment)
    found = dict(_PROVIDERS.get((processor.delegate, processor.kind), _CPU))
    if found["provider"] == "QNNExecutionProvider":
        found |= processor.compiler_target or {}
        if "f16" in source.precisions(segment):
            found["enable_htp_fp16_precision"] = "1"
    if found == _CPU:
        cores = cores_of(source.soc.queues[segment.queue])
        found["intra_op_num_threads"] = str(max(len(cores), 1))
    return found
