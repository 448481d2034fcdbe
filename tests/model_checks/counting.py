"""Multiply-accumulates and parameters of a graph, and of the file it came from.

MACs are the cost model's own (:func:`hetsched_cost_models.work.work_of`). Parameters are learned numbers: elements of the distinct
constants that operators read as weights, whatever type they are stored in; a constant counts once, however many operators read it and
whichever way round (tied embeddings). Not counted are

- running means and variances of batch normalisations, scales and zero points;
- integers wider than 8 bits that are not the input of a DequantizeLinear (shapes, axes, indices);
- constants of one element (epsilons, 1/√d, bounds of clips).

The lists of the corpus count otherwise: ``graphs.csv`` the parameters of the PyTorch module before it was exported, ``real.csv``
all initializers of the file. :func:`stored_elements` counts what the file itself holds, for the cases where these differ.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hetsched.graph import Graph, Op, Tensor
from hetsched.passes import unfuse
from hetsched_cost_models.work import work_of

#: Inputs that hold no weights, by operator: statistics, scales, zero points.
_NOT_LEARNED = {
    "BatchNormalization": (3, 4), "DequantizeLinear": (1, 2), "QuantizeLinear": (1, 2), "MatMulNBits": (2, 3, 4),
    "MatMulInteger": (2, 3), "ConvInteger": (2, 3),
}  # fmt: skip
#: Smallest tensor that :func:`stored_elements` counts.
_SMALLEST = 2


def macs(graph: Graph) -> float:
    """Multiply-accumulates of one inference."""
    return float(work_of(graph).macs.sum())


def parameters(graph: Graph) -> int:
    """Learned numbers of the model."""
    found: dict[object, int] = {}
    for op in unfuse(graph).ops:
        for slot, name in enumerate(op.inputs):
            if name and _is_weight(op, slot, graph.tensors[name]):
                found[_storage(graph.tensors[name])] = _elements(op, slot, graph.tensors[name])
    return sum(found.values())


def _is_weight(op: Op, slot: int, tensor: Tensor) -> bool:
    if not tensor.is_constant or tensor.elements == 1 or slot in _NOT_LEARNED.get(op.type, ()):
        return False
    narrow = tensor.dtype.bits <= 8 and tensor.dtype.value != "bool"
    return tensor.dtype.is_float or narrow or tensor.quantization is not None or (op.type == "DequantizeLinear" and slot == 0)


def _storage(tensor: Tensor) -> object:
    """What is the same for two constants with the same bytes."""
    data = tensor.data
    return tensor.name if data is None or data.path is None else (data.path, data.offset, data.length)


def _elements(op: Op, slot: int, tensor: Tensor) -> int:
    """Elements, of 4-bit weights in bytes too."""
    return op.attr_int("K", 0) * op.attr_int("N", 0) if op.type == "MatMulNBits" and slot == 1 else tensor.elements


def stored_elements(path: Path) -> int:
    """Elements of the weights that an ONNX file stores, read off its nodes, without any of hetsched's own code.

    Weights are the initializers and constants of more than one element that hold floats or at most 8 bits (two to a byte where a
    MatMulNBits reads them), and int32 where a DequantizeLinear reads them; no statistics, scales or zero points.
    """
    import onnx

    return _in_graph(onnx.load(path, load_external_data=False).graph)


def _in_graph(graph: Any) -> int:
    """Of a graph and its nodes' subgraphs."""
    constants = {t.name: t for t in graph.initializer}
    constants.update((n.output[0], a.t) for n in graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value")
    roles: dict[str, str] = {}
    for node in graph.node:
        for slot, name in enumerate(node.input):
            learned = slot not in _FILE_NOT_LEARNED.get(node.op_type, ())
            roles[name] = node.op_type if learned else roles.get(name, "")
    inner = sum(_in_graph(a.g) for n in graph.node for a in n.attribute if a.HasField("g"))
    return inner + sum(_stored(t, roles.get(name, "")) for name, t in constants.items())


_Q_SCALES = (1, 2, 4, 5, 6, 7)
_FILE_NOT_LEARNED = {**_NOT_LEARNED, "QLinearConv": _Q_SCALES, "QLinearMatMul": _Q_SCALES, "QLinearAdd": _Q_SCALES}


def _stored(tensor: Any, reader: str) -> int:
    from onnx import TensorProto

    elements = math.prod(tensor.dims)
    wide = tensor.data_type in {TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL}
    biases = reader in {"DequantizeLinear", "QLinearConv"} and tensor.data_type == TensorProto.INT32
    if elements < _SMALLEST or not reader or (wide and not biases):
        return 0
    return elements * (2 if reader == "MatMulNBits" else 1)
