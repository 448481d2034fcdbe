"""The register tile of 4-bit weights by bfloat16 activations: ``vdpbf16ps`` where the target has it, else float32.

Weights are laid out as for :mod:`hetsched_kernels.tile_bits`. In a vector of eight values of k, nibbles i and i + 4 of a lane
meet in one step, so activations come as words of two bfloat16: of every eight values k the pairs (0, 2), (4, 6), (1, 3), (5, 7).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import llvmlite.ir as ir
from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.few_bits import MINS
from hetsched_kernels.groups import CHUNK, ZEROS
from hetsched_kernels.lowlevel import F32P, I32P, I64P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_bits import Form, Panel, emit_row
from hetsched_kernels.tile_f32 import row_within

_HEIGHTS = (4, 2, 1)
#: Rows of a tile.
ROWS: Final = _HEIGHTS[0]
#: Bits by which a float32 is longer than a bfloat16.
_HALF = 16
_WORDS, _FLOATS = v.vector(v.I32, LANES), v.vector(v.F32, LANES)
_SHORTS = v.vector(v.I16, 2 * LANES)
_I = types.int64
_PARAMETERS = (U8P, I32P, _I, F32P, _I, F32P, F32P, _I, _I, F32P, _I, _I)


def _table(zero: int) -> Any:
    """Bfloat16 of code - zero for 32 codes of which the fifth bit is not looked at."""
    bits = [ir.Constant(v.I16, (_bfloat16(code % 16 - zero) ^ 0x8000) - 0x8000) for code in range(2 * LANES)]
    return ir.Constant(_SHORTS, bits)


def _bfloat16(value: int) -> int:
    """The bits of a small whole number, which bfloat16 holds exactly."""
    if value == 0:
        return 0
    exponent = abs(value).bit_length() - 1
    fraction = (abs(value) - (1 << exponent)) << 7 >> exponent
    return (0x8000 if value < 0 else 0) | (exponent + 127) << 7 | fraction


class _Steps:
    """How a word of codes, moved so that a step's nibbles are lowest in each half, meets a pair of activations."""

    def __init__(self, zero: int) -> None:
        self.zero, self.native = zero, target().bf16 and LANES == 16
        if self.native:
            self.table = _table(zero)

    def weights(self, b: Any, word: Any) -> tuple[Any, ...]:
        """What the rows of a tile share."""
        if self.native:
            return (v.call(b, "llvm.x86.avx512.permvar.hi.512", _SHORTS, [self.table, b.bitcast(word, _SHORTS)]),)
        halves = [word, b.lshr(word, v.constant(_WORDS, _HALF))]
        codes = [b.sub(b.and_(half, v.constant(_WORDS, 15)), v.constant(_WORDS, self.zero)) for half in halves]
        return tuple(b.sitofp(code, _FLOATS) for code in codes)

    def add(self, b: Any, total: Any, weights: tuple[Any, ...], pair: Any) -> Any:
        """The sum with the two products of each lane added; ``pair`` is an int32."""
        if self.native:
            kind = v.vector(v.BF16, 2 * LANES)
            operands = [b.bitcast(x, kind) for x in (weights[0], v.splat(b, pair, LANES))]
            return v.call(b, "llvm.x86.avx512bf16.dpbf16ps.512", _FLOATS, [total, *operands])
        low, high = b.shl(pair, v.I32(_HALF)), b.and_(pair, v.I32(-65536))
        for weight, bits in zip(weights, (low, high), strict=True):
            total = v.multiply_add(b, weight, v.splat(b, b.bitcast(bits, v.F32), LANES), total)
        return total


def micro(b: Any, args: Any, height: int, with_mins: bool) -> None:
    """One microkernel: ``height`` rows by a panel; each step of four has a sum of its own, so that they overlap."""
    codes, x, ldx, x_sums, ld_groups, scales, mins, groups, chunks, out, ldo, stored = args
    steps = _Steps(0 if with_mins else ZEROS[4])
    rows = [row_within(b, m, stored) for m in range(height)]
    inputs, sums = [b.gep(x, [b.mul(ldx, row)]) for row in rows], [b.gep(x_sums, [b.mul(ld_groups, row)]) for row in rows]
    totals = [alloca_once(b, _FLOATS) for _ in rows]
    parts = [[alloca_once(b, _FLOATS) for _ in range(4)] for _ in rows]
    for slot in totals:
        b.store(v.constant(_FLOATS, 0.0), slot)
    with for_range(b, groups, intp=v.I64) as outer:
        for slot in [slot for row in parts for slot in row]:
            b.store(v.constant(_FLOATS, 0.0), slot)
        with for_range(b, chunks, intp=v.I64) as inner:
            chunk = b.add(b.mul(outer.index, chunks), inner.index)
            base, at = b.gep(codes, [b.mul(chunk, v.index(16 * LANES))]), b.mul(chunk, v.index(CHUNK // 2))
            for t in range(4):
                word = v.load(b, b.gep(base, [v.index(4 * LANES * t)]), _WORDS, 1)
                for i in range(4):
                    weights = steps.weights(b, b.lshr(word, v.constant(_WORDS, 4 * i)))
                    for row, source in zip(parts, inputs, strict=True):
                        pair = b.load(b.gep(source, [b.add(at, v.index(4 * t + i))]))
                        b.store(steps.add(b, b.load(row[i]), weights, pair), row[i])
        at = b.mul(outer.index, v.index(LANES))
        scale = v.load(b, b.gep(scales, [at]), _FLOATS, 4)
        for row, total, own in zip(parts, totals, sums, strict=True):
            first, second = b.fadd(b.load(row[0]), b.load(row[1])), b.fadd(b.load(row[2]), b.load(row[3]))
            value = v.multiply_add(b, b.fadd(first, second), scale, b.load(total))
            if with_mins:
                minimum = v.load(b, b.gep(mins, [at]), _FLOATS, 4)
                value = v.multiply_add(b, minimum, v.splat(b, b.load(b.gep(own, [outer.index])), LANES), value)
            b.store(value, total)
    for m, total in enumerate(totals):
        with b.if_then(b.icmp_signed("<", v.index(m), stored)):
            v.store(b, b.load(total), b.gep(out, [b.mul(ldo, v.index(m))]), 4)


def _tile(with_mins: bool) -> Any:
    def typing(
        tc: Any, codes: Any, x: Any, ldx: Any, x_sums: Any, ld_groups: Any, scales: Any, mins: Any, groups: Any, chunks: Any, out: Any,
        ldo: Any, rows: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            for height, below in zip(_HEIGHTS, (*_HEIGHTS[1:], 0), strict=True):
                with b.if_then(b.and_(b.icmp_signed(">", args[-1], v.index(below)), b.icmp_signed("<=", args[-1], v.index(height)))):
                    micro(b, args, height, with_mins)
            return context.get_dummy_value()

        return types.none(*_PARAMETERS), codegen

    return intrinsic(typing)


_plain, _with_mins = _tile(False), _tile(True)


@external(*_PARAMETERS)
def tile_4_bf16(c: Any, x: Any, lx: Any, xn: Any, lg: Any, s: Any, m: Any, groups: Any, chunks: Any, y: Any, ly: Any, rows: Any) -> None:
    """Y[rows, LANES] = Σ (code - 8) · scale times activations.

    Args:
        c: a panel's codes.
        x: int32 [rows, depth / 2], pairs of bfloat16 in the order above.
        lx: row stride of ``x``.
        xn: float32 sums of the activations of each group, read by the variant with minima.
        lg: row stride of ``xn``.
        s: float32 scales [groups, LANES].
        m: float32 minima [groups, LANES], read by the variant that has them.
        groups: groups along k.
        chunks: chunks of a group.
        y: the result.
        ly: its row stride.
        rows: 1 … ROWS.
    """
    _plain(c, x, lx, xn, lg, s, m, groups, chunks, y, ly, rows)


@external(*_PARAMETERS)
def tile_4_bf16_min(
    c: Any, x: Any, lx: Any, xn: Any, lg: Any, s: Any, m: Any, groups: Any, chunks: Any, y: Any, ly: Any, rows: Any
) -> None:  # fmt: skip
    """As :data:`tile_4_bf16`, of code · scale + minimum."""
    _with_mins(c, x, lx, xn, lg, s, m, groups, chunks, y, ly, rows)


class _Group:
    """What all panels share of one group: its number, the larger group that it is in, and the activations' sum."""

    def __init__(self, b: Any, form: Form, number: Any) -> None:
        self.number, self.larger = number, b.sdiv(number, form.per)
        self.shares = [b.load(b.gep(row.sums, [number])) for row in form.rows]


class _Panel(Panel):
    """One panel: each step of four has a sum of its own, so that they overlap."""

    def __init__(self, b: Any, form: Form, number: Any, totals: Any, zero: int) -> None:
        super().__init__(b, form, number, totals)
        self._steps, self._parts = _Steps(zero), [alloca_once(b, _FLOATS) for _ in range(4)]

    def begin(self, b: Any, group: Any) -> None:
        """Start a group's sums at 0."""
        for slot in self._parts:
            b.store(v.constant(_FLOATS, 0.0), slot)

    def add_chunk(self, b: Any, chunk: Any, fields: range) -> None:
        """A whole chunk."""
        base, at = self.chunk(b, chunk, fields), b.mul(chunk, v.index(CHUNK // 2))
        for t in range(4):
            word = v.load(b, b.gep(base, [v.index(4 * LANES * t)]), _WORDS, 1)
            for i, slot in enumerate(self._parts):
                weights = self._steps.weights(b, b.lshr(word, v.constant(_WORDS, 4 * i)))
                pair = b.load(b.gep(self.form.rows[0].x, [b.add(at, v.index(4 * t + i))]))
                b.store(self._steps.add(b, b.load(slot), weights, pair), slot)

    def end(self, b: Any, group: Any) -> None:
        """Add the group's sums times its scales."""
        first, second, third, fourth = (b.load(slot) for slot in self._parts)
        whole = b.fadd(b.fadd(first, second), b.fadd(third, fourth))
        scale = self.scales(b, group.number, group.larger, v.index(0), self.form.larger_at)
        total = self.totals[0]
        b.store(v.multiply_add(b, whole, scale, b.load(total)), total)
        self.add_minimum(b, group)


_ROW = (U8P, I64P, I32P, F32P, F32P, _I)


@intrinsic
def _row(tc: Any, data: Any, shape: Any, x: Any, x_sums: Any, out: Any, panels: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data, shape, x, x_sums, out, panels = args
        given = (data, shape, x, x_sums, x_sums, out, panels)
        mins = b.icmp_signed("!=", b.load(b.gep(shape, [v.index(MINS)])), v.index(0))
        with b.if_else(mins) as (has, none):
            for branch, zero in ((has, 0), (none, ZEROS[4])):
                with branch:
                    emit_row(b, given, 4, _Group, partial(_Panel, zero=zero))
        return context.get_dummy_value()

    return types.none(*_ROW), codegen


@external(*_ROW)
def row_4_bf16(data: Any, shape: Any, x: Any, x_sums: Any, out: Any, panels: Any) -> None:
    """As :data:`hetsched_kernels.tile_bits.row` for 4-bit codes, with a row of bfloat16 pairs and float32 sums of its groups."""
    _row(data, shape, x, x_sums, out, panels)
