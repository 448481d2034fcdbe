"""The work of every operator: multiply-accumulates, bytes and matrix dimensions, before any processor is looked at.

Counts are exact functions of shapes and attributes, as the ONNX operator definitions state them. One MAC is one multiply and
one add. Bytes are counted in *elements* by how a tensor is held (float, quantized, other), so that one count serves every
storage precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph, Op, Tensor
from hetsched_cost_models.operators import CLASSES, GATHERS, SLICES, VECTOR_KINDS, is_known, kind_of

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

_VECTOR, _CONV1, _CONV, _GROUPED, _DEPTHWISE, _GEMM, _MATMUL, _SMALL, _STRIDED, _TRANSPOSED = range(len(CLASSES))
#: Classes of depthwise convolutions.
DEPTHWISE = frozenset({_DEPTHWISE, _SMALL, _STRIDED})
#: Rows of at most so many columns are short for vector units.
_SHORT_ROW = 16


@dataclass(frozen=True, slots=True)
class Matrix:
    """Matrix work of one op: ``macs = count * m * n * k`` (``count`` groups or batch), and its class.

    A depthwise convolution is as many products as it has rows and channels: its ``m`` is the width of a row.
    """

    macs: float
    cls: int
    m: float
    n: float
    k: float


@dataclass(frozen=True, eq=False)
class Work:
    """Work of all ops of a graph, one entry per op in ``graph.ops`` order.

    ``float_elems``, ``quant_elems``: activation elements read and written whose tensor is float / quantized integer;
    ``other_bytes``: bytes of the other activations. ``weight_float_elems``, ``weight_fixed_bytes``: float constant
    elements, and bytes of constants that no precision changes. ``extra_elems``: elements of arithmetic beyond one pass;
    ``activation_elems``: elements to which a fused transcendental function is applied.
    """

    macs: FloatArray
    cls: IntArray
    kind: IntArray
    m: FloatArray
    n: FloatArray
    k: FloatArray
    float_elems: FloatArray
    quant_elems: FloatArray
    other_bytes: FloatArray
    weight_float_elems: FloatArray
    weight_quant_elems: FloatArray
    weight_fixed_bytes: FloatArray
    extra_elems: FloatArray
    activation_elems: FloatArray
    unknown: tuple[int, ...]


def work_of(graph: Graph) -> Work:
    """Count the work of every op of ``graph``."""
    n = len(graph.ops)
    columns = {name: np.zeros(n) for name in (
        "macs", "m", "n", "k", "float_elems", "quant_elems", "other_bytes", "weight_float_elems", "weight_quant_elems",
        "weight_fixed_bytes", "extra_elems", "activation_elems",
    )}  # fmt: skip
    cls, kind = np.zeros(n, np.int64), np.zeros(n, np.int64)
    unknown: list[int] = []
    kinds = {name: i for i, name in enumerate(VECTOR_KINDS)}
    for i, op in enumerate(graph.ops):
        matrix = matrix_work(graph, op)
        columns["macs"][i], columns["m"][i], columns["n"][i], columns["k"][i] = matrix.macs, matrix.m, matrix.n, matrix.k
        cls[i] = matrix.cls
        kind[i] = kinds[vector_kind(graph, op)]
        _count_activations(graph, op, i, columns)
        _count_constants(graph, op, i, columns)
        columns["extra_elems"][i] = _extra_elems(graph, op)
        if op.type.startswith("Fused") and op.attr_str("activation", "") in _COSTLY_ACTIVATIONS:
            columns["activation_elems"][i] = graph.tensors[op.outputs[0]].elements
        if not is_known(op.type) and not op.body:
            unknown.append(i)
    return Work(cls=cls, kind=kind, unknown=tuple(unknown), **columns)


def vector_kind(graph: Graph, op: Op) -> str:
    """Kind of vector work of an op: its type's, or a costlier or cheaper one that its attributes and shapes make of it."""
    kind = kind_of(op.type)
    if kind == "resize" and op.attr_str("mode", "nearest") == "nearest" and op.type in ("Resize", "Upsample"):
        return "nearest"
    if op.type == "FusedSoftmax" and len(op.inputs) > 1 and op.inputs[1]:
        return "masked"
    if kind == "elementwise" and op.outputs and op.outputs[0]:
        out = graph.tensors[op.outputs[0]].shape
        shapes = [graph.tensors[n].shape for n in op.inputs if n]
        if out and out[-1] > 1 and any(s and s[-1] == 1 and math.prod(s) > 1 for s in shapes):
            return "broadcast"
    return kind


def matrix_work(graph: Graph, op: Op) -> Matrix:
    """Multiply-accumulates of one op and the matrix that they form; zero for vector ops."""
    count = _MATRIX.get(op.type)
    if count is None:
        return Matrix(0.0, _VECTOR, 0.0, 0.0, 0.0)
    tensors = [graph.tensors[i] if i else None for i in op.inputs]
    return count(op, tensors, graph.tensors[op.outputs[0]])


def _conv(op: Op, x: Tensor, w: Tensor, y: Tensor) -> Matrix:
    group = max(1, op.attr_int("group", 1))
    out_channels, per_group = (w.shape[0], w.shape[1]) if len(w.shape) > 1 else (1, 1)
    kernel = math.prod(w.shape[2:])
    positions = (y.shape[0] if y.shape else 1) * math.prod(y.shape[2:])
    cls = _conv_class(op, group, x.shape, y.shape, per_group, kernel)
    m = float(y.shape[-1]) if cls in DEPTHWISE else float(positions)
    return Matrix(float(positions) * out_channels * per_group * kernel, cls, m, out_channels / group, float(per_group * kernel))


def _conv_class(op: Op, group: int, x_shape: tuple[int, ...], y_shape: tuple[int, ...], per_group: int, kernel: int) -> int:
    if group > 1 and per_group == 1 and len(x_shape) > 1 and group == x_shape[1]:
        if y_shape and y_shape[-1] <= _SHORT_ROW:
            return _SMALL
        return _STRIDED if op.attr_ints("strides", (1,))[-1] > 1 else _DEPTHWISE
    if group > 1:
        return _GROUPED
    return _CONV1 if kernel == 1 else _CONV


def _plain_conv(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    return _conv(op, _need(t, 0), _need(t, 1), y)


def _qlinear_conv(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    return _conv(op, _need(t, 0), _need(t, 3), y)


def _transposed_conv(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    x, w = _need(t, 0), _need(t, 1)
    group = max(1, op.attr_int("group", 1))
    kernel = math.prod(w.shape[2:])
    positions = (x.shape[0] if x.shape else 1) * math.prod(x.shape[2:])
    out_per_group = w.shape[1] if len(w.shape) > 1 else 1
    in_channels = w.shape[0]
    depthwise = group > 1 and group == in_channels and out_per_group == 1
    cls = _DEPTHWISE if depthwise else _GROUPED if group > 1 else _TRANSPOSED
    return Matrix(
        float(positions) * in_channels * out_per_group * kernel, cls, float(positions), float(out_per_group * kernel), in_channels / group
    )


def _product(a: Tensor, b: Tensor, y: Tensor, constant: bool) -> Matrix:
    k = a.shape[-1] if a.shape else 1
    n = b.shape[-1] if len(b.shape) > 1 else 1
    batched = not constant or len(b.shape) > 2
    rows = a.shape[-2] if len(a.shape) > 1 else 1
    m = float(rows) if batched else y.elements / max(1, n)
    return Matrix(float(y.elements) * k, _GEMM if constant else _MATMUL, m, float(n), float(k))


def _matmul(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    a, b = _need(t, 0), _need(t, 1)
    return _product(a, b, y, b.is_constant or a.is_constant)


def _qlinear_matmul(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    a, b = _need(t, 0), _need(t, 3)
    return _product(a, b, y, b.is_constant or a.is_constant)


def _gemm(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    a = _need(t, 0)
    k = a.shape[0] if op.attr_int("transA", 0) else a.shape[-1]
    m, n = (y.shape[0], y.shape[1]) if len(y.shape) == 2 else (1, y.elements)
    b = _need(t, 1)
    return Matrix(float(y.elements) * k, _GEMM if b.is_constant or a.is_constant else _MATMUL, float(m), float(n), float(k))


def _matmul_nbits(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    k = op.attr_int("K", _need(t, 0).shape[-1])
    n = op.attr_int("N", y.shape[-1])
    return Matrix(float(y.elements) * k, _GEMM, y.elements / max(1, n), float(n), float(k))


def _einsum(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    """Sizes of all index letters multiplied; ``...`` counts as the output's leading dims."""
    left, _, right = op.attr_str("equation", "").replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for term, tensor in zip(left.split(","), t, strict=False):
        if tensor is not None and "." not in term:
            sizes.update(zip(term, tensor.shape, strict=False))
    summed = [s for letter, s in sizes.items() if letter not in right]
    k = math.prod(summed) if summed else 1
    cls = _GEMM if any(x is not None and x.is_constant for x in t) else _MATMUL
    n = y.shape[-1] if y.shape else 1
    return Matrix(float(y.elements) * k, cls, y.elements / max(1, n), float(n), float(k))


def _recurrent(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    x, w, r = _need(t, 0), _need(t, 1), _need(t, 2)
    steps, batch = (x.shape[0], x.shape[1]) if op.attr_int("layout", 0) == 0 else (x.shape[1], x.shape[0])
    per_step = w.elements + r.elements
    k = float(w.shape[2] + r.shape[2])
    return Matrix(float(steps) * batch * per_step, _GEMM, float(batch), float(w.shape[1]), k)


_MATRIX = {
    "Conv": _plain_conv, "FusedConv": _plain_conv, "ConvInteger": _plain_conv, "FusedDepthwise": _plain_conv,
    "QLinearConv": _qlinear_conv, "ConvTranspose": _transposed_conv, "FusedConvTranspose": _transposed_conv,
    "MatMul": _matmul, "FusedMatMul": _matmul, "MatMulInteger": _matmul, "QLinearMatMul": _qlinear_matmul,
    "Gemm": _gemm, "FusedGemm": _gemm, "MatMulNBits": _matmul_nbits, "Einsum": _einsum,
    "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent,
}  # fmt: skip


def _need(t: list[Tensor | None], slot: int) -> Tensor:
    tensor = t[slot] if slot < len(t) else None
    return tensor if tensor is not None else _SCALAR


def _scalar() -> Tensor:
    from hetsched.graph import DType

    return Tensor("", (1, 1), DType.F32)


_SCALAR = _scalar()


def _count_activations(graph: Graph, op: Op, i: int, columns: dict[str, FloatArray]) -> None:
    """Add what the op reads and writes; a gather or a slice reads what it writes, not its whole input."""
    written = sum(graph.tensors[o].elements for o in op.outputs if o)
    partial = op.type in GATHERS or op.type in SLICES
    for slot, name in enumerate(op.inputs):
        if not name or graph.tensors[name].is_constant:
            continue
        tensor = graph.tensors[name]
        elements = min(tensor.elements, written) if partial and slot == 0 else tensor.elements
        _add(tensor, elements, i, columns)
    for name in op.outputs:
        if name:
            _add(graph.tensors[name], graph.tensors[name].elements, i, columns)


def _add(tensor: Tensor, elements: int, i: int, columns: dict[str, FloatArray]) -> None:
    if tensor.dtype.is_float:
        columns["float_elems"][i] += elements
    elif tensor.quantization is not None:
        columns["quant_elems"][i] += elements
    else:
        columns["other_bytes"][i] += elements * tensor.dtype.bits / 8


def _count_constants(graph: Graph, op: Op, i: int, columns: dict[str, FloatArray]) -> None:
    written = sum(graph.tensors[o].elements for o in op.outputs if o)
    for slot, name in enumerate(op.inputs):
        if not name or not graph.tensors[name].is_constant or name in op.inputs[:slot]:
            continue
        tensor = graph.tensors[name]
        elements = min(tensor.elements, written) if op.type in GATHERS and slot == 0 else tensor.elements
        if tensor.dtype.is_float:
            columns["weight_float_elems"][i] += elements
        elif tensor.quantization is not None and tensor.dtype.bits <= 8:
            columns["weight_quant_elems"][i] += elements * tensor.dtype.bits / 8
        else:
            columns["weight_fixed_bytes"][i] += elements * tensor.dtype.bits / 8


def _extra_elems(graph: Graph, op: Op) -> float:
    """Elements of arithmetic beyond one pass over inputs and outputs: pooling windows, fused bodies, fused activations."""
    out = graph.tensors[op.outputs[0]].elements if op.outputs and op.outputs[0] else 0
    if op.type in ("MaxPool", "AveragePool", "LpPool"):
        return float(out * (math.prod(op.attr_ints("kernel_shape", (1,))) - 1))
    if op.type == "FusedElementwise":
        return float(out * _TRANSCENDENTAL_PASSES * sum(kind_of(b.type) == "transcendental" for b in op.body))
    if kind_of(op.type) == "compare":  # an operand that is repeated is read again for every element
        return float(sum(out - graph.tensors[n].elements for n in op.inputs if n))
    return 0.0


_TRANSCENDENTAL_PASSES = 1.0
_COSTLY_ACTIVATIONS = frozenset({"Sigmoid", "Tanh", "Gelu", "Silu"})
