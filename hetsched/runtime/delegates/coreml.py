"""The Core ML delegate: segments for Apple's processors, as ML programs.

On macOS Core ML runs them. Elsewhere the package is written, read again by this project's own reader of Core ML files, compared
with the plan (shapes, element types), and *interpreted* with numpy: the numbers count, the times mean nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np

from hetsched.errors import DelegateError
from hetsched.graph import Graph, Op
from hetsched.lowering.mil import Units, mil_package, names_in, refusal
from hetsched.lowering.onnx_segment import Ends
from hetsched.runtime.delegates import coreml_devices
from hetsched.runtime.delegates.base import Probe, SegmentJob, Ticket
from hetsched.runtime.delegates.segments import Array, CopiedSegment, Predict, check_ops, copied_segment, submit_copied, uncalibrated
from hetsched.runtime.support import unreadable_constant

#: What a processor computes in; integers need Q/DQ, or 4-bit weights, in the model.
PRECISIONS = ("f32", "f16", "w8a8", "w8a16", "w4a16")
_INTERPRETER = "numpy on the written program, not Core ML"


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
        floats = uncalibrated(op, graph, precision) if precision.startswith("w") else None
        return floats or unreadable_constant(op, graph) or refusal(graph, op)

    def compile(self, job: SegmentJob) -> CopiedSegment:
        """Write the segment as a package and open it."""
        check_ops(job, self.supports, "with Core ML")
        notes: list[str] = []
        segment = copied_segment(job, "Core ML", lambda part, ends: opened(part, ends, notes))
        segment.notes.extend(notes)
        return segment

    def submit(self, compiled: CopiedSegment, ticket: Ticket) -> None:
        """Predict, and copy the results into the arena: Core ML returns arrays of its own."""
        submit_copied(compiled, ticket)


def opened(job: SegmentJob, ends: Ends, notes: list[str]) -> Predict:
    """The segment as something that predicts: Core ML's model on macOS, elsewhere the written program, interpreted.

    On macOS ``notes`` are given what Core ML prefers to run on other processors than the plan's.

    Raises:
        UnsupportedModelError: Core ML has no such operation.
        DelegateError: what was written is not what the plan has.
    """
    units = cast("Units", job.segment.queue.partition(":")[0])
    half = "f32" not in {job.precision[op.name] for op in job.ops}
    folder = TemporaryDirectory(prefix="hetsched-")  # weights are read when they are needed: it goes with what reads them
    path = Path(folder.name) / "segment.mlpackage"
    mil_package(job.graph, job.ops, ends, path, half=half, units=units)
    predict = _model(path, units, notes) if sys.platform == "darwin" else interpreter(path, job.graph, ends)

    named = names_in((*ends.inputs, *ends.outputs))

    def by_names(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        assert folder is not None
        results = predict({named[n]: passed(a) for n, a in feeds.items()})
        return {n: np.asarray(results[named[n]]) for n in ends.outputs}

    return by_names


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


def _model(path: Path, units: Units, notes: list[str]) -> Predict:
    """Core ML's own model of a package; it reads the files now."""
    import coremltools as ct

    from hetsched.lowering.mil import UNITS

    model = ct.models.MLModel(str(path), compute_units=ct.ComputeUnit[UNITS[units]])
    notes.extend(coreml_devices.of_package(model.get_compiled_model_path(), units))
    return cast("Predict", model.predict)


def passed(values: Array) -> Array:
    """An input as Core ML takes it: a copy, whole numbers and booleans in 32 bits.

    Raises:
        ValueError: a number does not fit into them.
    """
    if values.dtype.kind == "f" or values.dtype == np.int32:
        return values.copy()
    narrow = values.astype(np.int32)
    if (narrow != values).any():
        raise ValueError("a 64-bit integer does not fit into Core ML's 32 bits")
    return narrow
