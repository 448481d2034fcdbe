"""The int8 register tile: C[rows, cols] = Σ_k A[row, k] · B[k, col] in int32, exact.

Bytes are taken four at a time along the depth: a group of four of A is broadcast, a vector of B holds the groups of LANES
columns. One operand is unsigned and one signed, as ``vpdpbusd`` wants; which one is broadcast tells the two functions apart.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import I32P, I64P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.tile import COLS, LANES
from hetsched_kernels.tile_f32 import for_each_shape, row_within


def _micro(b: Any, args: Any, rows: int, wide: int, signed_a: bool) -> None:
    a, rs, source, table, depth, c, stored = args
    kind = v.vector(v.I32, LANES)
    acc = [[alloca_once(b, kind) for _ in range(wide)] for _ in range(rows)]
    for slot in [slot for row in acc for slot in row]:
        b.store(v.constant(kind, 0), slot)
    bases = [b.gep(a, [b.mul(rs, row_within(b, m, stored))]) for m in range(rows)]
    with for_range(b, depth, intp=v.I64) as loop:
        row = b.gep(source, [b.load(b.gep(table, [loop.index]))])
        values = [v.load(b, b.gep(row, [v.index(4 * LANES * n)]), kind, 1) for n in range(wide)]
        step = b.mul(loop.index, v.index(4))
        for m in range(rows):
            four = v.splat(b, v.load(b, b.gep(bases[m], [step]), v.I32, 1), LANES)
            for n in range(wide):
                operands = (values[n], four) if signed_a else (four, values[n])
                b.store(v.dot4(b, b.load(acc[m][n]), *operands), acc[m][n])
    for m in range(rows):
        with b.if_then(b.icmp_signed("<", v.index(m), stored)):
            for n in range(wide):
                v.store(b, b.load(acc[m][n]), b.gep(c, [v.index(m * COLS + LANES * n)]), 4)


def _tile(signed_a: bool) -> Any:
    def typing(tc: Any, a: Any, rs: Any, source: Any, table: Any, depth: Any, c: Any, rows: Any, cols: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            *most, rows, cols = args
            for_each_shape(b, rows, cols, lambda height, wide: _micro(b, [*most, rows], height, wide, signed_a))
            return context.get_dummy_value()

        i = types.int64
        return types.none(U8P, i, U8P, I64P, i, I32P, i, i), codegen

    return intrinsic(typing)


_tile_u8s8 = _tile(False)
_tile_s8u8 = _tile(True)
_PARAMETERS = (U8P, types.int64, U8P, I64P, types.int64, I32P, types.int64, types.int64)


@external(*_PARAMETERS)
def tile_u8s8(a: Any, rs: Any, b: Any, table: Any, depth: Any, c: Any, rows: Any, cols: Any) -> None:
    """C[rows, cols] = A (u8) · B (s8).

    Args:
        a: first byte of A; each row holds ``depth`` groups of four bytes.
        rs: its row stride in bytes.
        b: B; group k of all columns starts at byte table[k] and must be readable up to the next multiple of LANES columns.
        table: int64 [depth].
        depth: groups of four along K.
        c: int32 tile [rows, COLS].
        rows: 1 … ROWS.
        cols: 1 … COLS; whole vectors are written.
    """
    _tile_u8s8(a, rs, b, table, depth, c, rows, cols)


@external(*_PARAMETERS)
def tile_s8u8(a: Any, rs: Any, b: Any, table: Any, depth: Any, c: Any, rows: Any, cols: Any) -> None:
    """C[rows, cols] = A (s8) · B (u8); arguments as :data:`tile_u8s8`."""
    _tile_s8u8(a, rs, b, table, depth, c, rows, cols)
