"""Inlining the body of a branch or a loop: its tensors get names that cannot clash with those outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.onnx_unfolding import Unfolding

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
    unfolding: Unfolding, graph: onnx.GraphProto, prefix: str, bound: Mapping[str, str] | None = None
) -> tuple[list[onnx.NodeProto], list[tuple[onnx.TensorProto, str]], list[str]]:
    """A subgraph as part of the graph around it.

    Args:
        unfolding: pays for the copies and for their names.
        graph: the subgraph.
        prefix: what the new names of its own tensors start with.
        bound: its inputs, and the tensors outside that they are.

    Returns:
        Its nodes, its initializers with their new names, and the new names of its outputs.

    Raises:
        ModelError: that takes too many bytes.
    """
    unfolding.add_bytes(graph.ByteSize(), prefix)
    own = [t.name for t in graph.initializer] + [o for n in graph.node for o in n.output if o]
    new = {name: f"{prefix}/{name}" for name in own} | dict(bound or {})
    nodes = [_renamed(n, new, unfolding, prefix) for n in graph.node]
    return nodes, [(t, new[t.name]) for t in graph.initializer], [new.get(o.name, o.name) for o in graph.output]


def _renamed(node: onnx.NodeProto, new: Mapping[str, str], unfolding: Unfolding, where: str) -> onnx.NodeProto:
    """A copy of the node with other names for its tensors, also for those that its subgraphs take from outside."""
    out = type(node)()
    out.CopyFrom(node)
    _rename(out, new, (), unfolding, where)
    return out


def rename_captured(
    graph: onnx.GraphProto, new: Mapping[str, str], unfolding: Unfolding, where: str, hidden: tuple[set[str], ...] = ()
) -> None:
    """Rename what a subgraph takes from outside, in place.

    Args:
        graph: the subgraph; names that it defines itself stay.
        new: new names by old names.
        unfolding: pays for names that are longer than before.
        where: what it is part of, for messages.
        hidden: names that the graphs around it define, for each.

    Raises:
        ModelError: that takes too many bytes.
    """
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
    hidden = (*hidden, own)
    for node in graph.node:
        _rename(node, new, hidden, unfolding, where)
    for o in graph.output:
        if o.name in new and not any(o.name in names for names in hidden):
            unfolding.add_bytes(len(new[o.name]), where)
            o.name = new[o.name]


def _rename(node: onnx.NodeProto, new: Mapping[str, str], hidden: tuple[set[str], ...], unfolding: Unfolding, where: str) -> None:
    for names in (node.input, node.output):
        for k, old in enumerate(names):
            if old in new and not any(old in own for own in hidden):
                unfolding.add_bytes(len(new[old]), where)
                names[k] = new[old]
    for a in node.attribute:
        if a.HasField("g"):
            rename_captured(a.g, new, unfolding, where, hidden)
