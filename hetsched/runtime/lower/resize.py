"""Resize of the last two axes: nearest, linear, cubic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.lowering import Lowering
from hetsched.runtime.lower.movement import endpoints
from hetsched.runtime.lower.splitting import MANY
from hetsched_kernels import resize as kernels


def scales_of(low: Lowering) -> tuple[float, float]:
    """The node's scales of the last two axes, or output over input where sizes were given."""
    if low.has(2) and low.tensor(2).elements:
        values = low.constant(2).reshape(-1)
        return float(values[-2]), float(values[-1])
    (h, w), (oh, ow) = low.shape(0)[-2:], low.output().shape[-2:]
    return oh / h, ow / w


def resize(low: Lowering) -> None:
    """Resize; nearest moves stored elements where input and output are stored alike."""
    op, shape, out_shape = low.op, low.shape(0), low.output().shape
    mode = op.attr_str("mode", "nearest")
    options = (op.attr_str("coordinate_transformation_mode", "half_pixel"), op.attr_str("nearest_mode", "round_prefer_floor"))
    cubic, exclude = op.attr_float("cubic_coeff_a", -0.75), bool(op.attr_int("exclude_outside", 0))
    rows, cols = (
        kernels.resize_axis(n, m, s, mode, *options, cubic, exclude)
        for n, m, s in zip(shape[-2:], out_shape[-2:], scales_of(low), strict=True)
    )
    dims = (*shape[-2:], *out_shape[-2:])
    images, size, out_size = math.prod(shape[:-2]), math.prod(shape[-2:]), math.prod(out_shape[-2:])
    grain = -(-MANY // max(out_size, 1))
    y, x = aligned_copy(rows.index), aligned_copy(cols.index)
    if mode == "nearest":
        (source,), (target,) = endpoints(low)

        def nearest(first: int, last: int) -> tuple[Any, ...]:
            return source[first * size : last * size], target[first * out_size : last * out_size], y, x, last - first, *dims

        low.emit_split(kernels.resize_nearest, images, grain, nearest, (source.dtype,))
        return
    data, out = low.reals(0), low.real_output()
    taps = (y, aligned_copy(rows.weight), x, aligned_copy(cols.weight))

    def mixed(first: int, last: int) -> tuple[Any, ...]:
        scratch, at, to = low.scratch(shape[-1], np.float32), slice(first * size, last * size), slice(first * out_size, last * out_size)
        return data[at], out[to], scratch, *taps, last - first, *dims

    low.emit_split(kernels.resize_f32, images, grain, mixed)
