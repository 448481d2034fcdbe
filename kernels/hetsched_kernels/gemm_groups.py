"""Activations in int8 groups times weights of 2 to 8 bits in groups: the decode step's product, and the prompt's.

Exact int32 sums within a group, float32 between groups, so the result is that of the dequantized operands up to rounding.
Weights are read once, front to back; scales of a panel are expanded to float32 in scratch before its codes are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import Array, InF32, InI32, InI64, InU8, OutF32
from hetsched_kernels.cast import half_to_float
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.few_bits import BITS, GROUP, HALF, KIND, LARGER, MINS, SCALED, STRIDE, K, N
from hetsched_kernels.groups import CHUNK, ZEROS
from hetsched_kernels.lowlevel import F32P, I8P, for_range, intrinsic
from hetsched_kernels.parts import as_f32, as_i8, as_u8, as_u16, onward, ptr, span
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_bits import WIDE, row_2, row_4, row_4_min, row_5, row_5_min, row_6, row_8, unpack
from hetsched_kernels.tile_bytes import ROWS, STEP, rows_8

_TILES = (row_2, row_4, row_4_min, row_5, row_5_min, row_6, row_8)
_ROW_2, _ROW_4, _ROW_4_MIN, _ROW_5, _ROW_5_MIN, _ROW_6, _ROW_8 = (t.call for t in _TILES)
_UNPACK, _ROWS = unpack.call, rows_8.call
_TILE = max(ROWS, WIDE) * LANES
_ZEROS = np.array([ZEROS.get(bits, 0) for bits in range(9)])


def gemm_groups_scratch(shape: Array) -> int:
    """Float32 elements of scratch that :data:`gemm_groups_f32` wants for a weight's :attr:`PackedGroups.shape`."""
    return int(2 * WIDE * (shape[K] // shape[GROUP]) + max(ROWS, WIDE) + shape[K] // 4) * LANES


@block(inline=True)
def lines(count: Any) -> Any:
    """Bytes rounded up to whole cache lines."""
    return (count + 63) // 64 * 64


@block
def _plain(panel: Any, at: Any, kind: Any, out: Any) -> None:
    """Stored float16 or float32 scales at byte ``at`` as float32."""
    count = out.shape[0]
    if kind == HALF:
        halves = as_u16(panel, at, 2 * count)
        for i in range(count):
            out[i] = half_to_float(halves[i])
    else:
        floats = as_f32(panel, at, 4 * count)
        for i in range(count):
            out[i] = floats[i]


@intrinsic
def _multiply(tc: Any, small: Any, out: Any, groups: Any) -> Any:
    """Compute out [groups, LANES] = small · the first line of ``out``."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        small, out, groups = args
        floats = v.vector(v.F32, LANES)
        factor = v.load(b, out, floats, 4)
        with for_range(b, groups, intp=v.I64) as loop:
            at = b.mul(loop.index, v.index(LANES))
            whole = b.sext(v.load(b, b.gep(small, [at]), v.vector(v.I8, LANES), 1), v.vector(v.I32, LANES))
            v.store(b, b.fmul(b.sitofp(whole, floats), factor), b.gep(out, [at]), 4)
        return context.get_dummy_value()

    return types.none(I8P, F32P, types.int64), codegen


@block
def _scaled(panel: Any, at: Any, larger: Any, per: Any, sign: Any, out: Any) -> None:
    """Integer scales at byte ``at`` times the float16 scales at ``larger``, one for ``per`` groups."""
    count, step = out.shape[0], per * LANES
    small, halves = as_i8(panel, at, count), as_u16(panel, larger, 2 * ((count + step - 1) // step) * LANES)
    for first in range(0, count, step):
        line, half = span(out, first, LANES), span(halves, first // per, LANES)
        for i in range(LANES):
            line[i] = half_to_float(half[i]) * sign
        _multiply(ptr(small, first), ptr(out, first), min(step, count - first) // LANES)


@block
def expand_scales(panel: Any, shape: Any, scales: Any, mins: Any) -> Any:
    """A panel's scales and minima, [groups, LANES] each, as float32; returns where its codes begin."""
    kind, per, both = shape[KIND], shape[LARGER], 2 if shape[MINS] else 1
    count = scales.shape[0]
    if kind == SCALED:
        size, more = lines(count), lines(2 * ((count // LANES + per - 1) // per) * LANES)
        _scaled(panel, 0, both * size, per, np.float32(1.0), scales)
        if both == 2:
            _scaled(panel, size, both * size + more, per, np.float32(-1.0), mins)
        return both * (size + more)
    size = lines(2 * count if kind == HALF else 4 * count)
    _plain(panel, 0, kind, scales)
    if both == 2:
        _plain(panel, size, kind, mins)
    return both * size


@block
def _row(
    shape: Any, codes: Any, x: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, groups: Any, out: Any, panels: Any
) -> None:  # fmt: skip
    """One row by one or several panels, decoded on the way."""
    bits, chunks, stride = shape[BITS], max(shape[GROUP] // CHUNK, 1), shape[STRIDE]
    if bits == 4:
        if shape[MINS]:
            _ROW_4_MIN(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)
        else:
            _ROW_4(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)
    elif bits == 5:
        if shape[MINS]:
            _ROW_5_MIN(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)
        else:
            _ROW_5(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)
    elif bits == 8:
        _ROW_8(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)
    elif bits == 6:
        _ROW_6(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)
    else:
        _ROW_2(codes, stride, x, x_scales, x_sums, scales, mins, groups, chunks, out, panels)


@block
def finish_panel(tile: Any, rows: Any, c0: Any, r0: Any, cols: Any, bias: Any, out: Any, n: Any, code: Any, alpha: Any, beta: Any) -> None:
    """Bias and activation of a tile [rows, LANES], then its first ``cols`` columns to column c0 of the rows from r0."""
    for r in range(rows):
        line, to = span(tile, r * LANES, LANES), span(out, (r0 + r) * n + c0, cols)
        if bias.shape[0] > 0:
            own = span(bias, c0, cols)
            for i in range(cols):
                to[i] = line[i] + own[i]
        else:
            for i in range(cols):
                to[i] = line[i]
        if code:
            activate_at(ptr(to, 0), cols, code, alpha, beta)


@block
def _one_row(
    q: Any, q_scales: Any, q_sums: Any, data: Any, shape: Any, bias: Any, out: Any, scales: Any, mins: Any, tile: Any, first: Any,
    last: Any, code: Any, alpha: Any, beta: Any,
) -> None:  # fmt: skip
    """The product of one row, several panels at a time where there are so many."""
    n, stride, groups = shape[N], shape[STRIDE], shape[K] // shape[GROUP]
    count = groups * LANES
    c0 = first
    while c0 < last:
        panels = WIDE if last - c0 > (WIDE - 1) * LANES else 1
        start = 0
        for p in range(panels):
            panel = span(data, (c0 // LANES + p) * stride, stride)
            start = expand_scales(panel, shape, span(scales, p * count, count), span(mins, p * count, count))
        codes = ptr(data, c0 // LANES * stride + start)
        _row(shape, codes, ptr(q, 0), ptr(q_scales, 0), ptr(q_sums, 0), ptr(scales, 0), ptr(mins, 0), groups, ptr(tile, 0), panels)
        for p in range(panels):
            at = c0 + p * LANES
            finish_panel(onward(tile, p * LANES), 1, at, 0, min(LANES, n - at), bias, out, n, code, alpha, beta)
        c0 += panels * LANES


@kernel(needs=(*_TILES, unpack, rows_8, ACTIVATE))
def gemm_groups_f32(
    q: InU8,
    q_scales: InF32,
    q_sums: InI32,
    data: InU8,
    shape: InI64,
    bias: InF32,
    out: OutF32,
    scratch: OutF32,
    m: int,
    first: int,
    last: int,
    activation: int,
    alpha: float,
    beta: float,
) -> None:
    """Compute out = activation(x · wᵀ + bias) with x quantized in the weight's groups.

    Args:
        q: int8 activations as uint8 [m · depth]; :data:`hetsched_kernels.quantize_groups.quantize_groups` with the weight's
            group and depth (``shape[K]``) makes these three.
        q_scales: [m · groups].
        q_sums: int32 [m · groups].
        data: :attr:`PackedGroups.data`.
        shape: :attr:`PackedGroups.shape`.
        bias: [n], or empty.
        out: [m · n].
        scratch: float32 [:func:`gemm_groups_scratch`].
        m: rows of x.
        first: first column of ``out`` that is computed, a multiple of LANES.
        last: one past the last column, n or a multiple of LANES.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    n, depth, stride = shape[N], shape[K], shape[STRIDE]
    groups = depth // shape[GROUP]
    count = groups * LANES
    scales, mins = span(scratch, 0, WIDE * count), span(scratch, WIDE * count, WIDE * count)
    tile, rest = span(scratch, 2 * WIDE * count, _TILE), onward(scratch, 2 * WIDE * count + _TILE)
    if m == 1:
        _one_row(q, q_scales, q_sums, data, shape, bias, out, scales, mins, tile, first, last, activation, alpha, beta)
        return
    wide, s, low, y = as_u8(rest, 0, depth // 4 * LANES), ptr(scales, 0), ptr(mins, 0), ptr(tile, 0)
    zero, steps = 0 if shape[MINS] else _ZEROS[shape[BITS]], shape[GROUP] // STEP
    for c0 in range(first, last, LANES):
        panel = span(data, c0 // LANES * stride, stride)
        codes = ptr(panel, expand_scales(panel, shape, span(scales, 0, count), span(mins, 0, count)))
        if shape[BITS] != 8:
            _UNPACK(codes, ptr(wide, 0), depth // CHUNK, shape[BITS])
            codes = ptr(wide, 0)
        for r0 in range(0, m, ROWS):
            x, xs, xn, rows = ptr(q, r0 * depth), ptr(q_scales, r0 * groups), ptr(q_sums, r0 * groups), min(ROWS, m - r0)
            _ROWS(codes, x, depth, xs, xn, s, low, zero, shape[MINS], groups, steps, y, rows)
            finish_panel(tile, rows, c0, r0, min(LANES, n - c0), bias, out, n, activation, alpha, beta)
