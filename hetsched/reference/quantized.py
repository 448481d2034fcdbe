"""QuantizeLinear and its kin, exactly as ONNX defines them: round half to even, add the zero point, saturate."""

from __future__ import annotations

import numpy as np

from hetsched.graph import DType, Op
from hetsched.reference.element_types import element_type
from hetsched.reference.elementwise import Array, Function, Inputs, given, optional
from hetsched.small_types import nearest


def along(value: Array, rank: int, axis: int, block: int, shape: tuple[int, ...]) -> Array:
    """A scale or zero point shaped so that it broadcasts over a tensor of ``shape`` (scalar, per axis, or in blocks)."""
    if block:
        return np.repeat(value, block, axis)[tuple(slice(0, n) for n in shape)]
    if value.size == 1:
        return value.reshape(())
    return value.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def dequantize(x: Array, scale: Array, zero_point: Array | None, axis: int = 1, block: int = 0) -> Array:
    """``(x - zero_point) * scale`` in the type of ``scale``."""
    factor = along(scale, x.ndim, axis, block, x.shape)
    if x.dtype.kind == "f":  # small floats, which have no zero point
        return np.asarray(x.astype(scale.dtype) * factor)
    y = x.astype(np.int32)
    if zero_point is not None:
        y = y - along(zero_point, x.ndim, axis, block, x.shape).astype(np.int32)
    return np.asarray(y.astype(scale.dtype) * factor)


def quantize(x: Array, scale: Array, zero_point: Array | None, dtype: DType, axis: int = 1, block: int = 0) -> Array:
    """``saturate(round(x / scale) + zero_point)`` as ``dtype``; halves go to the even neighbour."""
    if dtype.is_float:
        return nearest(x / along(scale, x.ndim, axis, block, x.shape).astype(x.dtype), dtype.value)
    least = 0 if dtype.value[0] == "u" else -(1 << (dtype.bits - 1))
    carrier = dtype.numpy if dtype.bits >= 8 else np.dtype(np.int8 if least else np.uint8)
    q = np.rint(x / along(scale, x.ndim, axis, block, x.shape).astype(x.dtype)).astype(np.float64)
    if zero_point is not None:
        q = q + along(zero_point, x.ndim, axis, block, x.shape).astype(np.float64)
    return np.asarray(np.clip(np.nan_to_num(q), least, least + (1 << dtype.bits) - 1)).astype(carrier)


def _quantize_linear(op: Op, x: Inputs) -> list[Array]:
    zero_point, number = optional(x, 2), op.attr_int("output_dtype", 0)
    if number:
        dtype = element_type(number, f"node {op.name!r}")
    elif zero_point is None:
        dtype = DType.U8
    else:
        dtype = DType(f"{'u' if zero_point.dtype.kind == 'u' else 'i'}{zero_point.dtype.itemsize * 8}")
    axis, block = op.attr_int("axis", 1), op.attr_int("block_size", 0)
    return [quantize(given(op, x, 0), given(op, x, 1), zero_point, dtype, axis, block)]


def _dequantize_linear(op: Op, x: Inputs) -> list[Array]:
    axis, block = op.attr_int("axis", 1), op.attr_int("block_size", 0)
    return [dequantize(given(op, x, 0), given(op, x, 1), optional(x, 2), axis, block)]


def _dynamic_quantize_linear(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0)
    low, high = min(float(a.min()), 0.0), max(float(a.max()), 0.0)
    scale = np.float32((np.float32(high) - np.float32(low)) / np.float32(255)) or np.float32(1)
    zero_point = np.uint8(np.clip(np.rint(-np.float32(low) / scale), 0, 255))
    y = quantize(a, np.asarray(scale, np.float32), np.asarray(zero_point), DType.U8)
    return [y, np.asarray(scale, np.float32), np.asarray(zero_point)]


OPS: dict[str, Function] = {
    "QuantizeLinear": _quantize_linear,
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
}
