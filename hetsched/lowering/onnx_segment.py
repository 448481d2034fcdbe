"""A segment as an ONNX model: the operators' original nodes, their constants, and typed ends.

Composites are written as the nodes that they were made of, so the model has standard operators only. Quantized operators come in
QDQ form: their bodies hold the QuantizeLinear and DequantizeLinear nodes, with the static ranges that the model (or its ranges
file) gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


def onnx_model(graph: Graph, ops: Sequence[Op], ends: Ends, *, metadata: Mapping[str, str] | None = None) -> bytes:
    """The operators ``ops`` as a serialised model, checked by ONNX.

    Args:
        graph: their graph.
        ops: in execution order.
        ends: inputs and outputs of the model, typed as the graph's tensors are.
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
