"""The int8 register tile: exact int32 sums of A · B, corrected for zero points, scaled, and stored as float32 (or int32).

Bytes are taken four at a time along the depth: a group of four of A is broadcast, a vector of B holds the groups of LANES
columns. One operand is unsigned and one signed, as ``vpdpbusd`` wants; which one is broadcast tells the two functions apart.

What follows the sum is the same for every product: v = Σ ab - u[row]·c[col] - p[row]·t[col], then v · (s[row]·d[col]) + r[row]
+ e[col]. Zero points give u, c, p, t (all int32); scales s, d; biases r, e. Nothing is fused, so the result does not depend on
the target.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I32P, I64P, U8P, alloca_once, carray, for_range, intrinsic
from hetsched_kernels.tile import COLS, LANES, ROWS
from hetsched_kernels.tile_f32 import for_each_shape, row_within

_PARAMETERS = (
    U8P, types.int64, U8P, I64P, types.int64, F32P, types.int64, I32P, F32P, I32P, F32P, types.int64, types.float32, types.float32,
    types.int64, types.int64,
)  # fmt: skip
#: Bits of the tile's ``flags``: t is given (else p and t are not read); store the int32 sums instead of floats.
HAS_T, RAW = 1, 2


def _corrected(b: Any, acc: Any, n: int, row_terms: tuple[Any, Any], col_ints: Any, flags: Any, signed_a: bool) -> Any:
    """Σ ab without the zero points' share. A signed A is a convolution's weights: then c is 1 and not read."""
    kind = v.vector(v.I32, LANES)
    u, p = row_terms
    if not signed_a:
        u = b.mul(u, v.load(b, b.gep(col_ints, [v.index(LANES * n)]), kind, 4))
    slot = alloca_once(b, kind)
    b.store(b.sub(acc, u), slot)
    with b.if_then(b.icmp_signed("!=", b.and_(flags, v.index(HAS_T)), v.index(0))):
        t = v.load(b, b.gep(col_ints, [v.index(COLS + LANES * n)]), kind, 4)
        b.store(b.sub(b.load(slot), b.mul(p, t)), slot)
    return b.load(slot)


def _finish(b: Any, acc: list[list[Any]], args: Any, signed_a: bool) -> None:
    c, ldc, row_ints, row_floats, col_ints, col_floats, flags, lo, hi, stored = args
    floats = v.vector(v.F32, LANES)
    low, high = v.splat(b, lo, LANES), v.splat(b, hi, LANES)
    raw = b.icmp_signed("!=", b.and_(flags, v.index(RAW)), v.index(0))
    for m, row in enumerate(acc):
        with b.if_then(b.icmp_signed("<", v.index(m), stored)):
            terms = [v.splat(b, b.load(b.gep(row_ints, [v.index(m + ROWS * i)])), LANES) for i in range(2)]
            s, r = (v.splat(b, b.load(b.gep(row_floats, [v.index(m + ROWS * i)])), LANES) for i in range(2))
            to = b.gep(c, [b.mul(ldc, v.index(m))])
            for n, slot in enumerate(row):
                value = _corrected(b, b.load(slot), n, (terms[0], terms[1]), col_ints, flags, signed_a)
                with b.if_else(raw) as (then, otherwise):
                    with then:
                        v.store(b, value, b.gep(to, [v.index(LANES * n)]), 4)
                    with otherwise:
                        x = b.sitofp(value, floats)
                        if signed_a:
                            x = b.fadd(b.fmul(x, s), r)
                        else:
                            d, e = (v.load(b, b.gep(col_floats, [v.index(LANES * n + COLS * i)]), floats, 4) for i in range(2))
                            x = b.fadd(b.fmul(x, b.fmul(s, d)), e)
                        x = b.select(b.fcmp_ordered("<", x, low), low, x)
                        x = b.select(b.fcmp_ordered(">", x, high), high, x)
                        v.store(b, x, b.gep(to, [v.index(LANES * n)]), 4)


def _micro(b: Any, args: Any, rows: int, wide: int, signed_a: bool) -> None:
    a, rs, source, table, depth, *finish = args
    stored = finish[-1]
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
    _finish(b, acc, finish, signed_a)


_FINISH = (I32P, F32P, types.int64, I32P, F32P, I32P, F32P, types.int64, types.float32, types.float32, types.int64, types.int64)


def _finish_sums(b: Any, args: Any, height: int, wide: int) -> None:
    sums, *finish = args
    kind = v.vector(v.I32, LANES)
    slots = [[alloca_once(b, kind) for _ in range(wide)] for _ in range(height)]
    for m, row in enumerate(slots):
        for n, slot in enumerate(row):
            b.store(v.load(b, b.gep(sums, [v.index(COLS * m + LANES * n)]), kind, 4), slot)
    _finish(b, slots, finish, signed_a=False)


@intrinsic
def _finished(
    tc: Any, sums: Any, c: Any, ldc: Any, ri: Any, rf: Any, ci: Any, cf: Any, flags: Any, lo: Any, hi: Any, rows: Any, cols: Any
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        *most, rows, cols = args
        for_each_shape(b, rows, cols, lambda height, wide: _finish_sums(b, [*most, rows], height, wide))
        return context.get_dummy_value()

    return types.none(*_FINISH), codegen


@external(*_FINISH, fast=frozenset())
def finish_u8s8(
    sums: Any, c: Any, ldc: Any, row_ints: Any, row_floats: Any, col_ints: Any, col_floats: Any, flags: Any, lo: Any, hi: Any, rows: Any,
    cols: Any,
) -> None:  # fmt: skip
    """What :data:`tile_u8s8` does with its sums, for sums int32 [rows, COLS] that were made elsewhere."""
    _finished(sums, c, ldc, row_ints, row_floats, col_ints, col_floats, flags, lo, hi, rows, cols)


def _tile(signed_a: bool) -> Any:
    def typing(
        tc: Any, a: Any, rs: Any, source: Any, table: Any, depth: Any, c: Any, ldc: Any, ri: Any, rf: Any, ci: Any, cf: Any, flags: Any,
        lo: Any,
        hi: Any, rows: Any, cols: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            *most, rows, cols = args
            for_each_shape(b, rows, cols, lambda height, wide: _micro(b, [*most, rows], height, wide, signed_a))
            return context.get_dummy_value()

        return types.none(*_PARAMETERS), codegen

    return intrinsic(typing)


_tile_u8s8 = _tile(False)
_tile_s8u8 = _tile(True)


@external(*_PARAMETERS, fast=frozenset())
def tile_u8s8(
    a: Any, rs: Any, b: Any, table: Any, depth: Any, c: Any, ldc: Any, row_ints: Any, row_floats: Any, col_ints: Any, col_floats: Any,
    flags: Any,
    lo: Any, hi: Any, rows: Any, cols: Any,
) -> None:  # fmt: skip
    """C[rows, cols] = clamp((Σ A (u8) · B (s8) - u·c - p·t) · (s·d) + e, lo, hi).

    Args:
        a: first byte of A; each row holds ``depth`` groups of four bytes.
        rs: its row stride in bytes.
        b: B; group k of all columns starts at byte table[k] and must be readable up to the next multiple of LANES columns.
        table: int64 [depth].
        depth: groups of four along K.
        c: first element of C; whole vectors are written.
        ldc: its row stride.
        row_ints: u, p: int32 [2, ROWS].
        row_floats: s, r: float32 [2, ROWS].
        col_ints: c, t: int32 [2, COLS].
        col_floats: d, e: float32 [2, COLS].
        flags: HAS_T, RAW.
        lo: lower clamp.
        hi: upper clamp.
        rows: 1 … ROWS.
        cols: 1 … COLS.
    """
    _tile_u8s8(a, rs, b, table, depth, c, ldc, row_ints, row_floats, col_ints, col_floats, flags, lo, hi, rows, cols)


@external(*_PARAMETERS, fast=frozenset())
def tile_s8u8(
    a: Any, rs: Any, b: Any, table: Any, depth: Any, c: Any, ldc: Any, row_ints: Any, row_floats: Any, col_ints: Any, col_floats: Any,
    flags: Any,
    lo: Any, hi: Any, rows: Any, cols: Any,
) -> None:  # fmt: skip
    """C[rows, cols] = clamp((Σ A (s8) · B (u8) - u - p·t) · s + r, lo, hi); arguments as :data:`tile_u8s8`, c, d, e not read."""
    _tile_s8u8(a, rs, b, table, depth, c, ldc, row_ints, row_floats, col_ints, col_floats, flags, lo, hi, rows, cols)


_MAGIC = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, half to even


@intrinsic
def _quantize_row(tc: Any, tile: Any, out: Any, inverse: Any, low: Any, high: Any, offset: Any) -> Any:
    """A vector of ``LANES`` quantized bytes."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        tile, out, inverse, low, high, offset = args
        kind, words = v.vector(v.F32, LANES), v.vector(v.I32, LANES)
        x = b.fmul(v.load(b, tile, kind, 4), v.splat(b, inverse, LANES))
        lowest, highest = v.splat(b, low, LANES), v.splat(b, high, LANES)
        x = b.select(b.fcmp_ordered(">", x, lowest), x, lowest)  # NaN becomes the lowest
        x = b.select(b.fcmp_ordered(">", x, highest), highest, x)
        bits = b.bitcast(b.fadd(x, v.constant(kind, _MAGIC)), words)
        byte = b.trunc(b.add(bits, v.splat(b, offset, LANES)), v.vector(v.I8, LANES))
        v.store(b, byte, out, 1)
        return context.get_dummy_value()

    f = types.float32
    return types.none(F32P, U8P, f, f, f, types.int32), codegen


@intrinsic
def _shift(tc: Any, pointer: Any, count: Any) -> Any:
    """Pointer + count elements."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), codegen


@external(F32P, U8P, types.int64, types.int64, types.int64, types.int64, types.float32, types.int64, types.int64, U8P, fast=frozenset())
def quantize_tile(
    tile: Any, out: Any, ldc: Any, rows: Any, low: Any, high: Any, scale: Any, zero: Any, signed: Any, spare: Any
) -> None:  # fmt: skip
    """out[r · ldc + j - low] = saturate(round_half_even(tile[r, j] · (1 / scale)) + zero) for low ≤ j < high, as uint8 bits.

    Args:
        tile: float32 [rows, COLS].
        out: where column ``low`` of row 0 goes.
        ldc: row stride of ``out``.
        rows: rows.
        low: first column.
        high: one past the last column.
        scale: the result's scale.
        zero: its zero point, in its own type.
        signed: 1 where the result is int8.
        spare: uint8 [COLS].
    """
    inverse = types.float32(1.0) / scale
    least = -128 * signed
    smallest, largest = types.float32(least - zero), types.float32(least + 255 - zero)
    offset = types.int32(zero - 0x4B400000)
    target, line = carray(out, (rows * ldc + high,)), carray(spare, (COLS,))
    count = high - low
    whole = count // LANES * LANES
    for r in range(rows):
        to = r * ldc
        for j in range(0, whole, LANES):
            _quantize_row(_shift(tile, r * COLS + low + j), _shift(out, to + j), inverse, smallest, largest, offset)
        if whole < count:
            _quantize_row(_shift(tile, r * COLS + min(low + whole, COLS - LANES)), spare, inverse, smallest, largest, offset)
            skip = low + whole - min(low + whole, COLS - LANES)
            for j in range(count - whole):
                target[to + whole + j] = line[skip + j]
