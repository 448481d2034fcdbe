"""Float32 activations by weights that stay in 16 bits, float16 or bfloat16: the same numbers as with the weights as float32.

One row meets a panel as it is stored. For several the panel is widened to scratch first, which stays in the cache while all of them meet
it, so that memory is read 16 bits a weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.activation import ACTIVATE, activate_at
from hetsched_kernels.arrays import InF32, InU16, OutF32
from hetsched_kernels.cast import half_to_float
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.functions import bits_to_float
from hetsched_kernels.gemm import clamp_of, panel_bias
from hetsched_kernels.halves import BRAIN
from hetsched_kernels.parts import as_i64, ptr, span
from hetsched_kernels.tile import COLS, ROWS, TILE
from hetsched_kernels.tile_f32 import COL_BIAS, NO_BIAS, tile_f32
from hetsched_kernels.tile_halves import row_halves
from hetsched_kernels.wide import full_width

_TILE_CALL, _ROW = tile_f32.call, row_halves.call


def gemm_halves_scratch(k: int) -> int:
    """Float32 elements of scratch that :data:`gemm_halves_f32` wants."""
    return 2 * (k + 1) + TILE + COLS + k * COLS + 16


@block
def _widen_half(source: Any, panel: Any) -> None:
    for i in range(source.shape[0]):
        panel[i] = half_to_float(source[i])


@block
def _widen_brain(source: Any, panel: Any) -> None:
    for i in range(source.shape[0]):
        panel[i] = bits_to_float(np.int32(np.int32(source[i]) << np.int32(16)))


@block
def _finish(sums: Any, part: Any, mode: Any, lo: Any, hi: Any, out: Any) -> None:
    """Bias and clamp of one row's sums."""
    for i in range(out.shape[0]):
        value = sums[i] + part[i] if mode == COL_BIAS else sums[i]
        value = lo if value < lo else value
        out[i] = hi if value > hi else value


@kernel(needs=(tile_f32, row_halves, ACTIVATE))
def gemm_halves_f32(
    a: InF32, b: InU16, form: int, bias: InF32, out: OutF32, scratch: OutF32, m: int, n: int, k: int, first: int, last: int,
    activation: int, alpha: float, beta: float,
) -> None:  # fmt: skip
    """Compute out = activation(a · bᵀ + bias) in columns ``first`` to ``last``.

    Args:
        a: [m · k].
        b: uint16, ``halves.pack_halves`` of [n, k].
        form: ``halves.HALF`` or ``halves.BRAIN``.
        bias: [n], or empty.
        out: [m · n]; other columns are left as they are.
        scratch: [:func:`gemm_halves_scratch`].
        m: rows.
        n: columns.
        k: depth.
        first: first column, a multiple of COLS.
        last: one past the last column, a multiple of COLS or n.
        activation: one of ``codes.ACTIVATION``.
        alpha: the activation's first parameter.
        beta: its second.
    """
    full_width()
    table = as_i64(scratch, 0, 2 * k)
    spare = span(scratch, 2 * k, TILE)
    spare_bias = span(scratch, 2 * k + TILE, COLS)
    panel = span(scratch, 2 * k + TILE + COLS, k * COLS)
    for i in range(k):
        table[i] = i * COLS
    lo, hi, clamps = clamp_of(activation, alpha, beta)
    mode = COL_BIAS if bias.shape[0] > 0 else NO_BIAS
    for c0 in range(first, last, COLS):
        cols = min(COLS, last - c0)
        source = span(b, c0 * k, k * COLS)
        part = panel_bias(bias, c0, cols, spare_bias) if mode == COL_BIAS else bias
        if m == 1:
            _ROW(a, source, k, form, spare)
            _finish(spare, part, mode, lo, hi, span(out, c0, cols))
            if not clamps:
                activate_at(ptr(out, c0), cols, activation, alpha, beta)
            continue
        if form == BRAIN:
            _widen_brain(source, panel)
        else:
            _widen_half(source, panel)
        for r0 in range(0, m, ROWS):
            rows = min(ROWS, m - r0)
            _TILE_CALL(ptr(a, r0 * k), k, 1, panel, table, k, ptr(out, r0 * n + c0), n, part, mode, lo, hi, rows, cols, spare)
            if not clamps:
                for r in range(r0, r0 + rows):
                    activate_at(ptr(out, r * n + c0), cols, activation, alpha, beta)
