"""Subgraphs of operators of control flow: written as ONNX graphs while loading, and made part of a node when executed.

A body is written from the operators that the loader made of it, so it has their form (opset 18 or newer, shapes bound,
constants folded). Small constants are in it. All else that it reads from outside is an input of the operator, after those
that ONNX gives it: the attribute ``captures`` lists the names by which the bodies call these inputs, in order, so that
passes may rename the operator's inputs and never look into a body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.onnx_nodes import to_node
from hetsched.frontends.onnx_subgraphs import rename_captured
from hetsched.frontends.onnx_unfolding import Unfolding
from hetsched.graph import CONTROL_FLOW, Op, Tensor
from hetsched.reference.element_types import NUMBER_OF

if TYPE_CHECKING:
    import onnx

#: Constants up to this size are written into the body; larger ones stay where they are and are captured.
INLINE_BYTES = 4096
#: A body without its weights is never larger in a model that is not damaged or hostile.
MAX_BODY_BYTES = 1 << 24
#: Operator -> the attributes that hold its subgraphs.
BODIES: Mapping[str, tuple[str, ...]] = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}


@dataclass(frozen=True)
class Body:
    """A subgraph after loading: its operators in order, and the names of the tensors that it is given and that it returns."""

    name: str
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def captures(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """What it reads from outside that is not a small constant, each once."""
        own = {*self.inputs, *(o for op in self.ops for o in op.outputs)}
        read = [*(i for op in self.ops for i in op.inputs), *self.outputs]
        return [n for n in dict.fromkeys(read) if n and n not in own and not _is_small(tensors[n])]


def written(body: Body, tensors: Mapping[str, Tensor], unfolding: Unfolding) -> bytes:
    """The serialised ``GraphProto`` of a body; ``unfolding`` pays for it.

    Raises:
        ModelError: the bodies of the model take too many bytes in all.
        UnsupportedModelError: it is larger than :data:`MAX_BODY_BYTES` without its weights.
    """
    from onnx import GraphProto, helper, numpy_helper

    def info(name: str, called: str) -> onnx.ValueInfoProto:
        t = tensors[name]
        return helper.make_tensor_value_info(called, NUMBER_OF[t.dtype], t.shape)

    graph, size = GraphProto(name=body.name), 0
    for op in body.ops:
        graph.node.append(node_of(op))
        size = _within(body, size + graph.node[-1].ByteSize())
    own = {o for op in body.ops for o in op.outputs}
    for k, name in enumerate(body.outputs):
        called = name
        if name not in own or name in body.outputs[:k]:  # ONNX wants every output to be written by a node of the graph
            called = f"{body.name}/result_{k}"
            graph.node.append(helper.make_node("Identity", [name], [called], f"{body.name}/result_{k}"))
        graph.output.append(info(name, called))
    graph.input.extend(info(name, name) for name in body.inputs)
    given = {*own, *body.inputs}
    read = [*(i for op in body.ops for i in op.inputs), *body.outputs]
    small = [n for n in dict.fromkeys(read) if n and n not in given and _is_small(tensors[n])]
    for n in small:
        size = _within(body, size + tensors[n].nbytes + len(n))
        graph.initializer.append(numpy_helper.from_array(tensors[n].numpy(), n))
    unfolding.add_bytes(_within(body, graph.ByteSize()), body.name)
    data: bytes = graph.SerializeToString()
    return data


def _within(body: Body, size: int) -> int:
    """``size``, which must be allowed for a body."""
    if size > MAX_BODY_BYTES:
        raise UnsupportedModelError(
            f"the subgraph {body.name!r} takes over {MAX_BODY_BYTES >> 20} MiB without its weights, which is not supported: export the "
            "model without this control flow"
        )
    return size


def node_of(op: Op) -> onnx.NodeProto:
    """The ONNX node of an operator, of control flow or not.

    Raises:
        ModelError: a body or the list of what it captures is not as this module writes them.
    """
    if op.type not in CONTROL_FLOW or op.domain:
        return to_node(op)
    import onnx

    keys = BODIES[op.type]
    captures = op.attrs.get("captures", ())
    if not isinstance(captures, tuple) or len(captures) > len(op.inputs):
        raise ModelError(f"node {op.name!r} ({op.type}) captures {captures!r}, which are not its inputs")
    own = len(op.inputs) - len(captures)
    new = {str(c): i for c, i in zip(captures, op.inputs[own:], strict=True)}
    plain = {k: v for k, v in op.attrs.items() if k not in {*keys, "captures", "trips", "trips_are", "impossible"}}
    node = to_node(Op(op.name, op.type, op.inputs[:own], op.outputs, plain))
    for key in keys:
        graph = onnx.GraphProto.FromString(_bytes(op, key))
        if any(old != name for old, name in new.items()):
            rename_captured(graph, new, Unfolding(), op.name)
        node.attribute.append(onnx.AttributeProto(name=key, type=onnx.AttributeProto.GRAPH, g=graph))
    return node


def _bytes(op: Op, key: str) -> bytes:
    value = op.attrs.get(key)
    if not isinstance(value, bytes):
        raise ModelError(f"node {op.name!r} ({op.type}) has no {key}")
    return value


def _is_small(tensor: Tensor) -> bool:
    """Whether a constant is in memory, small, and of a type that ONNX's own helpers write."""
    return tensor.data is not None and tensor.data.array is not None and tensor.nbytes <= INLINE_BYTES and not tensor.is_packed
