"""Operators of a graph as a serialised ONNX model, for ONNX Runtime: the original nodes, the constants, the ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetsched.errors import ModelError, UnsupportedModelError
from hetsched.frontends.onnx_bodies import node_of
from hetsched.graph import Graph, Op, Tensor
from hetsched.reference.element_types import NUMBER_OF
from hetsched.runtime.ort_support import DOMAINS, opset_of, original_nodes

_IR_VERSION = 10
#: A protobuf message cannot be larger.
_MAX_BYTES = 2_000_000_000


def onnx_model(graph: Graph, ops: Sequence[Op], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """The operators ``ops`` as a model that reads ``inputs`` and returns ``outputs``.

    Raises:
        UnsupportedModelError: it would be larger than a model can be.
        ModelError: a constant cannot be read.
    """
    from onnx import checker, helper

    nodes = original_nodes(ops)
    produced = {o for op in nodes for o in op.outputs}
    constants = dict.fromkeys(n for op in nodes for n in op.inputs if n and n not in produced and n not in inputs)
    if sum(graph.tensors[n].elements * graph.tensors[n].dtype.bits // 8 for n in constants) > _MAX_BYTES:
        raise UnsupportedModelError(f"node {ops[0].name!r} ({ops[0].type}) has over 2 GB of constants, which ONNX Runtime cannot be given")

    def info(name: str) -> Any:
        tensor = graph.tensors[name]
        return helper.make_tensor_value_info(name, NUMBER_OF[tensor.dtype], tensor.shape)

    proto = helper.make_graph(
        [node_of(op) for op in nodes], "segment", [info(n) for n in inputs], [info(n) for n in outputs],
        [initializer(graph.tensors[n]) for n in constants],
    )  # fmt: skip
    domains = [helper.make_opsetid("", opset_of(nodes)), *(helper.make_opsetid(d, v) for d, v in DOMAINS.items())]
    model = helper.make_model(proto, opset_imports=domains, ir_version=_IR_VERSION)
    checker.check_model(model)
    return bytes(model.SerializeToString())


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
