"""Local response normalisation across channels (AlexNet, GoogLeNet), channels before or after the positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import InF32, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.parts import span

#: Positions of a channel that are worked on at a time: the squares of a window of channels stay in the nearest cache.
_RUN = 1024
_THREE_QUARTERS, _HALF = np.float32(0.75), np.float32(0.5)


@block
def _add_squares(x: Any, total: Any, factor: Any) -> None:
    for i in range(total.shape[0]):
        total[i] += factor * x[i] * x[i]


@block
def _divide(x: Any, total: Any, beta: Any) -> None:
    """total[i] = x[i] / total[i]^beta; the usual exponents are roots."""
    n = total.shape[0]
    if beta == _THREE_QUARTERS:
        for i in range(n):
            root = f.square_root(total[i])
            total[i] = x[i] / (root * f.square_root(root))
    elif beta == _HALF:
        for i in range(n):
            total[i] = x[i] / f.square_root(total[i])
    else:
        for i in range(n):
            total[i] = x[i] * f.exp(-beta * f.log(total[i]))


@kernel
def local_response_f32(
    x: InF32, out: OutF32, channels: int, inner: int, size: int, factor: float, beta: float, bias: float, first: int, last: int
) -> None:
    """Compute out = x / (bias + factor · Σ x²)^beta, the sum over ``size`` channels around each one.

    Channel c sums the channels from c - (size - 1) // 2 to c + size // 2 that exist (ONNX's LRN; Krizhevsky et al., 2012).

    Args:
        x: [images · channels · inner]; must not be ``out``.
        out: the same size; rows from ``first`` to ``last`` are written.
        channels: channels of an image.
        inner: positions of a channel.
        size: channels of a sum.
        factor: on the sum (ONNX's alpha / size).
        beta: exponent.
        bias: added to the sum.
        first: first row, one of images · channels.
        last: one past the last.
    """
    below, above = (size - 1) // 2, size // 2
    for row in range(first, last):
        channel = row % channels
        low, high = row - min(below, channel), row + min(above, channels - 1 - channel) + 1
        for start in range(0, inner, _RUN):
            count = min(_RUN, inner - start)
            total = span(out, row * inner + start, count)
            for i in range(count):
                total[i] = bias
            for other in range(low, high):
                _add_squares(span(x, other * inner + start, count), total, factor)
            _divide(span(x, row * inner + start, count), total, beta)
