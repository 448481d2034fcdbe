"""Resize of the last two axes: nearest, linear, cubic."""

from __future__ import annotations

import math

import numpy as np

from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.lowering import Lowering
from hetsched.runtime.lower.movement import endpoints
from hetsched_kernels import resize as kernels


def _scales(low: Lowering) -> tuple[float, float]:
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
        for n, m, s in zip(shape[-2:], out_shape[-2:], _scales(low), strict=True)
    )
    dims = (math.prod(shape[:-2]), *shape[-2:], *out_shape[-2:])
    y, x = aligned_copy(rows.index), aligned_copy(cols.index)
    if mode == "nearest":
        (source,), (target,) = endpoints(low)
        low.emit(kernels.resize_nearest, source, target, y, x, *dims, dtypes=(source.dtype,))
        return
    data, out = low.reals(0), low.real_output()
    scratch = low.scratch(shape[-1], np.float32)
    low.emit(kernels.resize_f32, data, out, scratch, y, aligned_copy(rows.weight), x, aligned_copy(cols.weight), *dims)
