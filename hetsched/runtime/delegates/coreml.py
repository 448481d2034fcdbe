"""The Core ML delegate: segments for Apple's processors, as ML programs.

On macOS Core ML runs them. Elsewhere the package is written, read again by this project's own reader of Core ML files, compared
with the plan (shapes, element types), and *interpreted* with numpy: the numbers count, the times mean nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from hetsched.errors import DelegateError, ExecutionError, UnsupportedModelError
from hetsched.graph import Graph, Op
from hetsched.lowering.mil import Units, mil_package, names_in, refusal
from hetsched.lowering.onnx_segment import Ends, ends_of
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.support import node_names, unreadable_constant

Array: TypeAlias = npt.NDArray[Any]
#: What a program computes with these inputs: its outputs by Core ML's names.
Predict: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]
#: What a processor computes in; integers need Q/DQ, or 4-bit weights, in the model.
PRECISIONS = ("f32", "f16", "w8a8", "w8a16", "w4a16")
_INTERPRETER = "numpy on the written program, not Core ML"


@dataclass(slots=True)
class _CoremlSegment:
    stamped: tuple[str, ...]
    label: str
    predict: Predict
    job: SegmentJob
    ends: Ends
    watched: tuple[Predict, Ends] | None = None


class CoremlDelegate:
    """One model package a segment, for the processor that the plan names."""

    name = "coreml"

    def probe(self) -> Probe:
        """Available where coremltools is installed; runs on macOS only."""
        try:
            found = version("coremltools")
        except PackageNotFoundError:
            return Probe(False, reason="coremltools is not installed: install hetsched[coreml]")
        builds = "model packages for the CPU, the GPU and the Neural Engine"
        if sys.platform == "darwin":
            return Probe(True, found, devices=("CPU", "GPU", "Neural Engine"), runs="this machine's processors", builds=builds)
        return Probe(True, found, runs="numerics, interpreted", builds=builds, emulated=_INTERPRETER)

    def supports(self, op: Op, graph: Graph, precision: str) -> str | None:
        """What can be written as MIL operations."""
        if precision not in PRECISIONS:
            return f"Core ML computes in {', '.join(PRECISIONS)}, not in {precision}"
        integers = op.type == "MatMulNBits" or any(graph.tensors[n].quantization is not None for n in (*op.inputs, *op.outputs) if n)
        if precision.startswith("w") and not integers:
            return f"it is planned in {precision}, and the model has no Q/DQ around it: calibrate ranges and plan again"
        return unreadable_constant(op, graph) or refusal(graph, op)

    def compile(self, job: SegmentJob) -> _CoremlSegment:
        """Write the segment as a package and open it."""
        for op in job.ops:
            reason = self.supports(op, job.graph, job.precision[op.name])
            if reason is not None:
                raise UnsupportedModelError(f"node {node_names(op)} ({op.type}) cannot run with Core ML: {reason}")
        ends = ends_of(job.graph, job.ops)
        name = job.ops[0].name if len(job.ops) == 1 else f"segment {job.segment.index}"
        return _CoremlSegment((name,), ", ".join(node_names(op) for op in job.ops[:3]), opened(job, ends), job, ends)

    def submit(self, compiled: _CoremlSegment, ticket: Ticket) -> None:
        """Predict, and copy the results into the arena: Core ML returns arrays of its own."""
        ticket.wait()
        ticket.stamps.append(time.perf_counter_ns())
        if ticket.observe is None:
            _store(compiled, _predicted(compiled, compiled.predict, compiled.ends, ticket), compiled.ends.outputs, ticket)
        else:
            _observed(compiled, ticket, ticket.observe)
        ticket.stamps.append(time.perf_counter_ns())
        ticket.signal()


def opened(job: SegmentJob, ends: Ends) -> Predict:
    """The segment as something that predicts: Core ML's model on macOS, elsewhere the written program, interpreted.

    Raises:
        UnsupportedModelError: Core ML has no such operation.
        DelegateError: what was written is not what the plan has.
    """
    units = cast("Units", job.segment.queue.partition(":")[0])
    half = "f32" not in {job.precision[op.name] for op in job.ops}
    with TemporaryDirectory(prefix="hetsched-") as folder:
        path = Path(folder) / "segment.mlpackage"
        mil_package(job.graph, job.ops, ends, path, half=half, units=units)
        return _model(path, units) if sys.platform == "darwin" else interpreter(path, job.graph, ends)


def interpreter(path: Path, graph: Graph, ends: Ends) -> Predict:
    """Read a package again, hold it against the graph, and interpret it.

    Raises:
        DelegateError: its inputs or outputs have other names, shapes or element types.
    """
    from hetsched.frontends import load
    from hetsched.reference.executor import run

    program = load(path)
    named = names_in((*ends.inputs, *ends.outputs))
    for name in (*ends.inputs, *ends.outputs):
        ours, theirs = graph.tensors[name], program.tensors.get(named[name])
        if theirs is None or theirs.elements != ours.elements or theirs.dtype.is_float != ours.dtype.is_float:
            found = "nothing" if theirs is None else f"{list(theirs.shape)} {theirs.dtype}"
            raise DelegateError(f"the package {path.name} has {found} where the plan has {name!r}, {list(ours.shape)} {ours.dtype}")

    def predict(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        return run(program, {n: a.reshape(program.tensors[n].shape) for n, a in feeds.items()})

    return predict


def _model(path: Path, units: Units) -> Predict:
    """Core ML's own model of a package; it reads the files now."""
    import coremltools as ct

    from hetsched.lowering.mil import UNITS

    model = ct.models.MLModel(str(path), compute_units=ct.ComputeUnit[UNITS[units]])
    return cast("Predict", model.predict)


def _predicted(compiled: _CoremlSegment, predict: Predict, ends: Ends, ticket: Ticket) -> dict[str, Array]:
    """Results by the graph's names."""
    job = compiled.job
    named = names_in((*ends.inputs, *ends.outputs))
    feeds = {named[n]: _wanted(job.buffers[n]) for n in ends.inputs}
    ticket.copies.extend(job.buffers[n].nbytes for n in ends.inputs)
    ticket.check()
    try:
        results = predict(feeds)
    except Exception as e:
        ticket.check()
        first = (str(e).splitlines() or [type(e).__name__])[0]
        raise ExecutionError(f"Core ML failed in {compiled.stamped[0]} (nodes {compiled.label}, …): {first}") from e
    return {n: np.asarray(results[named[n]]) for n in ends.outputs}


def _wanted(values: Array) -> Array:
    return values.astype(np.int32) if values.dtype == np.int64 else values.copy()


def _store(compiled: _CoremlSegment, results: Mapping[str, Array], names: tuple[str, ...], ticket: Ticket) -> None:
    for name in names:
        target = compiled.job.buffers[name]
        target[...] = results[name].reshape(target.shape)
        ticket.copies.append(target.nbytes)


def _observed(compiled: _CoremlSegment, ticket: Ticket, observe: Callable[[str], None]) -> None:
    """Every op's results, put into the arena in the order of the ops: later ones may write over earlier ones."""
    job = compiled.job
    if compiled.watched is None:
        every = ends_of(job.graph, job.ops, every=True)
        compiled.watched = opened(job, every), every
    results = _predicted(compiled, *compiled.watched, ticket)
    for op in job.ops:
        _store(compiled, results, tuple(filter(None, op.outputs)), ticket)
        observe(op.name)
