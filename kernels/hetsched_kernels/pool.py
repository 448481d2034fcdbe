"""Max and average pooling over NCHW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched_kernels.arrays import Array, InF32, InI64, InU8, OutF32, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.parts import onward, span
from hetsched_kernels.spans import valid_range

_ZERO = np.float32(0.0)


def pool_geometry(
    n: int, c: int, h: int, w: int, oh: int, ow: int, kernel_shape: Sequence[int], strides: Sequence[int], pads: Sequence[int],
    dilations: Sequence[int] = (1, 1),
) -> Array:  # fmt: skip
    """The int64 descriptor of a pooling: [n, c, h, w, oh, ow, kh, kw, sh, sw, top, left, bottom, right, dh, dw].

    Args:
        n: batch.
        c: channels.
        h: input height (1 for a 1-D pool, with kernel 1, stride 1, pads 0 there).
        w: input width.
        oh: output height (the caller applies ceil_mode).
        ow: output width.
        kernel_shape: (kh, kw).
        strides: (sh, sw).
        pads: ONNX order (top, left, bottom, right).
        dilations: (dh, dw).
    """
    return np.array([n, c, h, w, oh, ow, *kernel_shape, *strides, *pads, *dilations], np.int64)


@block
def _max_row(out: Any, x: Any, stride: Any) -> None:
    """Compute out[i] = max(out[i], x[i · stride])."""
    n = out.shape[0]
    if stride == 1:
        for i in range(n):
            out[i] = x[i] if x[i] > out[i] else out[i]
    elif stride == 2:
        for i in range(n):
            out[i] = x[2 * i] if x[2 * i] > out[i] else out[i]
    else:
        for i in range(n):
            out[i] = x[stride * i] if x[stride * i] > out[i] else out[i]


@block
def _add_row(out: Any, x: Any, stride: Any) -> None:
    n = out.shape[0]
    if stride == 1:
        for i in range(n):
            out[i] += x[i]
    elif stride == 2:
        for i in range(n):
            out[i] += x[2 * i]
    else:
        for i in range(n):
            out[i] += x[stride * i]


@kernel
def max_pool_f32(x: InF32, out: OutF32, geometry: InI64) -> None:
    """Compute out = largest value in each window; padding never wins.

    Args:
        x: [n · c · h · w].
        out: [n · c · oh · ow].
        geometry: :func:`pool_geometry`.
    """
    g = geometry
    h, w, oh, ow = g[2], g[3], g[4], g[5]
    for plane in range(g[0] * g[1]):
        source = span(x, plane * h * w, h * w)
        for oy in range(oh):
            base = (plane * oh + oy) * ow
            for i in range(ow):
                out[base + i] = np.float32(-np.inf)
            for ky in range(g[6]):
                iy = oy * g[8] - g[10] + ky * g[14]
                if iy < 0 or iy >= h:
                    continue
                for kx in range(g[7]):
                    shift = kx * g[15] - g[11]
                    low, high = valid_range(w, ow, g[9], shift)
                    _max_row(span(out, base + low, high - low), onward(source, iy * w + low * g[9] + shift), g[9])


@kernel
def max_pool_u8(x: InU8, out: OutU8, geometry: InI64, signed: bool) -> None:
    """Max pooling of 8-bit values given as uint8 views; ``signed`` says that the bits are int8. Arguments as :data:`max_pool_f32`."""
    g = geometry
    h, w, oh, ow = g[2], g[3], g[4], g[5]
    flip = np.uint8(128) if signed else np.uint8(0)
    for plane in range(g[0] * g[1]):
        for oy in range(oh):
            base = (plane * oh + oy) * ow
            for i in range(ow):
                out[base + i] = 0
            for ky in range(g[6]):
                iy = oy * g[8] - g[10] + ky * g[14]
                if iy < 0 or iy >= h:
                    continue
                for kx in range(g[7]):
                    shift = kx * g[15] - g[11]
                    low, high = valid_range(w, ow, g[9], shift)
                    at = (plane * h + iy) * w + shift
                    for i in range(low, high):
                        v = np.uint8(x[at + i * g[9]] ^ flip)
                        out[base + i] = max(v, out[base + i])
            for i in range(ow):
                out[base + i] ^= flip


@kernel
def average_pool_f32(x: InF32, out: OutF32, geometry: InI64, include_pad: bool) -> None:
    """Compute out = mean of each window.

    Args:
        x: [n · c · h · w].
        out: [n · c · oh · ow].
        geometry: :func:`pool_geometry`.
        include_pad: padding counts as zeros (a window that ceil_mode pushes beyond the padding counts only what lies inside).
    """
    g = geometry
    h, w, oh, ow = g[2], g[3], g[4], g[5]
    for plane in range(g[0] * g[1]):
        source = span(x, plane * h * w, h * w)
        for oy in range(oh):
            base = (plane * oh + oy) * ow
            for i in range(ow):
                out[base + i] = _ZERO
            rows = _count(oy * g[8] - g[10], g[6], g[14], h, g[10], g[12], include_pad)
            for ky in range(g[6]):
                iy = oy * g[8] - g[10] + ky * g[14]
                if iy < 0 or iy >= h:
                    continue
                for kx in range(g[7]):
                    shift = kx * g[15] - g[11]
                    low, high = valid_range(w, ow, g[9], shift)
                    _add_row(span(out, base + low, high - low), onward(source, iy * w + low * g[9] + shift), g[9])
            for i in range(ow):
                cols = _count(i * g[9] - g[11], g[7], g[15], w, g[11], g[13], include_pad)
                out[base + i] = out[base + i] / np.float32(max(rows * cols, 1))


@block
def _count(first: Any, taps: Any, dilation: Any, size: Any, before: Any, after: Any, include_pad: Any) -> Any:
    """How many taps of a window count towards the mean along one axis."""
    low, high = (-before, size + after) if include_pad else (0, size)
    n = 0
    for k in range(taps):
        at = first + k * dilation
        n += 1 if low <= at < high else 0
    return n
