"""8-bit convolution over NCHW with exact int32 sums, any groups, strides, pads and dilations.

As :mod:`hetsched_kernels.conv`, with four channels side by side in the padded copy, so that a vector of it holds four channels
of LANES neighbouring positions, and the weights (s8) are broadcast. Padding holds the input's zero point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import NO_F32, NO_U8, Array, InF32, InI32, InI64, InU8, OutF32, OutU8
from hetsched_kernels.compilation import block, kernel, variant
from hetsched_kernels.conv import phase_count
from hetsched_kernels.conv_i8_depthwise import byte_table, convolve_depthwise
from hetsched_kernels.depthwise import depthwise_row_i8
from hetsched_kernels.finish_i8 import set_row, split_terms, store_tile, term_bytes
from hetsched_kernels.gemm import clamp_of
from hetsched_kernels.gemm_i8 import signed_weights
from hetsched_kernels.parts import as_i32, as_i64, as_u32, onward, ptr, span
from hetsched_kernels.spans import valid_range
from hetsched_kernels.tile import COLS, ROWS
from hetsched_kernels.tile_f32 import scatter_rows_f32
from hetsched_kernels.tile_i8 import HAS_T, RAW, quantize_tile, tile_s8u8
from hetsched_kernels.window import conv_geometry, conv_output, padded_plane

__all__ = ["conv2d_i8_f32", "conv2d_i8_q8", "conv2d_i8_scratch", "conv_geometry", "conv_output", "pack_conv_i8"]

_TILE_CALL = tile_s8u8.call
_EXACT: frozenset[str] = frozenset()


class PackedConv(NamedTuple):
    """Weights for :data:`conv2d_i8_f32` and its sibling.

    Attributes:
        data: uint8 bits of s8 [M, ceil(C / groups / 4) · kh · kw, 4].
        sums: int32 [M], the sum of each output channel's weights.
        zeros: int32 [M], their zero points, or empty where all are 0.
    """

    data: Array
    sums: Array
    zeros: Array


def pack_conv_i8(w: Array, groups: int = 1, zero_points: Array | None = None) -> PackedConv:
    """Pack 8-bit weights once.

    Args:
        w: int8 or uint8 [M, C / groups, kh, kw].
        groups: groups (the layout does not depend on it; named so that all packers are called alike).
        zero_points: per tensor or per output channel, in w's own type; none means 0.
    """
    w, zeros = signed_weights(np.asarray(w), zero_points, w.shape[0])
    m, c, kh, kw = w.shape
    blocks = -(-c // 4)
    padded = np.zeros((m, blocks * 4, kh, kw), np.int8)
    padded[:, :c] = w
    data = np.ascontiguousarray(padded.reshape(m, blocks, 4, kh, kw).transpose(0, 1, 3, 4, 2)).reshape(-1)
    return PackedConv(data.view(np.uint8), padded.reshape(m, -1).sum(1, dtype=np.int32), zeros)


def conv2d_i8_scratch(geometry: Array) -> int:
    """Bytes of scratch (uint8) that the kernels of this module want."""
    count, high, wide = padded_plane(geometry)
    blocks = -(-(int(geometry[1]) // int(geometry[15])) // 4)
    depth = blocks * int(geometry[5]) * int(geometry[6])
    groups, m = int(geometry[15]), int(geometry[4]) // int(geometry[15])
    rows = groups * (-(-m // ROWS) * ROWS)
    room = 4 * depth + 4 * int(geometry[17]) + 32 * COLS
    return room + depth * 12 + term_bytes(rows) + COLS * 4 + blocks * count * high * wide * 4 + COLS * 4 + 512


@block
def _join(target: Any, a: Any, b: Any, c: Any, d: Any, stride: Any, mask: Any, flip: Any) -> None:
    """target[i] = four channels' bytes at i · stride; absent channels masked out, sign bits flipped."""
    n = target.shape[0]
    if stride == 1:
        for i in range(n):
            word = np.uint32(a[i]) | np.uint32(b[i]) << np.uint32(8) | np.uint32(c[i]) << np.uint32(16) | np.uint32(d[i]) << np.uint32(24)
            target[i] = (word ^ flip) & mask
    else:
        for i in range(n):
            j = i * stride
            word = np.uint32(a[j]) | np.uint32(b[j]) << np.uint32(8) | np.uint32(c[j]) << np.uint32(16) | np.uint32(d[j]) << np.uint32(24)
            target[i] = (word ^ flip) & mask


@block
def _pad(g: Any, x: Any, channels: Any, high: Any, wide: Any, source: Any, zero: Any, flip: Any) -> None:
    """Copy the channels of ``x``, four to a word, into padded phase images; absent channels are 0."""
    rows, cols = phase_count(g[5], g[7], g[13]), phase_count(g[6], g[8], g[14])
    h, w = g[2], g[3]
    words = np.uint32(zero) * np.uint32(0x01010101)
    for c in range(0, channels, 4):
        present = min(4, channels - c)
        mask = np.uint32((1 << (8 * present)) - 1)
        last = present - 1
        for py in range(rows):
            for px in range(cols):
                base = ((c // 4 * rows + py) * cols + px) * high * wide
                low, top = valid_range(w, wide, g[8], px - g[10])
                first = low * g[8] + px - g[10]
                for y in range(high):
                    iy = y * g[7] + py - g[9]
                    target = span(source, base + y * wide, wide)
                    if iy < 0 or iy >= h or top <= low:
                        for i in range(wide):
                            target[i] = words & mask
                        continue
                    for i in range(low):
                        target[i] = words & mask
                    for i in range(top, wide):
                        target[i] = words & mask
                    at = iy * w + first
                    plane = h * w
                    _join(
                        span(target, low, top - low),
                        onward(x, c * plane + at),
                        onward(x, (c + min(1, last)) * plane + at),
                        onward(x, (c + min(2, last)) * plane + at),
                        onward(x, (c + min(3, last)) * plane + at),
                        g[8],
                        mask,
                        flip,
                    )


@block
def _column_terms(
    source: Any, table: Any, ones: Any, tile: Any, row_ints: Any, row_floats: Any, col_ints: Any, col_floats: Any, constant: Any
) -> None:
    """T = Σ x over the taps of each position (a product with ones) less K·zx."""
    depth = table.shape[0]
    zero = np.float32(0.0)
    for i in range(2 * ROWS):
        row_ints[i] = 0
    _TILE_CALL(ones, depth * 4, source, table, depth, tile, COLS, row_ints, row_floats, col_ints, col_floats, RAW, zero, zero, 1, COLS)
    sums = as_i32(tile, 0, COLS)
    for j in range(COLS):
        col_ints[COLS + j] = sums[j] - constant


@block
def _row_terms(groups: Any, m: Any, zero: Any, sums: Any, zeros: Any, scales: Any, bias: Any, row_ints: Any, row_floats: Any) -> None:
    """U = zx·Σw, p = zw, s, r of every output channel; each group starts on a whole tile."""
    padded = (m + ROWS - 1) // ROWS * ROWS
    for channel in range(groups * m):
        slot = channel // m * padded + channel % m
        p = zeros[channel] if zeros.shape[0] > 0 else np.int32(0)
        r = bias[channel] if bias.shape[0] > 0 else np.float32(0.0)
        set_row(row_ints, row_floats, slot, np.int32(zero * sums[channel]), p, scales[channel], r)


@block
def _store_positions(
    tile: Any, rows: Any, cols: Any, p0: Any, wide: Any, ow: Any, plane: Any, out: Any, q: Any, base: Any, quantize: Any, scale: Any,
    zero: Any,
    signed: Any, spare: Any,
) -> None:  # fmt: skip
    """Write a tile over positions p0 … p0 + cols of images ``wide`` wide, dropping those beyond ``ow``."""
    if wide == ow:
        wide, ow = plane, plane  # no padding between rows: one run
    done = 0
    while done < cols:
        y, x = (p0 + done) // wide, (p0 + done) % wide
        run = min(cols - done, wide - x)
        keep = min(run, ow - x)
        if keep > 0:
            at = base + y * ow + x
            store_tile(ptr(tile, 0), ptr(out, at), ptr(q, at), plane, rows, done, done + keep, quantize, scale, zero, signed, spare)
        done += run


_NEEDS = (depthwise_row_i8, tile_s8u8, scatter_rows_f32, quantize_tile, ACTIVATE)


@kernel(needs=_NEEDS, fast=_EXACT)
def _convolve(
    x: InU8, w: InU8, w_sums: InI32, w_zeros: InI32, scales: InF32, bias: InF32, out: OutF32, q: OutU8, scratch: OutU8, g: InI64,
    x_zero: int, x_signed: bool, code: int, alpha: float, beta: float, quantize: bool, scale: float, out_zero: int, signed: bool
) -> None:  # fmt: skip
    """Both kernels of this module: float32 to ``out`` or 8-bit to ``q``."""
    channels, groups, m, ow, plane = g[1] // g[15], g[15], g[4] // g[15], g[17], g[16] * g[17]
    if channels == 1 and groups > 1 and w_zeros.shape[0] == 0:
        convolve_depthwise(
            x, w, w_sums, scales, bias, out, q, scratch, g, x_zero, x_signed, code, alpha, beta, quantize, scale, out_zero, signed
        )  # fmt: skip
        return
    high, wide = (g[2] + g[9] + g[11] + g[7] - 1) // g[7], (g[3] + g[10] + g[12] + g[8] - 1) // g[8]
    blocks = (channels + 3) // 4
    depth = blocks * g[5] * g[6]
    padded = (m + ROWS - 1) // ROWS * ROWS
    table, ones = as_i64(scratch, 0, depth * 8), span(scratch, depth * 8, depth * 4)
    row_ints, row_floats, col_ints, col_floats, tile, spare, room = split_terms(onward(scratch, depth * 12), groups * padded)
    room = span(room, 0, room.shape[0] // 4 * 4)
    for i in range(depth * 4):
        ones[i] = 1
    byte_table(g, blocks, high, wide, table)
    zero = np.int32(x_zero + (128 if x_signed else 0))
    _row_terms(groups, m, zero, w_sums, w_zeros, scales, bias, row_ints, row_floats)
    has_t = w_zeros.shape[0] > 0
    lo, hi, clamps = clamp_of(code, alpha, beta)
    length = (g[16] - 1) * wide + ow
    for item in range(g[0] * groups):
        group = item % groups
        _pad(
            g,
            onward(x, item * channels * g[2] * g[3]),
            channels,
            high,
            wide,
            as_u32(room, 0, room.shape[0]),
            zero,
            np.uint32(0x80808080 if x_signed else 0),
        )
        for p0 in range(0, length, COLS):
            cols, source = min(COLS, length - p0), ptr(room, p0 * 4)
            if has_t:
                spare_ints, constant = span(col_ints, 0, 2 * ROWS), np.int32(channels * g[5] * g[6]) * zero
                _column_terms(source, table, ones, tile, spare_ints, row_floats, col_ints, col_floats, constant)
            for m0 in range(0, m, ROWS):
                rows, slot = min(ROWS, m - m0), 2 * (group * padded + m0)
                weights = ptr(w, (group * m + m0) * depth * 4)
                _TILE_CALL(
                    weights, depth * 4, source, table, depth, tile, COLS, ptr(row_ints, slot), ptr(row_floats, slot), col_ints, col_floats,
                    HAS_T if has_t else 0, lo, hi, rows, cols,
                )  # fmt: skip
                if not clamps:
                    activate_at(ptr(tile, 0), rows * COLS, code, alpha, beta)
                base = (item * m + m0) * plane
                _store_positions(tile, rows, cols, p0, wide, ow, plane, out, q, base, quantize, scale, out_zero, signed, spare)


@variant(_convolve)
def conv2d_i8_f32(
    x: InU8,
    w_data: InU8,
    w_sums: InI32,
    w_zeros: InI32,
    scales: InF32,
    bias: InF32,
    out: OutF32,
    scratch: OutU8,
    geometry: InI64,
    x_zero: int,
    x_signed: bool,
    activation: int,
    alpha: float,
    beta: float,
) -> tuple[Any, ...]:
    """Compute out = activation(Σ (w - zw)(x - zx) · scale[m] + bias[m]): int32 sums, then float32 in exactly that order.

    Args:
        x: [n · c · h · w] 8-bit as uint8.
        w_data: :attr:`PackedConv.data`.
        w_sums: :attr:`PackedConv.sums`.
        w_zeros: :attr:`PackedConv.zeros`.
        scales: float32 [m], x's scale times each output channel's.
        bias: float32 [m], or empty.
        out: [n · m · oh · ow].
        scratch: uint8 [:func:`conv2d_i8_scratch`].
        geometry: :func:`conv_geometry`.
        x_zero: x's zero point in its own type; also what padding holds.
        x_signed: x's bits are int8.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    return (
        x, w_data, w_sums, w_zeros, scales, bias, out, NO_U8, scratch, geometry, x_zero, x_signed, activation, alpha, beta, False, 1.0, 0,
        False
    )  # fmt: skip


@variant(_convolve)
def conv2d_i8_q8(
    x: InU8,
    w_data: InU8,
    w_sums: InI32,
    w_zeros: InI32,
    scales: InF32,
    bias: InF32,
    out: OutU8,
    scratch: OutU8,
    geometry: InI64,
    x_zero: int,
    x_signed: bool,
    activation: int,
    alpha: float,
    beta: float,
    out_scale: float,
    out_zero: int,
    out_signed: bool,
) -> tuple[Any, ...]:
    """As :data:`conv2d_i8_f32`, then quantized: saturate(round_half_even(value · (1 / out_scale)) + out_zero).

    Args:
        x: as there.
        w_data: as there.
        w_sums: as there.
        w_zeros: as there.
        scales: as there.
        bias: as there; an int32 bias is ``bias · scales`` in float32.
        out: [n · m · oh · ow] 8-bit as uint8.
        scratch: as there.
        geometry: as there.
        x_zero: as there.
        x_signed: as there.
        activation: one of ``codes.ACTIVATION``, applied before quantizing.
        alpha: its first parameter.
        beta: its second.
        out_scale: the result's scale.
        out_zero: the result's zero point, in its own type.
        out_signed: the result is int8.
    """
    return (
        x, w_data, w_sums, w_zeros, scales, bias, NO_F32, out, scratch, geometry, x_zero, x_signed, activation, alpha, beta, True,
        out_scale,
        out_zero, out_signed,
    )  # fmt: skip
