"""Copies of boxes of elements, divided among the threads of a queue: what moves data, and what puts it in another order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.graph import DType, Tensor
from hetsched.runtime.lower.splitting import MANY, Array
from hetsched_kernels import movement, nhwc

if TYPE_CHECKING:
    from hetsched.runtime.lower.lowering import Lowering

#: Elements along a dimension that a transposition moves together.
_TILE = 16
#: Images of fewer channels are put in another order by a kernel of their own.
_FEW = 8


def contiguous(shape: Sequence[int]) -> list[int]:
    """Element strides of a contiguous array."""
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def emit_copy(
    low: Lowering, source: Array, target: Array, shape: Sequence[int], source_strides: Sequence[int], target_strides: Sequence[int],
    source_offset: int = 0, target_offset: int = 0,
) -> None:  # fmt: skip
    """Copy a box of ``shape`` elements; strides and offsets in elements. Neighbouring dims that move together are merged."""
    if math.prod(shape) == 0:
        return
    dims: list[tuple[int, int, int]] = []
    for n, s, t in zip(shape, source_strides, target_strides, strict=True):
        if n == 1:
            continue
        if dims and dims[-1][1] == s * n and dims[-1][2] == t * n:
            dims[-1] = (dims[-1][0] * n, s, t)
        else:
            dims.append((n, s, t))
    sizes, steps, target_steps = (np.array(v, np.int64) for v in zip(*(dims or [(1, 1, 1)]), strict=True))
    axis = next((i for i, n in enumerate(sizes) if n >= 2 * low.threads), 0)

    def part(first: int, last: int) -> tuple[Any, ...]:
        own = sizes.copy()
        own[axis] = last - first
        start, target_start = source_offset + first * int(steps[axis]), target_offset + first * int(target_steps[axis])
        return source, start, steps, target, target_start, target_steps, own

    least = _TILE if axis == len(sizes) - 1 or steps[axis] == 1 else 1
    grain = max(least, -(-MANY * int(sizes[axis]) // math.prod(shape)))
    low.emit_split(movement.copy_strided, int(sizes[axis]), grain, part, (source.dtype,))


def emit_order(low: Lowering, tensor: Tensor, source: Array, target: Array, last: bool) -> None:
    """Put an image's channels last, or back in ONNX's order; int8 with its sign bit flipped there, and many channels in parts."""
    n, c, h, w = tensor.shape
    if tensor.dtype is DType.F32 and c >= _FEW:
        box, strides = ((n, h * w, c), (c * h * w, 1, h * w)) if last else ((n, c, h * w), (c * h * w, 1, c))
        emit_copy(low, source.view(np.uint32), target.view(np.uint32), box, strides, contiguous(box))
    elif tensor.dtype is DType.F32:
        low.emit(nhwc.to_nhwc_f32 if last else nhwc.from_nhwc_f32, source, target, n, c, h * w)
    else:
        kernel = nhwc.to_nhwc if last else nhwc.from_nhwc
        low.emit(kernel, source.view(np.uint8), target.view(np.uint8), n, c, h * w, tensor.dtype is DType.I8)
