"""The float32 register tile: C[rows, cols] = bias + Σ_k A[row, k] · B[k, col], clamped.

A is broadcast element by element from any strides; row k of B starts at ``table[k]``, so that a packed panel, a plain matrix
and the taps of a convolution are all the same loop.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I64P, alloca_once, carray, for_range, intrinsic
from hetsched_kernels.parts import span
from hetsched_kernels.tile import COLS, LANES, VECTORS, heights

NO_BIAS, ROW_BIAS, COL_BIAS = 0, 1, 2


def _accumulators(b: Any, bias: Any, mode: Any, rows: int, wide: int, stored: Any) -> list[list[Any]]:
    """Registers that start at the bias."""
    kind = v.vector(v.F32, LANES)
    acc = [[alloca_once(b, kind) for _ in range(wide)] for _ in range(rows)]
    for slot in [slot for row in acc for slot in row]:
        b.store(v.constant(kind, 0.0), slot)
    with b.if_then(b.icmp_signed("==", mode, v.index(ROW_BIAS))):
        for m, row in enumerate(acc):
            value = v.splat(b, b.load(b.gep(bias, [row_within(b, m, stored)])), LANES)
            for slot in row:
                b.store(value, slot)
    with b.if_then(b.icmp_signed("==", mode, v.index(COL_BIAS))):
        for n in range(wide):
            value = v.load(b, b.gep(bias, [v.index(LANES * n)]), kind, 4)
            for row in acc:
                b.store(value, row[n])
    return acc


def row_within(b: Any, m: int, stored: Any) -> Any:
    """Row ``m``, or row 0 where there is no such row: nothing is read beyond the operands."""
    return b.select(b.icmp_signed("<", v.index(m), stored), v.index(m), v.index(0))


def _micro(b: Any, args: Any, rows: int, wide: int) -> None:
    """One microkernel of ``rows`` x ``wide`` vectors; stores the first ``stored`` rows."""
    a, rs, ks, source, table, depth, c, ldc, bias, mode, lo, hi, stored = args
    kind = v.vector(v.F32, LANES)
    acc = _accumulators(b, bias, mode, rows, wide, stored)
    bases = [b.gep(a, [b.mul(rs, row_within(b, m, stored))]) for m in range(rows)]
    with for_range(b, depth, intp=v.I64) as loop:
        row = b.gep(source, [b.load(b.gep(table, [loop.index]))])
        values = [v.load(b, b.gep(row, [v.index(LANES * n)]), kind, 4) for n in range(wide)]
        step = b.mul(loop.index, ks)
        for m in range(rows):
            factor = v.splat(b, b.load(b.gep(bases[m], [step])), LANES)
            for n in range(wide):
                b.store(v.multiply_add(b, factor, values[n], b.load(acc[m][n])), acc[m][n])
    low, high = v.splat(b, lo, LANES), v.splat(b, hi, LANES)
    for m in range(rows):
        with b.if_then(b.icmp_signed("<", v.index(m), stored)):
            to = b.gep(c, [b.mul(ldc, v.index(m))])
            for n in range(wide):
                x = b.load(acc[m][n])
                x = b.select(b.fcmp_ordered("<", x, low), low, x)
                x = b.select(b.fcmp_ordered(">", x, high), high, x)
                v.store(b, x, b.gep(to, [v.index(LANES * n)]), 4)


def for_each_shape(b: Any, rows: Any, cols: Any, emit: Any) -> None:
    """Branch to the smallest microkernel that covers rows x cols: ``emit(height, vectors)`` writes its code."""
    known = heights()
    for position, height in enumerate(known):
        below = known[position + 1] if position + 1 < len(known) else 0
        tall = b.and_(b.icmp_signed(">", rows, v.index(below)), b.icmp_signed("<=", rows, v.index(height)))
        for wide in range(1, VECTORS + 1):
            fits = b.and_(b.icmp_signed(">", cols, v.index(LANES * (wide - 1))), b.icmp_signed("<=", cols, v.index(LANES * wide)))
            with b.if_then(b.and_(tall, fits)):
                emit(height, wide)


@intrinsic
def _tile(
    tc: Any,
    a: Any,
    rs: Any,
    ks: Any,
    source: Any,
    table: Any,
    depth: Any,
    c: Any,
    ldc: Any,
    bias: Any,
    mode: Any,
    lo: Any,
    hi: Any,
    rows: Any,
    cols: Any,
) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        *most, rows, cols = args
        for_each_shape(b, rows, cols, lambda height, wide: _micro(b, [*most, rows], height, wide))
        return context.get_dummy_value()

    i = types.int64
    return types.none(F32P, i, i, F32P, I64P, i, F32P, i, F32P, i, types.float32, types.float32, i, i), codegen


@external(
    F32P,
    types.int64,
    types.int64,
    F32P,
    I64P,
    types.int64,
    F32P,
    types.int64,
    F32P,
    types.int64,
    types.float32,
    types.float32,
    types.int64,
    types.int64,
    F32P,
)
def tile_f32(
    a: Any,
    rs: Any,
    ks: Any,
    b: Any,
    table: Any,
    depth: Any,
    c: Any,
    ldc: Any,
    bias: Any,
    mode: Any,
    lo: Any,
    hi: Any,
    rows: Any,
    cols: Any,
    spare: Any,
) -> None:
    """C[rows, cols] = clamp(bias + A · B, lo, hi).

    Args:
        a: first element of A.
        rs: its row stride.
        ks: its stride along the depth.
        b: B; row k starts at element table[k] and must be readable up to the next multiple of LANES columns.
        table: int64 [depth].
        depth: K.
        c: first element of C.
        ldc: its row stride.
        bias: [rows] (ROW_BIAS) or [cols rounded up to LANES] (COL_BIAS).
        mode: NO_BIAS, ROW_BIAS or COL_BIAS.
        lo: lower clamp, -inf for none.
        hi: upper clamp, inf for none.
        rows: 1 … ROWS.
        cols: 1 … COLS.
        spare: float32 [TILE], used where ``cols`` is no multiple of LANES.
    """
    if cols % LANES == 0:
        _tile(a, rs, ks, b, table, depth, c, ldc, bias, mode, lo, hi, rows, cols)
        return
    _tile(a, rs, ks, b, table, depth, spare, COLS, bias, mode, lo, hi, rows, cols)
    target, source = carray(c, ((rows - 1) * ldc + cols,)), carray(spare, (rows * COLS,))
    for m in range(rows):
        to, part = span(target, m * ldc, cols), span(source, m * COLS, cols)
        for n in range(cols):
            to[n] = part[n]


@intrinsic
def _gather_panel(tc: Any, source: Any, table: Any, depth: Any, panel: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        source, table, depth, panel = args
        kind = v.vector(v.F32, LANES)
        with for_range(b, depth, intp=v.I64) as loop:
            row = b.gep(source, [b.load(b.gep(table, [loop.index]))])
            to = b.gep(panel, [b.mul(loop.index, v.index(COLS))])
            for n in range(VECTORS):
                v.store(b, v.load(b, b.gep(row, [v.index(LANES * n)]), kind, 4), b.gep(to, [v.index(LANES * n)]), 4)
        return context.get_dummy_value()

    return types.none(F32P, I64P, types.int64, F32P), codegen


@external(F32P, I64P, types.int64, F32P)
def gather_panel_f32(source: Any, table: Any, depth: Any, panel: Any) -> None:
    """panel[k, :] = COLS elements of ``source`` from ``table[k]``: a panel of B made contiguous."""
    _gather_panel(source, table, depth, panel)


@intrinsic
def _scatter_rows(tc: Any, tile: Any, out: Any, ldc: Any, rows: Any, low: Any, high: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        tile, out, ldc, rows, low, high = args
        kind, words, bits = v.vector(v.F32, LANES), v.vector(v.I32, LANES), v.vector(v.I1, LANES)
        low32, high32 = (v.splat(b, b.trunc(x, v.I32), LANES) for x in (low, high))
        masks = []
        for n in range(VECTORS):
            lane = ir.Constant(words, [LANES * n + i for i in range(LANES)])
            masks.append(b.and_(b.icmp_signed(">=", lane, low32), b.icmp_signed("<", lane, high32)))
        name = f"llvm.masked.store.v{LANES}f32.p0"
        with for_range(b, rows, intp=v.I64) as loop:
            row, to = b.gep(tile, [b.mul(loop.index, v.index(COLS))]), b.gep(out, [b.sub(b.mul(loop.index, ldc), low)])
            for n, mask in enumerate(masks):
                value = v.load(b, b.gep(row, [v.index(LANES * n)]), kind, 4)
                pointer = b.bitcast(b.gep(to, [v.index(LANES * n)]), kind.as_pointer())
                v.masked_store(b, name, value, pointer, mask, bits)
        return context.get_dummy_value()

    i = types.int64
    return types.none(F32P, F32P, i, i, i, i), codegen


@external(F32P, F32P, types.int64, types.int64, types.int64, types.int64)
def scatter_rows_f32(tile: Any, out: Any, ldc: Any, rows: Any, low: Any, high: Any) -> None:
    """out[r · ldc + j - low] = tile[r, j] for ``rows`` rows and low ≤ j < high; nothing else is touched.

    Args:
        tile: [rows, COLS].
        out: where column ``low`` of row 0 goes.
        ldc: row stride of ``out``.
        rows: rows.
        low: first column.
        high: one past the last column.
    """
    _scatter_rows(tile, out, ldc, rows, low, high)
