"""Float32 convolution over channels-last tensors ([n, h, w, c]): any window, one group or depthwise."""

from __future__ import annotations

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import Array, InF32, InI64, OutF32
from hetsched_kernels.compilation import kernel
from hetsched_kernels.gemm import clamp_of
from hetsched_kernels.nhwc import address_of
from hetsched_kernels.nhwc_panels import pack_panels, panel_products
from hetsched_kernels.nhwc_rows import row_addresses, table_elements, table_positions
from hetsched_kernels.nhwc_tile_f32 import BIAS, DEPTHWISE_CHANNELS, ORIGIN, nhwc_depthwise_f32, nhwc_tile_f32
from hetsched_kernels.parts import as_i64, ptr, span
from hetsched_kernels.tile import LANES, ROWS, VECTORS
from hetsched_kernels.window import conv_geometry, conv_output

__all__ = ["conv2d_nhwc_f32", "conv2d_nhwc_f32_scratch", "conv_geometry", "conv_output", "pack_conv_nhwc_f32"]

_DEPTHWISE_CALL = nhwc_depthwise_f32.call


def _width(channels: int, unit: int) -> int:
    return -(-channels // unit) * unit


def pack_conv_nhwc_f32(w: Array, bias: Array, groups: int = 1) -> tuple[Array, Array]:
    """Weights and bias in the kernel's order; once.

    Args:
        w: [M, C / groups, kh, kw].
        bias: [M], or empty.
        groups: 1, or M = C.
    """
    m, c, kh, kw = w.shape
    width = _width(m, LANES if groups == 1 else DEPTHWISE_CHANNELS)
    padded, shift = np.zeros((width, c, kh * kw), np.float32), np.zeros(width, np.float32)
    padded[:m], shift[: bias.size] = w.reshape(m, c, kh * kw), bias
    order = padded.transpose(2, 1, 0)  # taps, channels, columns
    if groups > 1:
        return np.ascontiguousarray(order).reshape(-1), shift
    return pack_panels(order), shift


def conv2d_nhwc_f32_scratch(geometry: Array) -> int:
    """Float32 elements of scratch that :data:`conv2d_nhwc_f32` wants."""
    return 2 * table_elements(geometry) + int(geometry[1]) + DEPTHWISE_CHANNELS + 16


@kernel(needs=(nhwc_tile_f32, nhwc_depthwise_f32, ACTIVATE))
def conv2d_nhwc_f32(
    x: InF32, w: InF32, bias: InF32, skip: InF32, out: OutF32, scratch: OutF32, geometry: InI64, pixel: int, activation: int, alpha: float,
    beta: float, first: int, last: int
) -> None:  # fmt: skip
    """Compute out = activation(x ⋆ w + bias + skip), positions ``first`` to ``last`` of the result.

    Args:
        x: [n, h, w, c], readable SLACK bytes beyond its end.
        w: :func:`pack_conv_nhwc_f32`.
        bias: :func:`pack_conv_nhwc_f32`.
        skip: as ``out``, whose memory it may be, or empty; depthwise: empty.
        out: [n, oh, ow, m], readable SLACK bytes beyond its end, as ``skip``.
        scratch: [:func:`conv2d_nhwc_f32_scratch`].
        geometry: :func:`conv_geometry`, one group or depthwise.
        pixel: elements from position to position of x: c, or less where neighbours overlap (:func:`hetsched_kernels.nhwc.widened`).
        activation: one of ``codes.ACTIVATION``.
        alpha: its first parameter.
        beta: its second.
        first: first output position, of n · oh · ow.
        last: one past the last.
    """
    g = geometry
    taps, c, m = g[5] * g[6], g[1], g[4]
    positions = table_positions(taps)
    table = as_i64(scratch, 0, 2 * positions * taps)
    blank = span(scratch, 2 * positions * taps, c + DEPTHWISE_CHANNELS)
    for i in range(c + DEPTHWISE_CHANNELS):
        blank[i] = np.float32(0.0)
    vectors = (m + LANES - 1) // LANES
    panels = (vectors + VECTORS - 1) // VECTORS
    lo, hi, clamps = clamp_of(activation, alpha, beta)
    mode = BIAS + ORIGIN if skip.shape[0] > 0 else BIAS
    width = (c + DEPTHWISE_CHANNELS - 1) // DEPTHWISE_CHANNELS * DEPTHWISE_CHANNELS
    for p0 in range(first, last, positions):
        count = min(positions, last - p0)
        row_addresses(g, pixel * 4, address_of(x, 0), address_of(blank, 0), p0, count, table)
        if g[15] > 1:
            for r in range(0, count, ROWS):
                rows, to = min(ROWS, count - r), ptr(out, (p0 + r) * c)
                _DEPTHWISE_CALL(ptr(table, r * taps), taps, width, ptr(w, 0), ptr(bias, 0), lo, hi, to, c, rows)
        else:
            for panel in range(panels):
                c0 = panel * vectors // panels * LANES
                columns = ((panel + 1) * vectors // panels) * LANES - c0
                to = p0 * m + c0
                panel_products(
                    table, taps, c, 0, w, c0 * taps * c, columns, ptr(skip, to), ptr(bias, c0), mode, lo, hi, out, to, m, count,
                    min(columns, m - c0),
                )  # fmt: skip
        if not clamps:
            activate_at(ptr(out, p0 * m), count * m, activation, alpha, beta)
