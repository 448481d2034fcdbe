"""Sampling images at computed positions (ONNX's GridSample): nearest, bilinear, bicubic."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import InF32, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.parts import as_i32, span
from hetsched_kernels.wide import full_width

_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
NEAREST, LINEAR, CUBIC = 0, 1, 2
#: How positions are interpolated, and what lies beyond the border, by ONNX's names.
MODE: Final = {"nearest": NEAREST, "linear": LINEAR, "bilinear": LINEAR, "cubic": CUBIC, "bicubic": CUBIC}
ZEROS, BORDER, REFLECTION = 0, 1, 2
PADDING: Final = {"zeros": ZEROS, "border": BORDER, "reflection": REFLECTION}
#: Positions that are worked on at a time, and the most pixels that one reads.
_RUN, _MOST = 256, 16
#: In place of the index of a pixel that there is not.
_BEYOND = -1
#: Float32 elements of scratch that :data:`grid_sample_f32` wants.
SCRATCH: Final = 2 * _RUN * _MOST
_CUBIC_A = np.float32(-0.75)


@block
def _pixel(value: Any, size: Any, corners: Any) -> Any:
    """A coordinate in [-1, 1] as a position in pixels; -1 and 1 are the centres, or the edges, of the outermost ones."""
    whole = np.float32(size)
    if corners:
        return (value + _ONE) * _HALF * (whole - _ONE)
    return ((value + _ONE) * whole - _ONE) * _HALF


@block
def _reflect(x: Any, low: Any, high: Any) -> Any:
    """A position mirrored at both borders until it lies within."""
    extent = high - low
    if extent <= _ZERO:
        return low
    beyond = f.absolute(x - low)
    turns = f.floor(beyond / extent)
    rest = beyond - turns * extent
    return low + rest if np.int64(turns) % 2 == 0 else high - rest


@block
def _bounded(x: Any, size: Any, padding: Any, corners: Any) -> Any:
    """A position brought into the image as the padding says; unchanged where what lies beyond is 0."""
    last = np.float32(size - 1)
    if padding == BORDER:
        return f.clip(x, _ZERO, last)
    if padding == REFLECTION:
        edge = _ZERO if corners else -_HALF
        return f.clip(_reflect(x, edge, last - edge), _ZERO, last)
    return x


@block
def _tap(row: Any, col: Any, h: Any, w: Any, padding: Any, corners: Any, weight: Any, index: Any, weights: Any, at: Any) -> None:
    """One pixel that a position reads: where it lies, and how much it counts; beyond the border what the padding says."""
    if padding != ZEROS:
        row = np.int64(_bounded(np.float32(row), h, padding, corners))
        col = np.int64(_bounded(np.float32(col), w, padding, corners))
    index[at] = np.int32(row * w + col if 0 <= row < h and 0 <= col < w else _BEYOND)
    weights[at] = weight


@block
def _cubic(t: Any, k: Any) -> Any:
    """Weight of the k-th of four pixels around a position ``t`` beyond the second (Keys, 1981)."""
    x = f.absolute(t + _ONE - np.float32(k))
    if x <= _ONE:
        return ((_CUBIC_A + np.float32(2)) * x - (_CUBIC_A + np.float32(3))) * x * x + _ONE
    return ((x - np.float32(5)) * x + np.float32(8)) * x * _CUBIC_A - np.float32(4) * _CUBIC_A


@block
def _taps(y: Any, x: Any, h: Any, w: Any, mode: Any, padding: Any, corners: Any, index: Any, weights: Any, at: Any) -> None:
    """All pixels that a position reads: every _RUN-th entry from ``at`` on."""
    if mode == NEAREST:
        _tap(np.int64(f.round_even(y)), np.int64(f.round_even(x)), h, w, padding, corners, _ONE, index, weights, at)
        return
    top, left = f.floor(y), f.floor(x)
    r, c, dy, dx = np.int64(top), np.int64(left), y - top, x - left
    if mode == LINEAR:
        for i in range(2):
            for j in range(2):
                weight = (dy if i else _ONE - dy) * (dx if j else _ONE - dx)
                _tap(r + i, c + j, h, w, padding, corners, weight, index, weights, at + (2 * i + j) * _RUN)
        return
    for i in range(4):
        for j in range(4):
            weight = _cubic(dy, i) * _cubic(dx, j)
            _tap(r - 1 + i, c - 1 + j, h, w, padding, corners, weight, index, weights, at + (4 * i + j) * _RUN)


@block
def _read(plane: Any, index: Any) -> Any:
    """A pixel, or the zero beyond the border."""
    return plane[index] if index >= 0 else _ZERO


@block
def _sum(plane: Any, index: Any, weights: Any, out: Any) -> None:
    """Out += what one tap of every position reads."""
    full_width()
    for i in range(out.shape[0]):
        out[i] += weights[i] * _read(plane, index[i])


@block
def _sum_four(plane: Any, index: Any, weights: Any, out: Any) -> None:
    """Out = what the four taps of every position read."""
    full_width()
    n = out.shape[0]
    i0, i1, i2, i3 = span(index, 0, n), span(index, _RUN, n), span(index, 2 * _RUN, n), span(index, 3 * _RUN, n)
    w0, w1, w2, w3 = span(weights, 0, n), span(weights, _RUN, n), span(weights, 2 * _RUN, n), span(weights, 3 * _RUN, n)
    for i in range(n):
        total = w0[i] * _read(plane, i0[i]) + w1[i] * _read(plane, i1[i])
        out[i] = total + w2[i] * _read(plane, i2[i]) + w3[i] * _read(plane, i3[i])


@kernel
def grid_sample_f32(
    x: InF32,
    grid: InF32,
    out: OutF32,
    scratch: OutF32,
    n: int,
    channels: int,
    h: int,
    w: int,
    positions: int,
    mode: int,
    padding: int,
    corners: bool,
) -> None:
    """Out[n, c, p] = x[n, c] at grid[n, p].

    Args:
        x: [n · channels · h · w], at least one pixel.
        grid: [n · positions · 2]: x, then y, the image being [-1, 1] in both.
        out: [n · channels · positions].
        scratch: float32 [SCRATCH].
        n: images.
        channels: channels.
        h: height.
        w: width.
        positions: positions for each image.
        mode: one of :data:`MODE`.
        padding: one of :data:`PADDING`.
        corners: -1 and 1 are the centres of the outermost pixels, rather than their outer edges.
    """
    weights, index = span(scratch, 0, _RUN * _MOST), as_i32(scratch, _RUN * _MOST, _RUN * _MOST)
    taps = 1 if mode == NEAREST else _MOST
    for image in range(n):
        for start in range(0, positions, _RUN):
            count = min(_RUN, positions - start)
            for p in range(count):
                at = 2 * (image * positions + start + p)
                col, row = _pixel(grid[at], w, corners), _pixel(grid[at + 1], h, corners)
                if mode != CUBIC:
                    col, row = _bounded(col, w, padding, corners), _bounded(row, h, padding, corners)
                _taps(row, col, h, w, mode, padding, corners, index, weights, p)
            for c in range(image * channels, (image + 1) * channels):
                plane, to = span(x, c * h * w, h * w), span(out, c * positions + start, count)
                if mode == LINEAR:
                    _sum_four(plane, index, weights, to)
                    continue
                for i in range(count):
                    to[i] = _ZERO
                for t in range(taps):
                    _sum(plane, span(index, t * _RUN, count), span(weights, t * _RUN, count), to)
