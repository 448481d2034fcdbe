"""Weights of a byte in groups along k by 16 rows of int8 activations, in tile registers (:mod:`hetsched_kernels.tile_amx`).

Weights are signed here, [depth / 4, LANES, 4]: their zero was subtracted when they were brought to bytes. The int32 sums of a few
groups are stored, then scaled and added up as floats in vector registers.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.compilation import block
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I32P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_amx import HEIGHT, A, B, instruct
from hetsched_kernels.tile_f32 import row_within

_I = types.int64
_PARAMETERS = (U8P, U8P, _I, F32P, I32P, F32P, F32P, _I, _I, _I, _I, F32P, I32P, _I)
_WORDS, _FLOATS = v.vector(v.I32, LANES), v.vector(v.F32, LANES)
#: Int32 of the sums that are stored between products and scaling.
STORED: Final = A * HEIGHT * LANES


@block
def group_step(fours: Any) -> Any:
    """Fours of k that a tile takes at once, so that a group of ``fours`` of them, a multiple of CHUNK or half of it, is whole steps."""
    whole = fours < HEIGHT or fours % HEIGHT == 0
    return min(fours, HEIGHT) if whole else HEIGHT // 2


def _products(b: Any, args: Any, first: Any, left: Any) -> None:
    """The sums of as many groups as there are tiles for sums, from ``first`` on, each in a tile of its own, then in memory."""
    codes, x, ldx, *_, step, steps, _, sums, _ = args
    room, line = b.bitcast(sums, v.I8.as_pointer()), v.index(4 * LANES)
    deep = b.mul(step, v.index(4))
    for i in range(A):
        with b.if_then(b.icmp_signed("<", v.index(i), left)):
            instruct(b, "tilezero", i)
            group = b.add(first, v.index(i))
            with for_range(b, steps, intp=v.I64) as loop:
                at = b.mul(b.add(b.mul(group, steps), loop.index), deep)
                instruct(b, "tileloadd64", A, b.gep(x, [at]), ldx)
                instruct(b, "tileloadd64", B, b.gep(codes, [b.mul(at, v.index(LANES))]), line)
                instruct(b, "tdpbssd", i, A, B)
            instruct(b, "tilestored64", i, b.gep(room, [v.index(4 * HEIGHT * LANES * i)]), line)


def _scaled(b: Any, args: Any, first: Any, left: Any, totals: list[Any], rows: list[Any]) -> None:
    """Add the stored sums of ``left`` groups times their scales, and the groups' minima."""
    _, _, _, x_scales, x_sums, scales, mins, has_mins, groups, *_, sums, _ = args
    with for_range(b, left, intp=v.I64) as loop:
        group = b.add(first, loop.index)
        line = b.mul(group, v.index(LANES))
        scale, base = v.load(b, b.gep(scales, [line]), _FLOATS, 4), b.mul(loop.index, v.index(HEIGHT * LANES))
        places = [b.add(b.mul(groups, row), group) for row in rows]
        for m, (total, place) in enumerate(zip(totals, places, strict=True)):
            whole = v.load(b, b.gep(sums, [b.add(base, v.index(LANES * m))]), _WORDS, 4)
            factor = b.fmul(scale, v.splat(b, b.load(b.gep(x_scales, [place])), LANES))
            b.store(v.multiply_add(b, b.sitofp(whole, _FLOATS), factor, b.load(total)), total)
        with b.if_then(b.icmp_signed("!=", has_mins, v.index(0))):
            minimum = v.load(b, b.gep(mins, [line]), _FLOATS, 4)
            for total, place in zip(totals, places, strict=True):
                share = b.fmul(b.load(b.gep(x_scales, [place])), b.sitofp(b.load(b.gep(x_sums, [place])), v.F32))
                b.store(v.multiply_add(b, minimum, v.splat(b, share, LANES), b.load(total)), total)


def emit_tiles(b: Any, args: Any) -> None:
    """16 rows by a panel; ``args`` as :data:`tiles_s8`."""
    groups, out, stored = args[8], args[-3], args[-1]
    rows = [row_within(b, m, stored) for m in range(HEIGHT)]
    totals = [alloca_once(b, _FLOATS) for _ in rows]
    for total in totals:
        b.store(v.constant(_FLOATS, 0.0), total)
    batches = b.sdiv(b.add(groups, v.index(A - 1)), v.index(A))
    with for_range(b, batches, intp=v.I64) as loop:
        first = b.mul(loop.index, v.index(A))
        rest = b.sub(groups, first)
        left = b.select(b.icmp_signed("<", rest, v.index(A)), rest, v.index(A))
        _products(b, args, first, left)
        _scaled(b, args, first, left, totals, rows)
    for m, total in enumerate(totals):
        with b.if_then(b.icmp_signed("<", v.index(m), stored)):
            v.store(b, b.load(total), b.gep(out, [v.index(LANES * m)]), 4)


@intrinsic
def _tiles(
    tc: Any, codes: Any, x: Any, ldx: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, has_mins: Any, groups: Any, step: Any,
    steps: Any, out: Any, sums: Any, rows: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if target().amx:
            emit_tiles(b, args)
        return context.get_dummy_value()

    return types.none(*_PARAMETERS), codegen


@external(*_PARAMETERS)
def tiles_s8(
    codes: Any, x: Any, ldx: Any, x_scales: Any, x_sums: Any, scales: Any, mins: Any, has_mins: Any, groups: Any, step: Any, steps: Any,
    out: Any, sums: Any, rows: Any,
) -> None:  # fmt: skip
    """out[rows, LANES] = Σ over groups of (code · scale + minimum) times activations; the tiles are configured.

    Args:
        codes: int8 [depth / 4, LANES, 4].
        x: int8 activations.
        ldx: their row stride.
        x_scales: float32 [rows, groups].
        x_sums: int32 [rows, groups], read where there are minima.
        scales: float32 [groups, LANES].
        mins: float32 [groups, LANES], or anything.
        has_mins: whether there are minima.
        groups: groups along k.
        step: fours of k that a tile takes.
        steps: tiles of a group.
        out: float32 [rows, LANES].
        sums: int32 [STORED], overwritten.
        rows: 1 … HEIGHT, as configured.
    """
    _tiles(codes, x, ldx, x_scales, x_sums, scales, mins, has_mins, groups, step, steps, out, sums, rows)
