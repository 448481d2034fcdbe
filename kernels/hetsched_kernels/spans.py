"""Blocks about runs of positions, shared by pooling and convolution."""

from __future__ import annotations

from typing import Any

from hetsched_kernels.compilation import block
from hetsched_kernels.parts import onward, span


@block
def valid_range(size: Any, out_size: Any, stride: Any, shift: Any) -> Any:
    """The outputs [low, high) whose input position ``i · stride + shift`` lies in [0, size)."""
    low = 0 if shift >= 0 else (-shift + stride - 1) // stride
    high = (size - 1 - shift) // stride + 1 if size - 1 >= shift else 0
    return min(low, out_size), max(min(high, out_size), min(low, out_size))


@block
def spread_row(target: Any, source: Any, shift: Any, stride: Any, fill: Any) -> None:
    """target[i] = source[i · stride + shift], ``fill`` outside."""
    n = target.shape[0]
    low, high = valid_range(source.shape[0], n, stride, shift)
    for i in range(low):
        target[i] = fill
    inside, values = span(target, low, high - low), onward(source, low * stride + shift)
    if stride == 1:
        for i in range(high - low):
            inside[i] = values[i]
    elif stride == 2:
        for i in range(high - low):
            inside[i] = values[2 * i]
    else:
        for i in range(high - low):
            inside[i] = values[stride * i]
    for i in range(high, n):
        target[i] = fill
