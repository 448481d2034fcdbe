"""Softmax and log-softmax along any axis, with a scale and an additive mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import InF32, InI64, OutF32
from hetsched_kernels.compilation import REORDER, block, kernel
from hetsched_kernels.extremes import row_max
from hetsched_kernels.parts import span
from hetsched_kernels.wide import full_width

_ONE = np.float32(1.0)


@block(fast=REORDER)
def row_sum(x: Any) -> Any:
    """Sum of a run, in vector order."""
    full_width()
    s = np.float32(0.0)
    for i in range(x.shape[0]):
        s += x[i]
    return s


@block(fast=REORDER)
def _exponentials(row: Any, largest: Any) -> Any:
    """e^(x - largest) in x's place, and their sum."""
    full_width()
    total = np.float32(0.0)
    for i in range(row.shape[0]):
        value = f.exp(row[i] - largest)
        row[i] = value
        total += value
    return total


@block
def normalize_row(row: Any) -> None:
    """Softmax of one contiguous run, in place."""
    full_width()
    if row.shape[0] == 0:
        return
    largest = row_max(row)
    if largest == np.float32(-np.inf):
        largest = np.float32(0.0)
    factor = _ONE / _exponentials(row, largest)
    for i in range(row.shape[0]):
        row[i] = row[i] * factor


@kernel
def softmax_f32(x: InF32, mask: InF32, out: OutF32, rows: int, cols: int, scale: float, mask_rows: InI64) -> None:
    """Compute out = softmax(x · scale + mask) over the last axis.

    Args:
        x: [rows · cols]; may be ``out`` itself.
        mask: additive mask, or empty.
        out: [rows · cols].
        rows: product of the leading dimensions.
        cols: size of the last axis.
        scale: factor before the mask.
        mask_rows: int64; empty without a mask. Else [rows + 1]: the element offset of each row's mask, then the mask's stride
            along the row (1, or 0 where one value serves the whole row). :func:`mask_plan` makes it.
    """
    full_width()
    for r in range(rows):
        row, source = span(out, r * cols, cols), span(x, r * cols, cols)
        if mask_rows.shape[0] == 0:
            for i in range(cols):
                row[i] = source[i] * scale
        else:
            start, stride = mask_rows[r], mask_rows[rows]
            if stride == 1:
                part = span(mask, start, cols)
                for i in range(cols):
                    row[i] = source[i] * scale + part[i]
            else:
                value = mask[start]
                for i in range(cols):
                    row[i] = source[i] * scale + value
        normalize_row(row)


@kernel
def softmax_axis_f32(x: InF32, out: OutF32, scratch: OutF32, outer: int, axis: int, inner: int, scale: float) -> None:
    """Compute out = softmax(x · scale) over the middle axis of [outer, axis, inner].

    Args:
        x: [outer · axis · inner]; may be ``out`` itself.
        out: the same size.
        scratch: float32 [2 · inner].
        outer: product of the dimensions before the axis.
        axis: size of the axis.
        inner: product of the dimensions after it.
        scale: factor.
    """
    full_width()
    largest, total = span(scratch, 0, inner), span(scratch, inner, inner)
    for o in range(outer):
        base = o * axis * inner
        for i in range(inner):
            largest[i] = np.float32(-np.inf)
            total[i] = np.float32(0.0)
        for a in range(axis):
            source = span(x, base + a * inner, inner)
            for i in range(inner):
                v = source[i] * scale
                largest[i] = v if v > largest[i] else largest[i]
        for a in range(axis):
            row, source = span(out, base + a * inner, inner), span(x, base + a * inner, inner)
            for i in range(inner):
                row[i] = f.exp(source[i] * scale - largest[i])
            for i in range(inner):
                total[i] += row[i]
        for i in range(inner):
            total[i] = _ONE / total[i]
        for a in range(axis):
            row = span(out, base + a * inner, inner)
            for i in range(inner):
                row[i] = row[i] * total[i]


@kernel
def log_softmax_f32(x: InF32, out: OutF32, rows: int, cols: int) -> None:
    """Compute out = log(softmax(x)) over the last axis of [rows, cols]."""
    full_width()
    for r in range(rows):
        row, source = span(out, r * cols, cols), span(x, r * cols, cols)
        largest = row_max(source)
        total = np.float32(0.0)
        for i in range(cols):
            total += f.exp(source[i] - largest)
        shift = largest + f.log(total)
        for i in range(cols):
            row[i] = source[i] - shift


def mask_plan(mask_shape: Any, shape: Any) -> Any:
    """The ``mask_rows`` of :data:`softmax_f32` for a mask of ``mask_shape`` added to an input of ``shape``.

    Raises:
        ValueError: the mask does not broadcast to the input.
    """
    shape = tuple(int(s) for s in shape)
    np.broadcast_to(np.empty(tuple(mask_shape), np.bool_), shape)
    offsets = np.arange(int(np.prod(mask_shape, dtype=np.int64)), dtype=np.int64).reshape(tuple(mask_shape))
    spread = np.broadcast_to(offsets, shape)
    rows = np.ascontiguousarray(spread[..., 0]).reshape(-1)
    stride = int(len(mask_shape) > 0 and (mask_shape[-1] != 1 or shape[-1] == 1))
    return np.append(rows, stride).astype(np.int64)
