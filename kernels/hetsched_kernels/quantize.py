"""Between float32 and 8-bit integers: real = (q - zero_point) · scale.

8-bit results are written as uint8 bits; ``signed`` says that they mean int8. Rounding is half to even, after a true division
by the scale, and saturates, as ONNX QuantizeLinear; NaN becomes the lowest value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import InF32, InI32, InT, OutF32, OutI32, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.extremes import row_max, row_min
from hetsched_kernels.parts import span

_MAGIC = np.float32(12582912.0)
_MAGIC_BITS = np.int32(0x4B400000)
_ZERO = np.float32(0.0)
_EXACT: frozenset[str] = frozenset()


@block(fast=_EXACT)
def quantize_run(x: Any, out: Any, scale: Any, zero: Any, signed: Any) -> None:
    """Compute out[i] = saturate(round(x[i] / scale) + zero), as uint8 bits."""
    least = -128 if signed else 0
    low, high = np.float32(least - zero), np.float32(least + 255 - zero)
    offset = np.int32(zero - _MAGIC_BITS)
    for i in range(x.shape[0]):
        value = x[i] / scale
        value = value if value > low else low
        value = high if value > high else value
        out[i] = np.uint8(np.int32(f.float_to_bits(value + _MAGIC) + offset))


@kernel(fast=_EXACT)
def quantize_linear(
    x: InF32, out: OutU8, scales: InF32, zero_points: InI32, outer: int, channels: int, inner: int, signed: bool
) -> None:  # fmt: skip
    """Compute out = quantized x with known scales, over [outer, channels, inner].

    Args:
        x: [outer · channels · inner].
        out: the same size, 8-bit as uint8.
        scales: [channels]; per tensor: channels = 1.
        zero_points: int32 [channels], or empty for zeros.
        outer: product of the dimensions before the quantized axis.
        channels: size of the quantized axis.
        inner: product of the dimensions after it.
        signed: the result is int8.
    """
    for o in range(outer):
        for ch in range(channels):
            base = (o * channels + ch) * inner
            zero = zero_points[ch] if zero_points.shape[0] > 0 else np.int32(0)
            quantize_run(span(x, base, inner), span(out, base, inner), scales[ch], zero, signed)


@kernel(T=("int8", "uint8", "int32", "int16", "uint16"), fast=_EXACT)
def dequantize_linear(x: InT, out: OutF32, scales: InF32, zero_points: InI32, outer: int, channels: int, inner: int) -> None:
    """Compute out = (x - zero_point) · scale over [outer, channels, inner]; arguments as :data:`quantize_linear`."""
    for o in range(outer):
        for ch in range(channels):
            base = (o * channels + ch) * inner
            zero = zero_points[ch] if zero_points.shape[0] > 0 else np.int32(0)
            scale = scales[ch]
            source, target = span(x, base, inner), span(out, base, inner)
            for i in range(inner):
                target[i] = np.float32(np.int32(np.int32(source[i]) - zero)) * scale


@block(fast=_EXACT)
def row_parameters(x: Any, symmetric: Any, signed: Any) -> Any:
    """Scale and zero point that cover a run: 127 steps each side, or 255 steps over a range that holds 0."""
    if x.shape[0] == 0:
        return np.float32(1.0), np.int32(0 if signed else 128)
    low, high = row_min(x), row_max(x)
    least = -128 if signed else 0
    if symmetric:
        largest = max(high, -low)
        scale = np.float32(largest / np.float32(127.0))
        return (scale if scale > _ZERO else np.float32(1.0)), np.int32(least + 128)
    low, high = min(low, _ZERO), max(high, _ZERO)
    scale = np.float32((high - low) / np.float32(255.0))
    if not scale > _ZERO:
        return np.float32(1.0), np.int32(least)
    zero = f.round_even(np.float32(least) - np.float32(low / scale))
    return scale, np.int32(f.clip(zero, np.float32(least), np.float32(least + 255)))


@kernel(fast=_EXACT)
def quantize_rows(
    x: InF32, out: OutU8, scales: OutF32, zero_points: OutI32, rows: int, cols: int, symmetric: bool, signed: bool
) -> None:  # fmt: skip
    """Dynamic quantization, one scale a row (per token); per tensor is one row.

    Args:
        x: [rows · cols].
        out: the same size, 8-bit as uint8.
        scales: [rows], written.
        zero_points: int32 [rows], written.
        rows: rows.
        cols: elements of a row.
        symmetric: zero point in the middle (0, or 128 unsigned) and ±127 steps; else minimum to maximum, 0 included, as ONNX
            DynamicQuantizeLinear.
        signed: the result is int8.
    """
    for r in range(rows):
        source = span(x, r * cols, cols)
        scale, zero = row_parameters(source, symmetric, signed)
        scales[r], zero_points[r] = scale, zero
        quantize_run(source, span(out, r * cols, cols), scale, zero, signed)
