"""Operators of control flow that stay whole: shaped, costed by their body, executed by ONNX Runtime.

What the branches or the body compute is loaded like any other part of the model, so an inner ``If`` whose condition is
known is inlined and a computed shape is a constant. What the body reads from outside becomes inputs of the operator.

The attribute ``trips`` is how often the body runs, for costing, and ``trips_are`` how that is known: ``exact``; ``bound``
(a constant limit, and a condition that may end the loop earlier); ``declared`` (the length of a result as the file states
it); ``assumed`` (:data:`ASSUMED_TRIPS`, where nothing is known). An ``If`` runs the costlier of its branches once. A branch
that cannot run with the dims as they are bound is replaced by one that fails, and the attribute ``impossible`` says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetsched.errors import ModelError, ShapeError, UnsupportedModelError
from hetsched.frontends.cleanup import without_dead, without_no_ops
from hetsched.frontends.onnx_bodies import Body, written
from hetsched.frontends.onnx_declared import DeclaredShapes
from hetsched.frontends.onnx_impossible import impossible
from hetsched.frontends.onnx_loops import ScanForm, loop_counts, trip_count
from hetsched.frontends.onnx_nodes import plain_attributes
from hetsched.frontends.onnx_subgraphs import inlined, subgraph
from hetsched.frontends.onnx_tensors import constant, from_array
from hetsched.graph import AttrValue, DType, Op, Tensor

if TYPE_CHECKING:
    import onnx

    from hetsched.frontends.onnx_trace import Trace

#: Trips of a loop of which nothing is known.
ASSUMED_TRIPS = 16
#: A loop that is known to run more often is refused: nothing that answers a user does.
MAX_PLANNED_TRIPS = 1 << 20


def keep(trace: Trace, node: onnx.NodeProto, name: str) -> None:
    """Add an ``If``, ``Loop`` or ``Scan`` as one operator.

    Raises:
        ModelError: it is damaged, or runs for ever.
        UnsupportedModelError: the shape of an output depends on the data; the message names the node.
    """
    if node.op_type == "If":
        _if(trace, node, name)
    elif node.op_type == "Loop":
        _loop(trace, node, name)
    else:
        _scan(trace, node, name)


def _if(trace: Trace, node: onnx.NodeProto, name: str) -> None:
    condition = trace.tensor(node.input[0])
    if condition.dtype is not DType.BOOL or condition.elements != 1:
        raise ModelError(f"the If node {name!r} has the condition {condition.name!r}, which is not one bool: the model file is damaged")
    graphs = {key: subgraph(node, name, key, 0, len(node.output)) for key in ("then_branch", "else_branch")}
    label = trace.unfolding.label(node.op_type, name)
    traced: dict[str, Body | ShapeError] = {key: _possible(trace, graph, name, f"{label}/{key}") for key, graph in graphs.items()}
    bodies = {key: body for key, body in traced.items() if isinstance(body, Body)}
    failed = next(((key, why) for key, why in traced.items() if isinstance(why, ShapeError)), None)
    attrs: dict[str, AttrValue] = {}
    if failed is not None:
        if not bodies:
            raise failed[1]
        other = next(iter(bodies.values()))
        bodies[failed[0]] = impossible(trace, label, failed[0], condition, [trace.tensors[o] for o in other.outputs])
        attrs["impossible"] = f"{failed[0]}: {failed[1]}"
    then, other = bodies["then_branch"], bodies["else_branch"]
    outputs = [
        _agreed(trace, name, target, trace.tensors[a], trace.tensors[b])
        for target, a, b in zip(node.output, then.outputs, other.outputs, strict=True)
    ]
    heavy = then if _effort(then, trace.tensors) >= _effort(other, trace.tensors) else other
    _add(trace, node, name, tuple(node.input), outputs, bodies, heavy, attrs)


def _possible(trace: Trace, graph: onnx.GraphProto, node: str, prefix: str) -> Body | ShapeError:
    """A branch, or why it cannot run with the dims as they are bound (one made for another sampling rate, say)."""
    try:
        return _traced(trace, graph, node, prefix, [])
    except ShapeError as error:
        return error


def _agreed(trace: Trace, node: str, target: str, a: Tensor, b: Tensor) -> Tensor:
    """The output of an If: the type and shape of both branches, or the shape that the file declares."""
    if a.dtype is not b.dtype:
        raise ModelError(
            f"the branches of the If node {node!r} return {a.dtype.value} and {b.dtype.value} as {target!r}: the file is damaged"
        )
    if a.shape == b.shape or not target:
        return Tensor(target, a.shape, a.dtype)
    shape = trace.declared.shape(target)
    if shape is None:
        raise UnsupportedModelError(
            f"the branches of node {node!r} (If) return {target!r} as {list(a.shape)} and as {list(b.shape)}, and which one depends on the "
            "data: export the model with one shape for both, or with the condition fixed"
        )
    return Tensor(target, shape, a.dtype)


def _loop(trace: Trace, node: onnx.NodeProto, name: str) -> None:
    carried, scans = loop_counts(node, name)
    graph = subgraph(node, name, "body", 2 + carried, 1 + carried + scans)
    prefix = f"{trace.unfolding.label(node.op_type, name)}/body"
    shape = (1,) * len(graph.input[0].type.tensor_type.shape.dim[:1])
    given = [Tensor(f"{prefix}/{graph.input[0].name}", shape, DType.I64)]
    # Inside the body the condition is true, or it would not run.
    given.append(from_array(f"{prefix}/{graph.input[1].name}", np.array(True)))
    for info, initial in zip(graph.input[2:], node.input[2:], strict=True):
        t = trace.tensor(initial)
        given.append(Tensor(f"{prefix}/{info.name}", t.shape, t.dtype))
    body = _traced(trace, graph, name, prefix, given)
    results = [trace.tensors[o] for o in body.outputs]
    _same_shapes(node.op_type, name, given[2:], results[1 : 1 + carried])
    trips, known = _trips(trace, node, name, body.outputs[0], carried)
    outputs = [replace(g, name=o) for g, o in zip(given[2:], node.output, strict=False)]
    for result, target in zip(results[1 + carried :], node.output[carried:], strict=True):
        declared = trace.declared.shape(target) if known != "exact" and target else None
        if known != "exact" and declared is None and target:
            raise UnsupportedModelError(
                f"the length of {target!r}, collected by node {name!r} (Loop), depends on the data, and the file declares no shape for it: "
                "export the model with a fixed number of trips"
            )
        outputs.append(Tensor(target, declared if declared is not None else (trips, *result.shape), result.dtype))
    _add(trace, node, name, tuple(node.input), outputs, {"body": body}, body, {"trips": trips, "trips_are": known})


def _trips(trace: Trace, node: onnx.NodeProto, name: str, going_on: str, carried: int) -> tuple[int, str]:
    """How often a Loop runs, and how that is known."""
    limit = trip_count(trace, node, name)
    condition = node.input[1]
    starts = not condition or trace.is_known(condition)
    if starts and condition and not trace.truth(condition, name):
        return 0, "exact"
    if starts and trace.is_known(going_on):
        if not trace.truth(going_on, name):
            return min(1, 1 if limit is None else limit), "bound" if limit is None and node.input[0] else "exact"
        if not node.input[0] or (limit is not None and limit > MAX_PLANNED_TRIPS):
            often = "for ever" if limit is None else f"{limit} times"
            raise ModelError(
                f"node {name!r} (Loop) runs its body {often}, and at most {MAX_PLANNED_TRIPS} times can be planned: the model is damaged"
            )
        if limit is not None:
            return limit, "exact"
    if limit is not None and limit <= MAX_PLANNED_TRIPS:
        return limit, "bound"
    for target in node.output[carried:]:
        shape = trace.declared.shape(target) if target else None
        if shape:
            return shape[0], "declared"
    return ASSUMED_TRIPS, "assumed"


def _scan(trace: Trace, node: onnx.NodeProto, name: str) -> None:
    form = ScanForm.of(trace, node, name)
    prefix = f"{trace.unfolding.label(node.op_type, name)}/body"
    given = []
    for j, (info, source) in enumerate(zip(form.body.input, node.input, strict=True)):
        t, shape = trace.tensor(source), list(trace.tensor(source).shape)
        if j >= form.states:
            del shape[form.input_axes[j - form.states]]
        given.append(Tensor(f"{prefix}/{info.name}", tuple(shape), t.dtype))
    body = _traced(trace, form.body, name, prefix, given)
    results = [trace.tensors[o] for o in body.outputs]
    _same_shapes(node.op_type, name, given[: form.states], results[: form.states])
    outputs = [replace(g, name=o) for g, o in zip(given[: form.states], node.output, strict=False)]
    for axis, result, target in zip(form.output_axes, results[form.states :], node.output[form.states :], strict=True):
        at = axis % (len(result.shape) + 1)
        outputs.append(Tensor(target, (*result.shape[:at], form.steps, *result.shape[at:]), result.dtype))
    attrs: dict[str, AttrValue] = {**plain_attributes(node, name, trace.model), "trips": form.steps, "trips_are": "exact"}
    _add(trace, node, name, tuple(node.input), outputs, {"body": body}, body, attrs)


def _same_shapes(kind: str, node: str, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    for a, b in zip(before, after, strict=True):
        if a.shape != b.shape or a.dtype is not b.dtype:
            raise UnsupportedModelError(
                f"node {node!r} ({kind}) is given {a.name!r} as {a.dtype.value}{list(a.shape)} and passes it on as "
                f"{b.dtype.value}{list(b.shape)}: shapes that change from trip to trip cannot be planned ahead"
            )


def _traced(trace: Trace, graph: onnx.GraphProto, node: str, prefix: str, given: Sequence[Tensor]) -> Body:
    """Load a subgraph; its tensors join those of the model, its operators do not."""
    child = trace.child()
    for t in given:
        child.add_inner(t, node)
    nodes, initializers, outputs = inlined(
        trace.unfolding, graph, prefix, {i.name: t.name for i, t in zip(graph.input, given, strict=True)}
    )
    for proto, new in initializers:
        child.add_inner(constant(proto, new, trace.model), node)
    child.declared = DeclaredShapes(((f"{prefix}/{v.name}", v) for v in (*graph.value_info, *graph.output)), around=trace.declared)
    child.nested(nodes, f"{prefix}/")
    for o in outputs:
        child.tensor(o)
    trace.join(child, operators=False)
    ops: Sequence[Op] = without_dead(list(_plain(child.ops)), outputs)
    made = {o for op in ops for o in op.outputs}
    outside = [i for i in dict.fromkeys(i for op in ops for i in op.inputs) if i and i not in made]
    ops = without_dead(without_no_ops(ops, trace.tensors, [*outside, *(o for o in outputs if o not in made)], outputs), outputs)
    return Body(prefix, tuple(ops), tuple(t.name for t in given), tuple(outputs))


def _plain(ops: Iterable[Op]) -> Iterator[Op]:
    """The operators without composites: bodies are written as ONNX."""
    for op in ops:
        if op.is_composite:
            yield from _plain(op.body)
        else:
            yield op


def _add(
    trace: Trace, node: onnx.NodeProto, name: str, inputs: tuple[str, ...], outputs: Sequence[Tensor], bodies: Mapping[str, Body],
    heavy: Body, attrs: Mapping[str, AttrValue],
) -> None:  # fmt: skip
    captures = tuple(dict.fromkeys(c for body in bodies.values() for c in body.captures(trace.tensors)))
    for body in bodies.values():
        for i in body.inputs:  # a condition that is known inside is still given by the operator
            trace.tensors[i] = replace(trace.tensors[i], data=None)
    kept: dict[str, AttrValue] = {
        **attrs,
        **{key: written(body, trace.tensors, trace.unfolding) for key, body in bodies.items()},
        "captures": captures,
    }
    trace.add_whole(Op(name, node.op_type, (*inputs, *captures), tuple(node.output), kept, "", (name,), heavy.ops), outputs)


def _effort(body: Body, tensors: Mapping[str, Tensor]) -> float:
    """About how much work a branch is: products as multiply-accumulates, everything else by what it reads and writes."""
    total = 0.0
    for op in body.ops:
        reads = [tensors[i] for i in op.inputs if i]
        writes = sum(tensors[o].elements for o in op.outputs if o)
        total += writes + sum(t.elements for t in reads)
        if op.type in _PRODUCTS and len(reads) > 1:
            total += writes * math.prod(reads[1].shape) / max(1, reads[1].shape[0] if "Conv" in op.type else reads[1].shape[-1])
        if op.is_control_flow:
            total += op.attr_int("trips", 1) * _effort(Body(op.name, op.body, (), ()), tensors)
    return total


_PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN", "MatMulInteger", "ConvInteger"})
