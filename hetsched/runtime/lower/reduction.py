"""Normalisations, reductions and pooling, in float32."""

from __future__ import annotations

import math

import numpy as np

from hetsched.runtime.lower.convolution import plane, window_of
from hetsched.runtime.lower.elementwise import is_integer
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched_kernels import codes, norm, pool, reduce
from hetsched_kernels.arrays import NO_F32

#: Elements that are worth another thread.
_MANY = 8192


def layer_normalization(low: Lowering) -> None:
    """LayerNormalization over the trailing axes from ``axis``; the mean and deviation outputs are not computed."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", -1) % len(shape)
    cols = math.prod(shape[axis:])
    scale, bias = _vector(low, 1, cols), _vector(low, 2, cols) if low.has(2) else NO_F32
    x, out = low.reals(0), low.real_output()
    epsilon = low.op.attr_float("epsilon", 1e-5)
    low.emit_split(
        norm.layer_norm_f32, math.prod(shape[:axis]), -(-_MANY // cols),
        lambda first, last: (x[first * cols : last * cols], scale, bias, out[first * cols : last * cols], last - first, cols, epsilon),
    )  # fmt: skip


def _vector(low: Lowering, slot: int, length: int) -> Array:
    values = low.reals(slot)
    return values if values.size == length else np.ascontiguousarray(np.broadcast_to(values, (length,)))


def batch_normalization(low: Lowering) -> None:
    """BatchNormalization at inference."""
    shape = low.shape(0)
    scale, bias, mean, variance = (low.reals(i) for i in range(1, 5))
    x, out = low.reals(0), low.real_output()
    dims = (shape[0], shape[1], math.prod(shape[2:]), low.op.attr_float("epsilon", 1e-5))
    low.emit(norm.batch_norm_f32, x, scale, bias, mean, variance, out, *dims)


def instance_normalization(low: Lowering) -> None:
    """InstanceNormalization."""
    shape = low.shape(0)
    scale, bias = low.reals(1), low.reals(2)
    x, out = low.reals(0), low.real_output()
    low.emit(norm.instance_norm_f32, x, scale, bias, out, shape[0], shape[1], math.prod(shape[2:]), low.op.attr_float("epsilon", 1e-5))


def reduced_axes(low: Lowering) -> tuple[int, ...]:
    """The axes that a Reduce op sums over, ascending; empty if it does nothing."""
    rank = len(low.shape(0))
    axes = tuple(int(v) for v in low.constant(1).reshape(-1)) if low.has(1) else low.op.attr_ints("axes", ())
    if not axes:
        return () if low.op.attr_int("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(a % rank for a in axes))


def reduction(low: Lowering) -> None:
    """ReduceSum, ReduceMean, ReduceMax, …: one pass over neighbouring axes, several where they are apart."""
    integer = is_integer(low)
    x, out = (low.raw(0), low.raw_output()) if integer else (low.reals(0), low.real_output())
    axes = reduced_axes(low)
    passes = reduce.reduce_plan(low.shape(0), axes) if axes else [(x.size, 1, 1)]
    for i, (dims, code) in enumerate(zip(passes, reduce.pass_codes(codes.REDUCE[low.op.type], len(passes)), strict=True)):
        target = out if i == len(passes) - 1 else low.scratch(dims[0] * dims[2], x.dtype)
        if integer:
            low.emit(reduce.reduce_int, x, target, code, *dims, dtypes=(x.dtype,))
        else:
            low.emit(reduce.reduce_f32, x, target, code, *dims)
        x = target


def global_pool(low: Lowering) -> None:
    """GlobalAveragePool and GlobalMaxPool."""
    shape = low.shape(0)
    code = codes.REDUCE["ReduceMean" if low.op.type == "GlobalAveragePool" else "ReduceMax"]
    x, out = low.reals(0), low.real_output()
    low.emit(reduce.reduce_f32, x, out, code, shape[0] * shape[1], math.prod(shape[2:]), 1)


def pooling(low: Lowering) -> None:
    """MaxPool and AveragePool, 1-D and 2-D."""
    op = low.op
    kernel = op.attr_ints("kernel_shape", ())
    window = window_of(op, kernel, low.shape(0)[2:], low.output().shape[2:])
    n, c, h, w = plane(low.shape(0))
    oh, ow = plane(low.output().shape)[2:]
    geometry = pool.pool_geometry(n, c, h, w, oh, ow, window.kernel, window.strides, window.pads, window.dilations)
    x, out = low.reals(0), low.real_output()
    if op.type == "MaxPool":
        low.emit(pool.max_pool_f32, x, out, geometry)
    else:
        low.emit(pool.average_pool_f32, x, out, geometry, bool(op.attr_int("count_include_pad", 0)))
