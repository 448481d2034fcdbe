"""Activations of 16 bits as two int8 rows: codes of the values, and codes of what those leave over.

Both rows go through an int8 product with weights in groups (:mod:`hetsched_kernels.gemm_groups`) and are added afterwards. The
error of a value is at most 1/127² of half its group's largest one, so that products are as good as those of float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import InF32, OutF32, OutI32, OutU8
from hetsched_kernels.compilation import REORDER, block, kernel
from hetsched_kernels.parts import as_i8, ptr, span
from hetsched_kernels.quantize_groups import quantize_row
from hetsched_kernels.wide import full_width

_EXACT: frozenset[str] = frozenset()


@block(fast=_EXACT)
def _leave(x: Any, q: Any, scale: Any, out: Any) -> None:
    """What codes leave over."""
    for i in range(out.shape[0]):
        out[i] = x[i] - np.float32(q[i]) * scale


@kernel(fast=_EXACT)
def quantize_twofold(
    x: InF32, q: OutU8, scales: OutF32, sums: OutI32, scratch: OutF32, rows: int, cols: int, depth: int, group: int
) -> None:  # fmt: skip
    """Quantize every row twice, in groups: row 2r of the result holds its codes, row 2r + 1 those of the rest.

    Args:
        x: [rows · cols].
        q: int8 as uint8 [2 · rows · depth].
        scales: [2 · rows · depth / group], written.
        sums: int32 [2 · rows · depth / group], the sum of each group's codes, written.
        scratch: float32 [cols].
        rows: rows.
        cols: elements of a row.
        depth: ``cols`` rounded up to whole groups and chunks (:func:`hetsched_kernels.groups.padded_depth`); zeros follow.
        group: elements that share a scale.
    """
    full_width()
    groups = depth // group
    for r in range(rows):
        row, rest = span(x, r * cols, cols), span(scratch, 0, cols)
        high, low = 2 * r, 2 * r + 1
        own = span(scales, high * groups, groups)
        quantize_row(row, span(q, high * depth, depth), own, span(sums, high * groups, groups), group)
        for g in range((cols + group - 1) // group):
            at = g * group
            count = min(group, cols - at)
            _leave(span(row, at, count), as_i8(q, high * depth + at, count), own[g], span(rest, at, count))
        quantize_row(rest, span(q, low * depth, depth), span(scales, low * groups, groups), span(sums, low * groups, groups), group)


@block(fast=REORDER)
def _add(a: Any, b: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = a[i] + b[i]


@kernel(needs=(ACTIVATE,))
def add_twofold(
    products: InF32, bias: InF32, out: OutF32, rows: int, n: int, first: int, last: int, activation: int, alpha: float, beta: float
) -> None:  # fmt: skip
    """Compute out[r] = activation(products[2r] + products[2r + 1] + bias), for columns first … last.

    Args:
        products: [2 · rows · n].
        bias: [n], or empty.
        out: [rows · n].
        rows: rows.
        n: columns.
        first: first column.
        last: one past the last.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    full_width()
    count = last - first
    for r in range(rows):
        to = span(out, r * n + first, count)
        _add(span(products, 2 * r * n + first, count), span(products, (2 * r + 1) * n + first, count), to)
        if bias.shape[0] > 0:
            _add(to, span(bias, first, count), to)
        if activation:
            activate_at(ptr(to, 0), count, activation, alpha, beta)
