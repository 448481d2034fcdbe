"""Bfloat16 activations times 4-bit weights in groups, for where int8 activations are too coarse."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.activation import ACTIVATE
from hetsched_kernels.arrays import InF32, InI32, InI64, InU8, OutF32, OutI32
from hetsched_kernels.compilation import REORDER, block, kernel
from hetsched_kernels.few_bits import CODES_AT, GROUP, MINS, STRIDE, K, N
from hetsched_kernels.functions import float_to_bits
from hetsched_kernels.gemm_groups import expand_scales, finish_panel, finish_panels, panels_from
from hetsched_kernels.groups import CHUNK
from hetsched_kernels.parts import ptr, span
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_bf16 import ROWS, row_4_bf16, tile_4_bf16, tile_4_bf16_min
from hetsched_kernels.tile_bits import WIDE

_CALL, _CALL_MIN, _ROW = tile_4_bf16.call, tile_4_bf16_min.call, row_4_bf16.call


@block(inline=True)
def _rounded(value: Any) -> Any:
    """A float32's bits rounded to bfloat16, half to even, in the upper half; NaN stay NaN."""
    bits = np.int64(float_to_bits(value))
    rounded = bits + np.int64(0x7FFF) + ((bits >> np.int64(16)) & np.int64(1))
    rounded = bits | np.int64(0x400000) if value != value else rounded
    return np.int32(rounded & np.int64(-65536))


@block(fast=REORDER)
def _total(x: Any) -> Any:
    total = np.float32(0.0)
    for i in range(x.shape[0]):
        total += x[i]
    return total


@kernel
def pair_bf16(x: InF32, pairs: OutI32, sums: OutF32, rows: int, cols: int, depth: int, group: int) -> None:
    """Activations as the words that :data:`gemm_w4a16` reads: of every eight values the pairs (0, 2), (4, 6), (1, 3), (5, 7).

    Args:
        x: [rows · cols].
        pairs: int32 [rows · depth / 2], two bfloat16 each.
        sums: [rows · depth / group], the sum of each group, in float32 before rounding.
        rows: rows.
        cols: elements of a row.
        depth: ``cols`` rounded up to whole groups; zeros follow.
        group: values of k that share a scale.
    """
    for r in range(rows):
        row, out = span(x, r * cols, cols), span(pairs, r * (depth // 2), depth // 2)
        whole = cols // 8
        for e in range(whole):
            for i in range(4):
                first = 8 * e + i // 2 + 4 * (i % 2)
                out[4 * e + i] = np.int32((_rounded(row[first]) >> np.int32(16)) & np.int32(0xFFFF)) | _rounded(row[first + 2])
        for j in range(4 * whole, depth // 2):
            first = j // 4 * 8 + j % 4 // 2 + 4 * (j % 2)
            low = row[first] if first < cols else np.float32(0.0)
            high = row[first + 2] if first + 2 < cols else np.float32(0.0)
            out[j] = np.int32((_rounded(low) >> np.int32(16)) & np.int32(0xFFFF)) | _rounded(high)
        for g in range(depth // group):
            start = min(g * group, cols)
            sums[r * (depth // group) + g] = _total(span(row, start, min(group, cols - start)))


@kernel(needs=(tile_4_bf16, tile_4_bf16_min, row_4_bf16, ACTIVATE))
def gemm_w4a16(
    pairs: InI32,
    sums: InF32,
    data: InU8,
    shape: InI64,
    bias: InF32,
    out: OutF32,
    scratch: OutF32,
    m: int,
    first: int,
    last: int,
    activation: int,
    alpha: float,
    beta: float,
) -> None:
    """Compute out = activation(x · wᵀ + bias) with x in bfloat16 and 4-bit weights.

    Args:
        pairs: int32 [m · depth / 2], made by :data:`pair_bf16` with the weight's group and depth.
        sums: [m · groups], of the same.
        data: :attr:`PackedGroups.data` of a 4-bit weight.
        shape: :attr:`PackedGroups.shape`.
        bias: [n], or empty.
        out: [m · n].
        scratch: float32 [:func:`hetsched_kernels.gemm_groups.gemm_groups_scratch`].
        m: rows of x.
        first: first column of ``out`` that is computed, a multiple of LANES.
        last: one past the last column, n or a multiple of LANES.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    n, depth, stride = shape[N], shape[K], shape[STRIDE]
    groups, chunks = depth // shape[GROUP], shape[GROUP] // CHUNK
    scales, mins = span(scratch, 0, groups * LANES), span(scratch, groups * LANES, groups * LANES)
    tile = span(scratch, 2 * groups * LANES, max(ROWS, WIDE) * LANES)
    s, low, y = ptr(scales, 0), ptr(mins, 0), ptr(tile, 0)
    if m == 1:
        for c0 in range(first, last, WIDE * LANES):
            panels = panels_from(c0, last)
            _ROW(ptr(data, c0 // LANES * stride), ptr(shape, 0), ptr(pairs, 0), ptr(sums, 0), y, panels)
            finish_panels(tile, panels, c0, bias, out, n, activation, alpha, beta)
        return
    for c0 in range(first, last, LANES):
        panel = span(data, c0 // LANES * stride, stride)
        expand_scales(panel, shape, scales, mins)
        codes = ptr(panel, shape[CODES_AT])
        for r0 in range(0, m, ROWS):
            rows = min(ROWS, m - r0)
            x, xn = ptr(pairs, r0 * (depth // 2)), ptr(sums, r0 * groups)
            if shape[MINS]:
                _CALL_MIN(codes, x, depth // 2, xn, groups, s, low, groups, chunks, y, LANES, rows)
            else:
                _CALL(codes, x, depth // 2, xn, groups, s, low, groups, chunks, y, LANES, rows)
            finish_panel(tile, rows, c0, r0, min(LANES, n - c0), bias, out, n, activation, alpha, beta)
