"""Activations of 16 bits as two int8 rows: codes of the values, and codes of what those leave over.

Both rows go through an int8 product with weights in groups (:data:`hetsched_kernels.gemm_groups.gemm_twofold_f32`). The
error of a value is at most 1/127² of half its group's largest one, so that products are as good as those of float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.arrays import InF32, OutF32, OutI32, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.computed_rows import gate_row, norm_row
from hetsched_kernels.parts import as_i8, span
from hetsched_kernels.quantize_groups import quantize_row
from hetsched_kernels.wide import full_width

_EXACT: frozenset[str] = frozenset()


@block(fast=_EXACT)
def _leave(x: Any, q: Any, scale: Any, out: Any) -> None:
    """What codes leave over."""
    for i in range(out.shape[0]):
        out[i] = x[i] - np.float32(q[i]) * scale


@block(fast=_EXACT)
def _place(row: Any, r: Any, q: Any, scales: Any, sums: Any, rest: Any, depth: Any, group: Any) -> None:
    """Quantize a row twice into place ``r``; ``rest`` may be the row itself."""
    groups, cols, high, low = depth // group, row.shape[0], 2 * r, 2 * r + 1
    own = span(scales, high * groups, groups)
    quantize_row(row, span(q, high * depth, depth), own, span(sums, high * groups, groups), group)
    for g in range((cols + group - 1) // group):
        at = g * group
        count = min(group, cols - at)
        _leave(span(row, at, count), as_i8(q, high * depth + at, count), own[g], span(rest, at, count))
    quantize_row(rest, span(q, low * depth, depth), span(scales, low * groups, groups), span(sums, low * groups, groups), group)


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
    for r in range(rows):
        _place(span(x, r * cols, cols), r, q, scales, sums, span(scratch, 0, cols), depth, group)


@kernel(fast=_EXACT)
def rms_norm_quantize_twofold(
    x: InF32,
    skip: InF32,
    scale: InF32,
    total: OutF32,
    q: OutU8,
    scales: OutF32,
    sums: OutI32,
    scratch: OutF32,
    rows: int,
    cols: int,
    depth: int,
    group: int,
    epsilon: float,
) -> None:
    """As :data:`hetsched_kernels.quantize_groups.rms_norm_quantize_groups`, quantized as :data:`quantize_twofold` does."""
    full_width()
    normal = span(scratch, 0, cols)
    for r in range(rows):
        norm_row(x, skip, scale, total, r, epsilon, normal)
        _place(normal, r, q, scales, sums, normal, depth, group)


@kernel(fast=_EXACT)
def swiglu_quantize_twofold(
    gate: InF32, up: InF32, q: OutU8, scales: OutF32, sums: OutI32, scratch: OutF32, rows: int, cols: int, depth: int, group: int
) -> None:  # fmt: skip
    """Compute silu(gate) · up and quantize it; arguments as :data:`quantize_twofold`."""
    full_width()
    product = span(scratch, 0, cols)
    for r in range(rows):
        gate_row(gate, up, r, product)
        _place(product, r, q, scales, sums, product, depth, group)
