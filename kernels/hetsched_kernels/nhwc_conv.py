"""8-bit convolution over channels-last tensors (:mod:`hetsched_kernels.nhwc`): any window, one group, symmetric weights."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import Array, InF32, InI32, InI64, InU8, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.gemm import clamp_of
from hetsched_kernels.nhwc import address_of
from hetsched_kernels.nhwc_amx import TOGETHER, nhwc_sums, tile_step, virtual_positions
from hetsched_kernels.nhwc_rows import row_addresses, table_elements, table_positions
from hetsched_kernels.nhwc_tile import nhwc_finish, nhwc_tile
from hetsched_kernels.parts import as_f32, as_i32, as_i64, ptr, span
from hetsched_kernels.tile import COLS, LANES, ROWS, TILE, VECTORS
from hetsched_kernels.tile_amx import CONFIGURATION, HEIGHT, configure, release
from hetsched_kernels.tile_i8 import quantize_tile
from hetsched_kernels.window import conv_geometry, conv_output

__all__ = ["PackedNhwc", "conv2d_nhwc_i8", "conv2d_nhwc_scratch", "conv_geometry", "conv_output", "pack_conv_nhwc", "terms"]

_TILE_CALL = nhwc_tile.call
_QUANTIZE, _SUMS, _FINISH = quantize_tile.call, nhwc_sums.call, nhwc_finish.call
_EXACT: frozenset[str] = frozenset()
#: Positions that share a pass over the weights.
_CHUNK = 512


class PackedNhwc(NamedTuple):
    """Weights of a channels-last kernel.

    Attributes:
        data: uint8 bits of s8.
        starts: int32, -zx · Σ w of each column.
    """

    data: Array
    starts: Array


def pack_conv_nhwc(w: Array, x_zero: int) -> PackedNhwc:
    """Pack symmetric weights once: panels of columns, each [taps, groups of four channels, columns, 4].

    Args:
        w: int8 [M, C, kh, kw], zero points 0.
        x_zero: the input's zero point as u8.
    """
    m, c, kh, kw = w.shape
    vectors, groups = -(-m // LANES), -(-c // 4)
    padded = np.zeros((vectors * LANES, groups * 4, kh * kw), np.int8)
    padded[:m, :c] = w.reshape(m, c, kh * kw)
    order = padded.reshape(vectors * LANES, groups, 4, kh * kw).transpose(3, 1, 0, 2)  # taps, groups, columns, 4
    panels = -(-vectors // VECTORS)
    edges = [LANES * (j * vectors // panels) for j in range(panels + 1)]
    data = np.concatenate([order[:, :, a:b].reshape(-1) for a, b in pairwise(edges)])
    starts = -np.int64(x_zero) * padded.reshape(vectors * LANES, -1).sum(1, dtype=np.int64)
    return PackedNhwc(data.view(np.uint8), starts.astype(np.int32))


def terms(values: Array) -> Array:
    """Factors or shifts, one per output channel, as :data:`conv2d_nhwc_i8` takes them: padded to whole vectors."""
    return np.pad(np.asarray(values, np.float32), (0, -len(values) % LANES))


def conv2d_nhwc_scratch(geometry: Array) -> int:
    """Bytes of scratch (uint8) that :data:`conv2d_nhwc_i8` wants."""
    return table_elements(geometry) * 8 + TILE * 4 + COLS + int(geometry[1]) + 192 + CONFIGURATION + TOGETHER * COLS * 4


@kernel(needs=(nhwc_tile, nhwc_finish, nhwc_sums, quantize_tile, ACTIVATE), fast=_EXACT)
def conv2d_nhwc_i8(
    x: InU8, w: InU8, starts: InI32, factors: InF32, shifts: InF32, out: OutU8, scratch: OutU8, geometry: InI64, pixel: int, x_zero: int,
    activation: int, alpha: float, beta: float, low: int, high: int, out_scale: float, out_zero: int, first: int, last: int
) -> None:  # fmt: skip
    """Convolution of bytes with exact int32 sums; positions ``first`` to ``last`` of the result.

    Where the activation is a clamp, out = saturate(round_half_even(Σ (x - zx) w · factor + shift) + zero) within [low, high], and
    factors and shifts are relative to the result's scale; otherwise they are not, and out = quantized(activation(Σ · factor + shift)).

    Args:
        x: [n, h, w, c] u8, readable SLACK bytes beyond its end.
        w: :attr:`PackedNhwc.data`.
        starts: :attr:`PackedNhwc.starts`.
        factors: :func:`terms`, one an output channel.
        shifts: :func:`terms`.
        out: [n, oh, ow, m] u8.
        scratch: uint8 [:func:`conv2d_nhwc_scratch`].
        geometry: :func:`conv_geometry`, one group.
        pixel: bytes from position to position of x: c, or less where neighbours overlap (:func:`hetsched_kernels.nhwc.widened`).
        x_zero: the input's zero point.
        activation: one of ``codes.ACTIVATION``.
        alpha: its first parameter.
        beta: its second.
        low: least byte of the result.
        high: largest byte of the result.
        out_scale: the result's scale; read where the activation is no clamp.
        out_zero: its zero point.
        first: first output position, of n · oh · ow.
        last: one past the last.
    """
    g = geometry
    taps, groups, m = g[5] * g[6], (g[1] + 3) // 4, g[4]
    positions = table_positions(taps)
    at = positions * taps * 8
    table = as_i64(scratch, 0, at)
    tile, spare = as_f32(scratch, at, TILE * 4), span(scratch, at + TILE * 4, COLS)
    blank = span(scratch, at + TILE * 4 + COLS, g[1] + 4)
    for i in range(g[1] + 4):
        blank[i] = np.uint8(x_zero)
    vectors = (m + LANES - 1) // LANES
    panels = (vectors + VECTORS - 1) // VECTORS
    _, _, clamps = clamp_of(activation, alpha, beta)
    lo, hi = np.float32(low - out_zero), np.float32(high - out_zero)
    step = tile_step(g, pixel)
    if step > 0 and first < last:
        ends = (lo, hi, np.int32(out_zero))
        rest = span(scratch, at + TILE * 4 + COLS + (g[1] + 131) // 64 * 64, CONFIGURATION + TOGETHER * COLS * 4)
        _in_tiles(
            x, w, starts, factors, shifts, out, g, step, ends, clamps, (activation, alpha, beta, out_scale), table, tile, spare, rest,
            first, last,
        )  # fmt: skip
        return
    for p0 in range(first, last, positions):
        count = min(positions, last - p0)
        row_addresses(g, pixel, address_of(x, 0), address_of(blank, 0), p0, count, table)
        for panel in range(panels):
            c0 = panel * vectors // panels * LANES
            cols = min(((panel + 1) * vectors // panels) * LANES, m) - c0
            weights = ptr(w, c0 * taps * groups * 4)
            for r in range(0, count, ROWS):
                rows = min(ROWS, count - r)
                to = (p0 + r) * m + c0
                _TILE_CALL(
                    ptr(table, r * taps), taps, groups, weights, ptr(starts, c0), ptr(factors, c0), ptr(shifts, c0), lo, hi,
                    np.int32(out_zero), ptr(out, to), m, ptr(tile, 0), 1 if clamps else 0, rows, cols,
                )  # fmt: skip
                if not clamps:
                    activate_at(ptr(tile, 0), rows * COLS, activation, alpha, beta)
                    _QUANTIZE(tile, ptr(out, to), m, rows, 0, cols, out_scale, out_zero, 0, spare)


@block
def _place(g: Any, position: Any) -> Any:
    """Where an output position's window starts in an image without padding, in positions of that image."""
    image, rest = position // (g[16] * g[17]), position % (g[16] * g[17])
    return (image * g[2] + rest // g[17]) * g[3] + rest % g[17]


@block
def _in_tiles(
    x: Any, w: Any, starts: Any, factors: Any, shifts: Any, out: Any, g: Any, step: Any, ends: Any, clamps: Any, after: Any, offsets: Any,
    tile: Any, spare: Any, rest: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """The convolution by tile registers: no padding, strides 1."""
    taps, groups, m, c = g[5] * g[6], (g[1] + 3) // 4, g[4], g[1]
    configure(span(rest, 0, CONFIGURATION), step)
    sums = as_i32(rest, CONFIGURATION, TOGETHER * COLS * 4)
    for tap in range(taps):
        offsets[tap] = (tap // g[6] * g[13] * g[3] + tap % g[6] * g[14]) * c
    total, begin, end = virtual_positions(g), _place(g, first), _place(g, last - 1) + 1
    vectors = (m + LANES - 1) // LANES
    panels = (vectors + VECTORS - 1) // VECTORS
    for q0 in range(begin, end, _CHUNK):
        limit = min(q0 + _CHUNK, end)
        for panel in range(panels):
            v0 = panel * vectors // panels
            wide, c0 = (panel + 1) * vectors // panels - v0, v0 * LANES
            cols = min(wide * LANES, m - c0)
            q = q0
            while q < limit:
                tall = 1 if limit - q <= HEIGHT or total < TOGETHER else TOGETHER // HEIGHT
                base = min(q, total - tall * HEIGHT)
                done = min(base + tall * HEIGHT, limit)
                _SUMS(
                    ptr(offsets, 0), taps, address_of(x, base * c), ptr(w, c0 * taps * groups * 4), step, groups // step, c, ptr(sums, 0),
                    tall, wide,
                )  # fmt: skip
                _finished(
                    g, sums, base, q, done, wide * LANES, starts, factors, shifts, ends, clamps, after, out, c0, cols, tile, spare
                )  # fmt: skip
                q = done
    release()


@block
def _finished(
    g: Any, sums: Any, base: Any, q: Any, limit: Any, width: Any, starts: Any, factors: Any, shifts: Any, ends: Any, clamps: Any,
    after: Any, out: Any, c0: Any, cols: Any, tile: Any, spare: Any,
) -> None:  # fmt: skip
    """Scale and store the sums of positions q … limit that are windows of the image, run by run."""
    h, w, m, oh, ow = g[2], g[3], g[4], g[16], g[17]
    activation, alpha, beta, scale = after
    lo, hi, zero = ends
    while q < limit:
        image, y, column = q // (h * w), q // w % h, q % w
        if y >= oh:
            q = (image + 1) * h * w
        elif column >= ow:
            q += w - column
        else:
            run = min((oh - y) * w - column if w == ow else ow - column, limit - q)
            if not clamps:
                run = min(run, ROWS)
            to = ((image * oh + y) * ow + column) * m + c0
            _FINISH(
                ptr(sums, (q - base) * width), ptr(starts, c0), ptr(factors, c0), ptr(shifts, c0), lo, hi, zero, ptr(out, to), m,
                ptr(tile, 0), 1 if clamps else 0, run, cols,
            )  # fmt: skip
            if not clamps:
                activate_at(ptr(tile, 0), run * COLS, activation, alpha, beta)
                _QUANTIZE(tile, ptr(out, to), m, run, 0, cols, scale, zero, 0, spare)
            q += run
