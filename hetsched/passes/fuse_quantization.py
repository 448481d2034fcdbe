"""Integer tensors instead of DequantizeLinear and QuantizeLinear around every operator.

A DequantizeLinear goes into each operator that reads it, which then reads the integers themselves; a QuantizeLinear
that alone reads an operator's output goes into that operator. What the integers stand for is in
``Tensor.quantization``, and the operator's ``body`` still says exactly what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hetsched.graph import LINEAR_QUANTIZATION, Graph, Op, Quantization, Tensor
from hetsched.passes.rewriting import SMALL_ELEMENTS, sole_reader


@dataclass(frozen=True)
class FuseQuantization:
    """Q/DQ graph → operators on integer tensors. Q and DQ with computed scales, and those with no partner, remain."""

    name: ClassVar[str] = "fuse-quantization"
    requires: ClassVar[tuple[str, ...]] = ("quantization-propagated", "norms-named", "softmax-fused", "conv-fused", "matmul-fused")
    ensures: ClassVar[tuple[str, ...]] = ("integers-absorbed",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with Q and DQ absorbed."""
        if not any(op.type in LINEAR_QUANTIZATION for op in graph.ops):
            return graph
        tensors = _with_quantization(graph)
        readers = {op.outputs[0]: op for op in graph.ops if op.type == "DequantizeLinear" and _agrees(op, tensors)}
        ops: list[Op] = []
        gone: set[str] = set()
        absorbed: dict[str, str] = {}
        for op in graph.ops:
            if op.name in gone:
                continue
            if op.type not in LINEAR_QUANTIZATION and not op.is_control_flow:
                after = _quantizer(graph, op, tensors)
                op = _on_integers(op, readers, after)
                if after is not None:
                    gone.add(after.name)
                    absorbed[after.outputs[0]] = after.name
            ops.append(op)
        return graph.replace(ops=tuple(_without_idle(ops, graph.outputs)), tensors=tensors)


def _on_integers(op: Op, readers: dict[str, Op], after: Op | None) -> Op:
    """``op`` with the DequantizeLinear before it and the QuantizeLinear ``after`` it in its body."""
    before = [readers[i] for i in dict.fromkeys(op.inputs) if i in readers]
    if not before and after is None:
        return op
    body = (*before, *(op.body or (op,)), *(() if after is None else (after,)))
    inputs = tuple(readers[i].inputs[0] if i in readers else i for i in op.inputs)
    origin = tuple(dict.fromkeys(o for part in body for o in part.origin))
    outputs = op.outputs if after is None else (after.outputs[0], *op.outputs[1:])
    return replace(op, inputs=inputs, outputs=outputs, body=body, origin=origin)


def _quantizer(graph: Graph, op: Op, tensors: dict[str, Tensor]) -> Op | None:
    """The QuantizeLinear that alone reads the only output of ``op``, or the main one of a composite."""
    if len([o for o in op.outputs if o]) != 1 and not op.body:
        return None
    i = sole_reader(graph, op.outputs[0])
    if i is None or graph.ops[i].type != "QuantizeLinear" or graph.ops[i].inputs[0] != op.outputs[0]:
        return None
    return graph.ops[i] if _agrees(graph.ops[i], tensors) else None


def _integers(op: Op) -> str:
    return op.outputs[0] if op.type == "QuantizeLinear" else op.inputs[0]


def _with_quantization(graph: Graph) -> dict[str, Tensor]:
    """The tensors, integer ones with the meaning that the first Q or DQ with constant parameters gives them."""
    tensors = dict(graph.tensors)
    for op in graph.ops:
        meaning = _meaning(op, graph)
        name = _integers(op) if op.type in LINEAR_QUANTIZATION else ""
        if meaning is not None and tensors[name].quantization is None:
            tensors[name] = replace(tensors[name], quantization=meaning)
    return tensors


def _meaning(op: Op, graph: Graph) -> Quantization | None:
    if op.type not in LINEAR_QUANTIZATION or op.domain:
        return None
    scale = graph.tensors[op.inputs[1]]
    zero_point = op.inputs[2] if len(op.inputs) > 2 and op.inputs[2] else None
    if not scale.is_constant or (zero_point is not None and not graph.tensors[zero_point].is_constant):
        return None
    rank, block = len(graph.tensors[op.inputs[0]].shape), op.attr_int("block_size", 0)
    if block:
        return Quantization(scale.name, zero_point, "group", op.attr_int("axis", 1) % rank, block)
    if scale.elements == 1:
        return Quantization(scale.name, zero_point)
    return Quantization(scale.name, zero_point, "channel", op.attr_int("axis", 1) % rank)


def _agrees(op: Op, tensors: dict[str, Tensor]) -> bool:
    """Whether ``op`` reads or writes its integers as ``Tensor.quantization`` says."""
    meaning = tensors[_integers(op)].quantization
    if meaning is None or op.domain:
        return False
    zero_point = op.inputs[2] if len(op.inputs) > 2 and op.inputs[2] else None
    return _same(op.inputs[1], meaning.scale, tensors) and _same(zero_point or "", meaning.zero_point or "", tensors)


def _same(a: str, b: str, tensors: dict[str, Tensor]) -> bool:
    """Whether two names mean the same parameter: exporters write equal ones under names of their own."""
    if a == b or not a or not b:
        return a == b
    x, y = tensors[a], tensors[b]
    if (x.dtype, x.shape) != (y.dtype, y.shape) or x.elements > SMALL_ELEMENTS:
        return False
    present = all(t.data is not None and t.data.is_present for t in (x, y))
    return present and np.array_equal(x.numpy(), y.numpy())


def _without_idle(ops: list[Op], outputs: tuple[str, ...]) -> list[Op]:
    """Drop each DequantizeLinear that nobody reads any more."""
    read = {i for op in ops for i in op.inputs} | set(outputs)
    return [op for op in ops if op.type != "DequantizeLinear" or op.outputs[0] in read]
