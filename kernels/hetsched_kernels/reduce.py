"""Reductions over the middle axis of [outer, axis, inner]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched_kernels import codes as c
from hetsched_kernels import functions as f
from hetsched_kernels.arrays import InF32, InT, OutF32, OutT
from hetsched_kernels.compilation import REORDER, block, kernel
from hetsched_kernels.extremes import row_max, row_min
from hetsched_kernels.parts import span
from hetsched_kernels.softmax import row_sum

_ZERO = np.float32(0.0)


def reduce_plan(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, int, int]]:
    """The (outer, axis, inner) passes, in order, that reduce ``axes``: one where they are neighbours, else several.

    Each pass reads the previous one's result. Several passes give the same as one for Sum, Max, Min, Prod, L1; for Mean too,
    since all means have equal weights. For L2, SumSquare and LogSumExp the later passes must be Sum-like: use
    :func:`pass_codes`.
    """
    rank = len(shape)
    reduced = sorted({a % rank for a in axes}) if rank else []
    reduced = [a for a in reduced if shape[a] != 1] or reduced[:1]
    groups: list[list[int]] = []
    for axis in reversed(reduced):
        between = range(axis + 1, groups[-1][0]) if groups else range(0)
        if groups and all(shape[b] == 1 for b in between):
            groups[-1][0] = axis
        else:
            groups.append([axis, axis])
    passes = []
    current = list(shape)
    for first, last in groups:
        passes.append((math.prod(current[:first]), math.prod(current[first : last + 1]), math.prod(current[last + 1 :])))
        for axis in range(first, last + 1):
            current[axis] = 1
    return passes or [(1, 1, math.prod(shape))]


def pass_codes(code: int, passes: int) -> list[int]:
    """The reduction of each pass of a plan, so that all together are ``code`` (L2 of L2s, sums of sums of squares, …)."""
    later = {c.L1: c.SUM, c.SUM_SQUARE: c.SUM}.get(code, code)
    return [code] + [later] * (passes - 1)


@block(fast=REORDER)
def _row_absolute(x: Any) -> Any:
    s = _ZERO
    for i in range(x.shape[0]):
        s += f.absolute(x[i])
    return s


@block(fast=REORDER)
def _row_squares(x: Any) -> Any:
    s = _ZERO
    for i in range(x.shape[0]):
        s += x[i] * x[i]
    return s


@block(fast=REORDER)
def _row_product(x: Any) -> Any:
    s = np.float32(1.0)
    for i in range(x.shape[0]):
        s *= x[i]
    return s


@block
def _row_log_sum_exp(x: Any) -> Any:
    largest = row_max(x)
    s = _ZERO
    for i in range(x.shape[0]):
        s += f.exp(x[i] - largest)
    return largest + f.log(s)


@block
def _reduce_row(x: Any, code: Any) -> Any:
    """Reduce one contiguous run."""
    if code in (c.SUM, c.MEAN):
        s = row_sum(x)
        return np.float32(s / np.float32(x.shape[0])) if code == c.MEAN else s
    if code == c.MAXIMUM:
        return row_max(x)
    if code == c.MINIMUM:
        return row_min(x)
    if code == c.PROD:
        return _row_product(x)
    if code == c.L1:
        return _row_absolute(x)
    if code == c.LOG_SUM_EXP:
        return _row_log_sum_exp(x)
    s = _row_squares(x)
    return np.sqrt(s) if code == c.L2 else s


@block
def _accumulate(out: Any, row: Any, code: Any) -> None:
    """Compute out[i] = out[i] ∘ row[i] for one step along the axis."""
    n = out.shape[0]
    if code in (c.SUM, c.MEAN):
        for i in range(n):
            out[i] += row[i]
    elif code == c.MAXIMUM:
        for i in range(n):
            out[i] = row[i] if row[i] > out[i] else out[i]
    elif code == c.MINIMUM:
        for i in range(n):
            out[i] = row[i] if row[i] < out[i] else out[i]
    elif code == c.PROD:
        for i in range(n):
            out[i] *= row[i]
    elif code == c.L1:
        for i in range(n):
            out[i] += f.absolute(row[i])
    elif code in (c.L2, c.SUM_SQUARE):
        for i in range(n):
            out[i] += row[i] * row[i]


@block
def _start(code: Any) -> Any:
    if code == c.MAXIMUM:
        return np.float32(-np.inf)
    if code == c.MINIMUM:
        return np.float32(np.inf)
    return np.float32(1.0) if code == c.PROD else _ZERO


@block
def _columns(x: Any, row: Any, code: Any, base: Any, axis: Any, inner: Any) -> None:
    """Reduce [axis, inner] to [inner]."""
    if code == c.LOG_SUM_EXP:
        for i in range(inner):
            largest = np.float32(-np.inf)
            for a in range(axis):
                largest = max(largest, x[base + a * inner + i])
            s = _ZERO
            for a in range(axis):
                s += f.exp(x[base + a * inner + i] - largest)
            row[i] = largest + f.log(s)
        return
    first = _start(code)
    for i in range(inner):
        row[i] = first
    for a in range(axis):
        _accumulate(row, span(x, base + a * inner, inner), code)
    if code == c.MEAN:
        factor = np.float32(axis)
        for i in range(inner):
            row[i] = row[i] / factor
    elif code == c.L2:
        for i in range(inner):
            row[i] = np.sqrt(row[i])


@kernel
def reduce_f32(x: InF32, out: OutF32, code: int, outer: int, axis: int, inner: int) -> None:
    """Compute out = reduction of x over its middle axis. NaN are ignored by Max and Min, kept by the others.

    Args:
        x: [outer · axis · inner].
        out: [outer · inner].
        code: one of ``codes.REDUCE``.
        outer: product of the dimensions before the axis.
        axis: size of the axis; at least 1 for Max and Min.
        inner: product of the dimensions after it (1: the fast path).
    """
    for o in range(outer):
        base = o * axis * inner
        if inner == 1 and axis > 0:
            out[o] = _reduce_row(span(x, base, axis), code)
        else:
            _columns(x, span(out, o * inner, inner), code, base, axis, inner)


@kernel(T=("int64", "int32"))
def reduce_int(x: InT, out: OutT, code: int, outer: int, axis: int, inner: int) -> None:
    """Compute out = Sum, Mean (towards zero), Max, Min or Prod of integers; arguments as :data:`reduce_f32`, axis ≥ 1."""
    for o in range(outer):
        for i in range(inner):
            base = o * axis * inner + i
            s = x[base]
            for a in range(1, axis):
                v = x[base + a * inner]
                if code == c.MAXIMUM:
                    s = max(s, v)
                elif code == c.MINIMUM:
                    s = min(s, v)
                elif code == c.PROD:
                    s = s * v
                else:
                    s = s + v
            if code == c.MEAN:
                s = s // axis if s >= 0 else -(-s // axis)
            out[o * inner + i] = s
