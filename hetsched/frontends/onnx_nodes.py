"""Nodes of an ONNX graph as operators, and operators as nodes again (for ONNX's own shape inference)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.onnx_tensors import ModelFile, constant
from hetsched.graph import AttrValue, Op

if TYPE_CHECKING:
    import onnx


def unique_names(nodes: Sequence[onnx.NodeProto], taken: Iterable[str] = ()) -> list[str]:
    """A name for every node: its own, or ``<type>_<index>``; a repeated name gets a number."""
    used = dict.fromkeys(taken)
    used.update(dict.fromkeys(n.name for n in nodes if n.name))
    seen: dict[str, int] = {}
    out = []
    for i, node in enumerate(nodes):
        name = node.name or f"{node.op_type}_{i}"
        again = name in seen or (not node.name and name in used)
        while again and name in used:
            seen[name] = seen.get(name, 1) + 1
            candidate = f"{name}_{seen[name]}"
            if candidate not in used:
                name = candidate
                break
        seen.setdefault(name, 1)
        used[name] = None
        out.append(name)
    return out


def to_op(node: onnx.NodeProto, name: str, model: ModelFile) -> Op:
    """The operator of a node.

    Raises:
        UnsupportedModelError: it holds a subgraph, or an attribute that is not handled.
    """
    attrs = {a.name: _value(a, name, model) for a in node.attribute if not (a.ref_attr_name)}
    domain = "" if node.domain == "ai.onnx" else node.domain
    return Op(name, node.op_type, tuple(node.input), tuple(node.output), attrs, domain, (name,))


def plain_attributes(node: onnx.NodeProto, name: str, model: ModelFile) -> dict[str, AttrValue]:
    """The attributes of a node that are no subgraphs."""
    return {a.name: _value(a, name, model) for a in node.attribute if not a.ref_attr_name and a.type != a.GRAPH}


def _value(a: onnx.AttributeProto, node: str, model: ModelFile) -> AttrValue:
    kind = a.type
    if kind == a.INT:
        return int(a.i)
    if kind == a.FLOAT:
        return float(a.f)
    if kind == a.STRING:
        return _text(a.s)
    if kind == a.INTS:
        return tuple(int(v) for v in a.ints)
    if kind == a.FLOATS:
        return tuple(float(v) for v in a.floats)
    if kind == a.STRINGS:
        return tuple(str(_text(s)) for s in a.strings)
    if kind == a.TENSOR:
        return constant(a.t, f"{node}.{a.name}", model).numpy()
    names = {a.GRAPH: "subgraph", a.GRAPHS: "list of subgraphs", a.SPARSE_TENSOR: "sparse tensor", a.TYPE_PROTO: "type"}
    if kind in names:
        raise UnsupportedModelError(f"node {node!r} has the attribute {a.name!r}, a {names[kind]}, which is not supported")
    raise ModelError(f"node {node!r} has the attribute {a.name!r} of an unknown kind: the model file is damaged")


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def to_node(op: Op) -> onnx.NodeProto:
    """The ONNX node of an operator."""
    import onnx
    from onnx import helper, numpy_helper

    node = onnx.NodeProto(op_type=op.type, name=op.name, domain=op.domain, input=op.inputs, output=op.outputs)
    for key, value in op.attrs.items():
        if isinstance(value, np.ndarray):
            node.attribute.add(name=key, type=onnx.AttributeProto.TENSOR, t=numpy_helper.from_array(np.ascontiguousarray(value)))
        elif isinstance(value, int):
            node.attribute.add(name=key, type=onnx.AttributeProto.INT, i=value)
        elif isinstance(value, tuple) and all(isinstance(v, int) for v in value):
            node.attribute.add(name=key, type=onnx.AttributeProto.INTS, ints=value)
        else:
            node.attribute.append(helper.make_attribute(key, value))
    return node
