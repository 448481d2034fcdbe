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
from hetsched_kernels.few_bits import (
    BITS,
    CODES_AT,
    GROUP,
    HALF,
    KIND,
    LARGER,
    LARGER_AT,
    LARGER_MINS_AT,
    MINS,
    MINS_AT,
    SCALED,
    STRIDE,
    K,
    N,
)
from hetsched_kernels.groups import CHUNK, ZEROS
from hetsched_kernels.lowlevel import F32P, I8P, for_range, intrinsic
from hetsched_kernels.parts import as_f32, as_i8, as_i32, as_u8, as_u16, onward, ptr, span
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_amx import CONFIGURATION, HEIGHT, configure_rows, permitted, release
from hetsched_kernels.tile_amx_groups import STORED, group_step, tiles_s8
from hetsched_kernels.tile_bits import ROWS as TOGETHER
from hetsched_kernels.tile_bits import WIDE, few_rows
from hetsched_kernels.tile_bytes import ROWS, SIGNED, STEP, rows_8
from hetsched_kernels.tile_unpack import unpack

_FEW_ROWS, _UNPACK, _ROWS, _TILES = few_rows.call, unpack.call, rows_8.call, tiles_s8.call
_TILE = max(ROWS, TOGETHER * WIDE, HEIGHT) * LANES
_ZEROS = np.array([ZEROS.get(bits, 0) for bits in range(9)])
#: Most rows of int8 that meet the weights as they are stored, TOGETHER at a time; for more a panel is decoded once for all.
_FEW = TOGETHER if SIGNED else 16


def gemm_groups_scratch(shape: Array) -> int:
    """Float32 elements of scratch that :data:`gemm_groups_f32` wants for a weight's :attr:`PackedGroups.shape`."""
    return int(2 * (shape[K] // shape[GROUP]) + shape[K] // 4) * LANES + _TILE + CONFIGURATION // 4 + STORED


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
def expand_scales(panel: Any, shape: Any, scales: Any, mins: Any) -> None:
    """A panel's scales and minima, [groups, LANES] each, as float32."""
    kind, per = shape[KIND], shape[LARGER]
    if kind == SCALED:
        _scaled(panel, 0, shape[LARGER_AT], per, np.float32(1.0), scales)
        if shape[MINS]:
            _scaled(panel, shape[MINS_AT], shape[LARGER_MINS_AT], per, np.float32(-1.0), mins)
        return
    _plain(panel, 0, kind, scales)
    if shape[MINS]:
        _plain(panel, shape[MINS_AT], kind, mins)


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
def panels_from(c0: Any, last: Any) -> Any:
    """How many panels a row meets together from column c0 on."""
    return min(WIDE, (last - c0 + LANES - 1) // LANES)


@block
def finish_panels(tile: Any, panels: Any, c0: Any, bias: Any, out: Any, n: Any, code: Any, alpha: Any, beta: Any) -> None:
    """A row's results of several panels, from column c0 on."""
    for p in range(panels):
        at = c0 + p * LANES
        finish_panel(onward(tile, p * LANES), 1, at, 0, min(LANES, n - at), bias, out, n, code, alpha, beta)


@block
def _fold(tile: Any, pairs: Any) -> None:
    """Add every second row of a tile to the one before it: ``pairs`` rows are left."""
    for r in range(pairs):
        high, low, to = span(tile, 2 * r * LANES, LANES), span(tile, (2 * r + 1) * LANES, LANES), span(tile, r * LANES, LANES)
        for i in range(LANES):
            to[i] = high[i] + low[i]


@block
def _few_rows(
    q: Any, q_scales: Any, q_sums: Any, data: Any, shape: Any, bias: Any, out: Any, scratch: Any, m: Any, first: Any, last: Any,
    code: Any, alpha: Any, beta: Any, twofold: Any,
) -> None:  # fmt: skip
    """As :data:`_many_rows`, and the same bits: weights are decoded in registers, for some rows at a time."""
    n, depth, stride, each, line = shape[N], shape[K], shape[STRIDE], 2 if twofold else 1, WIDE * LANES
    groups, passes = depth // shape[GROUP], (m + TOGETHER - 1) // TOGETHER
    together = (m // each + passes - 1) // passes * each
    tile, form = onward(scratch, 2 * groups * LANES), ptr(shape, 0)
    for c0 in range(first, last, line):
        panels, codes = panels_from(c0, last), ptr(data, c0 // LANES * stride)
        for r0 in range(0, m, together):
            rows = min(together, m - r0)
            x, xs, xn = ptr(q, r0 * depth), ptr(q_scales, r0 * groups), ptr(q_sums, r0 * groups)
            _FEW_ROWS(codes, form, x, xs, xn, ptr(tile, 0), panels, rows)
            for r in range(0, rows, each):
                own = onward(tile, r * line)
                if twofold:
                    for i in range(panels * LANES):
                        own[i] = own[i] + own[line + i]
                finish_panels(own, panels, c0, bias, onward(out, (r0 + r) // each * n), n, code, alpha, beta)


@block
def _many_rows(
    q: Any, q_scales: Any, q_sums: Any, data: Any, shape: Any, bias: Any, out: Any, scratch: Any, m: Any, first: Any, last: Any,
    code: Any, alpha: Any, beta: Any, twofold: Any,
) -> None:  # fmt: skip
    """:data:`gemm_groups_f32` of several rows, or with ``twofold`` of rows whose pairs are added."""
    n, depth, stride = shape[N], shape[K], shape[STRIDE]
    groups, each = depth // shape[GROUP], 2 if twofold else 1
    count = groups * LANES
    scales, mins = span(scratch, 0, count), span(scratch, count, count)
    tile, rest = span(scratch, 2 * count, _TILE), onward(scratch, 2 * count + _TILE)
    wide, s, low, y = as_u8(rest, 0, depth // 4 * LANES), ptr(scales, 0), ptr(mins, 0), ptr(tile, 0)
    after = as_u8(rest, depth // 4 * LANES, (CONFIGURATION // 4 + STORED))
    by_tiles = m >= HEIGHT // 2 and permitted() > 0
    signed = by_tiles or SIGNED
    tall, step = HEIGHT if by_tiles else ROWS, group_step(shape[GROUP] // 4)
    zero = 0 if shape[MINS] else _ZEROS[shape[BITS]]
    for c0 in range(first, last, LANES):
        panel = span(data, c0 // LANES * stride, stride)
        expand_scales(panel, shape, scales, mins)
        codes = ptr(panel, shape[CODES_AT])
        if signed or shape[BITS] != 8:
            _UNPACK(codes, ptr(wide, 0), depth // CHUNK, shape[BITS], zero if signed else 0)
            codes = ptr(wide, 0)
        for r0 in range(0, m, tall):
            x, xs, xn, rows = ptr(q, r0 * depth), ptr(q_scales, r0 * groups), ptr(q_sums, r0 * groups), min(tall, m - r0)
            if by_tiles:
                if r0 == 0 or rows < tall:
                    configure_rows(after, rows, step)
                sums = ptr(as_i32(after, CONFIGURATION, 4 * STORED), 0)
                _TILES(codes, x, depth, xs, xn, s, low, shape[MINS], groups, step, shape[GROUP] // (4 * step), y, sums, rows)
            else:
                _ROWS(codes, x, depth, xs, xn, s, low, 0 if signed else zero, shape[MINS], groups, shape[GROUP] // STEP, y, rows)
            if twofold:
                _fold(tile, rows // 2)
            finish_panel(tile, rows // each, c0, r0 // each, min(LANES, n - c0), bias, out, n, code, alpha, beta)
    if by_tiles:
        release()


@kernel(needs=(few_rows, unpack, rows_8, tiles_s8, ACTIVATE))
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
    if m > _FEW:
        _many_rows(q, q_scales, q_sums, data, shape, bias, out, scratch, m, first, last, activation, alpha, beta, False)
    else:
        _few_rows(q, q_scales, q_sums, data, shape, bias, out, scratch, m, first, last, activation, alpha, beta, False)


@kernel(needs=(few_rows, unpack, rows_8, tiles_s8, ACTIVATE))
def gemm_twofold_f32(
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
    """Compute out = activation(x · wᵀ + bias) with each row of x as two: codes, and codes of what those leave over.

    Arguments as :data:`gemm_groups_f32`, but ``q``, ``q_scales`` and ``q_sums`` have 2 · m rows
    (:data:`hetsched_kernels.twofold.quantize_twofold` makes them).
    """
    if 2 * m > _FEW:
        _many_rows(q, q_scales, q_sums, data, shape, bias, out, scratch, 2 * m, first, last, activation, alpha, beta, True)
    else:
        _few_rows(q, q_scales, q_sums, data, shape, bias, out, scratch, 2 * m, first, last, activation, alpha, beta, True)
