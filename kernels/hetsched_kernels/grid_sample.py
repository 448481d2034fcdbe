"""Sampling images at computed positions (ONNX's GridSample): nearest, bilinear, bicubic."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import InF32, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.parts import onward

_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
NEAREST, LINEAR, CUBIC = 0, 1, 2
#: How positions are interpolated, and what lies beyond the border, by ONNX's names.
MODE: Final = {"nearest": NEAREST, "linear": LINEAR, "bilinear": LINEAR, "cubic": CUBIC, "bicubic": CUBIC}
ZEROS, BORDER, REFLECTION = 0, 1, 2
PADDING: Final = {"zeros": ZEROS, "border": BORDER, "reflection": REFLECTION}
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
def _read(plane: Any, row: Any, col: Any, h: Any, w: Any, padding: Any, corners: Any) -> Any:
    """A pixel; beyond the border what the padding says."""
    if padding != ZEROS:
        row = np.int64(_bounded(np.float32(row), h, padding, corners))
        col = np.int64(_bounded(np.float32(col), w, padding, corners))
    elif row < 0 or row >= h or col < 0 or col >= w:
        return _ZERO
    return plane[row * w + col]


@block
def _cubic(t: Any, k: Any) -> Any:
    """Weight of the k-th of four pixels around a position ``t`` beyond the second (Keys, 1981)."""
    x = f.absolute(t + _ONE - np.float32(k))
    if x <= _ONE:
        return ((_CUBIC_A + np.float32(2)) * x - (_CUBIC_A + np.float32(3))) * x * x + _ONE
    return ((x - np.float32(5)) * x + np.float32(8)) * x * _CUBIC_A - np.float32(4) * _CUBIC_A


@block
def _sampled(plane: Any, y: Any, x: Any, h: Any, w: Any, mode: Any, padding: Any, corners: Any) -> Any:
    """The image at one position."""
    if mode == NEAREST:
        return _read(plane, np.int64(f.round_even(y)), np.int64(f.round_even(x)), h, w, padding, corners)
    top, left = f.floor(y), f.floor(x)
    r, c, dy, dx = np.int64(top), np.int64(left), y - top, x - left
    total = _ZERO
    if mode == LINEAR:
        for i in range(2):
            for j in range(2):
                weight = (dy if i else _ONE - dy) * (dx if j else _ONE - dx)
                total += weight * _read(plane, r + i, c + j, h, w, padding, corners)
        return total
    for i in range(4):
        line = _ZERO
        for j in range(4):
            line += _cubic(dx, j) * _read(plane, r - 1 + i, c - 1 + j, h, w, padding, corners)
        total += _cubic(dy, i) * line
    return total


@kernel
def grid_sample_f32(
    x: InF32, grid: InF32, out: OutF32, n: int, channels: int, h: int, w: int, positions: int, mode: int, padding: int, corners: bool
) -> None:  # fmt: skip
    """Out[n, c, p] = x[n, c] at grid[n, p].

    Args:
        x: [n · channels · h · w].
        grid: [n · positions · 2]: x, then y, the image being [-1, 1] in both.
        out: [n · channels · positions].
        n: images.
        channels: channels.
        h: height.
        w: width.
        positions: positions for each image.
        mode: one of :data:`MODE`.
        padding: one of :data:`PADDING`.
        corners: -1 and 1 are the centres of the outermost pixels, rather than their outer edges.
    """
    for image in range(n):
        for p in range(positions):
            at = 2 * (image * positions + p)
            col, row = _pixel(grid[at], w, corners), _pixel(grid[at + 1], h, corners)
            if mode != CUBIC:
                col, row = _bounded(col, w, padding, corners), _bounded(row, h, padding, corners)
            for c in range(channels):
                plane = image * channels + c
                out[plane * positions + p] = _sampled(onward(x, plane * h * w), row, col, h, w, mode, padding, corners)
