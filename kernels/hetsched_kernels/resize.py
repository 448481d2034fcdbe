"""ONNX Resize: each output position reads a few input positions with weights, computed once per axis at load."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hetsched_kernels.arrays import Array, InF32, InI64, InT, OutF32, OutT
from hetsched_kernels.compilation import kernel
from hetsched_kernels.parts import span


@dataclass(frozen=True)
class Taps:
    """What each output position of one axis reads.

    Attributes:
        index: int64 [out · taps], input positions (clamped to the edge).
        weight: float32 [out · taps].
    """

    index: Array
    weight: Array


def _source(i: int, scale: float, size: int, out: int, transform: str) -> float:
    """Input coordinate of output position ``i`` (ONNX coordinate_transformation_mode)."""
    if transform == "align_corners":
        return i * (size - 1) / (out - 1) if out > 1 else 0.0
    if transform == "asymmetric":
        return i / scale
    if transform == "pytorch_half_pixel" and out == 1:
        return 0.0
    if transform == "half_pixel_symmetric":
        adjustment = out / (scale * size)
        return size / 2 * (1 - adjustment) + (i + 0.5) / scale - 0.5
    if transform in ("half_pixel", "pytorch_half_pixel"):
        return (i + 0.5) / scale - 0.5
    raise ValueError(f"Resize has no coordinate transformation {transform!r}; use half_pixel, asymmetric, align_corners or a sibling")


def _nearest(x: float, rounding: str) -> int:
    if rounding == "floor":
        return math.floor(x)
    if rounding == "ceil":
        return math.ceil(x)
    if rounding == "round_prefer_ceil":
        return math.floor(x + 0.5)
    return math.ceil(x - 0.5)  # round_prefer_floor


def resize_axis(
    size: int,
    out: int,
    scale: float,
    mode: str,
    transform: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    cubic: float = -0.75,
    exclude_outside: bool = False,
) -> Taps:
    """The taps of one axis.

    Args:
        size: input size.
        out: output size.
        scale: the node's scale, or out / size where sizes were given.
        mode: ``nearest``, ``linear`` or ``cubic``.
        transform: ONNX coordinate_transformation_mode.
        rounding: ONNX nearest_mode.
        cubic: ONNX cubic_coeff_a.
        exclude_outside: taps outside the input weigh nothing, the others are scaled up (cubic).

    Raises:
        ValueError: an unknown mode or transformation.
    """
    index: list[int] = []
    weight: list[float] = []
    for i in range(out):
        x = _source(i, scale, size, out, transform)
        if mode == "nearest":
            taps, weights = [_nearest(x, rounding)], [1.0]
        elif mode == "linear":
            x = min(max(x, 0.0), size - 1.0)
            low = math.floor(x)
            taps, weights = [low, low + 1], [1.0 - (x - low), x - low]
        elif mode == "cubic":
            low = math.floor(x)
            taps, weights = [low - 1, low, low + 1, low + 2], _cubic(x - low, cubic)
            if exclude_outside:
                weights = [v if 0 <= t < size else 0.0 for t, v in zip(taps, weights, strict=True)]
                weights = [v / sum(weights) for v in weights]
        else:
            raise ValueError(f"Resize has no mode {mode!r}; use nearest, linear or cubic")
        index += [min(max(t, 0), size - 1) for t in taps]
        weight += weights
    return Taps(np.array(index, np.int64), np.array(weight, np.float32))


def _cubic(t: float, a: float) -> list[float]:
    """Keys' cubic convolution weights at distances 1+t, t, 1-t, 2-t."""

    def near(d: float) -> float:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: float) -> float:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(1 + t), near(t), near(1 - t), far(2 - t)]


@kernel
def resize_f32(
    x: InF32,
    out: OutF32,
    scratch: OutF32,
    y_index: InI64,
    y_weight: InF32,
    x_index: InI64,
    x_weight: InF32,
    outer: int,
    h: int,
    w: int,
    oh: int,
    ow: int,
) -> None:
    """Resize the last two axes: rows are blended first, then columns.

    Args:
        x: [outer · h · w].
        out: [outer · oh · ow].
        scratch: float32 [w].
        y_index: :attr:`Taps.index` of the rows.
        y_weight: their weights.
        x_index: the same for the columns.
        x_weight: their weights.
        outer: product of the leading dimensions.
        h: input height.
        w: input width.
        oh: output height.
        ow: output width.
    """
    y_taps, x_taps = y_index.shape[0] // max(oh, 1), x_index.shape[0] // max(ow, 1)
    row = span(scratch, 0, w)
    for o in range(outer):
        for oy in range(oh):
            for t in range(y_taps):
                at = (o * h + y_index[oy * y_taps + t]) * w
                source, factor = span(x, at, w), y_weight[oy * y_taps + t]
                if t == 0:
                    for i in range(w):
                        row[i] = source[i] * factor
                else:
                    for i in range(w):
                        row[i] += source[i] * factor
            target = span(out, (o * oh + oy) * ow, ow)
            if x_taps == 2:
                for i in range(ow):
                    target[i] = row[x_index[2 * i]] * x_weight[2 * i] + row[x_index[2 * i + 1]] * x_weight[2 * i + 1]
            else:
                for i in range(ow):
                    s = row[x_index[i * x_taps]] * x_weight[i * x_taps]
                    for t in range(1, x_taps):
                        s += row[x_index[i * x_taps + t]] * x_weight[i * x_taps + t]
                    target[i] = s


@kernel(T=("uint32", "uint8", "uint64", "uint16"))
def resize_nearest(x: InT, out: OutT, y_index: InI64, x_index: InI64, outer: int, h: int, w: int, oh: int, ow: int) -> None:
    """Nearest resize of the last two axes, any element type by its unsigned view; arguments as :data:`resize_f32`."""
    for o in range(outer):
        for oy in range(oh):
            at, to = (o * h + y_index[oy]) * w, (o * oh + oy) * ow
            if oy > 0 and y_index[oy] == y_index[oy - 1]:
                target, source = span(out, to, ow), span(out, to - ow, ow)
                for i in range(ow):
                    target[i] = source[i]
            else:
                for i in range(ow):
                    out[to + i] = x[at + x_index[i]]
