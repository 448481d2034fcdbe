"""The wgpu delegate: segments as compute kernels on the GPU that WebGPU finds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from hetsched.errors import DelegateError, ExecutionError, HetschedError, UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.delegates.wgpu.device import LOST, Adapter, find_adapter, open_gpu, when_mapped
from hetsched.runtime.delegates.wgpu.segment import WgpuSegment, build
from hetsched.runtime.delegates.wgpu.support import supported
from hetsched.runtime.fences import Completion
from hetsched.runtime.support import node_names


class WgpuDelegate:
    """One command buffer a segment; tensors that only the segment uses stay in device memory."""

    name = "wgpu"

    def probe(self) -> Probe:
        """Available where the package ``wgpu`` finds an adapter; a CPU that stands in for a GPU is named as such."""
        adapter = find_adapter()
        if isinstance(adapter, str):
            return Probe(False, reason=adapter)
        import wgpu

        runs = "f32, w8a8" if not adapter.has_f16 else "f32, f16, w8a8, w4a16"
        emulated = f"{adapter.name}, a CPU that stands in for a GPU" if adapter.software else ""
        return Probe(
            True,
            str(wgpu.__version__),
            devices=(f"{adapter.name}, driver {adapter.driver}",),
            runs=f"WGSL kernels in {runs}",
            emulated=emulated,
        )

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """Whether there are kernels for ``op``; composites without any run by their parts."""
        adapter = find_adapter()
        return supported(op, graph, precision, adapter if isinstance(adapter, Adapter) else None)

    def compile(self, job: SegmentJob) -> WgpuSegment:
        """Lower every op, place its tensors in device memory, upload weights and compile shaders."""
        from hetsched.runtime.delegates.wgpu.operators import lower
        from hetsched.runtime.delegates.wgpu.program import Program

        gpu = open_gpu()
        program = Program(job)
        for position, op in enumerate(job.ops):
            precision = job.precision[op.name]
            reason = self.supports(op, job.graph, precision)
            if reason is not None:
                raise UnsupportedModelError(f"node {node_names(op)} ({op.type}) cannot run on the GPU: {reason}")
            program.at = position
            lower(op, job, program, precision)
        try:
            return build(job, program, gpu)
        except HetschedError:
            raise
        except Exception as e:
            where = f"segment {job.segment.index} (from node {node_names(job.ops[0])} on)"
            raise DelegateError(f"the GPU {gpu.adapter.name!r} does not take {where}: {gpu.why(e)}") from e

    def submit(self, compiled: WgpuSegment, ticket: Ticket) -> None:
        """Upload what comes in, run the kernels, wait for the device, download what goes out."""
        ticket.wait()
        ticket.stamps.append(time.perf_counter_ns())
        try:
            if compiled.gpu.lost:
                raise ExecutionError(_failure(compiled, LOST))
            _prepare(compiled, ticket)
            if ticket.observe is None and ticket.suspect is None:
                _run(compiled, ticket)
            else:
                _one_by_one(compiled, ticket)
        except HetschedError:
            raise
        except Exception as e:
            raise ExecutionError(_failure(compiled, compiled.gpu.why(e))) from e
        ticket.stamps.append(time.perf_counter_ns())
        ticket.signal()


def _failure(segment: WgpuSegment, why: str) -> str:
    return f"the GPU {segment.gpu.adapter.name!r} failed in {segment.stamped[0]} (nodes {segment.label}): {why}"


def _wait(segment: WgpuSegment, ticket: Ticket, buffers: Sequence[tuple[Any, str]]) -> None:
    """Map ``(buffer, mode)``, and wait for that and so for all work submitted before; remember it where the run is given up."""
    completion = Completion()
    when_mapped(buffers, completion.done)
    segment.running = completion
    completion.wait(ticket.check)
    segment.running = None


def _again(segment: WgpuSegment) -> list[tuple[Any, str]]:
    """The input buffer, to be mapped for the next run, where the CPU writes into it directly."""
    return [(segment.buffers["input"], "WRITE")] if segment.gpu.host_visible and segment.entering else []


def _prepare(segment: WgpuSegment, ticket: Ticket) -> None:
    """Bring the buffers into the state that a run starts from: after a run that was given up or failed they may be in any."""
    if segment.running is not None:
        segment.running.settle(ticket.check)
        segment.running = None
    for buffer in (segment.staging, segment.buffers.get("output")):
        if buffer is not None and buffer.map_state == "mapped":
            buffer.unmap()
    closed = [(buffer, mode) for buffer, mode in _again(segment) if buffer.map_state != "mapped"]
    if closed:
        _wait(segment, ticket, closed)


def _run(segment: WgpuSegment, ticket: Ticket) -> None:
    """All kernels in one submission."""
    output = segment.buffers.get("output")
    offsets = [crossing.slot.offset for crossing in segment.leaving]
    ticket.copies.extend(segment.upload())
    if segment.gpu.host_visible and output is not None:
        segment.submit(segment.calls)
        source = output
    else:
        whole = [(output, 0, 0, output.size)] if output is not None else []
        segment.submit(segment.calls, whole)
        source = segment.staging
        ticket.copies.extend(crossing.array.nbytes for crossing in segment.leaving)
    _wait(segment, ticket, [(source, "READ"), *_again(segment)])
    segment.fetch(segment.leaving, source, offsets)
    ticket.copies.extend(crossing.array.nbytes for crossing in segment.leaving)
    source.unmap()


def _one_by_one(segment: WgpuSegment, ticket: Ticket) -> None:
    """Each op in a submission of its own, with its results brought to the arena, where somebody looks at them."""
    segment.upload()
    for position, name in enumerate(segment.names):
        copies, offsets, at = [], [], 0
        crossings = [crossing for crossing in segment.written[position] if crossing.array.size]
        for crossing in crossings:
            slot = crossing.slot
            copies.append((segment.buffers[slot.pool], slot.offset, at, slot.nbytes))
            offsets.append(at)
            at += -(-slot.nbytes // 8) * 8
        segment.submit((call for call in segment.calls if call.op == position), copies)
        last = position == len(segment.names) - 1
        _wait(segment, ticket, [(segment.staging, "READ"), *(_again(segment) if last else ())])
        segment.fetch(crossings, segment.staging, offsets)
        segment.staging.unmap()
        if ticket.suspect is not None and ticket.suspect(name):
            ticket.notes.append(f"op {name!r} gave infinities or values that are no numbers on the GPU, from finite inputs: run it in f32")
        if ticket.observe is not None:
            ticket.observe(name)
