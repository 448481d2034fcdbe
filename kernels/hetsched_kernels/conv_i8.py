"""8-bit convolution over NCHW with exact int32 sums, any groups, strides, pads and dilations.

As :mod:`hetsched_kernels.conv`, with four channels side by side in the padded copy, so that a vector of it holds four channels
of LANES neighbouring positions, and the weights (s8) are broadcast. Padding holds the input's zero point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate
from hetsched_kernels.arrays import Array, InF32, InI32, InI64, InU8, OutF32, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.conv import phase_count, scatter_positions
from hetsched_kernels.gemm_i8 import signed_weights
from hetsched_kernels.quantize import quantize_run
from hetsched_kernels.spans import valid_range
from hetsched_kernels.tile import COLS, ROWS, TILE
from hetsched_kernels.tile_f32 import scatter_rows_f32
from hetsched_kernels.tile_i8 import tile_s8u8
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
    return depth * 12 + TILE * 8 + COLS * 4 + blocks * count * high * wide * 4 + COLS * 4 + 512


@block
def _tables(g: Any, blocks: Any, high: Any, wide: Any, table: Any) -> None:
    """Byte offset of each tap (channel block, ky, kx) of output position 0 in the padded copy."""
    rows, cols = phase_count(g[5], g[7], g[13]), phase_count(g[6], g[8], g[14])
    k = 0
    for c in range(blocks):
        for ky in range(g[5]):
            y = ky * g[13]
            for kx in range(g[6]):
                x = kx * g[14]
                image = (c * rows + y % g[7]) * cols + x % g[8]
                table[k] = ((image * high + y // g[7]) * wide + x // g[8]) * 4
                k += 1


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
                    target = source[base + y * wide : base + (y + 1) * wide]
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
                        target[low:top],
                        x[c * plane + at :],
                        x[(c + min(1, last)) * plane + at :],
                        x[(c + min(2, last)) * plane + at :],
                        x[(c + min(3, last)) * plane + at :],
                        g[8],
                        mask,
                        flip,
                    )


@block
def correct_tile(acc: Any, rows: Any, m0: Any, x_zero: Any, sums: Any, zeros: Any, column_sums: Any, k: Any) -> None:
    """Turn Σ wx into Σ (w - zw)(x - zx) for a tile of output channels m0 … by positions."""
    for r in range(rows):
        row = acc[r * COLS : (r + 1) * COLS]
        constant = np.int32(-x_zero * sums[m0 + r])
        if zeros.shape[0] > 0:
            zw = zeros[m0 + r]
            constant = np.int32(constant + np.int32(k) * x_zero * zw)
            for j in range(COLS):
                row[j] += np.int32(constant - zw * column_sums[j])
        else:
            for j in range(COLS):
                row[j] += constant


@block(fast=_EXACT)
def _scale_tile(acc: Any, tile: Any, rows: Any, m0: Any, scales: Any, bias: Any) -> None:
    """Compute tile = acc · scale[m] + bias[m], in that order, without fusing."""
    for r in range(rows):
        row, source = tile[r * COLS : (r + 1) * COLS], acc[r * COLS : (r + 1) * COLS]
        factor = scales[m0 + r]
        shift = bias[m0 + r] if bias.shape[0] > 0 else np.float32(0.0)
        for j in range(COLS):
            row[j] = np.float32(source[j]) * factor + shift


@block
def _column_sums(source: Any, at: Any, table: Any, ones: Any, acc: Any, sums: Any, cols: Any) -> None:
    """Σ x over the taps of each position: a product with ones."""
    depth = table.shape[0]
    _TILE_CALL(ones, depth * 4, source[at:], table, depth, acc, 1, COLS)
    for j in range(COLS):
        sums[j] = acc[j]


@block
def _parts(g: Any, scratch: Any) -> Any:
    """Scratch: depth table, ones, int32 tile, float tile, column sums, padded copy."""
    blocks = (g[1] // g[15] + 3) // 4
    depth = blocks * g[5] * g[6]
    first = (depth * 12 + 63) // 64 * 64
    table = scratch[: depth * 8].view(np.int64)
    ones = scratch[depth * 8 : depth * 12]
    for i in range(depth * 4):
        ones[i] = 1
    acc = scratch[first : first + TILE * 4].view(np.int32)
    tile = scratch[first + TILE * 4 : first + TILE * 8].view(np.float32)
    sums = scratch[first + TILE * 8 : first + TILE * 8 + COLS * 4].view(np.int32)
    return table, ones, acc, tile, sums, scratch[first + TILE * 8 + COLS * 4 :]


@block
def scatter_bytes(
    tile: Any, rows: Any, cols: Any, p0: Any, wide: Any, ow: Any, plane: Any, out: Any, scale: Any, zero: Any, signed: Any
) -> None:
    """Quantize a tile over positions p0 … p0 + cols of images ``wide`` wide to the output, dropping those beyond ``ow``."""
    done = 0
    while done < cols:
        y, x = (p0 + done) // wide, (p0 + done) % wide
        run = min(cols - done, wide - x)
        keep = min(run, ow - x)
        if keep > 0:
            for r in range(rows):
                to = r * plane + y * ow + x
                quantize_run(tile[r * COLS + done : r * COLS + done + keep], out[to : to + keep], scale, zero, signed)
        done += run


@kernel(needs=(tile_s8u8, scatter_rows_f32, ACTIVATE), fast=_EXACT)
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
) -> None:
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
    g = geometry
    channels, m, ow, plane = g[1] // g[15], g[4] // g[15], g[17], g[16] * g[17]
    high, wide = (g[2] + g[9] + g[11] + g[7] - 1) // g[7], (g[3] + g[10] + g[12] + g[8] - 1) // g[8]
    table, ones, acc, tile, sums, room = _parts(g, scratch)
    depth, blocks = table.shape[0], (channels + 3) // 4
    _tables(g, blocks, high, wide, table)
    zero = np.int32(x_zero + (128 if x_signed else 0))
    flip = np.uint32(0x80808080 if x_signed else 0)
    source = room[: room.shape[0] // 4 * 4].view(np.uint32)
    length = (g[16] - 1) * wide + ow
    for image in range(g[0]):
        for group in range(g[15]):
            _pad(g, x[(image * g[1] + group * channels) * g[2] * g[3] :], channels, high, wide, source, zero, flip)
            for p0 in range(0, length, COLS):
                cols = min(COLS, length - p0)
                if w_zeros.shape[0] > 0:
                    _column_sums(room, p0 * 4, table, ones, acc, sums, cols)
                for m0 in range(group * m, (group + 1) * m, ROWS):
                    rows = min(ROWS, (group + 1) * m - m0)
                    _TILE_CALL(w_data[m0 * depth * 4 :], depth * 4, room[p0 * 4 :], table, depth, acc, rows, COLS)
                    correct_tile(acc, rows, m0, zero, w_sums, w_zeros, sums, channels * g[5] * g[6])
                    _scale_tile(acc, tile, rows, m0, scales, bias)
                    if activation != 0:
                        activate(tile[: rows * COLS], activation, alpha, beta)
                    scatter_positions(tile, rows, cols, p0, wide, ow, plane, out, (image * g[4] + m0) * plane)


@kernel(needs=(tile_s8u8, ACTIVATE), fast=_EXACT)
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
) -> None:
    """As :data:`conv2d_i8_f32`, then quantized: saturate(round_half_even(value / out_scale) + out_zero).

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
    g = geometry
    channels, m, ow, plane = g[1] // g[15], g[4] // g[15], g[17], g[16] * g[17]
    high, wide = (g[2] + g[9] + g[11] + g[7] - 1) // g[7], (g[3] + g[10] + g[12] + g[8] - 1) // g[8]
    table, ones, acc, tile, sums, room = _parts(g, scratch)
    depth, blocks = table.shape[0], (channels + 3) // 4
    _tables(g, blocks, high, wide, table)
    zero = np.int32(x_zero + (128 if x_signed else 0))
    flip = np.uint32(0x80808080 if x_signed else 0)
    source = room[: room.shape[0] // 4 * 4].view(np.uint32)
    length = (g[16] - 1) * wide + ow
    for image in range(g[0]):
        for group in range(g[15]):
            _pad(g, x[(image * g[1] + group * channels) * g[2] * g[3] :], channels, high, wide, source, zero, flip)
            for p0 in range(0, length, COLS):
                cols = min(COLS, length - p0)
                if w_zeros.shape[0] > 0:
                    _column_sums(room, p0 * 4, table, ones, acc, sums, cols)
                for m0 in range(group * m, (group + 1) * m, ROWS):
                    rows = min(ROWS, (group + 1) * m - m0)
                    _TILE_CALL(w_data[m0 * depth * 4 :], depth * 4, room[p0 * 4 :], table, depth, acc, rows, COLS)
                    correct_tile(acc, rows, m0, zero, w_sums, w_zeros, sums, channels * g[5] * g[6])
                    _scale_tile(acc, tile, rows, m0, scales, bias)
                    if activation != 0:
                        activate(tile[: rows * COLS], activation, alpha, beta)
                    to = out[(image * g[4] + m0) * plane :]
                    scatter_bytes(tile, rows, cols, p0, wide, ow, plane, to, out_scale, np.int32(out_zero), out_signed)
