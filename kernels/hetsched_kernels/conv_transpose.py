"""Float32 transposed convolution over NCHW: each input row's products, added where the taps fall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate
from hetsched_kernels.arrays import Array, InF32, InI64, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.conv import gather_tail, pack_conv_f32
from hetsched_kernels.parts import as_i64, onward, ptr, span
from hetsched_kernels.spans import valid_range
from hetsched_kernels.tile import COLS, ROWS, TILE
from hetsched_kernels.tile_f32 import NO_BIAS, gather_panel_f32, tile_f32
from hetsched_kernels.window import conv_output

__all__ = ["conv_output", "conv_transpose2d_f32", "conv_transpose2d_f32_scratch", "pack_conv_transpose_f32", "transpose_geometry"]

_TILE_CALL = tile_f32.call
_GATHER = gather_panel_f32.call
_INF = np.float32(np.inf)


def transpose_geometry(
    n: int, c: int, h: int, w: int, m: int, kh: int, kw: int, strides: Sequence[int] = (1, 1), pads: Sequence[int] = (0, 0, 0, 0),
    output_padding: Sequence[int] = (0, 0), dilations: Sequence[int] = (1, 1), groups: int = 1,
) -> Array:  # fmt: skip
    """The int64 descriptor of a transposed convolution; fields as :func:`hetsched_kernels.window.conv_geometry`.

    Args:
        n: batch.
        c: input channels.
        h: input height.
        w: input width.
        m: output channels.
        kh: kernel height.
        kw: kernel width.
        strides: (vertical, horizontal).
        pads: ONNX order (top, left, bottom, right); an ``output_shape`` is the caller's to turn into pads.
        output_padding: (vertical, horizontal).
        dilations: (vertical, horizontal).
        groups: groups; c and m are multiples of it.

    Raises:
        ValueError: the channels do not divide, or the output is empty.
    """
    if groups < 1 or c % groups or m % groups:
        raise ValueError(f"transposed convolution of {c} to {m} channels cannot have {groups} groups; both must be multiples of it")
    oh = strides[0] * (h - 1) + output_padding[0] + (kh - 1) * dilations[0] + 1 - pads[0] - pads[2]
    ow = strides[1] * (w - 1) + output_padding[1] + (kw - 1) * dilations[1] + 1 - pads[1] - pads[3]
    if min(oh, ow) < 1:
        raise ValueError(f"transposed convolution has an empty output {oh}x{ow}; check kernel, pads and dilations")
    return np.array([n, c, h, w, m, kh, kw, *strides, *pads, *dilations, groups, oh, ow], np.int64)


def pack_conv_transpose_f32(w: Array, groups: int = 1) -> Array:
    """Weights in the order the register tile reads them.

    Args:
        w: [C, M / groups, kh, kw].
        groups: groups.
    """
    w = np.asarray(w, np.float32)
    c, m, kh, kw = w.shape
    taps = w.reshape(groups, c // groups, m * kh * kw).transpose(0, 2, 1)
    return pack_conv_f32(np.ascontiguousarray(taps).reshape(groups * m * kh * kw, c // groups, 1, 1), groups)


def conv_transpose2d_f32_scratch(geometry: Array) -> int:
    """Float32 elements of scratch that :data:`conv_transpose2d_f32` wants."""
    k = int(geometry[1]) // int(geometry[15])
    return 4 * (k + 1) + 2 * TILE + k * COLS + 16


@block
def _add_taps(g: Any, tile: Any, first: Any, rows: Any, iy: Any, x0: Any, cols: Any, out: Any) -> None:
    """Add a tile of (output channel, ky, kx) by input columns x0 … to one group's output."""
    oh, ow, taps = g[16], g[17], g[5] * g[6]
    for r in range(rows):
        m, tap = (first + r) // taps, (first + r) % taps
        oy = iy * g[7] + tap // g[6] * g[13] - g[9]
        if oy < 0 or oy >= oh:
            continue
        stride, shift = g[8], x0 * g[8] + tap % g[6] * g[14] - g[10]
        low, high = valid_range(ow, cols, stride, shift)
        target, source = onward(out, (m * oh + oy) * ow + low * stride + shift), span(tile, r * COLS + low, high - low)
        if stride == 1:
            for i in range(high - low):
                target[i] += source[i]
        elif stride == 2:
            for i in range(high - low):
                target[2 * i] += source[i]
        else:
            for i in range(high - low):
                target[stride * i] += source[i]


@kernel(needs=(tile_f32, gather_panel_f32, ACTIVATE))
def conv_transpose2d_f32(
    x: InF32, w: InF32, bias: InF32, out: OutF32, scratch: OutF32, geometry: InI64, activation: int, alpha: float, beta: float
) -> None:  # fmt: skip
    """Compute out = activation(transposed convolution of x by w + bias).

    Args:
        x: [n · c · h · w].
        w: :func:`pack_conv_transpose_f32`.
        bias: [m], or empty.
        out: [n · m · oh · ow].
        scratch: [:func:`conv_transpose2d_f32_scratch`].
        geometry: :func:`transpose_geometry`.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    g = geometry
    k, m, area, plane = g[1] // g[15], g[4] // g[15], g[2] * g[3], g[16] * g[17]
    table, packed = as_i64(scratch, 0, 2 * k), as_i64(scratch, 2 * k, 2 * k)
    tile, spare = span(scratch, 4 * k, TILE), span(scratch, 4 * k + TILE, TILE)
    panel = span(scratch, 4 * k + 2 * TILE, k * COLS)
    for i in range(k):
        table[i], packed[i] = i * area, i * COLS
    count = m * g[5] * g[6]
    height = min(ROWS, count)
    group_weights = (count + height - 1) // height * height * k
    for image in range(g[0]):
        for channel in range(g[4]):
            start = bias[channel] if bias.shape[0] > 0 else np.float32(0.0)
            to = span(out, (image * g[4] + channel) * plane, plane)
            for i in range(plane):
                to[i] = start
        for group in range(g[15]):
            source, weights = onward(x, (image * g[1] + group * k) * area), onward(w, group * group_weights)
            target = onward(out, (image * g[4] + group * m) * plane)
            for iy in range(g[2]):
                for x0 in range(0, g[3], COLS):
                    cols = min(COLS, g[3] - x0)
                    if cols == COLS:
                        _GATHER(source[iy * g[3] + x0 :], table, k, panel)
                    else:
                        gather_tail(source, iy * g[3] + x0, table, k, cols, panel)
                    for first in range(0, count, height):
                        rows = min(height, count - first)
                        _TILE_CALL(
                            ptr(weights, first * k),
                            1,
                            height,
                            panel,
                            packed,
                            k,
                            tile,
                            COLS,
                            bias,
                            NO_BIAS,
                            -_INF,
                            _INF,
                            rows,
                            COLS,
                            spare,
                        )
                        _add_taps(g, tile, first, rows, iy, x0, cols, target)
    if activation != 0:
        activate(span(out, 0, g[0] * g[4] * plane), activation, alpha, beta)
