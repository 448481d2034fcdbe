"""Multiply-accumulates of one operator and the matrix that they form, as the ONNX operator definitions state them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetsched.graph import DType, Graph, Op, Tensor
from hetsched_cost_models.language import language_work
from hetsched_cost_models.operators import CLASSES

_VECTOR, _CONV1, _CONV, _GROUPED, _DEPTHWISE, _GEMM, _MATMUL, _SMALL, _STRIDED, _TRANSPOSED, _CONV3 = range(len(CLASSES))
#: Classes of depthwise convolutions.
DEPTHWISE = frozenset({_DEPTHWISE, _SMALL, _STRIDED})
#: Rows of at most so many columns are short for vector units.
_SHORT_ROW = 16
#: Convolutions of fewer channels are never computed with fewer products.
_THIN = 16


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


def matrix_work(graph: Graph, op: Op) -> Matrix:
    """Multiply-accumulates of one op and the matrix that they form; zero for vector ops."""
    language = language_work(graph, op)
    if language is not None:
        return Matrix(language.macs, CLASSES.index(language.cls), language.m, language.n, language.k)
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
    plain = set(op.attr_ints("strides", (1,))) == set(op.attr_ints("dilations", (1,))) == {1}
    if plain and len(x_shape) == 4 and kernel == 9 and per_group >= _THIN:
        return _CONV3
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


def _merged(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    """Products of one input with the matrices 1 to ``count``, or one whose result is taken apart."""
    x, parts = _need(t, 0), 1 if op.attr_int("joined", 0) else op.attr_int("count", 1)
    k = x.shape[-1] if x.shape else 1
    weights = sum(_need(t, 1 + i).elements for i in range(parts))
    rows = x.elements / max(1, k)
    return Matrix(rows * weights, _GEMM, rows, weights / max(1, k), float(k))


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


def _recurrent_packed(op: Op, t: list[Tensor | None], y: Tensor) -> Matrix:
    """As an LSTM, with weights ``[directions, inputs, 4 · hidden]``."""
    work, w, r = _recurrent(op, t, y), _need(t, 1), _need(t, 2)
    return Matrix(work.macs, _GEMM, work.m, float(w.shape[2]), float(w.shape[1] + r.shape[1]))


_MATRIX = {
    "Conv": _plain_conv, "FusedConv": _plain_conv, "ConvInteger": _plain_conv, "FusedDepthwise": _plain_conv,
    "QLinearConv": _qlinear_conv, "ConvTranspose": _transposed_conv, "FusedConvTranspose": _transposed_conv,
    "MatMul": _matmul, "FusedMatMul": _matmul, "MergedMatMul": _merged, "MatMulInteger": _matmul, "QLinearMatMul": _qlinear_matmul,
    "Gemm": _gemm, "FusedGemm": _gemm, "MatMulNBits": _matmul_nbits, "MatMulBnb4": _matmul_nbits, "Einsum": _einsum,
    "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent, "DynamicQuantizeLSTM": _recurrent_packed,
}  # fmt: skip


def _need(t: list[Tensor | None], slot: int) -> Tensor:
    tensor = t[slot] if slot < len(t) else None
    return tensor if tensor is not None else _SCALAR


_SCALAR = Tensor("", (1, 1), DType.F32)
