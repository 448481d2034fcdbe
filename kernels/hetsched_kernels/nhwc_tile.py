"""The int8 register tile of channels-last convolution: rows are output positions, columns output channels, both u8 in memory.

Every row of every kernel tap is an address, so that strides, dilations and padding (a row of zero points) cost nothing inside,
and there is neither an im2col matrix nor a padded copy.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I32P, I64P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.tile import COLS, LANES, ROWS, VECTORS
from hetsched_kernels.tile_f32 import for_each_shape

_MAGIC = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, half to even
_MAGIC_BITS = 0x4B400000


def store_lanes(b: Any, value: Any, pointer: Any, left: Any) -> None:
    """Store the first ``left`` lanes of a vector of bytes or float32 (all of them where there are at least as many)."""
    kind = value.type
    name, align = (f"llvm.masked.store.v{kind.count}i8.p0", 1) if kind.element == v.I8 else (f"llvm.masked.store.v{kind.count}f32.p0", 4)
    with b.if_else(b.icmp_signed(">=", left, v.index(kind.count))) as (whole, part):
        with whole:
            v.store(b, value, pointer, align)
        with part:
            words = v.vector(v.I32, kind.count)
            lanes = ir.Constant(words, list(range(kind.count)))
            mask = b.icmp_signed("<", lanes, v.splat(b, b.trunc(left, v.I32), kind.count))
            to = b.bitcast(pointer, kind.as_pointer())
            function = b.module.globals.get(name)
            if function is None:
                function = ir.Function(b.module, ir.FunctionType(ir.VoidType(), [kind, to.type, v.I32, mask.type]), name)
            b.call(function, [value, to, ir.Constant(v.I32, align), mask])


def _sums(b: Any, args: Any, rows: int, wide: int) -> list[list[Any]]:
    """Σ over taps and channels, started at the columns' own sums."""
    addresses, taps, groups, weights, starts = args
    kind = v.vector(v.I32, LANES)
    acc = [[alloca_once(b, kind) for _ in range(wide)] for _ in range(rows)]
    for n in range(wide):
        start = v.load(b, b.gep(starts, [v.index(LANES * n)]), kind, 4)
        for row in acc:
            b.store(start, row[n])
    line = v.index(4 * LANES * wide)
    with for_range(b, taps, intp=v.I64) as tap:
        here = b.gep(addresses, [b.mul(tap.index, v.index(ROWS))])
        bases = [b.inttoptr(b.load(b.gep(here, [v.index(m)])), v.I8.as_pointer()) for m in range(rows)]
        panel = b.gep(weights, [b.mul(b.mul(tap.index, groups), line)])
        with for_range(b, groups, intp=v.I64) as loop:
            source = b.gep(panel, [b.mul(loop.index, line)])
            values = [v.load(b, b.gep(source, [v.index(4 * LANES * n)]), kind, 1) for n in range(wide)]
            step = b.mul(loop.index, v.index(4))
            for m in range(rows):
                four = v.splat(b, v.load(b, b.gep(bases[m], [step]), v.I32, 1), LANES)
                for n in range(wide):
                    b.store(v.dot4(b, b.load(acc[m][n]), four, values[n]), acc[m][n])
    return acc


class _Ending:
    """What follows the sums: scale, then clamp, round and store as bytes, or store as float32."""

    def __init__(self, b: Any, factors: Any, shifts: Any, lo: Any, hi: Any, zero: Any, wide: int) -> None:
        self.wide, self.floats = wide, v.vector(v.F32, LANES)
        self.factors, self.shifts = ([b.gep(p, [v.index(LANES * n)]) for n in range(wide)] for p in (factors, shifts))
        self.low, self.high = v.splat(b, lo, LANES), v.splat(b, hi, LANES)
        self.offset = v.splat(b, b.sub(zero, ir.Constant(v.I32, _MAGIC_BITS)), LANES)

    def row(self, b: Any, sums: list[Any], quantized: Any, to: Any, tile: Any, cols: Any) -> None:
        """A position's channels, to ``to`` where ``quantized``, else to ``tile``."""
        for n, total in enumerate(sums):
            factor, shift = (v.load(b, p[n], self.floats, 4) for p in (self.factors, self.shifts))
            x = b.fadd(b.fmul(b.sitofp(total, self.floats), factor), shift)
            with b.if_else(quantized) as (then, otherwise):
                with then:
                    self._bytes(b, x, b.gep(to, [v.index(LANES * n)]), n, cols)
                with otherwise:
                    v.store(b, x, b.gep(tile, [v.index(LANES * n)]), 4)

    def _bytes(self, b: Any, x: Any, pointer: Any, n: int, cols: Any) -> None:
        y = b.select(b.fcmp_ordered(">", x, self.low), x, self.low)
        y = b.select(b.fcmp_ordered("<", y, self.high), y, self.high)
        bits = b.bitcast(b.fadd(y, v.constant(self.floats, _MAGIC)), v.vector(v.I32, LANES))
        byte = b.trunc(b.add(bits, self.offset), v.vector(v.I8, LANES))
        if n + 1 < self.wide:
            v.store(b, byte, pointer, 1)
        else:
            store_lanes(b, byte, pointer, b.sub(cols, v.index(LANES * n)))


def _micro(b: Any, args: Any, rows: int, wide: int) -> None:
    *operands, factors, shifts, lo, hi, zero, out, ldc, tile, quantize, stored, cols = args
    acc = _sums(b, operands, rows, wide)
    ending = _Ending(b, factors, shifts, lo, hi, zero, wide)
    quantized = b.icmp_signed("!=", quantize, v.index(0))
    for m in range(rows):
        with b.if_then(b.icmp_signed("<", v.index(m), stored)):
            to = b.gep(out, [b.mul(ldc, v.index(m))])
            ending.row(b, [b.load(slot) for slot in acc[m]], quantized, to, b.gep(tile, [v.index(COLS * m)]), cols)


def _finish(b: Any, args: Any, wide: int) -> None:
    """Rows of sums from memory."""
    sums, starts, factors, shifts, lo, hi, zero, out, ldc, tile, quantize, rows, cols = args
    kind, ending = v.vector(v.I32, LANES), _Ending(b, factors, shifts, lo, hi, zero, wide)
    quantized = b.icmp_signed("!=", quantize, v.index(0))
    begin = [v.load(b, b.gep(starts, [v.index(LANES * n)]), kind, 4) for n in range(wide)]
    with for_range(b, rows, intp=v.I64) as loop:
        line = b.gep(sums, [b.mul(loop.index, v.index(LANES * wide))])
        totals = [b.add(v.load(b, b.gep(line, [v.index(LANES * n)]), kind, 4), start) for n, start in enumerate(begin)]
        to = b.gep(out, [b.mul(ldc, loop.index)])
        ending.row(b, totals, quantized, to, b.gep(tile, [b.mul(loop.index, v.index(COLS))]), cols)


_PARAMETERS = (
    I64P, types.int64, types.int64, U8P, I32P, F32P, F32P, types.float32, types.float32, types.int32, U8P, types.int64, F32P, types.int64,
    types.int64, types.int64,
)  # fmt: skip


@intrinsic
def _tile(
    tc: Any, addresses: Any, taps: Any, groups: Any, weights: Any, starts: Any, factors: Any, shifts: Any, lo: Any, hi: Any, zero: Any,
    out: Any, ldc: Any, tile: Any, quantize: Any, rows: Any, cols: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for_each_shape(b, args[-2], args[-1], lambda height, wide: _micro(b, args, height, wide))
        return context.get_dummy_value()

    return types.none(*_PARAMETERS), codegen


@external(*_PARAMETERS, fast=frozenset())
def nhwc_tile(
    addresses: Any, taps: Any, groups: Any, weights: Any, starts: Any, factors: Any, shifts: Any, lo: Any, hi: Any, zero: Any, out: Any,
    ldc: Any, tile: Any, quantize: Any, rows: Any, cols: Any,
) -> None:  # fmt: skip
    """out[r · ldc + c] = saturate(round_half_even(clamp((Σ x · w + start[c]) · factor[c] + shift[c], lo, hi)) + zero), nothing fused.

    Args:
        addresses: int64 [taps, ROWS], where the row of each tap starts; all ROWS are readable.
        taps: kernel elements.
        groups: groups of four channels.
        weights: s8 [taps, groups, columns rounded up to LANES, 4].
        starts: int32, what each column's sum starts at.
        factors: float32 per column.
        shifts: float32 per column.
        lo: lower clamp, relative to the zero point.
        hi: upper clamp.
        zero: the result's zero point (u8).
        out: first byte of the result.
        ldc: its row stride.
        tile: float32 [ROWS, COLS], written instead of ``out`` where ``quantize`` is 0, without the clamp.
        quantize: 1 or 0.
        rows: 1 … ROWS.
        cols: 1 … COLS.
    """
    _tile(addresses, taps, groups, weights, starts, factors, shifts, lo, hi, zero, out, ldc, tile, quantize, rows, cols)


_FINISH = (
    I32P, I32P, F32P, F32P, types.float32, types.float32, types.int32, U8P, types.int64, F32P, types.int64, types.int64, types.int64,
)  # fmt: skip


@intrinsic
def _finished(
    tc: Any, sums: Any, starts: Any, factors: Any, shifts: Any, lo: Any, hi: Any, zero: Any, out: Any, ldc: Any, tile: Any, quantize: Any,
    rows: Any, cols: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        vectors = b.sdiv(b.add(args[-1], v.index(LANES - 1)), v.index(LANES))
        for wide in range(1, VECTORS + 1):
            with b.if_then(b.icmp_signed("==", vectors, v.index(wide))):
                _finish(b, args, wide)
        return context.get_dummy_value()

    return types.none(*_FINISH), codegen


@external(*_FINISH, fast=frozenset())
def nhwc_finish(
    sums: Any, starts: Any, factors: Any, shifts: Any, lo: Any, hi: Any, zero: Any, out: Any, ldc: Any, tile: Any, quantize: Any,
    rows: Any, cols: Any,
) -> None:  # fmt: skip
    """What :data:`nhwc_tile` does with its sums, for sums int32 [rows, columns rounded up to LANES] that were made elsewhere.

    ``tile`` has room for all rows where ``quantize`` is 0.
    """
    _finished(sums, starts, factors, shifts, lo, hi, zero, out, ldc, tile, quantize, rows, cols)
