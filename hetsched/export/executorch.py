"""Partition tags for ExecuTorch: which backend each node of an exported program goes to, and the partitioner that reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from hetsched.export.bundle import BundleFolder, BundleSegment
from hetsched.export.segments import Source

RUNTIME = "ExecuTorch"
MINIMUM_RUNTIME = "1.0"
#: Processor's delegate and kind -> backend.
_BACKENDS: Mapping[tuple[str, str], str] = {
    ("qnn", "npu"): "QnnBackend", ("neuropilot", "npu"): "NeuropilotBackend", ("coreml", "npu"): "CoreMLBackend",
    ("coreml", "gpu"): "CoreMLBackend", ("wgpu", "gpu"): "VulkanBackend",
}  # fmt: skip


def write(source: Source, folder: BundleFolder) -> tuple[BundleSegment, ...]:
    """Write ``partition_tags.json`` (node -> tag, tag -> backend) and the partitioner. Nothing here can run them."""
    tags: dict[str, str] = {}
    backends: dict[str, str] = {}
    out = []
    for segment in source.plan.segments:
        processor = source.processor(segment)
        backend = _BACKENDS.get((processor.delegate, processor.kind), "XnnpackBackend")
        tag = f"segment_{segment.index}"
        described = source.described(segment, "", {"backend": backend, "tag": tag})
        backends[tag] = backend
        tags.update(dict.fromkeys(described.ops, tag))
        out.append(described)
    text = json.dumps({"tags": tags, "backends": backends}, indent=1, sort_keys=True) + "\n"
    folder.write("partition_tags.json", text.encode())
    folder.write("partitioner.py", (files("hetsched.export") / "executorch_partitioner.py").read_bytes())
    return tuple(out)
