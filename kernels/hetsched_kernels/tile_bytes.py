"""Weights of a byte by several rows of int8 activations, in groups along k: the prompt's product.

Weights lie as :mod:`hetsched_kernels.tile_bits` lays out 8-bit codes: four values of k of LANES columns a vector.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I32P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.tile import LANES, heights
from hetsched_kernels.tile_f32 import row_within

#: Rows of a tile.
ROWS: Final = heights()[0]
#: Values of k of a step; a group is whole steps.
STEP: Final = 16
_WORDS, _FLOATS = v.vector(v.I32, LANES), v.vector(v.F32, LANES)
_I = types.int64
_PARAMETERS = (U8P, U8P, _I, F32P, I32P, F32P, F32P, _I, _I, _I, _I, F32P, _I)


def emit_rows(b: Any, args: Any, height: int) -> None:
    """One microkernel of ``height`` rows by a panel; ``args`` as :data:`rows_8`."""
    codes, x, ldx, x_scales, x_sums, scales, mins, zero, has_mins, groups, steps, out, stored = args
    rows = [row_within(b, m, stored) for m in range(height)]
    inputs, starts = [b.gep(x, [b.mul(ldx, row)]) for row in rows], [b.mul(groups, row) for row in rows]
    totals, acc = ([alloca_once(b, kind) for _ in rows] for kind in (_FLOATS, _WORDS))
    minus = b.sub(v.I32(0), b.trunc(zero, v.I32))
    for slot in totals:
        b.store(v.constant(_FLOATS, 0.0), slot)
    with for_range(b, groups, intp=v.I64) as outer:
        places = [b.add(start, outer.index) for start in starts]
        for slot, place in zip(acc, places, strict=True):
            b.store(v.splat(b, b.mul(b.load(b.gep(x_sums, [place])), minus), LANES), slot)
        with for_range(b, steps, intp=v.I64) as inner:
            at = b.mul(b.add(b.mul(outer.index, steps), inner.index), v.index(STEP))
            base = b.gep(codes, [b.mul(at, v.index(LANES))])
            for j in range(STEP // 4):
                field = v.load(b, b.gep(base, [v.index(4 * LANES * j)]), _WORDS, 1)
                for slot, source in zip(acc, inputs, strict=True):
                    four = v.splat(b, v.load(b, b.gep(source, [b.add(at, v.index(4 * j))]), v.I32, 1), LANES)
                    b.store(v.dot4(b, b.load(slot), field, four), slot)
        line = b.mul(outer.index, v.index(LANES))
        scale = v.load(b, b.gep(scales, [line]), _FLOATS, 4)
        shares = [b.load(b.gep(x_scales, [place])) for place in places]
        for total, slot, own in zip(totals, acc, shares, strict=True):
            factor = b.fmul(scale, v.splat(b, own, LANES))
            b.store(v.multiply_add(b, b.sitofp(b.load(slot), _FLOATS), factor, b.load(total)), total)
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
        known = heights()
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
        codes: uint8 [depth / 4, LANES, 4].
        x: int8 activations.
        ldx: their row stride.
        x_scales: float32 [rows, groups].
        x_sums: int32 [rows, groups], the sums of the activations of each group.
        scales: float32 [groups, LANES].
        mins: float32 [groups, LANES], or anything.
        zero: the code of 0.
        has_mins: whether there are minima.
        groups: groups along k.
        steps: steps of a group.
        out: float32 [rows, LANES].
        rows: 1 … ROWS.
    """
    _rows(codes, x, ldx, x_scales, x_sums, scales, mins, zero, has_mins, groups, steps, out, rows)
