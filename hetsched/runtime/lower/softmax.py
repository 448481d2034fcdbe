"""Softmax and log-softmax, with a fused scale and mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.runtime.lower.elementwise import emit_binary
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched.runtime.lower.splitting import emit_rows_of
from hetsched_kernels import softmax as kernels
from hetsched_kernels.arrays import NO_F32

#: Elements that are worth another thread.
_MANY = 2048


def softmax(low: Lowering) -> None:
    """Softmax and FusedSoftmax: ``softmax(X * scale + mask)`` along one axis."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", -1) % len(shape)
    scale = low.op.attr_float("scale", 1.0) if low.op.type == "FusedSoftmax" else 1.0
    x, out = low.reals(0), low.real_output()
    masked = low.op.type == "FusedSoftmax" and low.has(1)
    if math.prod(shape[axis + 1 :]) == 1:
        rows = kernels.mask_plan(low.shape(1), shape[: axis + 1]) if masked else np.zeros(0, np.int64)
        mask = low.reals(1) if masked else NO_F32
        _of_rows(low, x, mask, out, shape[axis], scale, rows)
        return
    if masked:
        emit_binary(low, "Mul", x, np.full(1, scale, np.float32), out, shape, (1,), shape)
        emit_binary(low, "Add", out, low.reals(1), out, shape, low.shape(1), shape)
        x, scale = out, 1.0
    inner = math.prod(shape[axis + 1 :])
    plane = shape[axis] * inner

    def part(first: int, last: int) -> tuple[Any, ...]:
        at = slice(first * plane, last * plane)
        return x[at], out[at], low.scratch(2 * inner, np.float32), last - first, shape[axis], inner, scale

    low.emit_split(kernels.softmax_axis_f32, math.prod(shape[:axis]), -(-_MANY // max(plane, 1)), part)


def _of_rows(low: Lowering, x: Array, mask: Array, out: Array, cols: int, scale: float, mask_rows: Array) -> None:
    """Along the last axis; ``mask_rows`` as :func:`hetsched_kernels.softmax.mask_plan` makes them."""

    def part(first: int, last: int) -> tuple[Any, ...]:
        at = slice(first * cols, last * cols)
        own = np.append(mask_rows[first:last], mask_rows[-1]) if mask_rows.size else mask_rows
        return x[at], mask, out[at], last - first, cols, scale, own

    low.emit_split(kernels.softmax_f32, x.size // max(cols, 1), -(-_MANY // max(cols, 1)), part)


def log_softmax(low: Lowering) -> None:
    """LogSoftmax along the last axis."""
    shape = low.shape(0)
    x, out = low.reals(0), low.real_output()
    emit_rows_of(low, kernels.log_softmax_f32, x, out, math.prod(shape[:-1]), shape[-1], each=_MANY)
