"""Positions and running values along an axis: ArgMax / ArgMin, CumSum, TopK."""

from __future__ import annotations

from hetsched_kernels.arrays import InF32, InT, OutF32, OutI64, OutT
from hetsched_kernels.compilation import kernel


@kernel
def argmax_f32(x: InF32, out: OutI64, outer: int, axis: int, inner: int, largest: bool, last: bool) -> None:
    """Compute out = position of the extreme along the middle axis.

    Args:
        x: [outer · axis · inner], axis ≥ 1.
        out: int64 [outer · inner].
        outer: product of the dimensions before the axis.
        axis: size of the axis.
        inner: product of the dimensions after it.
        largest: the maximum, else the minimum.
        last: of equal values, the last position rather than the first.
    """
    for o in range(outer):
        for i in range(inner):
            base = o * axis * inner + i
            best, where = x[base], 0
            for a in range(1, axis):
                v = x[base + a * inner]
                better = v > best if largest else v < best
                if better or (last and v == best):
                    best, where = v, a
            out[o * inner + i] = where


@kernel(T=("float32", "int64", "int32"))
def cumsum(x: InT, out: OutT, outer: int, axis: int, inner: int, exclusive: bool, reverse: bool) -> None:
    """Compute out = running sum along the middle axis of [outer, axis, inner]; ``out`` must not be ``x``.

    Args:
        x: input.
        out: the same size.
        outer: product of the dimensions before the axis.
        axis: size of the axis.
        inner: product of the dimensions after it.
        exclusive: the element itself is not counted.
        reverse: from the end.
    """
    for o in range(outer):
        for i in range(inner):
            base = o * axis * inner + i
            total = x[base] - x[base]
            for step in range(axis):
                at = base + (axis - 1 - step if reverse else step) * inner
                v = x[at]
                out[at] = total if exclusive else total + v
                total = total + v


@kernel
def top_k_f32(x: InF32, values: OutF32, indices: OutI64, outer: int, axis: int, inner: int, k: int, largest: bool) -> None:
    """The k extremes along the middle axis, sorted, the lower position first among equals.

    Args:
        x: [outer · axis · inner].
        values: [outer · k · inner].
        indices: int64 [outer · k · inner].
        outer: product of the dimensions before the axis.
        axis: size of the axis.
        inner: product of the dimensions after it.
        k: how many, at most ``axis``.
        largest: the largest, else the smallest.
    """
    for o in range(outer):
        for i in range(inner):
            base = o * axis * inner + i
            to = o * k * inner + i
            held = 0
            for a in range(axis):
                v = x[base + a * inner]
                if held == k:
                    if k == 0:
                        break
                    worst = values[to + (k - 1) * inner]
                    if not (v > worst if largest else v < worst):
                        continue
                    held -= 1
                at = held
                while at > 0:
                    previous = values[to + (at - 1) * inner]
                    if not (v > previous if largest else v < previous):
                        break
                    values[to + at * inner] = previous
                    indices[to + at * inner] = indices[to + (at - 1) * inner]
                    at -= 1
                values[to + at * inner] = v
                indices[to + at * inner] = a
                held += 1
