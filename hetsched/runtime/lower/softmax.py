"""Softmax and log-softmax, with a fused scale and mask."""

from __future__ import annotations

import math

import numpy as np

from hetsched.runtime.lower.elementwise import emit_binary
from hetsched.runtime.lower.lowering import Lowering
from hetsched_kernels import softmax as kernels
from hetsched_kernels.arrays import NO_F32


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
        low.emit(kernels.softmax_f32, x, mask, out, math.prod(shape[:axis]), shape[axis], scale, rows)
        return
    if masked:
        emit_binary(low, "Mul", x, np.full(1, scale, np.float32), out, shape, (1,), shape)
        emit_binary(low, "Add", out, low.reals(1), out, shape, low.shape(1), shape)
        x, scale = out, 1.0
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    low.emit(kernels.softmax_axis_f32, x, out, low.scratch(2 * inner, np.float32), outer, shape[axis], inner, scale)


def log_softmax(low: Lowering) -> None:
    """LogSoftmax along the last axis."""
    shape = low.shape(0)
    x, out = low.reals(0), low.real_output()
    low.emit(kernels.log_softmax_f32, x, out, math.prod(shape[:-1]), shape[-1])
