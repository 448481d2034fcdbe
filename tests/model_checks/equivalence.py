"""Fusion keeps what a model computes: every operator of the fused graph on the tensors of a run of the unfused one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from model_checks.meaning import constant, declared

from hetsched.errors import HetschedError
from hetsched.graph import Graph, Op, Role, Tensor, WeightRef
from hetsched.passes import standard
from hetsched.reference import run_op

Array = np.ndarray[Any, Any]
#: Largest difference of floats, over the largest value of the tensor.
TOLERANCE = 2e-4


@dataclass
class Comparison:
    """What was compared: ``fused`` operators with a body, ``declared`` those whose type and attributes alone say what they compute.

    ``opaque`` are types that the reference has no function for: noise stands in for what they write. ``unchecked`` counts, by
    type, fused operators with such an operator in their body. ``worst`` are the operators that differ; ``left`` says why the
    rest of the model was not run.
    """

    fused: int = 0
    declared: int = 0
    opaque: dict[str, int] = field(default_factory=dict)
    unchecked: dict[str, int] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    left: str = ""


def compare(graph: Graph, seed: int = 0, limit_s: float = 60.0) -> Comparison:
    """Run ``graph`` on seeded noise, operator by operator, then each operator of the fused graph on the same tensors.

    The time limit is looked at between operators; what is left by then is named in ``left``.
    """
    out, end = Comparison(), time.perf_counter() + limit_s
    rng = np.random.default_rng(seed)
    values = {name: noise(graph.tensors[name], rng) for name in graph.inputs}
    for op in graph.ops:
        if time.perf_counter() > end:
            out.left = f"{op.name} and what follows: over {limit_s:.0f} s"
            break
        values.update(zip(op.outputs, _results(graph, op, values, rng, out), strict=False))
    try:
        fused = standard(graph)
    except Exception as error:  # a pass that breaks is a finding of this model, not the end of the table
        out.worst[f"the passes: {type(error).__name__} {error}"] = float("inf")
        return out
    _check_fused(fused, values, out, end, limit_s)
    return out


def _results(graph: Graph, op: Op, values: dict[str, Array], rng: np.random.Generator, out: Comparison) -> list[Array]:
    try:
        return run_op(op, _inputs(graph, op, values), graph.tensors)
    except HetschedError:
        kind = f"{op.domain}.{op.type}" if op.domain else op.type
        out.opaque[kind] = out.opaque.get(kind, 0) + 1
        return [noise(graph.tensors[o], rng) if o else np.zeros(0) for o in op.outputs]


def _inputs(graph: Graph, op: Op, values: dict[str, Array]) -> list[Array | None]:
    return [None if not n else constant(graph, n) if graph.tensors[n].is_constant else values[n] for n in op.inputs]


def _check_fused(fused: Graph, values: dict[str, Array], out: Comparison, end: float, limit_s: float) -> None:
    for op in fused.ops:
        if not op.body or op.type in {"If", "Loop", "Scan"}:
            continue
        if time.perf_counter() > end + limit_s:
            out.left = out.left or f"{op.name} of the fused graph and what follows: over {2 * limit_s:.0f} s"
            return
        if not all(o in values for o in op.outputs if o) or not all(n in values or fused.tensors[n].is_constant for n in op.inputs if n):
            continue  # after the time limit
        inputs = _inputs(fused, op, values)
        try:
            by_body = run_op(op, inputs, fused.tensors)
        except HetschedError:
            out.unchecked[op.type] = out.unchecked.get(op.type, 0) + 1
            continue
        out.fused += 1
        try:
            by_type = declared(fused, op, inputs)
        except (HetschedError, ValueError, AssertionError) as error:
            out.worst[f"{op.name} ({op.type}): what it declares cannot be computed: {error}"] = float("inf")
            by_type = None
        out.declared += by_type is not None
        for results in (by_body, by_type or []):
            for name, got in zip(op.outputs, results, strict=False):
                _judge(op, got, values[name], out)


def _judge(op: Op, got: Array, expected: Array, out: Comparison) -> None:
    off = difference(got, expected)
    if off > TOLERANCE:
        out.worst[f"{op.name} ({op.type})"] = max(off, out.worst.get(f"{op.name} ({op.type})", 0.0))


def difference(got: Array, expected: Array) -> float:
    """How far apart: of floats the largest error over the largest value; of integers steps beyond one, and the share that is off.

    Up to 0.1 % of integers may be off by one step: a float that lies between two integers to rounding.
    """
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return float("inf")
    if got.size == 0:
        return 0.0
    if got.dtype.kind == "f":
        finite = np.isfinite(expected)
        if not np.array_equal(finite, np.isfinite(got)):
            return float("inf")
        if not finite.any():
            return 0.0
        a, b = got[finite].astype(np.float64), expected[finite].astype(np.float64)
        rounding = 5.0 if got.dtype == np.float16 else 1.0
        return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-3)) / rounding
    steps = np.abs(got.astype(np.int64) - expected.astype(np.int64))
    return float(max(0, int(steps.max()) - 1)) + float((steps > 0).mean() if (steps > 0).mean() > 1e-3 and steps.size > 1000 else 0.0)


def noise(tensor: Tensor, rng: np.random.Generator) -> Array:
    """Values for a tensor: normal floats, small non-negative integers, all of the range for quantized ones, an empty state."""
    if tensor.role is Role.STATE and not tensor.dtype.is_float:
        return np.zeros(tensor.shape, tensor.dtype.numpy)
    if tensor.dtype.is_float:
        return rng.standard_normal(tensor.shape).astype(tensor.dtype.numpy)
    if tensor.dtype.value == "bool":
        return rng.integers(0, 2, tensor.shape).astype(np.bool_)
    info = np.iinfo(tensor.dtype.numpy)
    high = info.max + 1 if tensor.dtype.bits <= 16 else 2
    return rng.integers(info.min if tensor.dtype.bits <= 16 else 0, high, tensor.shape).astype(tensor.dtype.numpy)


def with_weights(graph: Graph, seed: int = 0) -> Graph:
    """The graph of a file without its weights, with seeded ones: normal, scaled by the inputs of a product; variances positive.

    Two constants that are the same range of the absent file get the same values, in either orientation.
    """
    rng = np.random.default_rng(seed)
    variances = {op.inputs[4] for op in graph.ops if op.type == "BatchNormalization"}
    made: dict[tuple[str, int], Array] = {}
    tensors = dict(graph.tensors)
    for name, t in graph.tensors.items():
        if t.data is None or t.data.is_present or t.is_packed:
            continue
        order = t.data.order or tuple(range(len(t.shape)))
        key = (str(t.data.path), t.data.offset) if t.data.path is not None else (name, -1)
        if key not in made:
            stored = tuple(t.shape[order.index(axis)] for axis in range(len(order)))
            values = rng.standard_normal(stored)
            values = values * (2.0 / max(1, int(np.prod(stored[1:])))) ** 0.5 if len(stored) > 1 else 1 + 0.1 * values
            made[key] = np.abs(values).astype(t.dtype.numpy) if name in variances else values.astype(t.dtype.numpy)
        array = made[key].reshape([t.shape[order.index(axis)] for axis in range(len(order))]).transpose(order)
        tensors[name] = replace(t, data=WeightRef(array=array))
    return graph.replace(tensors=tensors)
