"""8-bit depthwise convolution over channels-last tensors (:mod:`hetsched_kernels.nhwc`): any window, symmetric weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hetsched_kernels.arrays import Array, InF32, InI32, InI64, InU8, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.nhwc import address_of
from hetsched_kernels.nhwc_depthwise_tile import BLOCK, COLUMN, ORDER, depthwise_row, depthwise_sweep, join_columns
from hetsched_kernels.parts import as_i64, ptr, span
from hetsched_kernels.window import conv_geometry, conv_output

__all__ = ["PackedDepthwise", "conv_geometry", "conv_output", "depthwise_nhwc_i8", "depthwise_nhwc_scratch", "pack_depthwise_nhwc", "terms"]

_JOIN = join_columns.call
_ROW = depthwise_row.call
_SWEEP = depthwise_sweep.call
_EXACT: frozenset[str] = frozenset()
#: Output rows that share a pass over the blocks of channels.
_LINES = 16


class PackedDepthwise(NamedTuple):
    """Weights of :data:`depthwise_nhwc_i8`.

    Attributes:
        data: uint8 bits of s8 [blocks, steps, 4, LANES, 4].
        starts: int32 [blocks · BLOCK], -zx · Σ w of each channel.
    """

    data: Array
    starts: Array


def _blocks(channels: int) -> list[int]:
    """First channel of each block; the last one overlaps its neighbour where the channels do not divide."""
    return [min(c, max(channels - BLOCK, 0)) for c in range(0, channels, BLOCK)]


def _gathered(values: Array) -> Array:
    """One value per channel as [blocks · BLOCK] in the kernel's order; 0 where there is no channel."""
    padded = np.zeros(max(values.size, BLOCK), values.dtype)
    padded[: values.size] = values
    return np.ascontiguousarray(np.concatenate([padded[c : c + BLOCK][ORDER] for c in _blocks(values.size)]))


def terms(values: Array) -> Array:
    """Factors or shifts, one per channel, as :data:`depthwise_nhwc_i8` takes them."""
    return _gathered(np.asarray(values, np.float32))


def pack_depthwise_nhwc(w: Array, x_zero: int) -> PackedDepthwise:
    """Pack symmetric weights once.

    Args:
        w: int8 [C, 1, kh, kw], zero points 0.
        x_zero: the input's zero point as u8.
    """
    c, _, kh, kw = w.shape
    fours = -(-kh // 4)
    padded = np.zeros((max(c, BLOCK), fours * 4, kw), np.int8)
    padded[:c, :kh] = w[:, 0]
    data = [padded[start : start + BLOCK][ORDER].reshape(BLOCK, fours, 4, kw).transpose(1, 3, 0, 2).reshape(-1) for start in _blocks(c)]
    starts = (-np.int64(x_zero) * w.reshape(c, -1).sum(1, dtype=np.int64)).astype(np.int32)
    return PackedDepthwise(np.concatenate(data).view(np.uint8), _gathered(starts))


def _columns(geometry: Array) -> int:
    return int(geometry[3] + geometry[10] + geometry[12])


def _whole_lines(count: int) -> int:
    return -(-count // 64) * 64


def depthwise_nhwc_scratch(geometry: Array) -> int:
    """Bytes of scratch (uint8) that :data:`depthwise_nhwc_i8` wants."""
    fours = -(-int(geometry[5]) // 4)
    steps = _whole_lines(fours * int(geometry[6]) * 8)
    return _LINES * 64 + steps + _whole_lines(int(geometry[1])) + BLOCK + fours * _columns(geometry) * COLUMN + 64


@block
def _fill(target: Any, value: Any) -> None:
    for i in range(target.shape[0]):
        target[i] = value


@block
def _row_ends(g: Any, source: Any, blank: Any, image: Any, oy: Any, c0: Any, four: Any, ends: Any) -> None:
    """Where the channels from ``c0`` in four kernel rows of an output row start, and their steps; ``blank`` outside the image."""
    c, h, w = g[1], g[2], g[3]
    rows, steps = span(ends, 0, 4), span(ends, 4, 4)
    for i in range(4):
        ky = 4 * four + i
        iy = oy * g[7] - g[9] + ky * g[13]
        inside = ky < g[5] and 0 <= iy < h
        rows[i] = source + (image * h + iy) * w * c + c0 if inside else blank
        steps[i] = c if inside else 0


@block
def _joined_row(g: Any, source: Any, blank: Any, image: Any, oy: Any, c0: Any, zero: Any, ends: Any, columns: Any) -> None:
    """Every column that an output row reads, padding included, for one block: [fours, columns, COLUMN]."""
    w, left, wide = g[3], g[10], g[3] + g[10] + g[12]
    for four in range((g[5] + 3) // 4):
        _row_ends(g, source, blank, image, oy, c0, four, ends)
        base = four * wide * COLUMN
        _fill(span(columns, base, left * COLUMN), zero)
        _JOIN(ptr(ends, 0), ptr(ends, 4), w, ptr(columns, base + left * COLUMN))
        _fill(span(columns, base + (left + w) * COLUMN, (wide - left - w) * COLUMN), zero)


@kernel(needs=(join_columns, depthwise_row, depthwise_sweep), fast=_EXACT)
def depthwise_nhwc_i8(
    x: InU8, w: InU8, starts: InI32, factors: InF32, shifts: InF32, out: OutU8, scratch: OutU8, geometry: InI64, x_zero: int, low: int,
    high: int, out_zero: int, first: int, last: int
) -> None:  # fmt: skip
    """Compute out = saturate(round_half_even(Σ (x - zx) w · factor + shift) + zero) within [low, high], rows ``first`` to ``last``.

    Args:
        x: [n, h, w, c] u8, readable SLACK bytes beyond its end.
        w: :attr:`PackedDepthwise.data`.
        starts: :attr:`PackedDepthwise.starts`.
        factors: :func:`terms` of (input scale · weight scale) / result scale.
        shifts: :func:`terms` of bias / result scale.
        out: [n, oh, ow, c] u8.
        scratch: uint8 [:func:`depthwise_nhwc_scratch`].
        geometry: :func:`conv_geometry` with c groups of one channel to one.
        x_zero: the input's zero point.
        low: least byte of the result.
        high: largest byte of the result.
        out_zero: its zero point.
        first: first output row, of n · oh.
        last: one past the last.
    """
    g = geometry
    c, kw, oh, ow = g[1], g[6], g[16], g[17]
    fours, wide = (g[5] + 3) // 4, g[3] + g[10] + g[12]
    steps = fours * kw
    ends, offsets = as_i64(scratch, 0, _LINES * 64), as_i64(scratch, _LINES * 64, steps * 8)
    room = _LINES * 64 + (steps * 8 + 63) // 64 * 64
    wider = (c + 63) // 64 * 64 + BLOCK
    blank, columns = span(scratch, room, wider), span(scratch, room + wider, fours * wide * COLUMN)
    for i in range(wider):
        blank[i] = np.uint8(x_zero)
    for i in range(steps):
        offsets[i] = (i // kw * wide + i % kw * g[14]) * COLUMN
    hi = np.float32(high - out_zero)
    swept = fours == 1 and g[14] == 1 and (kw == 3 or kw == 5) and g[8] <= 2
    together = _LINES if swept else 1
    for row in range(first, last, together):
        lines = min(together, last - row)
        if swept:
            for i in range(lines):
                _row_ends(g, address_of(x, 0), address_of(blank, 0), (row + i) // oh, (row + i) % oh, 0, 0, span(ends, 8 * i, 8))
        for block_ in range((c + BLOCK - 1) // BLOCK):
            c0 = min(block_ * BLOCK, max(c - BLOCK, 0))
            weights, at, to = ptr(w, block_ * steps * COLUMN), block_ * BLOCK, ptr(out, row * ow * c + c0)
            if swept:
                _SWEEP(
                    ptr(ends, 0), lines, c0, g[3], g[10], x_zero, weights, ptr(starts, at), ptr(factors, at), ptr(shifts, at), hi, low,
                    high, out_zero, to, c, ow, min(c, BLOCK), kw, g[8],
                )  # fmt: skip
                continue
            _joined_row(g, address_of(x, 0), address_of(blank, 0), row // oh, row % oh, c0, np.uint8(x_zero), ends, columns)
            _ROW(
                ptr(columns, 0), ptr(offsets, 0), steps, g[8] * COLUMN, weights, ptr(starts, at), ptr(factors, at), ptr(shifts, at), hi,
                low, high, out_zero, to, c, ow, min(c, BLOCK),
            )  # fmt: skip
