"""How operands of different shapes line up: merged dimensions and element strides."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetsched_kernels.arrays import Array


def broadcast_plan(*shapes: Sequence[int]) -> tuple[Array, tuple[Array, ...]]:
    """The common shape of contiguous operands and each one's strides in it, neighbouring dimensions merged where all agree.

    Args:
        shapes: the operands' shapes (ONNX / numpy rules).

    Returns:
        The merged shape (int64, rank ≥ 1; its product is the result's size) and for each operand an int64 array of element
        strides, 0 where it is repeated.

    Raises:
        ValueError: the shapes do not broadcast.
    """
    shape = np.broadcast_shapes(*[tuple(s) for s in shapes])
    strides = [broadcast_strides(s, shape) for s in shapes]
    merged: list[int] = []
    kept: list[list[int]] = [[] for _ in shapes]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if merged and all(k[-1] == s[axis] * size for k, s in zip(kept, strides, strict=True)):
            merged[-1] *= size
            for k, s in zip(kept, strides, strict=True):
                k[-1] = s[axis]
            continue
        merged.append(size)
        for k, s in zip(kept, strides, strict=True):
            k.append(s[axis])
    if not merged:
        merged, kept = [1], [[0] for _ in shapes]
    return np.array(merged, np.int64), tuple(np.array(k, np.int64) for k in kept)


def broadcast_strides(shape: Sequence[int], target: Sequence[int]) -> list[int]:
    """Element strides of a contiguous array of ``shape`` seen in the shape ``target``: 0 along repeated dimensions."""
    missing = len(target) - len(shape)
    out = [0] * missing
    for axis, size in enumerate(shape):
        out.append(0 if size == 1 and target[missing + axis] != 1 else math.prod(shape[axis + 1 :]) if size != 1 else 0)
    return out
