"""Bundles for OpenVINO: one model, and the device that each of its operators has an affinity to (the HETERO plug-in)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from hetsched.export.bundle import BundleFolder, BundleSegment
from hetsched.export.segments import Source
from hetsched.lowering.onnx_segment import ends_of, onnx_model, original_nodes

RUNTIME = "OpenVINO"
MINIMUM_RUNTIME = "2025.0"
MODEL = "model.onnx"
_DEVICES: Mapping[str, str] = {"cpu": "CPU", "gpu": "GPU", "npu": "NPU"}


def write(source: Source, folder: BundleFolder) -> tuple[BundleSegment, ...]:
    """Write the model, ``affinities.json`` (node name -> device) and the runner."""
    graph = source.graph
    folder.write(MODEL, onnx_model(graph, graph.ops, ends_of(graph, graph.ops)))
    affinities: dict[str, str] = {}
    for segment in source.plan.segments:
        device = _DEVICES[source.processor(segment).kind]
        affinities.update((node.name, device) for node in original_nodes(source.ops(segment)))
    folder.write("affinities.json", (json.dumps(affinities, indent=1, sort_keys=True) + "\n").encode())
    folder.write("run.py", (files("hetsched.export") / "run_openvino.py").read_bytes())
    return tuple(source.described(s, "", {"device": _DEVICES[source.processor(s).kind]}) for s in source.plan.segments)
