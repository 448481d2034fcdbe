"""Between float32 and 8-bit integers: real = (q - zero_point) · scale.

8-bit results are written as uint8 bits; ``signed`` says that they mean int8. Rounding is half to even, after a true division
by the scale, and saturates, as ONNX QuantizeLinear; NaN becomes the lowest value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from hetsched_kernels import functions as f
from hetsched_kernels import vectors as v
from hetsched_kernels.arrays import InF32, InI32, InT, OutF32, OutI32, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.extremes import row_range
from hetsched_kernels.lowlevel import F32P, U8P, for_range, intrinsic
from hetsched_kernels.parts import ptr, span
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES

_MAGIC = np.float32(12582912.0)
_MAGIC_BITS = np.int32(0x4B400000)
_ZERO = np.float32(0.0)
_EXACT: frozenset[str] = frozenset()
#: Whether the target multiplies and adds with one rounding, and scales whose reciprocals are ordinary numbers.
_FUSED = target().avx2 or not target().x86
_SMALL, _LARGE = np.float32(2.0**-100), np.float32(2.0**100)
#: Elements that are quantized together, from the end of a long row to its beginning: what was looked at last is still at hand.
_BLOCK = 16384


def _divided(b: Any, args: Any, at: Any, lanes: int) -> None:
    """``lanes`` codes from element ``at`` on: a product with the reciprocal, and once more with what it left over.

    Where neither the scale nor its reciprocal is subnormal that is the quotient as the division rounds it (Markstein, IBM J. Res. Dev.
    34, 1990). Values are clamped first: the ends of the range are far from where rounding changes.
    """
    x, out, _, scale, inverse, low, high, offset = args
    kind, words = v.vector(v.F32, lanes), v.vector(v.I32, lanes)
    scale, inverse, low, high, offset = (v.splat(b, value, lanes) for value in (scale, inverse, low, high, offset))
    value = v.load(b, b.gep(x, [at]), kind, 4)
    value = b.select(b.fcmp_ordered(">", value, low), value, low)  # NaN becomes the lowest
    value = b.select(b.fcmp_ordered("<", value, high), value, high)
    about = b.fmul(value, inverse)
    fused = f"llvm.fma.v{lanes}f32"
    rest = v.call(b, fused, kind, [b.fneg(about), scale, value])
    shifted = b.fadd(v.call(b, fused, kind, [rest, inverse, about]), v.constant(kind, float(_MAGIC)))
    code = b.trunc(b.add(b.bitcast(shifted, words), offset), v.vector(v.I8, lanes))
    v.store(b, code, b.gep(out, [at]), 1)


@intrinsic
def _by_reciprocal(tc: Any, x: Any, out: Any, count: Any, scale: Any, inverse: Any, low: Any, high: Any, offset: Any) -> Any:
    """``count`` codes; ``low`` and ``high`` are the ends of the range in x."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        blocks = b.sdiv(args[2], v.index(LANES))
        with for_range(b, blocks, intp=v.I64) as loop:
            _divided(b, args, b.mul(loop.index, v.index(LANES)), LANES)
        done = b.mul(blocks, v.index(LANES))
        with for_range(b, b.sub(args[2], done), intp=v.I64) as loop:
            _divided(b, args, b.add(done, loop.index), 1)
        return context.get_dummy_value()

    f = types.float32
    return types.none(F32P, U8P, types.int64, f, f, f, f, types.int32), codegen


@block(fast=_EXACT)
def quantize_run(x: Any, out: Any, scale: Any, zero: Any, signed: Any) -> None:
    """Compute out[i] = saturate(round(x[i] / scale) + zero), as uint8 bits."""
    least = -128 if signed else 0
    low, high = np.float32(least - zero), np.float32(least + 255 - zero)
    offset = np.int32(zero - _MAGIC_BITS)
    if _FUSED and scale > _SMALL and scale < _LARGE:
        inverse = np.float32(1.0) / scale
        _by_reciprocal(ptr(x, 0), ptr(out, 0), x.shape[0], scale, inverse, low * scale, high * scale, offset)
        return
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
    low, high = row_range(x)
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
        for start in range((cols - 1) // _BLOCK * _BLOCK, -1, -_BLOCK):
            count = min(_BLOCK, cols - start)
            quantize_run(span(source, start, count), span(out, r * cols + start, count), scale, zero, signed)
