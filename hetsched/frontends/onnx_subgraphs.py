"""Inlining the body of a branch or a loop: its tensors get names that cannot clash with those outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hetsched.errors import ModelError, UnsupportedModelError

if TYPE_CHECKING:
    import onnx


def subgraph(node: onnx.NodeProto, name: str, key: str, inputs: int, outputs: int) -> onnx.GraphProto:
    """The subgraph of a node that its attribute ``key`` holds.

    Raises:
        ModelError: there is none, or it has another number of inputs or outputs than it must have.
        UnsupportedModelError: it holds sparse constants.
    """
    graph: onnx.GraphProto | None = next((a.g for a in node.attribute if a.name == key and a.HasField("g")), None)
    if graph is None or len(graph.output) != outputs or len(graph.input) != inputs:
        raise ModelError(f"the {node.op_type} node {name!r} has no {key} that fits its inputs and outputs: the model file is damaged")
    if graph.sparse_initializer:
        raise UnsupportedModelError(
            f"the {key} of node {name!r} ({node.op_type}) has the sparse constant {graph.sparse_initializer[0].values.name!r}: export the "
            "model with the constants of its subgraphs dense"
        )
    return graph


def inlined(
    graph: onnx.GraphProto, prefix: str, bound: Mapping[str, str] | None = None
) -> tuple[list[onnx.NodeProto], list[tuple[onnx.TensorProto, str]], list[str]]:
    """A subgraph as part of the graph around it.

    Args:
        graph: the subgraph.
        prefix: what the new names of its own tensors start with.
        bound: its inputs, and the tensors outside that they are.

    Returns:
        Its nodes, its initializers with their new names, and the new names of its outputs.
    """
    own = [t.name for t in graph.initializer] + [o for n in graph.node for o in n.output if o]
    new = {name: f"{prefix}/{name}" for name in own} | dict(bound or {})
    nodes = [renamed(n, new) for n in graph.node]
    return nodes, [(t, new[t.name]) for t in graph.initializer], [new.get(o.name, o.name) for o in graph.output]


def renamed(node: onnx.NodeProto, new: Mapping[str, str]) -> onnx.NodeProto:
    """The node with other names for its tensors, also for those that its subgraphs take from outside."""
    out = type(node)()
    out.CopyFrom(node)
    out.input[:] = [new.get(i, i) for i in node.input]
    out.output[:] = [new.get(o, o) for o in node.output]
    for a in out.attribute:
        if a.HasField("g"):
            rename_captured(a.g, new)
    return out


def rename_captured(graph: onnx.GraphProto, new: Mapping[str, str]) -> None:
    """Rename what a subgraph takes from outside; names that it defines itself stay."""
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
    new = {old: name for old, name in new.items() if old not in own}
    for i, node in enumerate(graph.node):
        graph.node[i].CopyFrom(renamed(node, new))
    for o in graph.output:
        o.name = new.get(o.name, o.name)
