"""Chains of views (Reshape, Squeeze, Unsqueeze, Flatten) become one Reshape, or nothing.

Converters write one view for each source line that changes a shape, and each costs a launch where a compiler copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hetsched.graph import Graph, Op, Role, Tensor
from hetsched.passes.dead_code import live
from hetsched.passes.rewriting import inline, reading

#: Operators that give a tensor another shape and move nothing.
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


@dataclass(frozen=True)
class MergeViews:
    """A view of a view → a Reshape of the first one's input; a view that comes back to its input's shape → nothing."""

    name: ClassVar[str] = "merge-views"
    requires: ClassVar[tuple[str, ...]] = ("no-dead-code",)
    ensures: ClassVar[tuple[str, ...]] = ("views-merged",)

    def __call__(self, graph: Graph) -> Graph:
        """The graph with at most one view in a row; the same object if there was no chain."""
        tensors, same = dict(graph.tensors), dict[str, str]()
        source: dict[str, tuple[str, tuple[str, ...]]] = {}  # what a view writes -> what it is a view of, the nodes between
        ops = []
        for op in graph.ops:
            op = reading(op, same)
            if not _is_view(op, graph.tensors):
                ops.append(op)
                continue
            root, origin = source.get(op.inputs[0], (op.inputs[0], ()))
            out, origin = op.outputs[0], tuple(dict.fromkeys((*origin, *op.origin)))
            source[out] = root, origin
            if tensors[root].shape == tensors[out].shape and out not in graph.output_set:
                same[out] = root
            elif root == op.inputs[0]:
                ops.append(op)
            else:
                shape = inline(f"{out}/shape", np.asarray(tensors[out].shape, np.int64))
                tensors[shape.name] = shape
                ops.append(Op(op.name, "Reshape", (root, shape.name), (out,), {}, "", origin))
        if tuple(ops) == graph.ops:
            return graph
        return graph.replace(ops=tuple(live(tuple(ops), graph.outputs)), tensors=tensors)


def _is_view(op: Op, tensors: Mapping[str, Tensor]) -> bool:
    """Whether ``op`` only reshapes one computed tensor, whose elements mean the same before and after."""
    if op.type not in VIEWS or op.domain or op.body or len(op.outputs) != 1:
        return False
    x, y = tensors[op.inputs[0]], tensors[op.outputs[0]]
    return not x.is_constant and x.dtype is y.dtype and x.quantization == y.quantization and Role.STATE not in (x.role, y.role)
