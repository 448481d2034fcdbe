"""Channels-last tensors (:mod:`hetsched_kernels.nhwc`) without weights: sums and products of bytes, pools, functions by table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.arrays import InF32, InI64, InU8, OutF32, OutI32, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import U8P, carray, for_range, intrinsic
from hetsched_kernels.parts import onward, ptr, span
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES

_EXACT: frozenset[str] = frozenset()
_MAGIC = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, half to even
_MAGIC_BITS = 0x4B400000


@block(fast=_EXACT, inline=True)
def _byte(x: Any, lo: Any, hi: Any, zero: Any) -> Any:
    """Rounded half to even within [lo, hi], plus the zero point."""
    y = x if x > lo else lo
    y = y if y < hi else hi
    return np.uint8(np.int32((y + _MAGIC) - _MAGIC) + zero)


def _reals(b: Any, pointer: Any, at: Any) -> Any:
    """A vector of bytes as float32."""
    byte = v.load(b, b.gep(pointer, [at]), v.vector(v.I8, LANES), 1)
    return b.sitofp(b.zext(byte, v.vector(v.I32, LANES)), v.vector(v.F32, LANES))


def _combined(b: Any, args: Any, combine: Any) -> None:
    """Compute out[i] = saturate(round_half_even(combine(a[i], b[i])) + zero) for whole vectors."""
    left, right, out, count, *scalars, zero = args
    *constants, low, high = (v.splat(b, x, LANES) for x in scalars)
    floats, words, bytes_ = v.vector(v.F32, LANES), v.vector(v.I32, LANES), v.vector(v.I8, LANES)
    offset = v.splat(b, b.sub(zero, v.I32(_MAGIC_BITS)), LANES)
    with for_range(b, count, intp=v.I64) as loop:
        at = b.mul(loop.index, v.index(LANES))
        x = combine(b, _reals(b, left, at), _reals(b, right, at), *constants)
        x = b.select(b.fcmp_ordered(">", x, low), x, low)
        x = b.select(b.fcmp_ordered("<", x, high), x, high)
        bits = b.bitcast(b.fadd(x, v.constant(floats, float(_MAGIC))), words)
        v.store(b, b.trunc(b.add(bits, offset), bytes_), b.gep(out, [at]), 1)


def _sum(b: Any, x: Any, y: Any, fx: Any, fy: Any, shift: Any) -> Any:
    return b.fadd(b.fmul(x, fx), b.fadd(b.fmul(y, fy), shift))


def _product(b: Any, x: Any, y: Any, zx: Any, zy: Any, factor: Any) -> Any:
    return b.fmul(b.fmul(b.fsub(x, zx), b.fsub(y, zy)), factor)


_TWO = (U8P, U8P, U8P, types.int64, *[types.float32] * 5, types.int32)


def _combining(combine: Any) -> Any:
    def typing(tc: Any, a: Any, b: Any, out: Any, count: Any, c0: Any, c1: Any, c2: Any, lo: Any, hi: Any, zero: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _combined(builder, args, combine)
            return context.get_dummy_value()

        return types.none(*_TWO), codegen

    return intrinsic(typing)


_add, _multiply = _combining(_sum), _combining(_product)


@external(*_TWO, fast=_EXACT)
def add_vectors(a: Any, b: Any, out: Any, count: Any, fa: Any, fb: Any, shift: Any, lo: Any, hi: Any, zero: Any) -> None:
    """As :data:`add_u8`, for ``count`` whole vectors; lo and hi are relative to the zero point."""
    _add(a, b, out, count, fa, fb, shift, lo, hi, zero)


@external(*_TWO, fast=_EXACT)
def multiply_vectors(a: Any, b: Any, out: Any, count: Any, za: Any, zb: Any, factor: Any, lo: Any, hi: Any, zero: Any) -> None:
    """As :data:`multiply_u8`, for ``count`` whole vectors of one row; lo and hi are relative to the zero point."""
    _multiply(a, b, out, count, za, zb, factor, lo, hi, zero)


_VECTORS = add_vectors.call
_PRODUCTS = multiply_vectors.call


@intrinsic
def _look_up(tc: Any, x: Any, out: Any, table: Any, count: Any) -> Any:
    """Compute out = table[x] for ``count`` times 64 bytes, by permutations of the table's quarters."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, out, table, count = args
        kind = v.vector(v.I8, 64)
        quarters = [v.load(b, b.gep(table, [v.index(64 * i)]), kind, 1) for i in range(4)]
        with for_range(b, count, intp=v.I64) as loop:
            at = b.mul(loop.index, v.index(64))
            index = v.load(b, b.gep(x, [at]), kind, 1)
            name = "llvm.x86.avx512.vpermi2var.qi.512"
            low, high = (v.call(b, name, kind, [quarters[i], index, quarters[i + 1]]) for i in (0, 2))
            v.store(b, b.select(b.icmp_signed("<", index, v.constant(kind, 0)), high, low), b.gep(out, [at]), 1)
        return context.get_dummy_value()

    return types.none(U8P, U8P, U8P, types.int64), codegen


if target().vbmi:

    @external(U8P, U8P, U8P, types.int64, fast=_EXACT)
    def look_up(x: Any, out: Any, table: Any, count: Any) -> None:
        """Compute out[i] = table[x[i]], ``count`` bytes, a multiple of 64."""
        _look_up(x, out, table, count // 64)

else:

    @external(U8P, U8P, U8P, types.int64, fast=_EXACT)
    def look_up(x: Any, out: Any, table: Any, count: Any) -> None:
        """Compute out[i] = table[x[i]], ``count`` bytes, a multiple of 64."""
        source, to, values = carray(x, (count,)), carray(out, (count,)), carray(table, (256,))
        for i in range(count):
            to[i] = values[np.int64(source[i])]


_LOOK_UP = look_up.call


@kernel(needs=(add_vectors,), fast=_EXACT)
def add_u8(
    a: InU8, b: InU8, out: OutU8, a_factor: float, b_factor: float, shift: float, low: int, high: int, zero: int, first: int, last: int
) -> None:  # fmt: skip
    """Compute out = saturate(round_half_even(a · fa + (b · fb + shift)) + zero) within [low, high], elements ``first`` to ``last``.

    Args:
        a: u8.
        b: u8, as many.
        out: u8, as many; may be the same memory as a or b.
        a_factor: a's scale / the result's.
        b_factor: b's scale / the result's, negative for a difference.
        shift: -(za · fa + zb · fb).
        low: least byte of the result.
        high: largest byte of the result.
        zero: the result's zero point.
        first: first element.
        last: one past the last.
    """
    lo, hi, offset = np.float32(low - zero), np.float32(high - zero), np.int32(zero)
    n = last - first
    x, y, z = span(a, first, n), span(b, first, n), span(out, first, n)
    whole = n // LANES
    _VECTORS(ptr(x, 0), ptr(y, 0), ptr(z, 0), whole, a_factor, b_factor, shift, lo, hi, offset)
    for i in range(whole * LANES, n):
        z[i] = _byte(np.float32(x[i]) * a_factor + (np.float32(y[i]) * b_factor + shift), lo, hi, offset)


@kernel(needs=(multiply_vectors,), fast=_EXACT)
def multiply_u8(
    a: InU8, b: InU8, out: OutU8, a_zero: float, b_zero: float, factor: float, low: int, high: int, zero: int, columns: int, b_step: int,
    b_rows: int, first: int, last: int
) -> None:  # fmt: skip
    """Compute out = saturate(round_half_even((a - za) · (b - zb) · factor) + zero) within [low, high], rows ``first`` to ``last``.

    Args:
        a: u8 [rows, columns].
        b: u8; row r of ``a`` meets what starts at r // b_rows · b_step.
        out: u8 [rows, columns]; may be the same memory as a, or as b where that has as many rows.
        a_zero: a's zero point.
        b_zero: b's.
        factor: a's scale · b's / the result's.
        low: least byte of the result.
        high: largest byte of the result.
        zero: the result's zero point.
        columns: elements of a row.
        b_step: from one row of b to the next.
        b_rows: rows of a for each row of b.
        first: first row.
        last: one past the last.
    """
    lo, hi, offset = np.float32(low - zero), np.float32(high - zero), np.int32(zero)
    whole = columns // LANES
    for row in range(first, last):
        x, y, z = span(a, row * columns, columns), span(b, row // b_rows * b_step, columns), span(out, row * columns, columns)
        _PRODUCTS(ptr(x, 0), ptr(y, 0), ptr(z, 0), whole, a_zero, b_zero, factor, lo, hi, offset)
        for i in range(whole * LANES, columns):
            z[i] = _byte((np.float32(x[i]) - a_zero) * (np.float32(y[i]) - b_zero) * factor, lo, hi, offset)


@kernel(needs=(look_up,))
def map_u8(x: InU8, out: OutU8, table: InU8, first: int, last: int) -> None:
    """Compute out = table[x], elements ``first`` to ``last``: any function of one byte.

    Args:
        x: u8.
        out: u8, as many; may be the same memory.
        table: u8 [256].
        first: first element.
        last: one past the last.
    """
    n = last - first
    source, to = span(x, first, n), span(out, first, n)
    whole = n // 64 * 64
    _LOOK_UP(ptr(source, 0), ptr(to, 0), ptr(table, 0), whole)
    for i in range(whole, n):
        to[i] = table[np.int64(source[i])]


@kernel(fast=_EXACT)
def mean_nhwc_u8(x: InU8, out: OutU8, sums: OutI32, n: int, plane: int, channels: int, factor: float, shift: float, zero: int) -> None:
    """out[n, c] = saturate(round_half_even(Σ_p x[n, p, c] · factor + shift) + zero): a global average pool.

    Args:
        x: [n, plane, channels] u8.
        out: [n, channels] u8.
        sums: int32 [channels] of scratch.
        n: batch.
        plane: positions, below 2^23.
        channels: c.
        factor: x's scale / (the result's · plane).
        shift: -zx · plane · factor.
        zero: the result's zero point.
    """
    lo, hi, offset = np.float32(-zero), np.float32(255 - zero), np.int32(zero)
    total = span(sums, 0, channels)
    for image in range(n):
        for c in range(channels):
            total[c] = 0
        for p in range(plane):
            row = span(x, (image * plane + p) * channels, channels)
            for c in range(channels):
                total[c] += np.int32(row[c])
        to = span(out, image * channels, channels)
        for c in range(channels):
            to[c] = _byte(np.float32(total[c]) * factor + shift, lo, hi, offset)


@kernel
def max_pool_nhwc_f32(x: InF32, out: OutF32, geometry: InI64, first: int, last: int) -> None:
    """As :data:`max_pool_nhwc_u8`, of float32.

    Args:
        x: [n, h, w, c].
        out: [n, oh, ow, c].
        geometry: as there.
        first: first output row, of n · oh.
        last: one past the last.
    """
    _max_pool(x, out, geometry, first, last, np.float32(-np.inf))


@kernel
def mean_nhwc_f32(x: InF32, out: OutF32, n: int, plane: int, channels: int) -> None:
    """Compute out[n, c] = mean over p of x[n, p, c].

    Args:
        x: [n, plane, channels].
        out: [n, channels].
        n: batch.
        plane: positions.
        channels: c.
    """
    for image in range(n):
        to = span(out, image * channels, channels)
        for c in range(channels):
            to[c] = np.float32(0.0)
        for p in range(plane):
            row = span(x, (image * plane + p) * channels, channels)
            for c in range(channels):
                to[c] += row[c]
        for c in range(channels):
            to[c] /= np.float32(plane)


@kernel
def max_pool_nhwc_u8(x: InU8, out: OutU8, geometry: InI64, first: int, last: int) -> None:
    """Compute out = largest value in each window, rows ``first`` to ``last``; padding never wins.

    Args:
        x: [n, h, w, c] u8.
        out: [n, oh, ow, c] u8.
        geometry: :func:`hetsched_kernels.pool.pool_geometry`.
        first: first output row, of n · oh.
        last: one past the last.
    """
    _max_pool(x, out, geometry, first, last, np.uint8(0))


@block
def _max_pool(x: Any, out: Any, g: Any, first: Any, last: Any, least: Any) -> None:
    c, h, w, oh, ow = g[1], g[2], g[3], g[4], g[5]
    for row in range(first, last):
        image, oy = row // oh, row % oh
        for ox in range(ow):
            to = span(out, (row * ow + ox) * c, c)
            for i in range(c):
                to[i] = least
            for ky in range(g[6]):
                iy = oy * g[8] - g[10] + ky * g[14]
                if iy < 0 or iy >= h:
                    continue
                for kx in range(g[7]):
                    ix = ox * g[9] - g[11] + kx * g[15]
                    if 0 <= ix < w:
                        _largest(to, onward(x, ((image * h + iy) * w + ix) * c))


@block
def _largest(out: Any, x: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = x[i] if x[i] > out[i] else out[i]
