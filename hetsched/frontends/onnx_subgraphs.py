"""Inlining the body of a branch: its tensors get names that cannot clash with those outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def inlined(graph: onnx.GraphProto, prefix: str) -> tuple[list[onnx.NodeProto], list[tuple[onnx.TensorProto, str]], list[str]]:
    """A branch as part of the graph around it.

    Returns:
        Its nodes, its initializers with their new names, and the new names of its outputs.
    """
    own = [t.name for t in graph.initializer] + [o for n in graph.node for o in n.output if o]
    new = {name: f"{prefix}/{name}" for name in own}
    nodes = [_renamed(n, new) for n in graph.node]
    return nodes, [(t, new[t.name]) for t in graph.initializer], [new.get(o.name, o.name) for o in graph.output]


def _renamed(node: onnx.NodeProto, new: Mapping[str, str]) -> onnx.NodeProto:
    out = type(node)()
    out.CopyFrom(node)
    out.input[:] = [new.get(i, i) for i in node.input]
    out.output[:] = [new.get(o, o) for o in node.output]
    for a in out.attribute:
        if a.HasField("g"):
            _rename_captured(a.g, new)
    return out


def _rename_captured(graph: onnx.GraphProto, new: Mapping[str, str]) -> None:
    """Names that a nested branch takes from outside (ONNX forbids it to define the same name again)."""
    for i, node in enumerate(graph.node):
        graph.node[i].CopyFrom(_renamed(node, new))
    for o in graph.output:
        o.name = new.get(o.name, o.name)
