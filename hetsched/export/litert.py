"""Bundles for LiteRT: a TFLite model a segment, with int8 operators where the plan has them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from hetsched.errors import DelegateError
from hetsched.export.bundle import BundleFolder, BundleSegment
from hetsched.export.segments import Source, file_name
from hetsched.runtime.delegates.neuropilot import compiled_for, interpreted

RUNTIME = "LiteRT"
MINIMUM_RUNTIME = "2.0"
_ACCELERATORS: Mapping[str, str] = {"cpu": "CPU", "gpu": "GPU", "npu": "NPU"}


def write(source: Source, folder: BundleFolder) -> tuple[BundleSegment, ...]:
    """Write the segments and the runner; where MediaTek's SDK is, the APU's segments compiled for the chip, too.

    Raises:
        UnsupportedModelError: TFLite has no operator for a node, or LiteRT refuses the model.
        DelegateError: LiteRT is not installed.
    """
    out = []
    for segment in source.plan.segments:
        model = interpreted(source.graph, source.ops(segment), source.ends(segment))[0]
        settings = {"accelerator": _ACCELERATORS[source.processor(segment).kind]}
        chip = source.processor(segment).compiler_target.get("soc_model", "")
        if chip and source.processor(segment).delegate == "neuropilot":
            try:
                folder.write(file_name(segment, f"-{chip}.tflite"), compiled_for(model, chip))
                settings["compiled"] = file_name(segment, f"-{chip}.tflite")
            except DelegateError as e:
                settings["not_compiled"] = str(e)
        out.append(source.described(segment, folder.write(file_name(segment, ".tflite"), model), settings))
    folder.write("run.py", (files("hetsched.export") / "run_litert.py").read_bytes())
    return tuple(out)
