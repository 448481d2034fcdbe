"""Float32 transposed convolution over channels-last tensors whose windows lie side by side: stride as large as the kernel.

No result is a sum of two windows then, and a row of the kernel makes whole rows of the result: for each of them one product of the
row's positions by [channels, kernel columns · output channels].
"""

from __future__ import annotations

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import Array, InF32, InI64, OutF32
from hetsched_kernels.compilation import kernel
from hetsched_kernels.conv_transpose import transpose_geometry
from hetsched_kernels.gemm import clamp_of
from hetsched_kernels.nhwc import address_of
from hetsched_kernels.nhwc_panels import pack_panels, panel_products
from hetsched_kernels.nhwc_tile_f32 import BIAS, nhwc_tile_f32
from hetsched_kernels.parts import as_i64, ptr
from hetsched_kernels.tile import LANES, ROWS, VECTORS

__all__ = ["conv_transpose2d_nhwc_f32", "conv_transpose2d_nhwc_f32_scratch", "pack_conv_transpose_nhwc_f32", "transpose_geometry"]


def pack_conv_transpose_nhwc_f32(w: Array, bias: Array) -> tuple[Array, Array]:
    """Weights and bias in the kernel's order; once.

    Args:
        w: [C, M, kh, kw].
        bias: [M], or empty.
    """
    c, m, kh, kw = w.shape
    rows = np.asarray(w, np.float32).transpose(2, 0, 3, 1).reshape(kh, c, kw * m)
    room = -(kw * m) % LANES
    padded = np.pad(rows, ((0, 0), (0, 0), (0, room)))
    given = np.tile(bias if bias.size else np.zeros(m, np.float32), kw)
    return np.concatenate([pack_panels(row[None]) for row in padded]), np.pad(given, (0, room)).astype(np.float32)


def conv_transpose2d_nhwc_f32_scratch(geometry: Array) -> int:
    """Float32 elements of scratch that :data:`conv_transpose2d_nhwc_f32` wants."""
    return 2 * (int(geometry[3]) + ROWS)


@kernel(needs=(nhwc_tile_f32, ACTIVATE))
def conv_transpose2d_nhwc_f32(
    x: InF32, w: InF32, bias: InF32, out: OutF32, scratch: OutF32, geometry: InI64, activation: int, alpha: float, beta: float, first: int,
    last: int
) -> None:  # fmt: skip
    """Compute out = activation(transposed convolution of x by w + bias), of rows ``first`` to ``last`` of the image.

    Args:
        x: [n, h, w, c], readable SLACK bytes beyond its end.
        w: :func:`pack_conv_transpose_nhwc_f32`.
        bias: :func:`pack_conv_transpose_nhwc_f32`.
        out: [n, oh, ow, m], readable SLACK bytes beyond its end.
        scratch: [:func:`conv_transpose2d_nhwc_f32_scratch`].
        geometry: :func:`transpose_geometry`: strides as the kernel, one group, no pads, output padding or dilations.
        activation: one of ``codes.ACTIVATION``.
        alpha: its first parameter.
        beta: its second.
        first: first row, of n · h.
        last: one past the last.
    """
    g = geometry
    c, wide, kh, columns = g[1], g[3], g[5], g[6] * g[4]
    vectors = (columns + LANES - 1) // LANES
    panels = (vectors + VECTORS - 1) // VECTORS
    table = as_i64(scratch, 0, 2 * ((wide + ROWS - 1) // ROWS * ROWS))
    lo, hi, clamps = clamp_of(activation, alpha, beta)
    for row in range(first, last):
        for i in range(table.shape[0]):
            table[i] = address_of(x, (row * wide + min(i, wide - 1)) * c)
        for ky in range(kh):
            to = (row * kh + ky) * wide * columns
            for panel in range(panels):
                c0 = panel * vectors // panels * LANES
                width = (panel + 1) * vectors // panels * LANES - c0
                panel_products(
                    table, 1, c, 0, w, (ky * vectors * LANES + c0) * c, width, ptr(out, 0), ptr(bias, c0), BIAS, lo, hi, out, to + c0,
                    columns, wide, min(width, columns - c0),
                )  # fmt: skip
            if not clamps:
                activate_at(ptr(out, to), wide * columns, activation, alpha, beta)
