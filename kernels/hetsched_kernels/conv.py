"""Float32 convolution over NCHW, any groups, strides, pads and dilations.

Each group's input is padded and split by stride into scratch, so that every kernel tap of neighbouring outputs reads
neighbouring values: the taps then are the rows of the right operand of a matrix product, addressed through a table, and no
im2col matrix exists. Without padding and stride the input itself serves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import Array, InF32, InI64, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.depthwise import depthwise_row_f32
from hetsched_kernels.gemm import clamp_of
from hetsched_kernels.parts import as_i64, onward, ptr, span
from hetsched_kernels.spans import spread_row
from hetsched_kernels.tile import COLS, LANES, ROWS, TILE
from hetsched_kernels.tile_f32 import NO_BIAS, ROW_BIAS, gather_panel_f32, scatter_rows_f32, tile_f32
from hetsched_kernels.window import conv_geometry, conv_output, padded_plane

__all__ = ["conv2d_f32", "conv2d_f32_scratch", "conv_geometry", "conv_output", "pack_conv_f32"]

_TILE_CALL = tile_f32.call
_GATHER = gather_panel_f32.call
_SCATTER = scatter_rows_f32.call
_DEPTHWISE = depthwise_row_f32.call
_ZERO = np.float32(0.0)
#: From this many row panels on, a panel of the input is made contiguous first, if its rows would fall on the same cache sets.
_PACK_FROM = 4
_SET_STRIDE = 256


def pack_conv_f32(w: Array, groups: int = 1) -> Array:
    """Weights in the order the register tile reads them: per group, panels of up to ROWS output channels, each [K, rows].

    Args:
        w: [M, C / groups, kh, kw].
        groups: groups.

    Returns:
        Flat float32; a last, smaller panel of a group with more than ROWS channels is zero-padded.
    """
    w = np.asarray(w, np.float32)
    m = w.shape[0] // groups
    k = int(np.prod(w.shape[1:]))
    rows = min(ROWS, m)
    panels = -(-m // rows)
    padded = np.zeros((groups, panels * rows, k), np.float32)
    padded[:, :m] = w.reshape(groups, m, k)
    return np.ascontiguousarray(padded.reshape(groups, panels, rows, k).transpose(0, 1, 3, 2)).reshape(-1)


def conv2d_f32_scratch(geometry: Array) -> int:
    """Float32 elements of scratch that :data:`conv2d_f32` wants."""
    count, high, wide = padded_plane(geometry)
    channels = int(geometry[1]) // int(geometry[15])
    k = channels * int(geometry[5]) * int(geometry[6])
    return 4 * (k + 1) + 2 * TILE + k * COLS + channels * count * high * wide + int(geometry[17]) + k + 4 * COLS + 16


@block
def is_direct(g: Any) -> Any:
    """Whether the input itself can be read: no padding, no stride."""
    return g[7] == 1 and g[8] == 1 and g[9] == 0 and g[10] == 0 and g[11] == 0 and g[12] == 0


@block
def phase_count(taps: Any, stride: Any, dilation: Any) -> Any:
    """As :func:`hetsched_kernels.window.phases`."""
    return min(stride, taps) if dilation == 1 else stride


@block
def fill_tables(g: Any, channels: Any, high: Any, wide: Any, table: Any, packed: Any) -> None:
    """Where each tap (channel, ky, kx) of output position 0 lies in the padded input, and in a packed panel."""
    rows, cols = phase_count(g[5], g[7], g[13]), phase_count(g[6], g[8], g[14])
    k = 0
    for c in range(channels):
        for ky in range(g[5]):
            y = ky * g[13]
            for kx in range(g[6]):
                x = kx * g[14]
                image = (c * rows + y % g[7]) * cols + x % g[8]
                table[k] = (image * high + y // g[7]) * wide + x // g[8]
                packed[k] = k * COLS
                k += 1


@block
def _pad(g: Any, x: Any, channels: Any, high: Any, wide: Any, source: Any) -> None:
    """Copy the channels of ``x`` into padded phase images."""
    rows, cols = phase_count(g[5], g[7], g[13]), phase_count(g[6], g[8], g[14])
    h, w = g[2], g[3]
    for c in range(channels):
        for py in range(rows):
            for px in range(cols):
                base = ((c * rows + py) * cols + px) * high * wide
                for y in range(high):
                    iy = y * g[7] + py - g[9]
                    target = span(source, base + y * wide, wide)
                    if 0 <= iy < h:
                        spread_row(target, span(x, (c * h + iy) * w, w), px - g[10], g[8], _ZERO)
                    else:
                        for i in range(wide):
                            target[i] = _ZERO


@block
def gather_tail(source: Any, start: Any, table: Any, k: Any, cols: Any, panel: Any) -> None:
    """As gather_panel, for fewer than COLS columns: reads nothing beyond them."""
    for i in range(k):
        at = start + table[i]
        for j in range(COLS):
            panel[i * COLS + j] = source[at + j] if j < cols else _ZERO


@block
def scatter_positions(tile: Any, rows: Any, cols: Any, p0: Any, wide: Any, ow: Any, plane: Any, out: Any, base: Any) -> None:
    """Write a tile over positions p0 … p0 + cols of images ``wide`` wide to the output, dropping those beyond ``ow``."""
    if wide == ow:
        wide, ow = plane, plane  # no padding between rows: one run
    done = 0
    while done < cols:
        y, x = (p0 + done) // wide, (p0 + done) % wide
        run = min(cols - done, wide - x)
        keep = min(run, ow - x)
        if keep > 0:
            _SCATTER(tile, ptr(out, base + y * ow + x), plane, rows, done, done + keep)
        done += run


@block
def _convolve(
    g: Any,
    source: Any,
    direct: Any,
    table: Any,
    packed: Any,
    w: Any,
    bias: Any,
    out: Any,
    spare: Any,
    tile: Any,
    panel: Any,
    wide: Any,
    mode: Any,
    code: Any,
    alpha: Any,
    beta: Any,
) -> None:
    """One group of one image."""
    k, m, oh, ow = table.shape[0], g[4] // g[15], g[16], g[17]
    plane = oh * ow
    lo, hi, clamps = clamp_of(code, alpha, beta)
    height = min(ROWS, m)
    by_rows = wide != ow and ((ow + LANES - 1) // LANES) * LANES <= wide
    runs, length = (oh, ow) if by_rows else (1, (oh - 1) * wide + ow)
    aliased = direct and m >= _PACK_FROM * ROWS and g[2] * g[3] % _SET_STRIDE == 0
    straight = clamps and (by_rows or wide == ow)
    for run in range(runs):
        for p0 in range(0, length, COLS):
            cols = min(COLS, length - p0)
            at = run * wide + p0
            rows_of_b, values = ptr(table, 0), ptr(source, at)
            if direct and cols < COLS:
                gather_tail(source, at, table, k, cols, panel)
                rows_of_b, values = ptr(packed, 0), ptr(panel, 0)
            elif aliased:
                _GATHER(ptr(source, at), table, k, panel)
                rows_of_b, values = ptr(packed, 0), ptr(panel, 0)
            for m0 in range(0, m, height):
                rows = min(height, m - m0)
                part = ptr(bias, m0 if mode == ROW_BIAS else 0)
                if straight:
                    _TILE_CALL(
                        ptr(w, m0 * k),
                        1,
                        height,
                        values,
                        rows_of_b,
                        k,
                        ptr(out, m0 * plane + run * ow + p0),
                        plane,
                        part,
                        mode,
                        lo,
                        hi,
                        rows,
                        cols,
                        spare,
                    )
                    continue
                _TILE_CALL(ptr(w, m0 * k), 1, height, values, rows_of_b, k, tile, COLS, part, mode, lo, hi, rows, COLS, spare)
                if not clamps:
                    activate_at(ptr(tile, 0), rows * COLS, code, alpha, beta)
                if by_rows:
                    _SCATTER(tile, ptr(out, m0 * plane + run * ow + p0), plane, rows, 0, cols)
                else:
                    scatter_positions(tile, rows, cols, p0, wide, ow, plane, out, m0 * plane)


@block
def _depthwise(
    g: Any, x: Any, high: Any, wide: Any, images: Any, table: Any, w: Any, bias: Any, out: Any, room: Any, code: Any, alpha: Any, beta: Any
) -> None:  # fmt: skip
    """All channels of all images where each output channel reads one input channel."""
    k, oh, ow, per = table.shape[0], g[16], g[17], g[4] // g[15]
    lo, hi, clamps = clamp_of(code, alpha, beta)
    source, line = span(room, 0, images * high * wide), onward(room, images * high * wide + 2 * COLS)
    height = min(ROWS, per)
    for item in range(g[0] * g[1]):
        _pad(g, onward(x, item * g[2] * g[3]), 1, high, wide, source)
        for m in range(per):
            channel = item % g[1] * per + m
            start = bias[channel] if bias.shape[0] > 0 else _ZERO
            for tap in range(k):
                line[tap] = w[((channel // per * ((per + height - 1) // height) + m // height) * k + tap) * height + m % height]
            row = ptr(line, k)
            for oy in range(oh):
                target = span(out, ((item * per + m) * oh + oy) * ow, ow)
                if ow % LANES == 0:
                    _DEPTHWISE(ptr(source, oy * wide), table, k, line, start, lo, hi, ptr(target, 0), ow)
                else:
                    _DEPTHWISE(ptr(source, oy * wide), table, k, line, start, lo, hi, row, ow)
                    for i in range(ow):
                        target[i] = row[i]
                if not clamps:
                    activate_at(ptr(target, 0), ow, code, alpha, beta)


@kernel(needs=(depthwise_row_f32, tile_f32, gather_panel_f32, scatter_rows_f32, ACTIVATE))
def conv2d_f32(
    x: InF32, w: InF32, bias: InF32, out: OutF32, scratch: OutF32, geometry: InI64, activation: int, alpha: float, beta: float
) -> None:
    """Compute out = activation(x ⋆ w + bias).

    Args:
        x: [n · c · h · w].
        w: :func:`pack_conv_f32`.
        bias: [m], or empty.
        out: [n · m · oh · ow].
        scratch: [:func:`conv2d_f32_scratch`].
        geometry: :func:`conv_geometry`.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    g = geometry
    direct = is_direct(g)
    channels, m = g[1] // g[15], g[4] // g[15]
    k = channels * g[5] * g[6]
    high = (g[2] + g[9] + g[11] + g[7] - 1) // g[7]
    wide = (g[3] + g[10] + g[12] + g[8] - 1) // g[8]
    images, plane, area = phase_count(g[5], g[7], g[13]) * phase_count(g[6], g[8], g[14]), g[16] * g[17], g[2] * g[3]
    table, packed = as_i64(scratch, 0, 2 * k), as_i64(scratch, 2 * k, 2 * k)
    spare, tile = span(scratch, 4 * k, TILE), span(scratch, 4 * k + TILE, TILE)
    panel = span(scratch, 4 * k + 2 * TILE, k * COLS)
    room = onward(scratch, 4 * k + 2 * TILE + k * COLS)
    fill_tables(g, channels, high, wide, table, packed)
    height = min(ROWS, m)
    group_weights = ((m + height - 1) // height) * height * k
    mode = ROW_BIAS if bias.shape[0] > 0 else NO_BIAS
    if channels == 1 and g[15] > 1:
        _depthwise(g, x, high, wide, images, table, w, bias, out, room, activation, alpha, beta)
        return
    for image in range(g[0]):
        for group in range(g[15]):
            source = onward(x, (image * g[1] + group * channels) * area)
            if not direct:
                _pad(g, source, channels, high, wide, room)
                source = span(room, 0, channels * images * high * wide + COLS)
            weights, shift = onward(w, group * group_weights), onward(bias, group * m)
            to = onward(out, (image * g[4] + group * m) * plane)
            _convolve(g, source, direct, table, packed, weights, shift, to, spare, tile, panel, wide, mode, activation, alpha, beta)
