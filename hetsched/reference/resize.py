"""Resize: nearest, linear and cubic interpolation, one axis at a time (ONNX Resize-19)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.reference.elementwise import Array, Function, Inputs, given, optional


def source_coordinate(i: int, scale: float, size: int, target: int, mode: str) -> float:
    """Where output index ``i`` falls on an input axis of ``size`` elements that becomes ``target`` elements.

    Raises:
        UnsupportedModelError: the coordinate transformation is not handled.
    """
    match mode:
        case "half_pixel" | "half_pixel_symmetric":
            shift = 0.0
            if mode == "half_pixel_symmetric":
                shift = size / 2 * (1 - target / (size * scale))
            return shift + (i + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if target > 1 else 0.0
        case "align_corners":
            return i * (size - 1) / (target - 1) if target > 1 else 0.0
        case "asymmetric":
            return i / scale
        case "tf_half_pixel_for_nn":
            return (i + 0.5) / scale
    raise UnsupportedModelError(f"Resize with coordinate_transformation_mode {mode!r} is not supported")


def _nearest(x: float, mode: str) -> int:
    match mode:
        case "round_prefer_floor":
            return math.ceil(x - 0.5)
        case "round_prefer_ceil":
            return math.floor(x + 0.5)
        case "floor":
            return math.floor(x)
    return math.ceil(x)


def _cubic(t: float, a: float) -> list[float]:
    def near(d: float) -> float:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1

    def far(d: float) -> float:
        return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a

    return [far(1 + t), near(t), near(1 - t), far(2 - t)]


def axis_matrix(op: Op, size: int, target: int, scale: float) -> Array:
    """Interpolation weights ``[target, size]`` of one axis."""
    mode = op.attr_str("mode", "nearest")
    where = op.attr_str("coordinate_transformation_mode", "half_pixel")
    out = np.zeros((target, size))
    for i in range(target):
        x = source_coordinate(i, scale, size, target, where)
        if mode == "nearest":
            out[i, min(max(_nearest(x, op.attr_str("nearest_mode", "round_prefer_floor")), 0), size - 1)] = 1
        elif mode == "linear":
            x = min(max(x, 0.0), size - 1.0)
            low = math.floor(x)
            out[i, low] += 1 - (x - low)
            out[i, min(low + 1, size - 1)] += x - low
        else:
            low = math.floor(x)
            weights = _cubic(x - low, op.attr_float("cubic_coeff_a", -0.75))
            taps = range(low - 1, low + 3)
            if op.attr_int("exclude_outside", 0):
                weights = [w if 0 <= k < size else 0.0 for k, w in zip(taps, weights, strict=True)]
                weights = [w / sum(weights) for w in weights]
            for k, w in zip(taps, weights, strict=True):
                out[i, min(max(k, 0), size - 1)] += w
    return out


def resize_extent(shape: Sequence[int], op: Op, scales: Array | None, sizes: Array | None) -> tuple[list[int], list[float]]:
    """Output shape and scale of every axis, from ``scales`` or ``sizes`` (and the policy that keeps proportions)."""
    axes = op.attr_ints("axes", range(len(shape)))
    target, scale = list(shape), [1.0] * len(shape)
    if sizes is not None and sizes.size:
        factors = [int(sizes[k]) / shape[a] for k, a in enumerate(axes)]
        policy = op.attr_str("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            common = min(factors) if policy == "not_larger" else max(factors)
            for a in axes:
                target[a], scale[a] = math.floor(common * shape[a] + 0.5), common
            return target, scale
        for k, a in enumerate(axes):
            target[a], scale[a] = int(sizes[k]), factors[k]
        return target, scale
    assert scales is not None
    for k, a in enumerate(axes):
        target[a], scale[a] = math.floor(shape[a] * float(scales[k])), float(scales[k])
    return target, scale


def _resize(op: Op, x: Inputs) -> list[Array]:
    a, scales, sizes = given(op, x, 0), optional(x, 2), optional(x, 3)
    if op.attr_int("antialias", 0):
        raise UnsupportedModelError(f"node {op.name!r}: Resize with antialias is not supported")
    target, factor = resize_extent(a.shape, op, scales, sizes)
    y = a.astype(np.float64) if op.attr_str("mode", "nearest") != "nearest" else a
    for axis, (n, m, f) in enumerate(zip(a.shape, target, factor, strict=True)):
        if n == m and f == 1.0:
            continue
        matrix = axis_matrix(op, n, m, f)
        if op.attr_str("mode", "nearest") == "nearest":
            y = np.take(y, matrix.argmax(1), axis)
        else:
            y = np.moveaxis(np.tensordot(matrix, y, (1, axis)), 0, axis)
    return [np.asarray(y).astype(a.dtype)]


OPS: dict[str, Function] = {"Resize": _resize}
