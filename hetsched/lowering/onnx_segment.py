"""A segment as an ONNX model: the operators' original nodes, their constants, and typed ends.

Composites are written as the nodes that they were made of, so the model has standard operators only. Quantized operators come in
QDQ form: their bodies hold the QuantizeLinear and DequantizeLinear nodes, with the static ranges that the model (or its ranges
file) gave. Float operators come in float32, or in float16 inside (``half``), with casts at the ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.onnx_bodies import node_of
from hetsched.graph import Graph, Op, Tensor
from hetsched.reference.element_types import NUMBER_OF

#: The opset of the models that segments are written as. The loader's operator forms are those of opset 18; 21 adds Gelu and
#: 16-bit Q/DQ and changes none of them.
OPSET = 21
#: Standard operators that came later, and the opset of models that have them. (The composite ``RotaryEmbedding`` is not ONNX's.)
NEWER: Mapping[str, int] = {"Attention": 23, "RMSNormalization": 23}
#: Versions of other domains in them.
DOMAINS: Mapping[str, int] = {"com.microsoft": 1}
_IR_VERSION = 10
#: A protobuf message cannot be larger.
_MAX_BYTES = 2_000_000_000
#: What a scale belongs to stays float32 in a half model: integers stand for reals in it.
_QUANTIZED = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True, slots=True)
class Ends:
    """Names of the tensors that a segment reads from outside and of those that others read of it, each once, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def ends_of(graph: Graph, ops: Sequence[Op], *, every: bool = False) -> Ends:
    """What crosses the edge of a segment; with ``every``, all that its operators write are outputs.

    Examples:
        >>> from hetsched.graph import Role
        >>> names = ("x", "a", "y")
        >>> tensors = {n: Tensor(n, (2,), DType.F32, Role.INPUT if n == "x" else Role.ACTIVATION) for n in names}
        >>> ops = (Op("r", "Relu", ("x",), ("a",)), Op("n", "Neg", ("a",), ("y",)))
        >>> graph = Graph("g", tensors, ops, ("x",), ("y",))
        >>> ends_of(graph, ops[:1]), ends_of(graph, ops).outputs
        (Ends(inputs=('x',), outputs=('a',)), ('y',))
    """
    inside = {op.name for op in ops}
    written = [o for op in ops for o in op.outputs if o]
    known = frozenset(written)
    read = dict.fromkeys(n for op in ops for n in graph.activations(op) if n not in known)
    outside = {n for n in written if any(graph.ops[i].name not in inside for i in graph.consumers.get(n, ()))}
    outputs = written if every else [n for n in written if n in outside or n in graph.output_set]
    return Ends(tuple(read), tuple(outputs))


def original_nodes(ops: Sequence[Op]) -> list[Op]:
    """The nodes that ``ops`` were made of; one that is in several bodies (a DequantizeLinear with several readers) once."""
    out: dict[tuple[str, ...], Op] = {}
    for op in ops:
        for node in original_nodes(op.body) if op.is_composite else (op,):
            out.setdefault(node.outputs, node)
    return list(out.values())


def opset_of(nodes: Sequence[Op]) -> int:
    """The opset of a model of these nodes."""
    return max([OPSET, *(NEWER.get(op.type, OPSET) for op in nodes if not op.domain)])


def onnx_model(graph: Graph, ops: Sequence[Op], ends: Ends, *, half: bool = False, metadata: Mapping[str, str] | None = None) -> bytes:
    """The operators ``ops`` as a serialised model, checked by ONNX.

    Args:
        graph: their graph.
        ops: in execution order.
        ends: inputs and outputs of the model, typed as the graph's tensors are.
        half: compute in float16; the ends keep their types. Operators with Q/DQ and int8 operators are not changed.
        metadata: written into the model.

    Raises:
        UnsupportedModelError: it would be larger than a model can be, or a node is not one of ONNX's.
        ModelError: a constant cannot be read.
    """
    from onnx import checker, helper

    nodes = original_nodes(ops)
    produced = {o for op in nodes for o in op.outputs}
    constants = dict.fromkeys(n for op in nodes for n in op.inputs if n and n not in produced and n not in ends.inputs)
    if sum(graph.tensors[n].elements * graph.tensors[n].dtype.bits // 8 for n in constants) > _MAX_BYTES:
        raise UnsupportedModelError(f"node {ops[0].name!r} ({ops[0].type}) has over 2 GB of constants, which ONNX Runtime cannot be given")

    def info(name: str) -> Any:
        tensor = graph.tensors[name]
        return helper.make_tensor_value_info(name, NUMBER_OF[tensor.dtype], tensor.shape)

    proto = helper.make_graph(
        [node_of(op) for op in nodes], "segment", [info(n) for n in ends.inputs], [info(n) for n in ends.outputs],
        [initializer(graph.tensors[n]) for n in constants],
    )  # fmt: skip
    domains = [helper.make_opsetid("", opset_of(nodes)), *(helper.make_opsetid(d, v) for d, v in DOMAINS.items())]
    model = helper.make_model(proto, opset_imports=domains, ir_version=_IR_VERSION, producer_name="hetsched")
    if half:
        _halve(model)
    helper.set_model_props(model, dict(metadata or {}))
    try:
        checker.check_model(model)
    except checker.ValidationError as e:
        raise UnsupportedModelError(f"the segment of {ops[0].name!r} is not an ONNX model: {str(e).splitlines()[0]}") from e
    return bytes(model.SerializeToString(deterministic=True))


def initializer(tensor: Tensor) -> Any:
    """The ``TensorProto`` of a constant, read now; packed types keep their bytes.

    Raises:
        ModelError: it is no constant, or it is stored in blocks that ONNX has no type for.
    """
    from onnx import TensorProto, numpy_helper

    value = tensor.numpy()
    if not tensor.is_packed:
        return numpy_helper.from_array(value, tensor.name)
    if tensor.quantization is not None and tensor.quantization.block_bytes:
        raise ModelError(f"the constant {tensor.name!r} is stored as {tensor.quantization.scheme}, which ONNX has no type for")
    return TensorProto(name=tensor.name, data_type=NUMBER_OF[tensor.dtype], dims=tensor.shape, raw_data=value.tobytes())


def _halve(model: Any) -> None:
    """Make a float32 model compute in float16: constants and everything between, with casts at float32 ends.

    Raises:
        UnsupportedModelError: it has Q/DQ nodes, whose scales say what the reals are.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    mixed = next((n for n in graph.node if n.op_type in _QUANTIZED or (n.attribute and any(a.HasField("g") for a in n.attribute))), None)
    if mixed is not None:
        raise UnsupportedModelError(f"node {mixed.name!r} ({mixed.op_type}) is not written in float16: its segment has integers or bodies")
    for constant in graph.initializer:
        if constant.data_type == TensorProto.FLOAT:
            constant.CopyFrom(numpy_helper.from_array(_nearest_half(numpy_helper.to_array(constant)), constant.name))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
            if attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT:
                attribute.t.CopyFrom(numpy_helper.from_array(_nearest_half(numpy_helper.to_array(attribute.t)), attribute.t.name))
    into = {i.name: f"{i.name}/half" for i in graph.input if i.type.tensor_type.elem_type == TensorProto.FLOAT}
    out_of = {o.name: f"{o.name}/half" for o in graph.output if o.type.tensor_type.elem_type == TensorProto.FLOAT}
    for node in graph.node:
        node.input[:] = [into.get(n, out_of.get(n, n)) for n in node.input]
        node.output[:] = [out_of.get(n, n) for n in node.output]
    casts = [helper.make_node("Cast", [n], [h], name=h, to=TensorProto.FLOAT16) for n, h in into.items()]
    back = [helper.make_node("Cast", [h], [n], name=f"{h}/back", to=TensorProto.FLOAT) for n, h in out_of.items()]
    nodes = [*casts, *graph.node, *back]
    del graph.node[:]
    graph.node.extend(nodes)


def _nearest_half(values: Any) -> Any:
    """float16, with what is beyond its range at its ends: masks are often the least float32."""
    least, most = np.finfo(np.float16).min, np.finfo(np.float16).max
    return np.where(np.isfinite(values), np.clip(values, least, most), values).astype(np.float16)
