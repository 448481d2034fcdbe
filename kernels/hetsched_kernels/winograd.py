"""Float32 convolution by 3 x 3 kernels over channels-last tensors with fewer products: Winograd's, in tiles of 2 x 2 or 4 x 4."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import Array, InF32, InI64, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.gemm import clamp_of
from hetsched_kernels.nhwc import address_of
from hetsched_kernels.nhwc_panels import pack_panels, panel_products
from hetsched_kernels.nhwc_tile_f32 import BIAS, ORIGIN, nhwc_tile_f32
from hetsched_kernels.parts import as_i64, ptr, span
from hetsched_kernels.tile import LANES, ROWS, VECTORS
from hetsched_kernels.window import conv_geometry, conv_output
from hetsched_kernels.winograd_tile import transformed_weights, winograd_input, winograd_output

__all__ = [
    "conv2d_winograd_f32", "conv2d_winograd_scratch", "conv_geometry", "conv_output", "pack_winograd", "winograd_size", "winograd_tiles",
]  # fmt: skip

_INPUT, _OUTPUT = winograd_input.call, winograd_output.call
#: Elements of scratch for transformed tiles that are worked on together: about half of a second cache.
_TOGETHER = 1 << 18
#: Tiles below which weights, which the transform makes larger, cost more than it saves.
_FEW = 32
#: Channels below which the transforms cost more than the products.
_THIN = 16
_INF = np.float32(np.inf)


def winograd_size(geometry: Array) -> int:
    """The size m of m x m tiles that suits a convolution; 0 where another way is faster or the only one."""
    g = [int(value) for value in geometry]
    plain = g[5:9] == [3, 3, 1, 1] and g[13:16] == [1, 1, 1]
    if not plain or min(g[1], g[4]) < _THIN:
        return 0
    return next((m for m in (4, 2) if winograd_tiles(geometry, m) >= _FEW), 0)


def winograd_tiles(geometry: Array, m: int) -> int:
    """How many tiles of m x m the result has."""
    return int(geometry[0]) * -(-int(geometry[16]) // m) * -(-int(geometry[17]) // m)


def pack_winograd(w: Array, bias: Array, m: int) -> tuple[Array, Array]:
    """Weights and bias in the kernel's order; once.

    Args:
        w: [M, C, 3, 3].
        bias: [M], or empty.
        m: size of a tile, 2 or 4.
    """
    values = transformed_weights(w, m)
    room = -w.shape[0] % LANES
    padded = np.pad(values, ((0, 0), (0, 0), (0, room))).astype(np.float32)
    given = bias if bias.size else np.zeros(w.shape[0], np.float32)
    return np.concatenate([pack_panels(part[None]) for part in padded]), np.pad(given, (0, room)).astype(np.float32)


@block
def _whole(channels: Any) -> Any:
    return (channels + LANES - 1) // LANES * LANES


@block
def _at_once(c: Any, m: Any, elements: Any, tiles: Any) -> Any:
    """Tiles that are worked on together, a multiple of ROWS."""
    room = _TOGETHER // (elements * (_whole(c) + _whole(m)))
    return (min(max(room, 2 * ROWS), max(tiles, 1)) + ROWS - 1) // ROWS * ROWS


def conv2d_winograd_scratch(geometry: Array, m: int, tiles: int) -> int:
    """Float32 elements of scratch that :data:`conv2d_winograd_f32` wants for so many tiles."""
    c, channels, elements = int(geometry[1]), int(geometry[4]), (m + 2) ** 2
    some: int = _at_once.py_func(c, channels, elements, tiles)
    return elements * some * (-(-c // LANES) - (-channels // LANES)) * LANES + 2 * elements + 2 * some + c + LANES + 16


@block
def _tile_addresses(g: Any, m: Any, base: Any, blank: Any, tile: Any, addresses: Any) -> Any:
    """Where the positions lie that a tile needs; returns its first result's image, row and column."""
    h, w, oh, ow, side = g[2], g[3], g[16], g[17], m + 2
    across = (ow + m - 1) // m
    down = (oh + m - 1) // m
    image, rest = tile // (across * down), tile % (across * down)
    oy, ox = rest // across * m, rest % across * m
    for y in range(side):
        for x in range(side):
            iy, ix = oy - g[9] + y, ox - g[10] + x
            inside = 0 <= iy < h and 0 <= ix < w
            addresses[y * side + x] = base + ((image * h + iy) * w + ix) * g[1] * 4 if inside else blank
    return image, oy, ox


@kernel(needs=(nhwc_tile_f32, winograd_input, winograd_output, ACTIVATE))
def conv2d_winograd_f32(
    x: InF32, w: InF32, bias: InF32, skip: InF32, out: OutF32, scratch: OutF32, geometry: InI64, m: int, activation: int, alpha: float,
    beta: float, first: int, last: int
) -> None:  # fmt: skip
    """Compute out = activation(x ⋆ w + bias + skip), tiles ``first`` to ``last`` of the result.

    Args:
        x: [n, h, w, c], readable SLACK bytes beyond its end.
        w: :func:`pack_winograd`.
        bias: :func:`pack_winograd`.
        skip: as ``out``, whose memory it may be, or empty.
        out: [n, oh, ow, m], readable SLACK bytes beyond its end, as ``skip``.
        scratch: [:func:`conv2d_winograd_scratch`].
        geometry: :func:`conv_geometry`: 3 x 3, strides, dilations and groups 1.
        m: size of a tile, 2 or 4.
        activation: one of ``codes.ACTIVATION``.
        alpha: its first parameter.
        beta: its second.
        first: first tile, of :func:`winograd_tiles`.
        last: one past the last.
    """
    g, c, channels = geometry, geometry[1], geometry[4]
    elements, deep, wide = (m + 2) * (m + 2), _whole(c), _whole(channels)
    some = _at_once(c, channels, elements, last - first)
    images, sums = span(scratch, 0, elements * some * deep), span(scratch, elements * some * deep, elements * some * wide)
    at = elements * some * (deep + wide)
    addresses, table = as_i64(scratch, at, 2 * elements), as_i64(scratch, at + 2 * elements, 2 * some)
    blank = span(scratch, at + 2 * (elements + some), deep)
    for i in range(deep):
        blank[i] = np.float32(0.0)
    for i in range(some):
        table[i] = address_of(images, 0) + i * deep * 4
    lo, hi, clamps = clamp_of(activation, alpha, beta)
    mode = BIAS + ORIGIN if skip.shape[0] > 0 else BIAS
    for t0 in range(first, last, some):
        count = min(some, last - t0)
        for t in range(count):
            _tile_addresses(g, m, address_of(x, 0), address_of(blank, 0), t0 + t, addresses)
            _INPUT(ptr(addresses, 0), ptr(images, t * deep), some * deep, deep // LANES, m)
        _products(table, w, sums, elements, some * deep, c, channels, count, some * wide)
        for t in range(count):
            image, oy, ox = _tile_addresses(g, m, address_of(x, 0), address_of(blank, 0), t0 + t, addresses)
            rows, cols, to = min(m, g[16] - oy), min(m, g[17] - ox), ((image * g[16] + oy) * g[17] + ox) * channels
            _OUTPUT(
                ptr(sums, t * wide), some * wide, ptr(skip, to), ptr(bias, 0), mode, lo, hi, ptr(out, to), g[17] * channels, channels,
                channels, rows, cols, m,
            )  # fmt: skip
            if not clamps:
                for y in range(rows):
                    activate_at(ptr(out, to + y * g[17] * channels), cols * channels, activation, alpha, beta)


@block
def _products(table: Any, w: Any, sums: Any, elements: Any, step: Any, c: Any, channels: Any, count: Any, wide_step: Any) -> None:
    """For every element of the transform, its tiles by its weights."""
    columns = _whole(channels)
    vectors = columns // LANES
    panels = (vectors + VECTORS - 1) // VECTORS
    for i in range(elements):
        for panel in range(panels):
            c0 = panel * vectors // panels * LANES
            width = (panel + 1) * vectors // panels * LANES - c0
            panel_products(
                table, 1, c, i * step, w, (i * columns + c0) * c, width, ptr(sums, 0), ptr(sums, 0), 0, -_INF, _INF, sums,
                i * wide_step + c0, columns, count, width,
            )  # fmt: skip
