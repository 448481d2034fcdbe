"""Unrolling: a loop of few known trips becomes what it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hetsched.frontends.onnx_loops import ScanForm, loop_counts, trip_count
from hetsched.frontends.onnx_subgraphs import inlined, subgraph
from hetsched.frontends.onnx_tensors import constant
from hetsched.graph import CONTROL_FLOW, Op

if TYPE_CHECKING:
    import onnx

    from hetsched.frontends.onnx_trace import Trace

#: Loops of more trips, and those that would become more operators, stay loops.
MAX_UNROLLED_TRIPS = 16
MAX_UNROLLED_NODES = 512


def unroll(trace: Trace, node: onnx.NodeProto, name: str) -> bool:
    """Add the operators of every trip of a Loop or Scan, if their number is known and small; says whether it did."""
    return _loop(trace, node, name) if node.op_type == "Loop" else _scan(trace, node, name)


def _loop(trace: Trace, node: onnx.NodeProto, name: str) -> bool:
    carried, scans = loop_counts(node, name)
    body = subgraph(node, name, "body", 2 + carried, 1 + carried + scans)
    trips = trip_count(trace, node, name)
    condition = node.input[1]
    if trips is None or not 1 <= trips <= MAX_UNROLLED_TRIPS or trips * _size(body) > MAX_UNROLLED_NODES:
        return False
    if condition and not (trace.is_known(condition) and trace.truth(condition, name)):
        return False
    child, label = trace.child(), trace.unfolding.label(node.op_type, name)
    values = list(node.input[2:])
    rows: list[Sequence[str]] = []
    for k in range(trips):
        prefix = f"{label}/{k}"
        counter = child.add_constant(f"{prefix}/{body.input[0].name}", _counter(body.input[0], k))
        going = child.add_constant(f"{prefix}/{body.input[1].name}", np.array(True))
        outputs = _trip(child, name, body, prefix, [counter, going, *values])
        values = outputs[1 : 1 + carried]
        rows.append(outputs[1 + carried :])
        if not child.is_known(outputs[0]):
            return False
        if not child.truth(outputs[0], name):
            break
    _carry(child, name, label, values, node.output[:carried])
    for j, target in enumerate(node.output[carried:]):
        _stack(child, name, label, [row[j] for row in rows], target, 0)
    trace.join(child, operators=True)
    return True


def _scan(trace: Trace, node: onnx.NodeProto, name: str) -> bool:
    form = ScanForm.of(trace, node, name)
    if not 1 <= form.steps <= MAX_UNROLLED_TRIPS or form.steps * _size(form.body) > MAX_UNROLLED_NODES:
        return False
    child, label = trace.child(), trace.unfolding.label(node.op_type, name)
    values = list(node.input[: form.states])
    rows: list[Sequence[str]] = []
    for k in range(form.steps):
        prefix = f"{label}/{k}"
        elements = []
        for j, source in enumerate(node.input[form.states :]):
            at = form.steps - 1 - k if form.input_reversed[j] else k
            element = f"{prefix}/{form.body.input[form.states + j].name}"
            index = child.add_constant(f"{element}/at", np.array(at, np.int64))
            child.add_op(Op(element, "Gather", (source, index), (element,), {"axis": form.input_axes[j]}, "", (name,)))
            elements.append(element)
        outputs = _trip(child, name, form.body, prefix, [*values, *elements])
        values = outputs[: form.states]
        rows.append(outputs[form.states :])
    _carry(child, name, label, values, node.output[: form.states])
    for j, target in enumerate(node.output[form.states :]):
        parts = [row[j] for row in rows]
        _stack(child, name, label, parts[::-1] if form.output_reversed[j] else parts, target, form.output_axes[j])
    trace.join(child, operators=True)
    return True


def _trip(trace: Trace, name: str, body: onnx.GraphProto, prefix: str, given: Sequence[str]) -> list[str]:
    """Add the operators of one trip; returns the names of what the body returns."""
    bound = {i.name: g for i, g in zip(body.input, given, strict=True)}
    nodes, initializers, outputs = inlined(trace.unfolding, body, prefix, bound)
    for proto, new in initializers:
        trace.add_inner(constant(proto, new, trace.model), name)
    trace.nested(nodes, f"{prefix}/")
    for o in outputs:
        trace.tensor(o)
    return outputs


def _carry(trace: Trace, name: str, label: str, values: Sequence[str], targets: Sequence[str]) -> None:
    for source, target in zip(values, targets, strict=False):
        if target:
            trace.add_op(Op(f"{label}/{target}", "Identity", (source,), (target,), {}, "", (name,)))


def _stack(trace: Trace, name: str, label: str, parts: Sequence[str], target: str, axis: int) -> None:
    """Put what the trips returned side by side along a new axis."""
    if not target:
        return
    rank = len(trace.tensor(parts[0]).shape) + 1
    axes = trace.add_constant(f"{label}/{target}/axis", np.array([axis % rank], np.int64))
    rows = [f"{label}/{target}/{k}" for k in range(len(parts))]
    for part, row in zip(parts, rows, strict=True):
        trace.add_op(Op(row, "Unsqueeze", (part, axes), (row,), {}, "", (name,)))
    trace.add_op(Op(f"{label}/{target}", "Concat", tuple(rows), (target,), {"axis": axis % rank}, "", (name,)))


def _counter(info: onnx.ValueInfoProto, k: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.full((1,) * len(info.type.tensor_type.shape.dim[:1]), k, np.int64)


def _size(graph: onnx.GraphProto) -> int:
    """About how many operators a subgraph comes to, loops inside counted as unrolled."""
    total = 1
    for node in graph.node:
        inner = sum(_size(a.g) for a in node.attribute if a.HasField("g"))
        total += 1 + inner * (MAX_UNROLLED_TRIPS if node.op_type in CONTROL_FLOW - {"If"} else 1)
    return total
