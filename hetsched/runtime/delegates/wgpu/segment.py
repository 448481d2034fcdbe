"""A compiled segment on a device: its buffers, its bind groups, and one command buffer a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.runtime.delegates.base import SegmentJob
from hetsched.runtime.delegates.wgpu.device import Gpu
from hetsched.runtime.delegates.wgpu.memory import ALIGNMENT, arrange, lifetimes, side_by_side
from hetsched.runtime.delegates.wgpu.program import Dispatch, Program, Slot
from hetsched.runtime.fences import Completion
from hetsched.runtime.support import node_names

_FROM_KIND: dict[str, Any] = {"f16": np.float16, "f32": np.float32}


@dataclass(frozen=True, slots=True)
class _Call:
    """A dispatch that is ready to be encoded."""

    op: int
    pipeline: Any
    bind_group: Any
    groups: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Crossing:
    """A tensor between the arena and the segment's input or output buffer."""

    array: npt.NDArray[Any]
    slot: Slot


@dataclass(slots=True)
class WgpuSegment:
    """What ``compile`` returns. ``running`` is the completion of a run that was given up, until it has ended."""

    stamped: tuple[str, ...]
    label: str
    gpu: Gpu
    names: tuple[str, ...]
    written: tuple[tuple[Crossing, ...], ...]
    calls: tuple[_Call, ...]
    entering: tuple[Crossing, ...]
    leaving: tuple[Crossing, ...]
    buffers: Mapping[str, Any]
    staging: Any
    arena_bytes: int
    running: Completion | None = None

    # -- one run ---------------------------------------------------------------------------------------------------------

    def upload(self) -> list[int]:
        """Copy the inputs to the device; returns the bytes of each copy."""
        copies: list[int] = []
        if not self.entering:
            return copies
        buffer = self.buffers["input"]
        for crossing in self.entering:
            raw = np.ascontiguousarray(crossing.array).reshape(-1).view(np.uint8)
            copies.append(raw.size)
            if self.gpu.host_visible:
                buffer.write_mapped(raw, crossing.slot.offset)
            else:
                self.gpu.upload(buffer, raw, crossing.slot.offset)
                copies.append(raw.size)  # the queue's own staging memory
        if self.gpu.host_visible:
            buffer.unmap()
        return copies

    def submit(self, calls: Iterable[_Call], copies: Sequence[tuple[Any, int, int, int]] = ()) -> None:
        """Encode kernels, and copies ``(buffer, offset, offset in the staging buffer, bytes)`` after them, and submit them."""
        encoder = self.gpu.device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        for call in calls:
            compute.set_pipeline(call.pipeline)
            compute.set_bind_group(0, call.bind_group)
            compute.dispatch_workgroups(*call.groups)
        compute.end()
        for buffer, offset, at, nbytes in copies:
            encoder.copy_buffer_to_buffer(buffer, offset, self.staging, at, nbytes)
        self.gpu.device.queue.submit([encoder.finish()])

    def fetch(self, crossings: Sequence[Crossing], mapped: Any, offsets: Sequence[int]) -> None:
        """Copy tensors from mapped memory into the arena."""
        for crossing, offset in zip(crossings, offsets, strict=True):
            slot, array = crossing.slot, crossing.array
            if array.size == 0:
                continue
            raw = np.frombuffer(mapped.read_mapped(offset, -(-slot.nbytes // 8) * 8, copy=False), np.uint8)
            kind = _FROM_KIND.get(slot.kind, array.dtype)
            array[...] = raw[: slot.elements * np.dtype(kind).itemsize].view(kind).reshape(array.shape)


def build(job: SegmentJob, program: Program, gpu: Gpu) -> WgpuSegment:
    """Place the slots, make the buffers, compile the shaders.

    Raises:
        UnsupportedModelError: what the segment needs is more than the device allows; the message names the node.
    """
    lives = lifetimes(program.dispatches)
    entering = tuple(Crossing(job.buffers[n], program.slots[n]) for n in program.entering)
    leaving = tuple(Crossing(job.buffers[n], program.slots[n]) for n in program.leaving)
    sizes = {
        "arena": arrange(lives), "input": side_by_side(c.slot for c in entering), "output": side_by_side(c.slot for c in leaving),
        "weight": side_by_side(program.weights),
    }  # fmt: skip
    _check_limits(job, program, gpu, sizes)
    uses = {"arena": "storage", "weight": "storage", "input": "write", "output": "read"}
    buffers = {pool: gpu.buffer(size, uses[pool]) for pool, size in sizes.items() if size}
    for slot in program.weights:
        assert slot.data is not None
        gpu.upload(buffers["weight"], slot.data, slot.offset)
    written = tuple(
        tuple(Crossing(job.buffers[o], program.slots[o]) for o in op.outputs if o and o in job.buffers) for op in job.ops
    )  # fmt: skip
    largest = max((sum(_rounded(c.slot.nbytes) for c in crossings) for crossings in written), default=0)
    staging = gpu.buffer(max(sizes["output"], largest, ALIGNMENT), "staging")
    name = job.ops[0].name if len(job.ops) == 1 else f"segment {job.segment.index}"
    return WgpuSegment(
        (name,), ", ".join(node_names(op) for op in job.ops[:3]) + (", …" if len(job.ops) > 3 else ""), gpu,
        tuple(op.name for op in job.ops), written, _calls(program.dispatches, gpu, buffers), entering, leaving, buffers, staging,
        sizes["arena"],
    )  # fmt: skip


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 8) * 8


def _check_limits(job: SegmentJob, program: Program, gpu: Gpu, sizes: Mapping[str, int]) -> None:
    most, bound = gpu.limits["max-buffer-size"], gpu.limits["max-storage-buffer-binding-size"]
    for dispatch in program.dispatches:
        large = next((slot for slot in dispatch.bindings if slot.nbytes > bound), None)
        if large is not None:
            raise UnsupportedModelError(
                f"node {node_names(job.ops[dispatch.op])} needs a buffer of {large.nbytes} bytes, and the GPU {gpu.adapter.name!r} binds "
                f"at most {bound}: run it elsewhere"
            )
    pool, size = max(sizes.items(), key=lambda item: item[1])
    if size > most:
        kind = {"weight": "weights", "arena": "intermediate tensors"}.get(pool, f"{pool}s")
        raise UnsupportedModelError(
            f"the {kind} of segment {job.segment.index} (from node {node_names(job.ops[0])} on) take {size} bytes, and a buffer of the GPU "
            f"{gpu.adapter.name!r} has at most {most}: split the segment or run it elsewhere"
        )


def _calls(dispatches: Sequence[Dispatch], gpu: Gpu, buffers: Mapping[str, Any]) -> tuple[_Call, ...]:
    """Pipelines and bind groups; the parameters of all dispatches share a buffer."""
    offsets, data = [], bytearray()
    for dispatch in dispatches:
        offsets.append(len(data))
        data += dispatch.params
        data += bytes(-len(data) % ALIGNMENT)
    params = gpu.buffer(len(data), "uniform")
    if data:
        gpu.upload(params, np.frombuffer(bytes(data), np.uint8))
    return tuple(_call(d, gpu, buffers, params, offset) for d, offset in zip(dispatches, offsets, strict=True))


def _call(dispatch: Dispatch, gpu: Gpu, buffers: Mapping[str, Any], params: Any, offset: int) -> _Call:
    writable = tuple(slot.pool != "weight" for slot in dispatch.bindings)
    pipeline, layout = gpu.pipeline(dispatch.source, writable)
    size = -(-len(dispatch.params) // 16) * 16
    resources = [(params, offset, size), *((buffers[s.pool], s.offset, s.nbytes) for s in dispatch.bindings)]
    entries = [{"binding": i, "resource": {"buffer": b, "offset": at, "size": n}} for i, (b, at, n) in enumerate(resources)]
    return _Call(dispatch.op, pipeline, gpu.device.create_bind_group(layout=layout, entries=entries), dispatch.groups)
