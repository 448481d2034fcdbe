"""Channels last: what kernels share whose tensors are [n, h, w, c] of unsigned bytes or float32.

int8 values are kept with their sign bit flipped (and their zero point moved by 128), so that one kind of byte is enough. Rows may
be read up to :data:`SLACK` bytes beyond a tensor's end; what is there does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from hetsched_kernels.arrays import Array, InF32, InT, InU8, OutF32, OutT, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.lowlevel import intrinsic
from hetsched_kernels.parts import onward, span

#: Bytes that must be readable beyond the end of a channels-last tensor.
SLACK = 256


@intrinsic
def address_of(typing_context: Any, array: Any, start: Any) -> Any:
    """The address of ``array[start]`` as an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(builder.gep(data, [args[1]]), context.get_value_type(types.int64))

    return types.int64(array, types.int64), codegen


@kernel
def to_nhwc(x: InU8, out: OutU8, n: int, channels: int, plane: int, flip: bool) -> None:
    """out[n, p, c] = x[n, c, p], the sign bit flipped where asked.

    Args:
        x: [n · channels · plane] 8-bit as uint8.
        out: [n · plane · channels].
        n: batch.
        channels: c.
        plane: positions.
        flip: x's bits are int8.
    """
    bit = np.uint8(128 if flip else 0)
    size = channels * plane
    for image in range(n):
        if channels == 3:
            base = image * size
            red, green, blue = span(x, base, plane), span(x, base + plane, plane), span(x, base + 2 * plane, plane)
            to = span(out, image * size, size)
            for p in range(plane):
                to[3 * p] = red[p] ^ bit
                to[3 * p + 1] = green[p] ^ bit
                to[3 * p + 2] = blue[p] ^ bit
            continue
        for p0 in range(0, plane, 64):
            for c in range(channels):
                count = min(64, plane - p0)
                source, target = span(x, image * size + c * plane + p0, count), onward(out, image * size + p0 * channels + c)
                for p in range(count):
                    target[p * channels] = source[p] ^ bit


@block
def _transposed(x: Any, out: Any, n: Any, channels: Any, plane: Any) -> None:
    for image in range(n):
        for p0 in range(0, plane, 64):
            for c in range(channels):
                count = min(64, plane - p0)
                source = span(x, (image * channels + c) * plane + p0, count)
                target = onward(out, (image * plane + p0) * channels + c)
                for p in range(count):
                    target[p * channels] = source[p]


@kernel
def to_nhwc_f32(x: InF32, out: OutF32, n: int, channels: int, plane: int) -> None:
    """Compute out[n, p, c] = x[n, c, p].

    Args:
        x: [n · channels · plane].
        out: [n · plane · channels].
        n: batch.
        channels: c.
        plane: positions.
    """
    _transposed(x, out, n, channels, plane)


@kernel
def from_nhwc_f32(x: InF32, out: OutF32, n: int, channels: int, plane: int) -> None:
    """Compute out[n, c, p] = x[n, p, c]: the inverse of :data:`to_nhwc_f32`.

    Args:
        x: [n · plane · channels].
        out: [n · channels · plane].
        n: batch.
        channels: c.
        plane: positions.
    """
    _transposed(x, out, n, plane, channels)


@kernel
def from_nhwc(x: InU8, out: OutU8, n: int, channels: int, plane: int, flip: bool) -> None:
    """out[n, c, p] = x[n, p, c]: the inverse of :data:`to_nhwc`.

    Args:
        x: [n · plane · channels] as uint8.
        out: [n · channels · plane] 8-bit as uint8.
        n: batch.
        channels: c.
        plane: positions.
        flip: out's bits are int8.
    """
    bit = np.uint8(128 if flip else 0)
    size = channels * plane
    for image in range(n):
        for c0 in range(0, channels, 64):
            for p in range(plane):
                count = min(64, channels - c0)
                source, target = span(x, image * size + p * channels + c0, count), onward(out, image * size + c0 * plane + p)
                for c in range(count):
                    target[c * plane] = source[c] ^ bit


@kernel(T=("uint8", "float32"))
def pad_nhwc(x: InT, out: OutT, n: int, h: int, row: int, top: int, bottom: int, left: int, right: int, value: InT) -> None:
    """Compute out = x with rows and columns of ``value`` around each image.

    Args:
        x: [n, h, row].
        out: [n, top + h + bottom, left + row + right].
        n: images.
        h: rows.
        row: elements of a row.
        top: rows before.
        bottom: rows after.
        left: elements before each row.
        right: elements after it.
        value: one element.
    """
    wide = left + row + right
    for image in range(n):
        for y in range(-top, h + bottom):
            to = span(out, (image * (top + h + bottom) + top + y) * wide, wide)
            for i in range(wide):
                to[i] = value[0]
            if 0 <= y < h:
                source, inside = span(x, (image * h + y) * row, row), span(to, left, row)
                for i in range(row):
                    inside[i] = source[i]


def worth_padding(geometry: Array) -> bool:
    """Whether a convolution of bytes is given a copy of its image with the padding around it: its rows are then equally far apart."""
    g = [int(value) for value in geometry]
    return any(g[9:13]) and g[7:9] == [1, 1] and g[15] == 1


def padded(geometry: Array) -> Array:
    """The same convolution over an image that has its padding around it."""
    out = geometry.copy()
    out[2], out[3] = geometry[2] + geometry[9] + geometry[11], geometry[3] + geometry[10] + geometry[12]
    out[9:13] = 0
    return out


def padded_elements(geometry: Array) -> int:
    """Elements of a convolution's image with its padding."""
    g = padded(geometry)
    return int(g[0] * g[1] * g[2] * g[3])


def widened(geometry: Array) -> Array:
    """The same convolution over a padded image, whose windows' rows are taken as the channels of one position.

    For few channels: kernel rows of ``kw`` positions become one tap of kw · c channels; positions then overlap, c elements apart.
    Weights are those of :func:`widened_weights`.
    """
    g = [int(v) for v in geometry]
    wide, high = g[3] + g[10] + g[12], g[2] + g[9] + g[11]
    return np.array([g[0], g[6] * g[1], high, wide, g[4], g[5], 1, g[7], g[8], 0, 0, 0, 0, g[13], 1, 1, g[16], g[17]], np.int64)


def widened_weights(w: Array) -> Array:
    """Weights [m, c, kh, kw] as [m, kw · c, kh, 1]."""
    m, c, kh, kw = w.shape
    return np.ascontiguousarray(w.transpose(0, 3, 1, 2)).reshape(m, kw * c, kh, 1)
