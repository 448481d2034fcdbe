"""Normalisations: layer, root-mean-square, batch (inference) and instance."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.arrays import InF32, OutF32
from hetsched_kernels.compilation import REORDER, block, kernel
from hetsched_kernels.parts import span
from hetsched_kernels.softmax import row_sum
from hetsched_kernels.wide import full_width

_ONE = np.float32(1.0)


@block(fast=REORDER)
def _squares(x: Any, mean: Any) -> Any:
    """Sum of (x - mean)²."""
    full_width()
    s = np.float32(0.0)
    for i in range(x.shape[0]):
        d = x[i] - mean
        s += d * d
    return s


@block
def _moments(x: Any, epsilon: Any) -> Any:
    """Mean and 1/sqrt(variance + epsilon), in two passes."""
    n = np.float32(x.shape[0])
    mean = np.float32(row_sum(x) / n)
    return mean, _ONE / np.sqrt(np.float32(_squares(x, mean) / n) + epsilon)


@kernel
def layer_norm_f32(x: InF32, scale: InF32, bias: InF32, out: OutF32, rows: int, cols: int, epsilon: float) -> None:
    """Compute out = (x - mean) / sqrt(variance + epsilon) · scale + bias over the last axis.

    Args:
        x: [rows · cols]; may be ``out`` itself.
        scale: [cols].
        bias: [cols], or empty.
        out: [rows · cols].
        rows: product of the dimensions before the normalised ones.
        cols: product of the normalised dimensions.
        epsilon: added to the variance.
    """
    full_width()
    for r in range(rows):
        source, row = span(x, r * cols, cols), span(out, r * cols, cols)
        mean, factor = _moments(source, epsilon)
        if bias.shape[0] > 0:
            for i in range(cols):
                row[i] = (source[i] - mean) * factor * scale[i] + bias[i]
        else:
            for i in range(cols):
                row[i] = (source[i] - mean) * factor * scale[i]


@kernel
def rms_norm_f32(x: InF32, scale: InF32, out: OutF32, rows: int, cols: int, epsilon: float) -> None:
    """Compute out = x / sqrt(mean(x²) + epsilon) · scale over the last axis; arguments as :data:`layer_norm_f32`."""
    full_width()
    for r in range(rows):
        source, row = span(x, r * cols, cols), span(out, r * cols, cols)
        factor = _ONE / np.sqrt(np.float32(_squares(source, np.float32(0.0)) / np.float32(cols)) + epsilon)
        for i in range(cols):
            row[i] = source[i] * factor * scale[i]


@kernel
def batch_norm_f32(
    x: InF32, scale: InF32, bias: InF32, mean: InF32, variance: InF32, out: OutF32, outer: int, channels: int, inner: int, epsilon: float
) -> None:
    """Compute out = (x - mean) / sqrt(variance + epsilon) · scale + bias per channel of [outer, channels, inner].

    Args:
        x: [outer · channels · inner]; may be ``out`` itself.
        scale: [channels].
        bias: [channels].
        mean: [channels].
        variance: [channels].
        out: the same size as ``x``.
        outer: batch.
        channels: channels.
        inner: product of the spatial dimensions.
        epsilon: added to the variance.
    """
    full_width()
    for o in range(outer):
        for ch in range(channels):
            factor = scale[ch] / np.sqrt(variance[ch] + epsilon)
            shift = bias[ch] - mean[ch] * factor
            base = (o * channels + ch) * inner
            source, row = span(x, base, inner), span(out, base, inner)
            for i in range(inner):
                row[i] = source[i] * factor + shift


@kernel
def instance_norm_f32(x: InF32, scale: InF32, bias: InF32, out: OutF32, outer: int, channels: int, inner: int, epsilon: float) -> None:
    """Compute out = (x - mean) / sqrt(variance + epsilon) · scale + bias, the moments over each image's channel.

    Arguments as :data:`batch_norm_f32`.
    """
    full_width()
    for o in range(outer):
        for ch in range(channels):
            base = (o * channels + ch) * inner
            source, row = span(x, base, inner), span(out, base, inner)
            mean, factor = _moments(source, epsilon)
            a, b = factor * scale[ch], bias[ch]
            for i in range(inner):
                row[i] = (source[i] - mean) * a + b
