"""Undoing some fusions: composites that a target does not have become what they were made of, one level at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from hetsched.graph import Graph, Op
from hetsched.passes.fuse_quantization import FuseQuantization
from hetsched.passes.unfuse import in_order


def undo(graph: Graph, types: Collection[str]) -> Graph:
    """The graph with every composite of these ``types`` replaced by what it was made of.

    Parts that are composites of ``types`` themselves are undone too; others stay whole. Integer tensors between operators
    that remain are absorbed again.
    """
    return undo_where(graph, lambda op: op.type in types)


def undo_where(graph: Graph, wanted: Callable[[Op], bool]) -> Graph:
    """The graph with every composite for which ``wanted`` holds replaced by its parts, and so on with the parts."""
    if not any(op.is_fusion and wanted(op) for op in graph.ops):
        return graph
    ops = {part.name: part for op in graph.ops for part in _opened(op, wanted)}
    return FuseQuantization()(graph.replace(ops=tuple(in_order(tuple(ops.values())))))


def _opened(op: Op, wanted: Callable[[Op], bool]) -> Iterator[Op]:
    if not (op.is_fusion and wanted(op)):
        yield op
        return
    for part in op.body:
        yield from _opened(part, wanted)
