"""TFLite operators for products, normalisations and Q/DQ nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.lowering.tflite import Lowering, Order, TfliteBuild, is_image, schema
from hetsched.lowering.tflite_arithmetic import order_of
from hetsched.reference.quantized import dequantize

_CODES = (np.dtype(np.int8), np.dtype(np.uint8))


def _matmul(b: TfliteBuild, op: Op) -> None:
    left, right = op.inputs
    if len(b.shape(right)) == 2 and b.is_constant(right) and len(b.shape(left)) > 1:
        weights = b.constant(np.ascontiguousarray(b.values(right).T))
        source = b.read(left)
        b.operator("FULLY_CONNECTED", [source, weights, -1], [b.write(op.outputs[0])], "FullyConnectedOptions", keepNumDims=True)
        return
    if min(len(b.shape(left)), len(b.shape(right))) < 2:
        raise UnsupportedModelError("TFLite multiplies matrices, not vectors")
    b.operator("BATCH_MATMUL", [b.read(left), b.read(right)], [b.write(op.outputs[0])], "BatchMatMulOptions")


def _gemm(b: TfliteBuild, op: Op) -> None:
    if op.attr_int("transA", 0):
        raise UnsupportedModelError("a product of a transposed first matrix is not written for TFLite")
    alpha, beta = op.attr_float("alpha", 1.0), op.attr_float("beta", 1.0)
    weights = b.values(op.inputs[1]).astype(np.float32) * np.float32(alpha)
    weights = weights if op.attr_int("transB", 0) else weights.T
    added = b.optional(op, 2)
    bias = b.values(added).astype(np.float32) * np.float32(beta) if added else None
    alike = is_row(bias, weights.shape[0])
    row = -1 if bias is None or not alike else b.constant(np.array(np.broadcast_to(bias.reshape(-1), (weights.shape[0],))))
    out = b.write(op.outputs[0]) if alike else b.temporary(b.shape(op.outputs[0]))
    b.operator("FULLY_CONNECTED", [b.read(op.inputs[0]), b.constant(np.ascontiguousarray(weights)), row], [out], "FullyConnectedOptions")
    if bias is not None and not alike:
        b.operator("ADD", [out, b.constant(bias)], [b.write(op.outputs[0])], "AddOptions")


def is_row(bias: npt.NDArray[Any] | None, count: int) -> bool:
    """Whether a bias is the same for every row of a product with ``count`` columns, or there is none."""
    return bias is None or bias.size == 1 or bias.shape in {(count,), (1, count)}


def _batch_norm(b: TfliteBuild, op: Op) -> None:
    gamma, beta, mean, variance = (b.values(n) for n in op.inputs[1:5])
    scale = gamma / np.sqrt(variance + op.attr_float("epsilon", 1e-5))
    rank = len(b.shape(op.inputs[0]))
    order = order_of(b, op.inputs[:1], op.outputs[0])
    shape = (1,) * (rank - 1) + (-1,) if order == "last" else (1, -1, *(1,) * (rank - 2))
    source, between = b.read(op.inputs[0], order), b.temporary(b.shape(op.outputs[0], order))
    b.operator("MUL", [source, b.constant(scale.reshape(shape).astype(np.float32))], [between], "MulOptions")
    shift = b.constant((beta - mean * scale).reshape(shape).astype(np.float32))
    b.operator("ADD", [between, shift], [b.write(op.outputs[0], order)], "AddOptions")


def _layer_norm(b: TfliteBuild, op: Op) -> None:
    """From its definition: TFLite has no such operator."""
    rank = len(b.shape(op.inputs[0]))
    first = op.attr_int("axis", -1) % rank
    _normalise(b, op, "plain", range(first, rank), b.read(op.inputs[1]), centred=op.type == "LayerNormalization")


def _instance_norm(b: TfliteBuild, op: Op) -> None:
    if not is_image(b.graph, op.inputs[0]):
        raise UnsupportedModelError("instance normalisation of other than images is not written for TFLite")
    _normalise(b, op, "last", (1, 2), b.read(op.inputs[1]), centred=True)


def _normalise(b: TfliteBuild, op: Op, order: Order, axes: Sequence[int], gamma: int, *, centred: bool) -> None:
    """Scale what is less its mean (where ``centred``) over its root mean square, along axes of an order."""
    shape = b.shape(op.inputs[0], order)
    small = tuple(1 if i in axes else n for i, n in enumerate(shape))
    along = b.constant(np.array(list(axes), np.int32))

    def step(code: str, inputs: list[int], options: str, size: tuple[int, ...], **fields: Any) -> int:
        out = b.temporary(size)
        b.operator(code, inputs, [out], options, **fields)
        return out

    x = b.read(op.inputs[0], order)
    if centred:
        x = step("SUB", [x, step("MEAN", [x, along], "ReducerOptions", small, keepDims=True)], "SubOptions", shape)
    square = step("MUL", [x, x], "MulOptions", shape)
    spread = step("MEAN", [square, along], "ReducerOptions", small, keepDims=True)
    epsilon = b.constant(np.array(op.attr_float("epsilon", 1e-5), np.float32))
    inverse = step("RSQRT", [step("ADD", [spread, epsilon], "AddOptions", small)], "", small)
    normal = step("MUL", [x, inverse], "MulOptions", shape)
    shifted = b.optional(op, 2)
    scaled = b.temporary(shape) if shifted else b.write(op.outputs[0], order)
    b.operator("MUL", [normal, gamma], [scaled], "MulOptions")
    if shifted:
        b.operator("ADD", [scaled, b.read(shifted)], [b.write(op.outputs[0], order)], "AddOptions")


def quantization(scale: npt.NDArray[Any], zero: npt.NDArray[Any], axis: int = 0) -> Any:
    """Scales and zero points as the format has them."""
    made = schema().QuantizationParametersT()
    made.scale = scale.reshape(-1).astype(np.float32)
    made.zeroPoint = np.broadcast_to(zero.reshape(-1).astype(np.int64), made.scale.shape).copy()
    made.quantizedDimension = axis
    return made


def scale_and_zero(b: TfliteBuild, op: Op) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The constants of a Q or DQ node."""
    scale = b.values(op.inputs[1]).astype(np.float32)
    return scale, b.values(op.inputs[2]) if b.optional(op, 2) else np.zeros(scale.shape, np.uint8)


def _quantize(b: TfliteBuild, op: Op) -> None:
    scale, zero = scale_and_zero(b, op)
    if zero.dtype not in _CODES or scale.size > 1:
        raise UnsupportedModelError("TFLite quantizes activations to 8 bits with one scale")
    order = order_of(b, op.inputs[:1], op.outputs[0])
    source = b.read(op.inputs[0], order)
    b.operator("QUANTIZE", [source], [b.write(op.outputs[0], order, quantization(scale, zero))], "QuantizeOptions")


def _dequantize(b: TfliteBuild, op: Op) -> None:
    scale, zero = scale_and_zero(b, op)
    if b.is_constant(op.inputs[0]):  # weights of an operator that is not written in integers
        axis, block = op.attr_int("axis", 1), op.attr_int("block_size", 0)
        b.folded[op.outputs[0]] = dequantize(b.values(op.inputs[0]), scale, zero, axis, block).astype(np.float32)
        return
    if zero.dtype not in _CODES or scale.size > 1:
        raise UnsupportedModelError("TFLite dequantizes activations of 8 bits with one scale")
    order = order_of(b, op.inputs[:1], op.outputs[0])
    source = b.read(op.inputs[0], order)
    b.describe(source, quantization(scale, zero))
    b.operator("DEQUANTIZE", [source], [b.write(op.outputs[0], order)], "DequantizeOptions")


LOWERINGS: Mapping[str, Lowering] = {
    "MatMul": _matmul, "Gemm": _gemm, "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm, "RMSNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "QuantizeLinear": _quantize, "DequantizeLinear": _dequantize,
}  # fmt: skip
