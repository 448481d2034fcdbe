"""Normalisations, reductions and pooling, in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.channels_last import over_everything
from hetsched.runtime.lower.convolution import plane, window_of
from hetsched.runtime.lower.elementwise import is_integer
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched.runtime.lower.splitting import MANY
from hetsched_kernels import codes, norm, pool, reduce
from hetsched_kernels import local_response as local
from hetsched_kernels.arrays import NO_F32


def layer_normalization(low: Lowering) -> None:
    """LayerNormalization over the trailing axes from ``axis``; the mean and deviation outputs are not computed."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", -1) % len(shape)
    cols = math.prod(shape[axis:])
    scale, bias = _vector(low, 1, cols), _vector(low, 2, cols) if low.has(2) else NO_F32
    x, out = low.reals(0), low.real_output()
    epsilon = low.op.attr_float("epsilon", 1e-5)
    low.emit_split(
        norm.layer_norm_f32, math.prod(shape[:axis]), -(-MANY // cols),
        lambda first, last: (x[first * cols : last * cols], scale, bias, out[first * cols : last * cols], last - first, cols, epsilon),
    )  # fmt: skip


def _vector(low: Lowering, slot: int, length: int) -> Array:
    values = low.reals(slot)
    return values if values.size == length else np.ascontiguousarray(np.broadcast_to(values, (length,)))


def batch_normalization(low: Lowering) -> None:
    """BatchNormalization at inference."""
    scale, bias, mean, variance = (low.reals(i) for i in range(1, 5))
    x, out = low.reals(0), low.real_output()
    _by_channel(low, norm.batch_norm_f32, x, out, (scale, bias, mean, variance))


def instance_normalization(low: Lowering) -> None:
    """InstanceNormalization."""
    scale, bias = low.reals(1), low.reals(2)
    x, out = low.reals(0), low.real_output()
    _by_channel(low, norm.instance_norm_f32, x, out, (scale, bias))


def _by_channel(low: Lowering, kernel: Any, x: Array, out: Array, vectors: tuple[Array, ...]) -> None:
    """A normalisation of each channel, divided by images, or by the channels of a single one."""
    shape, epsilon = low.shape(0), low.op.attr_float("epsilon", 1e-5)
    images, channels, inner = shape[0], shape[1], math.prod(shape[2:])
    unit = inner if images == 1 else channels * inner

    def part(first: int, last: int) -> tuple[Any, ...]:
        at = slice(first * unit, last * unit)
        if images > 1:
            return x[at], *vectors, out[at], last - first, channels, inner, epsilon
        return x[at], *(v[first:last] for v in vectors), out[at], 1, last - first, inner, epsilon

    low.emit_split(kernel, channels if images == 1 else images, -(-MANY // max(unit, 1)), part)


def local_response(low: Lowering) -> None:
    """LRN: rows of one channel, in parts for each of the queue's threads."""
    op, shape = low.op, low.shape(0)
    inner, size = math.prod(shape[2:]), op.attr_int("size", 1)
    x, out = low.reals(0), low.real_output()
    terms = (size, op.attr_float("alpha", 1e-4) / size, op.attr_float("beta", 0.75), op.attr_float("bias", 1.0))
    low.emit_split(
        local.local_response_f32, shape[0] * shape[1], -(-MANY // inner),
        lambda first, last: (x, out, shape[1], inner, *terms, first, last),
    )  # fmt: skip


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
        _reduce(low, x, target, code, dims)
        x = target


def _reduce(low: Lowering, x: Array, target: Array, code: int, dims: tuple[int, int, int]) -> None:
    """A reduction of the middle of three dimensions, divided along the first."""
    kernel, dtypes = (reduce.reduce_f32, ()) if x.dtype == np.float32 else (reduce.reduce_int, (x.dtype,))
    outer, axis, inner = dims
    unit = axis * inner

    def part(first: int, last: int) -> tuple[Any, ...]:
        return x[first * unit : last * unit], target[first * inner : last * inner], code, last - first, axis, inner

    low.emit_split(kernel, outer, -(-MANY // max(unit, 1)), part, dtypes)


def global_pool(low: Lowering) -> None:
    """GlobalAveragePool and GlobalMaxPool, and pools whose window is the whole image."""
    shape = low.shape(0)
    code = codes.REDUCE["ReduceMean" if "Average" in low.op.type else "ReduceMax"]
    x, out = low.reals(0), low.real_output()
    _reduce(low, x, out, code, (shape[0] * shape[1], math.prod(shape[2:]), 1))


def pooling(low: Lowering) -> None:
    """MaxPool and AveragePool, 1-D and 2-D."""
    op = low.op
    if over_everything(op, low.graph):
        global_pool(low)
        return
    kernel = op.attr_ints("kernel_shape", ())
    window = window_of(op, kernel, low.shape(0)[2:], low.output().shape[2:])
    n, c, h, w = plane(low.shape(0))
    oh, ow = plane(low.output().shape)[2:]
    largest, padded = op.type == "MaxPool", bool(op.attr_int("count_include_pad", 0))
    x, out = low.reals(0), low.real_output()

    def part(first: int, last: int) -> tuple[Any, ...]:
        geometry = pool.pool_geometry(1, last - first, h, w, oh, ow, window.kernel, window.strides, window.pads, window.dilations)
        planes = (x[first * h * w : last * h * w], out[first * oh * ow : last * oh * ow], geometry)
        return planes if largest else (*planes, padded)

    low.emit_split(pool.max_pool_f32 if largest else pool.average_pool_f32, n * c, -(-MANY // (h * w)), part)
