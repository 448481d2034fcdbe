"""Weights of a byte by several rows of int8 activations, in groups along k: the prompt's product.

Weights lie as :mod:`hetsched_kernels.tile_bits` lays out 8-bit codes: four values of k of LANES columns a vector.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I32P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES, heights
from hetsched_kernels.tile_f32 import row_within

#: Rows of a tile.
ROWS: Final = heights()[0]
#: Whether rows are multiplied as matrices of signed bytes, two by two (aarch64's ``smmla``).
SIGNED: Final = target().i8mm
#: Values of k of a step; a group is whole steps.
STEP: Final = 16
_WORDS, _FLOATS = v.vector(v.I32, LANES), v.vector(v.F32, LANES)
_I = types.int64
_PARAMETERS = (U8P, U8P, _I, F32P, I32P, F32P, F32P, _I, _I, _I, _I, F32P, _I)


def _dot_sums(b: Any, codes: Any, inputs: list[Any], starts: list[Any], first: Any, steps: Any) -> list[Any]:
    """A group's sums of every row, from ``starts`` on: four values of k of LANES columns by four of a row."""
    acc = [alloca_once(b, _WORDS) for _ in inputs]
    for slot, start in zip(acc, starts, strict=True):
        b.store(v.splat(b, start, LANES), slot)
    with for_range(b, steps, intp=v.I64) as inner:
        at = b.mul(b.add(first, inner.index), v.index(STEP))
        base = b.gep(codes, [b.mul(at, v.index(LANES))])
        for j in range(STEP // 4):
            field = v.load(b, b.gep(base, [v.index(4 * LANES * j)]), _WORDS, 1)
            for slot, source in zip(acc, inputs, strict=True):
                four = v.splat(b, v.load(b, b.gep(source, [b.add(at, v.index(4 * j))]), v.I32, 1), LANES)
                b.store(v.dot4(b, b.load(slot), field, four), slot)
    return [b.load(slot) for slot in acc]


def _matrix_sums(b: Any, codes: Any, inputs: list[Any], first: Any, steps: Any) -> list[Any]:
    """The same of signed codes by ``smmla``: two rows by two columns, eight values of k, of an even number of rows."""
    pairs, eights, quads = [inputs[m : m + 2] for m in range(0, len(inputs), 2)], v.vector(v.I8, 16), v.vector(v.I64, 2)
    acc = [[alloca_once(b, _WORDS) for _ in range(2)] for _ in pairs]
    for slot in [slot for slots in acc for slot in slots]:
        b.store(v.constant(_WORDS, 0), slot)
    with for_range(b, steps, intp=v.I64) as inner:
        at = b.mul(b.add(first, inner.index), v.index(STEP))
        base = b.gep(codes, [b.mul(at, v.index(LANES))])
        fields = [v.load(b, b.gep(base, [v.index(4 * LANES * j)]), _WORDS, 1) for j in range(STEP // 4)]
        for half, slots, pair in ((half, *both) for half in range(2) for both in zip(acc, pairs, strict=True)):
            rows = [v.load(b, b.gep(source, [at]), quads, 1) for source in pair]
            left = b.bitcast(b.shuffle_vector(*rows, v.lanes([half, 2 + half])), eights)
            for slot, order in zip(slots, ([0, 4, 1, 5], [2, 6, 3, 7]), strict=True):
                right = b.bitcast(b.shuffle_vector(*fields[2 * half : 2 * half + 2], v.lanes(order)), eights)
                b.store(v.call(b, "llvm.aarch64.neon.smmla.v4i32.v16i8", _WORDS, [b.load(slot), left, right]), slot)
    halves = ([0, 1, 4, 5], [2, 3, 6, 7])
    return [b.shuffle_vector(*(b.load(slot) for slot in slots), v.lanes(order)) for slots in acc for order in halves]


def emit_rows(b: Any, args: Any, height: int) -> None:
    """One microkernel of ``height`` rows by a panel; ``args`` as :data:`rows_8`."""
    codes, x, ldx, x_scales, x_sums, scales, mins, zero, has_mins, groups, steps, out, stored = args
    rows = [row_within(b, m, stored) for m in range(height)]
    inputs, starts = [b.gep(x, [b.mul(ldx, row)]) for row in rows], [b.mul(groups, row) for row in rows]
    totals = [alloca_once(b, _FLOATS) for _ in rows]
    minus = b.sub(v.I32(0), b.trunc(zero, v.I32))
    for slot in totals:
        b.store(v.constant(_FLOATS, 0.0), slot)
    with for_range(b, groups, intp=v.I64) as outer:
        places, first = [b.add(start, outer.index) for start in starts], b.mul(outer.index, steps)
        if SIGNED:
            sums = _matrix_sums(b, codes, inputs, first, steps)
        else:
            begins = [b.mul(b.load(b.gep(x_sums, [place])), minus) for place in places]
            sums = _dot_sums(b, codes, inputs, begins, first, steps)
        line = b.mul(outer.index, v.index(LANES))
        scale = v.load(b, b.gep(scales, [line]), _FLOATS, 4)
        shares = [b.load(b.gep(x_scales, [place])) for place in places]
        for total, whole, own in zip(totals, sums, shares, strict=True):
            factor = b.fmul(scale, v.splat(b, own, LANES))
            b.store(v.multiply_add(b, b.sitofp(whole, _FLOATS), factor, b.load(total)), total)
        with b.if_then(b.icmp_signed("!=", has_mins, v.index(0))):
            minimum = v.load(b, b.gep(mins, [line]), _FLOATS, 4)
            for total, place, own in zip(totals, places, shares, strict=True):
                share = b.fmul(own, b.sitofp(b.load(b.gep(x_sums, [place])), v.F32))
                b.store(v.multiply_add(b, minimum, v.splat(b, share, LANES), b.load(total)), total)
    for m, total in enumerate(totals):
        with b.if_then(b.icmp_signed("<", v.index(m), stored)):
            v.store(b, b.load(total), b.gep(out, [v.index(LANES * m)]), 4)


@intrinsic
def _rows(
    tc: Any, codes: Any, x: Any, ldx: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, zero: Any, has_mins: Any, groups: Any,
    steps: Any, out: Any, rows: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        known = [h for h in heights() if h > 1 or not SIGNED]
        for height, below in zip(known, (*known[1:], 0), strict=True):
            with b.if_then(b.and_(b.icmp_signed(">", args[-1], v.index(below)), b.icmp_signed("<=", args[-1], v.index(height)))):
                emit_rows(b, args, height)
        return context.get_dummy_value()

    return types.none(*_PARAMETERS), codegen


@external(*_PARAMETERS)
def rows_8(
    codes: Any, x: Any, ldx: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, zero: Any, has_mins: Any, groups: Any, steps: Any,
    out: Any, rows: Any,
) -> None:  # fmt: skip
    """out[rows, LANES] = Σ over groups of ((code - zero) · scale + minimum) times activations.

    Args:
        codes: uint8 [depth / 4, LANES, 4]; where SIGNED int8, less their zero.
        x: int8 activations.
        ldx: their row stride.
        x_scales: float32 [rows, groups].
        x_sums: int32 [rows, groups], the sums of the activations of each group.
        scales: float32 [groups, LANES].
        mins: float32 [groups, LANES], or anything.
        zero: the code of 0; 0 where SIGNED.
        has_mins: whether there are minima.
        groups: groups along k.
        steps: steps of a group.
        out: float32 [rows, LANES].
        rows: 1 … ROWS.
    """
    _rows(codes, x, ldx, x_scales, x_sums, scales, mins, zero, has_mins, groups, steps, out, rows)
