"""Bundles for Qualcomm's NPU: context binaries (EPContext models) of its segments, models for ONNX Runtime of all others."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

from hetsched.errors import DelegateError, UnsupportedModelError, first_line
from hetsched.export import ort, phone
from hetsched.export.bundle import BundleFolder, BundleSegment
from hetsched.export.segments import Source, file_name
from hetsched.lowering.onnx_segment import onnx_model
from hetsched.runtime.delegates import qnn, qnn_context
from hetsched.runtime.delegates.qnn_target import PROVIDER, Target, version

RUNTIME = "ONNX Runtime"
MINIMUM_RUNTIME = "1.24"


def write(source: Source, folder: BundleFolder) -> tuple[BundleSegment, ...]:
    """Compile the NPU's segments and write the others as :mod:`hetsched.export.ort` does.

    Raises:
        UnsupportedModelError: the NPU does not take a segment; the message names its nodes.
        DelegateError: the SoC has no Hexagon NPU that can be compiled for, or the compiler is not here.
    """
    found = qnn.QnnDelegate().probe()
    if not found.available:
        raise DelegateError(found.reason)
    target = Target.of(source.soc)
    written = {s.index: s for s in ort.write(source, folder)}
    for segment in source.plan.segments:
        described = written[segment.index]
        if described.settings["provider"] != PROVIDER:
            continue
        half = "f16" in source.precisions(segment)
        options = qnn.options_for(target, half=half)
        model = onnx_model(source.graph, source.ops(segment), source.ends(segment))
        name = file_name(segment, ".onnx")
        (folder.path / name).unlink()
        context = folder.path / file_name(segment, "-context.onnx")
        qnn.build_context(model, target, options, context, partial(_refused, described))
        written[segment.index] = described.model_copy(update={"file": context.relative_to(folder.path).as_posix()})
    folder.write("target.json", (json.dumps(asdict(target) | {"qnn": version()}, indent=1, sort_keys=True) + "\n").encode())
    segments = tuple(written[k] for k in sorted(written))
    phone.write(source.soc, segments, folder)
    return segments


def check_target(folder: Path, soc: Target) -> None:
    """Whether all contexts of a bundle are for ``soc`` and as they were written.

    Raises:
        DelegateError: one was made for another SoC, or is damaged.
    """
    for path in sorted(folder.glob("segments/*-context.onnx")):
        qnn_context.check_context(path, soc)


def _refused(segment: BundleSegment, model: bytes, target: Target, options: object, error: Exception) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"segment {segment.index} (nodes {', '.join(segment.ops[:3])}, …) does not compile for {target}: {first_line(error)}"
    )
