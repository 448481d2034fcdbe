"""The two tiles of attention over a quantized cache: int8 keys by int8 queries, probabilities by int4 values.

Rows are query heads that share a key and value head: what is read from the cache is used for all of them. A probability is a
whole number of 14 bits, as two int8 (128 · high + low), so that values too are multiplied as integers.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, I32P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_f32 import row_within

_HEIGHTS = (4, 2, 1)
#: Query heads of a tile.
ROWS: Final = _HEIGHTS[0]
#: Blocks that are worked on side by side: as many as the registers hold sums of.
_BESIDE: Final = 2 if target().registers > 16 else 1
_WORDS, _FLOATS, _BYTES = (v.vector(kind, LANES) for kind in (v.I32, v.F32, v.I8))
_I = types.int64
_KEYS = (U8P, U8P, _I, _I, U8P, _I, I32P, F32P, F32P, F32P, _I, _I)
_VALUES = (U8P, U8P, _I, _I, _I, U8P, _I, _I, I32P, F32P, _I, F32P, _I, _I)
_SHARES = (F32P, F32P, types.float32, U8P, U8P, _I)
_MAGIC, _MAGIC_BITS = 12582912.0, 0x4B400000  # 1.5 * 2^23: adding it rounds to an integer, half to even


def _for_each_height(b: Any, rows: Any, emit: Any) -> None:
    for height, below in zip(_HEIGHTS, (*_HEIGHTS[1:], 0), strict=True):
        with b.if_then(b.and_(b.icmp_signed(">", rows, v.index(below)), b.icmp_signed("<=", rows, v.index(height)))):
            emit(height)


def _next(b: Any, codes: Any, number: Any, ahead: Any, step: int) -> Any:
    """Vector ``number`` of the codes; meanwhile ``step`` more bytes are asked for."""
    v.prefetch(b, b.gep(ahead, [b.mul(number, v.index(step))]), 2)
    return v.load(b, b.gep(codes, [b.mul(number, v.index(4 * LANES))]), _WORDS, 1)


def _keys(b: Any, args: Any, height: int) -> None:
    """Blocks of keys side by side, so that a sum need not wait for itself; then those that are left one by one."""
    blocks = args[2]
    together = b.sdiv(blocks, v.index(_BESIDE))
    with for_range(b, together, intp=v.I64) as loop:
        _some_keys(b, args, height, b.mul(loop.index, v.index(_BESIDE)), _BESIDE)
    done = b.mul(together, v.index(_BESIDE))
    with for_range(b, b.sub(blocks, done), intp=v.I64) as loop:
        _some_keys(b, args, height, b.add(done, loop.index), 1)


def _some_keys(b: Any, args: Any, height: int, first: Any, wide: int) -> None:
    codes, ahead, _, depth, q, ldq, q_sums, q_scales, k_scales, out, ldo, stored = args
    rows = [row_within(b, m, stored) for m in range(height)]
    queries = [b.gep(q, [b.mul(ldq, row)]) for row in rows]
    acc = [[alloca_once(b, _WORDS) for _ in range(wide)] for _ in rows]
    for row, slots in zip(rows, acc, strict=True):
        start = v.splat(b, b.mul(b.load(b.gep(q_sums, [row])), v.I32(-128)), LANES)
        for slot in slots:
            b.store(start, slot)
    places = [b.add(first, v.index(n)) for n in range(wide)]
    with for_range(b, depth, intp=v.I64) as loop:
        keys = [_next(b, codes, b.add(b.mul(place, depth), loop.index), ahead, 2 * LANES) for place in places]
        at = b.mul(loop.index, v.index(4))
        for slots, query in zip(acc, queries, strict=True):
            four = v.splat(b, v.load(b, b.gep(query, [at]), v.I32, 1), LANES)
            for slot, key in zip(slots, keys, strict=True):
                b.store(v.dot4(b, b.load(slot), key, four), slot)
    for row, slots in zip(rows, acc, strict=True):
        factor = v.splat(b, b.load(b.gep(q_scales, [row])), LANES)
        for slot, place in zip(slots, places, strict=True):
            at = b.mul(place, v.index(LANES))
            scale = b.fmul(v.load(b, b.gep(k_scales, [at]), _FLOATS, 4), factor)
            v.store(b, b.fmul(b.sitofp(b.load(slot), _FLOATS), scale), b.gep(out, [b.add(b.mul(ldo, row), at)]), 4)


@intrinsic
def _tile_keys(
    tc: Any, codes: Any, ahead: Any, blocks: Any, depth: Any, q: Any, ldq: Any, q_sums: Any, q_scales: Any, k_scales: Any, out: Any,
    ldo: Any, rows: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _for_each_height(b, args[-1], lambda height: _keys(b, args, height))
        return context.get_dummy_value()

    return types.none(*_KEYS), codegen


@external(*_KEYS)
def tile_keys(
    codes: Any, ahead: Any, blocks: Any, depth: Any, q: Any, ldq: Any, q_sums: Any, q_scales: Any, k_scales: Any, out: Any, ldo: Any,
    rows: Any,
) -> None:  # fmt: skip
    """out[row, t] = (key[t] - 128) · query[row] · k_scales[t] · q_scales[row].

    Args:
        codes: uint8 [blocks, depth, LANES, 4]: LANES keys side by side, four values of each together.
        ahead: half as many bytes from here on are asked for.
        blocks: blocks of LANES keys.
        depth: a key's values, divided by 4.
        q: int8 queries.
        ldq: their row stride.
        q_sums: int32 [rows], the sum of each query.
        q_scales: float32 [rows].
        k_scales: float32 [blocks · LANES].
        out: float32.
        ldo: its row stride.
        rows: 1 … ROWS.
    """
    _tile_keys(codes, ahead, blocks, depth, q, ldq, q_sums, q_scales, k_scales, out, ldo, rows)


def _values(b: Any, args: Any, height: int) -> None:
    """Blocks of one group side by side: they share their shares."""
    codes, ahead, blocks, depth, per_group, shares, ldr, ldg, sums, factors, groups, out, ldo, stored = args
    rows = [row_within(b, m, stored) for m in range(height)]
    acc = [[[alloca_once(b, _WORDS) for _ in range(2)] for _ in range(_BESIDE)] for _ in rows]
    nibble, lower = v.constant(_WORDS, 0x0F0F0F0F), b.sdiv(ldg, v.index(2))
    with for_range(b, b.sdiv(blocks, v.index(_BESIDE)), intp=v.I64) as block:
        places = [b.add(b.mul(block.index, v.index(_BESIDE)), v.index(n)) for n in range(_BESIDE)]
        group = b.sdiv(places[0], per_group)
        bases = [b.gep(shares, [b.add(b.mul(ldr, row), b.mul(ldg, group))]) for row in rows]
        owns = [b.add(b.mul(groups, row), group) for row in rows]
        for beside, own in zip(acc, owns, strict=True):
            start = v.splat(b, b.mul(b.load(b.gep(sums, [own])), v.I32(-8)), LANES)
            for slots in beside:
                b.store(v.constant(_WORDS, 0), slots[0])
                b.store(start, slots[1])
        with for_range(b, depth, intp=v.I64) as loop:
            words = [_next(b, codes, b.add(b.mul(place, depth), loop.index), ahead, 4 * LANES) for place in places]
            fields = [(b.and_(w, nibble), b.and_(b.lshr(w, v.constant(_WORDS, 4)), nibble)) for w in words]
            for (half, part), (beside, pointer) in product(product(range(2), range(2)), zip(acc, bases, strict=True)):
                at = b.add(b.mul(v.index(part), lower), b.add(b.mul(loop.index, v.index(8)), v.index(4 * half)))
                four = v.splat(b, v.load(b, b.gep(pointer, [at]), v.I32, 1), LANES)
                for slots, field in zip(beside, fields, strict=True):
                    b.store(v.dot4(b, b.load(slots[part]), field[half], four, small=True), slots[part])
        for m, (row, beside, own) in enumerate(zip(rows, acc, owns, strict=True)):
            with b.if_then(b.icmp_signed("<", v.index(m), stored)):
                factor = v.splat(b, b.load(b.gep(factors, [own])), LANES)
                for slots, place in zip(beside, places, strict=True):
                    total = b.add(b.shl(b.load(slots[0]), v.constant(_WORDS, 7)), b.load(slots[1]))
                    to = b.gep(out, [b.add(b.mul(ldo, row), b.mul(place, v.index(LANES)))])
                    v.store(b, v.multiply_add(b, b.sitofp(total, _FLOATS), factor, v.load(b, to, _FLOATS, 4)), to, 4)


@intrinsic
def _tile_values(
    tc: Any, codes: Any, ahead: Any, blocks: Any, depth: Any, per_group: Any, shares: Any, ldr: Any, ldg: Any, sums: Any, factors: Any,
    groups: Any, out: Any, ldo: Any, rows: Any,
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _for_each_height(b, args[-1], lambda height: _values(b, args, height))
        return context.get_dummy_value()

    return types.none(*_VALUES), codegen


@external(*_VALUES)
def tile_values(
    codes: Any, ahead: Any, blocks: Any, depth: Any, per_group: Any, shares: Any, ldr: Any, ldg: Any, sums: Any, factors: Any,
    groups: Any, out: Any, ldo: Any, rows: Any,
) -> None:  # fmt: skip
    """out[row, d] += factors[row, g] · Σ_t shares[row, g, t] · (code[t, d] - 8), g the group of d.

    Args:
        codes: uint8 [blocks, depth, LANES, 4]: LANES elements side by side; of eight tokens the first four in the low halves of
            the four bytes, the others in the high halves.
        ahead: as many bytes from here on are asked for.
        blocks: blocks of LANES elements.
        depth: tokens, divided by 8.
        per_group: blocks of a group.
        shares: int8; of each row and group the high parts of the tokens, then, half of ``ldg`` further, the low parts
            (:data:`whole_shares`).
        ldr: their stride from row to row.
        ldg: their stride from group to group.
        sums: int32 [rows, groups], the sum of 128 · high + low over the tokens.
        factors: float32 [rows, groups].
        groups: groups of a row.
        out: float32.
        ldo: its row stride.
        rows: 1 … ROWS.
    """
    _tile_values(codes, ahead, blocks, depth, per_group, shares, ldr, ldg, sums, factors, groups, out, ldo, rows)


@intrinsic
def whole_shares(tc: Any, shares: Any, scales: Any, factor: Any, high: Any, low: Any, count: Any) -> Any:
    """128 · high + low = round(shares · scales · factor), for ``count`` tokens (a multiple of LANES); returns the sum."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        shares, scales, factor, high, low, count = args
        total = alloca_once(b, _WORDS)
        b.store(v.constant(_WORDS, 0), total)
        wide, seven = v.splat(b, factor, LANES), v.constant(_WORDS, 7)
        with for_range(b, b.sdiv(count, v.index(LANES)), intp=v.I64) as loop:
            at = b.mul(loop.index, v.index(LANES))
            share, scale = (v.load(b, b.gep(p, [at]), _FLOATS, 4) for p in (shares, scales))
            shifted = b.fadd(b.fmul(b.fmul(share, scale), wide), v.constant(_FLOATS, _MAGIC))
            whole = b.sub(b.bitcast(shifted, _WORDS), v.constant(_WORDS, _MAGIC_BITS))
            upper = b.ashr(b.add(whole, v.constant(_WORDS, 64)), seven)
            v.store(b, b.trunc(upper, _BYTES), b.gep(high, [at]), 1)
            v.store(b, b.trunc(b.sub(whole, b.shl(upper, seven)), _BYTES), b.gep(low, [at]), 1)
            b.store(b.add(b.load(total), whole), total)
        return v.call(b, f"llvm.vector.reduce.add.v{LANES}i32", v.I32, [b.load(total)])

    return types.int32(*_SHARES), codegen
