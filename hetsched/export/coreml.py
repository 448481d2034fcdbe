"""Bundles for Core ML: a model package a segment, and the Swift that loads them in order."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from hetsched.export.bundle import BundleFolder, BundleSegment
from hetsched.export.segments import Source, file_name
from hetsched.lowering.mil import mil_package, names_in

RUNTIME = "Core ML"
#: iOS 18 and macOS 15.
MINIMUM_RUNTIME = "8"
_UNITS: Mapping[str, str] = {"cpu": "cpuOnly", "gpu": "cpuAndGPU", "npu": "cpuAndNeuralEngine"}


def write(source: Source, folder: BundleFolder) -> tuple[BundleSegment, ...]:
    """Write a package for each segment, for the processor that the plan names.

    Raises:
        UnsupportedModelError: Core ML has no operation for a node.
    """
    out = []
    for segment in source.plan.segments:
        name, ends = file_name(segment, ".mlpackage"), source.ends(segment)
        (folder.path / name).parent.mkdir(exist_ok=True)
        kind = source.processor(segment).kind
        half = "f32" not in source.precisions(segment)
        mil_package(source.graph, source.ops(segment), ends, folder.path / name, half=half, units=kind)
        named = names_in((*ends.inputs, *ends.outputs))
        out.append(source.described(segment, name, {"computeUnits": _UNITS[kind]}, named.__getitem__))
    folder.write("Run.swift", (files("hetsched.export") / "Run.swift").read_bytes())
    return tuple(out)
