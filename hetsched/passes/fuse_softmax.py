"""Softmax with the scale and the mask before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.graph import Graph
from hetsched.passes.rewriting import Fusion, apply, fused, is_float, other_input, scalar, sole_reader


@dataclass(frozen=True)
class FuseSoftmax:
    """``softmax(x * scale + mask)`` → FusedSoftmax; either of scale and mask may be missing, not both."""

    name: ClassVar[str] = "fuse-softmax"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code",)
    ensures: ClassVar[tuple[str, ...]] = ("softmax-fused",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with masked and scaled softmax fused."""
        found = (self._fusion(graph, i) for i, op in enumerate(graph.ops) if op.type == "Softmax" and not op.body)
        return apply(graph, [f for f in found if f is not None])

    def _fusion(self, graph: Graph, i: int) -> Fusion | None:
        softmax = graph.ops[i]
        if not is_float(graph, softmax.inputs[0]):
            return None
        members, x, mask, scale = [i], softmax.inputs[0], "", 1.0
        added = _mask(graph, x, i)
        if added is not None:
            member, x, mask = added
            members.insert(0, member)
        scaled = _scale(graph, x, members[0])
        if scaled is not None:
            member, x, scale = scaled
            members.insert(0, member)
        if len(members) == 1:
            return None
        axis = softmax.attr_int("axis", -1)
        op = fused([graph.ops[m] for m in members], "FusedSoftmax", (x, mask), {"scale": scale, "axis": axis})
        return Fusion(tuple(members), op)


def _only_for(graph: Graph, tensor: str, reader: int, kinds: tuple[str, ...]) -> int | None:
    """The producer of ``tensor`` if it is one of ``kinds`` and ``reader`` alone reads it."""
    producer = graph.producer.get(tensor)
    if producer is None or sole_reader(graph, tensor) != reader:
        return None
    op = graph.ops[producer]
    return producer if op.type in kinds and not op.body and not op.domain else None


def _scale(graph: Graph, tensor: str, reader: int) -> tuple[int, str, float] | None:
    i = _only_for(graph, tensor, reader, ("Mul", "Div"))
    if i is None:
        return None
    op = graph.ops[i]
    for k, x in enumerate(op.inputs):
        other = other_input(op, x)
        value = None if other is None else scalar(graph, other)
        if value is None or graph.tensors[x].shape != graph.tensors[tensor].shape or graph.tensors[x].is_constant:
            continue
        if op.type == "Mul":
            return i, x, value
        if k == 0 and value != 0:
            return i, x, 1 / value
    return None


def _mask(graph: Graph, tensor: str, reader: int) -> tuple[int, str, str] | None:
    """A mask added just before; of two operands of full size the product of a matrix, or its scaling, is the scores."""
    i = _only_for(graph, tensor, reader, ("Add",))
    if i is None:
        return None
    op = graph.ops[i]
    full = graph.tensors[tensor].shape
    sides = [x for x in dict.fromkeys(op.inputs) if graph.tensors[x].shape == full and not graph.tensors[x].is_constant]
    sides = [x for x in sides if other_input(op, x) is not None]
    if len(sides) == 2:
        sides = [x for x in sides if _is_scores(graph, x)]
    if len(sides) != 1:
        return None
    other = other_input(op, sides[0])
    return None if other is None else (i, sides[0], other)


def _is_scores(graph: Graph, name: str) -> bool:
    producer = graph.producer.get(name)
    if producer is None:
        return False
    op = graph.ops[producer]
    if op.type in {"Mul", "Div"}:
        return any(graph.tensors[i].elements == 1 for i in op.inputs) and any(_is_scores(graph, i) for i in op.inputs)
    return op.type in {"MatMul", "FusedMatMul"}
