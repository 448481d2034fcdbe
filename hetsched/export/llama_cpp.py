"""Flags for llama.cpp: which tensors of a GGUF file go to which device, from where the plan has the operators that read them."""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping

from hetsched.errors import UnsupportedModelError
from hetsched.export.bundle import BundleFolder, BundleSegment
from hetsched.export.segments import Source

RUNTIME = "llama.cpp"
#: The first build with ``--override-tensor``.
MINIMUM_RUNTIME = "b4998"
_CPU = "CPU"
#: Processor's delegate and kind -> llama.cpp's name of the device.
_DEVICES: Mapping[tuple[str, str], str] = {
    ("qnn", "npu"): "HTP0", ("wgpu", "gpu"): "GPUOpenCL", ("coreml", "gpu"): "Metal", ("coreml", "npu"): "Metal",
}  # fmt: skip
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


def write(source: Source, folder: BundleFolder) -> tuple[BundleSegment, ...]:
    """Write ``llama.args`` (the flags, one line), ``tensors.json`` (tensor -> device) and ``run.sh``.

    Raises:
        UnsupportedModelError: the model is not a GGUF file.
    """
    graph = source.graph
    if graph.source is None or graph.source.suffix != ".gguf":
        raise UnsupportedModelError(f"{graph.name!r} is not a GGUF file, and llama.cpp runs nothing else: export it --to ort")
    devices = tensor_devices(source)
    flags = override_flags(devices)
    folder.write("tensors.json", (json.dumps(devices, indent=1, sort_keys=True) + "\n").encode())
    folder.write("llama.args", (" ".join(map(shlex.quote, flags)) + "\n").encode())
    command = f'exec llama-cli -m "$1" -p "$2" {" ".join(map(shlex.quote, flags))}'
    lines = ("#!/bin/sh", f'# Usage: run.sh path/to/{graph.source.name} "PROMPT"', command, "")
    folder.write("run.sh", "\n".join(lines).encode())
    return tuple(source.described(s, "", {"device": _device(source, s.queue)}) for s in source.plan.segments)


def tensor_devices(source: Source) -> dict[str, str]:
    """Weight of the file -> device of the operator that reads it (the first one in the plan's order)."""
    out: dict[str, str] = {}
    for segment in source.plan.segments:
        device = _device(source, segment.queue)
        for op in source.ops(segment):
            for name in _weights(source, op.inputs):
                out.setdefault(name, device)
    return dict(sorted(out.items()))


def override_flags(devices: Mapping[str, str]) -> list[str]:
    r"""Command-line flags: every layer offloaded, and overrides for the tensors that are not on the device of most.

    Examples:
        >>> override_flags({"blk.0.attn_q.weight": "CPU", "blk.1.attn_q.weight": "GPUOpenCL", "blk.1.ffn_up.weight": "GPUOpenCL"})
        ['--device', 'GPUOpenCL', '-ngl', '999', '-ot', 'blk\\.(0)\\.attn_q\\.weight=CPU']
        >>> override_flags({"blk.0.attn_q.weight": "CPU"})
        ['--device', 'none', '-ngl', '0']
    """
    bytes_of: dict[str, int] = defaultdict(int)
    for device in devices.values():
        bytes_of[device] += 1
    used = [d for d in sorted(bytes_of) if d != _CPU]
    if not used:
        return ["--device", "none", "-ngl", "0"]
    main = max(used, key=lambda d: (bytes_of[d], d))
    flags = ["--device", ",".join([main, *(d for d in used if d != main)]), "-ngl", "999"]
    grouped: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, device in devices.items():
        found = _BLOCK.fullmatch(name)
        if device != main and found:
            grouped[found[2], device].append(int(found[1]))
        elif device != main:
            flags += ["-ot", f"{re.escape(name)}={device}"]
    for (rest, device), layers in sorted(grouped.items()):
        flags += ["-ot", f"blk\\.({'|'.join(map(str, sorted(layers)))})\\.{re.escape(rest)}={device}"]
    return flags


def _device(source: Source, queue: str) -> str:
    processor = source.soc.by_name[source.soc.queues[queue].partition(":")[0]]
    return _DEVICES.get((processor.delegate, processor.kind), _CPU)


def _weights(source: Source, names: Iterable[str]) -> list[str]:
    """Names of the file's own weights among an operator's inputs."""
    return [n for n in names if n in source.graph.tensors and source.graph.tensors[n].is_constant and n.endswith((".weight", ".bias"))]
