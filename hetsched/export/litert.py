"""Bundles for LiteRT: a TFLite model a segment, with int8 operators where the plan has them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from hetsched.export.bundle import BundleFolder, BundleSegment
from hetsched.export.segments import Source, file_name
from hetsched.runtime.delegates.neuropilot import interpreted

RUNTIME = "LiteRT"
MINIMUM_RUNTIME = "2.0"
_ACCELERATORS: Mapping[str, str] = {"cpu": "CPU", "gpu": "GPU", "npu": "NPU"}


def write(source: Source, folder: BundleFolder) -> tuple[BundleSegment, ...]:
    """Write the segments and the runner.

    Raises:
        UnsupportedModelError: TFLite has no operator for a node, or LiteRT refuses the model.
        DelegateError: LiteRT is not installed.
    """
    out = []
    for segment in source.plan.segments:
        name = folder.write(file_name(segment, ".tflite"), interpreted(source.graph, source.ops(segment), source.ends(segment))[0])
        out.append(source.described(segment, name, {"accelerator": _ACCELERATORS[source.processor(segment).kind]}))
    folder.write("run.py", (files("hetsched.export") / "run_litert.py").read_bytes())
    return tuple(out)
