"""One output row of one channel of a depthwise convolution: all taps of a padded channel, several vectors at a time."""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I8P, I64P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.tile import LANES

#: Vectors computed together: enough to hide the latency of a multiply-add.
_WIDE = 4


def _chunks(b: Any, count: Any, emit: Any) -> None:
    """Cover ``count`` columns: blocks of _WIDE vectors, then single vectors, the last one reaching beyond ``count``."""
    block = v.index(_WIDE * LANES)
    blocks = b.sdiv(count, block)
    with for_range(b, blocks, intp=v.I64) as loop:
        emit(b.mul(loop.index, block), _WIDE)
    done = b.mul(blocks, block)
    left = b.sdiv(b.add(b.sub(count, done), v.index(LANES - 1)), v.index(LANES))
    with for_range(b, left, intp=v.I64) as loop:
        emit(b.add(done, b.mul(loop.index, v.index(LANES))), 1)


@intrinsic
def _row_f32(tc: Any, source: Any, table: Any, taps: Any, weights: Any, bias: Any, lo: Any, hi: Any, out: Any, count: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        source, table, taps, weights, bias, lo, hi, out, count = args
        kind = v.vector(v.F32, LANES)
        start, low, high = (v.splat(b, x, LANES) for x in (bias, lo, hi))
        slots = [alloca_once(b, kind) for _ in range(_WIDE)]

        def emit(at: Any, wide: int) -> None:
            for slot in slots[:wide]:
                b.store(start, slot)
            with for_range(b, taps, intp=v.I64) as loop:
                factor = v.splat(b, b.load(b.gep(weights, [loop.index])), LANES)
                row = b.gep(source, [b.add(at, b.load(b.gep(table, [loop.index])))])
                for n, slot in enumerate(slots[:wide]):
                    value = v.load(b, b.gep(row, [v.index(LANES * n)]), kind, 4)
                    b.store(v.multiply_add(b, factor, value, b.load(slot)), slot)
            for n, slot in enumerate(slots[:wide]):
                x = b.load(slot)
                x = b.select(b.fcmp_ordered("<", x, low), low, x)
                x = b.select(b.fcmp_ordered(">", x, high), high, x)
                v.store(b, x, b.gep(out, [b.add(at, v.index(LANES * n))]), 4)

        _chunks(b, count, emit)
        return context.get_dummy_value()

    i, f = types.int64, types.float32
    return types.none(F32P, I64P, i, F32P, f, f, f, F32P, i), codegen


@external(F32P, I64P, types.int64, F32P, types.float32, types.float32, types.float32, F32P, types.int64)
def depthwise_row_f32(source: Any, table: Any, taps: Any, weights: Any, bias: Any, lo: Any, hi: Any, out: Any, count: Any) -> None:
    """out[i] = clamp(bias + Σ_k weights[k] · source[table[k] + i], lo, hi) for ``count`` columns, rounded up to whole vectors.

    Args:
        source: the padded channel from the row's first position, readable a vector beyond its end.
        table: int64 [taps].
        taps: kernel elements.
        weights: [taps].
        bias: added.
        lo: lower clamp.
        hi: upper clamp.
        out: [count rounded up to LANES].
        count: columns.
    """
    _row_f32(source, table, taps, weights, bias, lo, hi, out, count)


def _four_rows(b: Any, rows: list[Any]) -> Any:
    """LANES bytes of each of four taps, as LANES words of four bytes."""
    pair = [i // 2 + (i % 2) * LANES for i in range(2 * LANES)]
    first, second = (b.shuffle_vector(x, y, v.lanes(pair)) for x, y in ((rows[0], rows[1]), (rows[2], rows[3])))
    words = [b.bitcast(x, v.vector(v.I16, LANES)) for x in (first, second)]
    return b.bitcast(b.shuffle_vector(words[0], words[1], v.lanes(pair)), v.vector(v.I32, LANES))


@intrinsic
def _row_i8(
    tc: Any, source: Any, table: Any, fours: Any, weights: Any, u: Any, s: Any, r: Any, lo: Any, hi: Any, out: Any, count: Any
) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        source, table, fours, weights, u, s, r, lo, hi, out, count = args
        kind, floats, bytes_ = v.vector(v.I32, LANES), v.vector(v.F32, LANES), v.vector(v.I8, LANES)
        start, scale, shift, low, high = (v.splat(b, x, LANES) for x in (b.neg(u), s, r, lo, hi))
        slots = [alloca_once(b, kind) for _ in range(_WIDE)]

        def emit(at: Any, wide: int) -> None:
            for slot in slots[:wide]:
                b.store(start, slot)
            with for_range(b, fours, intp=v.I64) as loop:
                first = b.mul(loop.index, v.index(4))
                four = v.splat(b, v.load(b, b.gep(weights, [first]), v.I32, 1), LANES)
                offsets = [b.load(b.gep(table, [b.add(first, v.index(j))])) for j in range(4)]
                rows = [b.gep(source, [b.add(at, offset)]) for offset in offsets]
                for n, slot in enumerate(slots[:wide]):
                    taps = [v.load(b, b.gep(row, [v.index(LANES * n)]), bytes_, 1) for row in rows]
                    b.store(v.dot4(b, b.load(slot), _four_rows(b, taps), four), slot)
            for n, slot in enumerate(slots[:wide]):
                x = b.fadd(b.fmul(b.sitofp(b.load(slot), floats), scale), shift)
                x = b.select(b.fcmp_ordered("<", x, low), low, x)
                x = b.select(b.fcmp_ordered(">", x, high), high, x)
                v.store(b, x, b.gep(out, [b.add(at, v.index(LANES * n))]), 4)

        _chunks(b, count, emit)
        return context.get_dummy_value()

    i, f = types.int64, types.float32
    return types.none(U8P, I64P, i, I8P, types.int32, f, f, f, f, F32P, i), codegen


@external(
    U8P, I64P, types.int64, I8P, types.int32, types.float32, types.float32, types.float32, types.float32, F32P, types.int64,
    fast=frozenset()
)  # fmt: skip
def depthwise_row_i8(
    source: Any, table: Any, fours: Any, weights: Any, u: Any, s: Any, r: Any, lo: Any, hi: Any, out: Any, count: Any
) -> None:  # fmt: skip
    """out[i] = clamp((Σ_k weights[k] · source[table[k] + i] - u) · s + r, lo, hi), the sum exact, nothing fused.

    Args:
        source: the padded channel (u8) from the row's first position, readable _WIDE vectors beyond its end.
        table: int64 [4 · fours].
        fours: taps / 4, rounded up.
        weights: s8 [4 · fours], zero beyond the taps.
        u: the zero point's share.
        s: scale.
        r: bias.
        lo: lower clamp.
        hi: upper clamp.
        out: [count rounded up to LANES].
        count: columns.
    """
    _row_i8(source, table, fours, weights, u, s, r, lo, hi, out, count)
