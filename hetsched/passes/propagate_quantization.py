"""Data movement on integers: QuantizeLinear moves up and DequantizeLinear down, past what only moves elements.

Moving elements and quantizing them one by one can be done in either order, so every rewriting here is exact. What
cancels: a DequantizeLinear and the QuantizeLinear after it where both mean the same. The pairs that remain around
operators are absorbed by :mod:`~hetsched.passes.fuse_quantization`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from hetsched.graph import LINEAR_QUANTIZATION, DType, Graph, Op, Role, Tensor
from hetsched.passes.dead_code import live
from hetsched.passes.quantization_parameters import Parameters, parameters
from hetsched.passes.rewriting import inline, scalar, sole_reader

_MOVES = frozenset(
    {
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Slice",
        "Expand",
        "Tile",
        "Split",
        "Gather",
        "DepthToSpace",
        "SpaceToDepth",
    }
)
#: In ONNX these are defined on integers of 8 bits only.
_BYTES_ONLY = frozenset({"MaxPool", "Resize", "Pad"})


@dataclass(slots=True)
class _Rewriting:
    """``real`` maps a dequantized tensor to its integers and what they mean; ``same`` a tensor to the one that it equals."""

    graph: Graph
    tensors: dict[str, Tensor]
    ops: list[Op] = field(default_factory=list)
    real: dict[str, tuple[str, Parameters]] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PropagateQuantization:
    """DQ → Q with the same parameters cancels; DQ sinks below, and Q rises above, data movement (per tensor, constant)."""

    name: ClassVar[str] = "propagate-quantization"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code",)
    ensures: ClassVar[tuple[str, ...]] = ("quantization-propagated",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with data movement on integers; the same object if there is no Q and DQ."""
        if not any(op.type in LINEAR_QUANTIZATION for op in graph.ops):
            return graph
        return _sunk(_risen(graph))


def moves_elements(graph: Graph, op: Op) -> bool:
    """Whether ``op`` only moves elements of its first input (of all, for Concat), so that it can do so with integers."""
    if op.domain or op.body or not op.inputs or not op.inputs[0]:
        return False
    if op.type in _MOVES or op.type == "Concat":
        return True
    if op.type == "MaxPool":
        return len([o for o in op.outputs if o]) == 1 and len(graph.tensors[op.inputs[0]].shape) == 4
    if op.type == "Resize":
        return op.attr_str("mode", "nearest") == "nearest" and op.attr_str("coordinate_transformation_mode", "") != "tf_crop_and_resize"
    if op.type == "Pad":
        fill = op.inputs[2] if len(op.inputs) > 2 else ""
        return op.attr_str("mode", "constant") != "constant" or not fill or scalar(graph, fill) is not None
    return False


def _risen(graph: Graph) -> Graph:
    """QuantizeLinear above data movement, so that the operator that computes the data writes the integers itself."""
    ops, tensors = list(graph.ops), dict(graph.tensors)
    for i in range(len(ops) - 1, -1, -1):
        move = ops[i]
        if not moves_elements(graph, move) or move.type in {"Concat", "Split"}:
            continue
        j = sole_reader(graph, move.outputs[0])
        if j is None or ops[j].type != "QuantizeLinear" or not _computed(graph, ops, move.inputs[0], i):
            continue
        meaning, source = parameters(ops[j], tensors), move.inputs[0]
        inner = f"{source}/integers"
        inputs = None if meaning is None or inner in tensors else _on_integers(graph, move, (inner,), meaning, tensors)
        if meaning is None or inputs is None:
            continue
        tensors[inner] = Tensor(inner, tensors[source].shape, meaning.stored, Role.ACTIVATION, meaning.quantization)
        _, *rest = ops[j].inputs
        ops[i], ops[j] = replace(ops[j], inputs=(source, *rest), outputs=(inner,)), replace(move, inputs=inputs, outputs=ops[j].outputs)
    return graph.replace(ops=tuple(ops), tensors=tensors)


def _computed(graph: Graph, ops: list[Op], name: str, reader: int) -> bool:
    """Whether an operator that can write integers computes ``name`` for ``reader`` alone."""
    producer = graph.producer.get(name)
    if producer is None or sole_reader(graph, name) != reader:
        return False
    op = ops[producer]
    return op.type not in LINEAR_QUANTIZATION and not op.is_control_flow and len([o for o in op.outputs if o]) == 1


def _sunk(graph: Graph) -> Graph:
    """DequantizeLinear below data movement; cancelled where the same QuantizeLinear follows."""
    state = _Rewriting(graph, dict(graph.tensors))
    for op in graph.ops:
        now = replace(op, inputs=tuple(state.same.get(i, i) for i in op.inputs))
        meaning = parameters(op, graph.tensors)
        if op.type == "DequantizeLinear" and meaning is not None and not graph.tensors[op.inputs[0]].is_constant:
            state.real[op.outputs[0]] = (now.inputs[0], meaning)
        gone = op.type == "QuantizeLinear" and meaning is not None and _cancels(state, op, meaning)
        if not gone and not (moves_elements(graph, op) and _sink(state, now)):
            state.ops.append(now)
    return graph.replace(ops=tuple(live(tuple(state.ops), graph.outputs)), tensors=state.tensors)


def _cancels(state: _Rewriting, op: Op, meaning: Parameters) -> bool:
    """Whether a QuantizeLinear only undoes a DequantizeLinear; then its output is the integers that were there."""
    known, graph = state.real.get(op.inputs[0]), state.graph
    out = op.outputs[0]
    readers = [graph.ops[i] for i in graph.consumers.get(out, ())]
    if known is None or not known[1].same(meaning) or out in graph.outputs or any(r.body or r.is_control_flow for r in readers):
        return False
    state.same[out] = known[0]
    return True


def _sink(state: _Rewriting, op: Op) -> bool:
    """Let a movement of dequantized tensors move their integers and dequantize its outputs."""
    graph = state.graph
    data = op.inputs if op.type == "Concat" else op.inputs[:1]
    known = [state.real.get(i) for i in data]
    first = known[0]
    outputs = [o for o in op.outputs if o]
    if first is None or any(k is None or not k[1].same(first[1]) for k in known) or any(o in graph.outputs for o in outputs):
        return False
    meaning = first[1]
    inner = [f"{o}/integers" for o in outputs]
    if all(_only_quantized(graph, o, meaning) for o in outputs) or any(n in state.tensors for n in inner):
        return False
    inputs = _on_integers(graph, op, tuple(k[0] for k in known if k is not None), meaning, state.tensors)
    if inputs is None:
        return False
    for name in inputs[: len(data)]:
        if state.tensors[name].quantization is None:
            state.tensors[name] = replace(state.tensors[name], quantization=meaning.quantization)
    new = dict(zip(outputs, inner, strict=True))
    state.ops.append(replace(op, inputs=inputs, outputs=tuple(new.get(o, o) for o in op.outputs)))
    for o, integers in new.items():
        state.tensors[integers] = Tensor(integers, graph.tensors[o].shape, meaning.stored, Role.ACTIVATION, meaning.quantization)
        state.ops.append(Op(f"{op.name}/{o}/dequantize", "DequantizeLinear", (integers, *meaning.names), (o,), {}, "", op.origin))
        state.real[o] = (integers, meaning)
    return True


def _only_quantized(graph: Graph, name: str, meaning: Parameters) -> bool:
    """Whether all that reads ``name`` is one QuantizeLinear with this meaning: then it is absorbed as it is."""
    i = sole_reader(graph, name)
    found = None if i is None or graph.ops[i].type != "QuantizeLinear" else parameters(graph.ops[i], graph.tensors)
    return found is not None and found.same(meaning)


def _on_integers(graph: Graph, op: Op, data: tuple[str, ...], meaning: Parameters, tensors: dict[str, Tensor]) -> tuple[str, ...] | None:
    """The inputs of ``op`` with ``data`` in front.

    None if it does not take such integers, or what a Pad fills in has no integer that stands for it exactly.
    """
    rest = list(op.inputs[len(data) :])
    if op.type in _BYTES_ONLY and meaning.stored not in {DType.I8, DType.U8}:
        return None
    if op.type != "Pad" or op.attr_str("mode", "constant") != "constant":
        return (*data, *rest)
    fill = scalar(graph, rest[1]) if len(rest) > 1 and rest[1] else 0.0
    code = meaning.code(fill or 0.0)
    called = f"{op.name}/fill"
    if meaning.value(code) != fill or called in tensors:
        return None
    tensors[called] = inline(called, np.array(code, meaning.stored.numpy))
    return (*data, rest[0], called, *rest[2:])
