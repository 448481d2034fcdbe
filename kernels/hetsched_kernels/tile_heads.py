"""The two tiles of attention over rows of floats: scores of a few queries, and weighted sums of values.

Query heads that share a key and value head are taken together, so that each row of the cache (float16 as it is stored there, or
float32) is loaded and converted once for all of them. What a query gets does not depend on those beside it, bit for bit.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.external import external
from hetsched_kernels.lowlevel import F32P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.target import target
from hetsched_kernels.tile import LANES

_HEIGHTS = (4, 3, 2, 1)
#: Queries of a tile.
QUERIES: Final = _HEIGHTS[0]
#: Keys that are scored together.
KEYS: Final = 4
#: Vectors of a value row that are worked on side by side: as many as the registers hold sums of.
_BESIDE: Final = 4 if target().registers > 16 else 2
_FLOATS = v.vector(v.F32, LANES)
_I = types.int64
_SCORES = (U8P, U8P, _I, _I, _I, F32P, _I, types.float32, F32P, _I, _I)
_VALUES = (U8P, U8P, _I, _I, _I, F32P, _I, F32P, _I, _I)


class _Rows:
    """Rows of ``width`` elements that follow each other, of float16 or float32; as many bytes at ``ahead`` are asked for."""

    def __init__(self, start: Any, ahead: Any, width: Any, half: bool) -> None:
        self.start, self.ahead, self.width, self.half = start, ahead, width, half
        self.size = 2 if half else 4

    def load(self, b: Any, row: Any, column: Any) -> Any:
        """A vector of a row from a column on, as float32."""
        place = b.mul(b.add(b.mul(row, self.width), column), v.index(self.size))
        v.prefetch(b, b.gep(self.ahead, [place]), 2)
        at = b.gep(self.start, [place])
        if self.half:
            return v.half_to_float(b, v.load(b, at, v.vector(v.I16, LANES), 2))
        return v.load(b, at, _FLOATS, 4)


def _quarter_sums(b: Any, one: Any, two: Any) -> Any:
    """Sums of neighbours within each four lanes: two of the first vector, then two of the second."""
    four = (0, 2, LANES, LANES + 2)
    even, odd = (b.shuffle_vector(one, two, v.lanes([4 * q + at + i for q in range(LANES // 4) for at in four])) for i in range(2))
    return b.fadd(even, odd)


def _four_sums(b: Any, values: list[Any]) -> Any:
    """The sum of the lanes of each of four vectors, as a vector of four."""
    total = _quarter_sums(b, _quarter_sums(b, *values[:2]), _quarter_sums(b, *values[2:]))
    lanes = LANES
    while lanes > KEYS:
        lanes //= 2
        low, high = (b.shuffle_vector(total, total, v.lanes(range(first, first + lanes))) for first in (0, lanes))
        total = b.fadd(low, high)
    return total


def _scores(b: Any, args: Any, height: int, half: bool) -> None:
    start, ahead, _, count, width, q, ldq, scale, out, ldo, _ = args
    rows = _Rows(start, ahead, width, half)
    queries = [b.gep(q, [b.mul(ldq, v.index(m))]) for m in range(height)]
    acc = [[alloca_once(b, _FLOATS) for _ in range(KEYS)] for _ in range(height)]
    factor = v.splat(b, scale, KEYS)
    with for_range(b, b.sdiv(b.add(count, v.index(KEYS - 1)), v.index(KEYS)), intp=v.I64) as outer:
        first = b.mul(outer.index, v.index(KEYS))
        for slot in [slot for slots in acc for slot in slots]:
            b.store(v.constant(_FLOATS, 0.0), slot)
        with for_range(b, b.sdiv(width, v.index(LANES)), intp=v.I64) as loop:
            at = b.mul(loop.index, v.index(LANES))
            own = [v.load(b, b.gep(query, [at]), _FLOATS, 4) for query in queries]
            for i in range(KEYS):
                key = rows.load(b, b.add(first, v.index(i)), at)
                for slots, query in zip(acc, own, strict=True):
                    b.store(v.multiply_add(b, query, key, b.load(slots[i])), slots[i])
        for m, slots in enumerate(acc):
            sums = b.fmul(_four_sums(b, [b.load(slot) for slot in slots]), factor)
            v.store(b, sums, b.gep(out, [b.add(b.mul(ldo, v.index(m)), first)]), 4)


def _values(b: Any, args: Any, height: int, half: bool) -> None:
    width = args[4]
    whole = b.sdiv(width, v.index(_BESIDE * LANES))
    with for_range(b, whole, intp=v.I64) as loop:
        _some_values(b, args, height, half, b.mul(loop.index, v.index(_BESIDE * LANES)), _BESIDE)
    done = b.mul(whole, v.index(_BESIDE * LANES))
    with for_range(b, b.sdiv(b.sub(width, done), v.index(LANES)), intp=v.I64) as loop:
        _some_values(b, args, height, half, b.add(done, b.mul(loop.index, v.index(LANES))), 1)


def _some_values(b: Any, args: Any, height: int, half: bool, column: Any, beside: int) -> None:
    start, ahead, _, count, width, weights, ldw, out, ldo, _ = args
    rows, columns = _Rows(start, ahead, width, half), [b.add(column, v.index(LANES * i)) for i in range(beside)]
    places = [[b.gep(out, [b.add(b.mul(ldo, v.index(m)), at)]) for at in columns] for m in range(height)]
    acc = [[alloca_once(b, _FLOATS) for _ in columns] for _ in range(height)]
    for slots, own in zip(acc, places, strict=True):
        for slot, place in zip(slots, own, strict=True):
            b.store(v.load(b, place, _FLOATS, 4), slot)
    with for_range(b, count, intp=v.I64) as loop:
        values = [rows.load(b, loop.index, at) for at in columns]
        for m, slots in enumerate(acc):
            share = v.splat(b, b.load(b.gep(weights, [b.add(b.mul(ldw, v.index(m)), loop.index)])), LANES)
            for slot, value in zip(slots, values, strict=True):
                b.store(v.multiply_add(b, share, value, b.load(slot)), slot)
    for slots, own in zip(acc, places, strict=True):
        for slot, place in zip(slots, own, strict=True):
            v.store(b, b.load(slot), place, 4)


def _for_each_form(b: Any, args: Any, emit: Any) -> None:
    for half in (True, False):
        with b.if_then(b.icmp_signed("==", args[2], v.index(2 if half else 4))):
            for height in _HEIGHTS:
                with b.if_then(b.icmp_signed("==", args[-1], v.index(height))):
                    emit(b, args, height, half)


@intrinsic
def _score_rows(
    tc: Any, rows: Any, ahead: Any, size: Any, count: Any, width: Any, q: Any, ldq: Any, scale: Any, out: Any, ldo: Any, queries: Any
) -> Any:  # fmt: skip
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _for_each_form(b, args, _scores)
        return context.get_dummy_value()

    return types.none(*_SCORES), codegen


@intrinsic
def _weigh_rows(
    tc: Any, rows: Any, ahead: Any, size: Any, count: Any, width: Any, weights: Any, ldw: Any, out: Any, ldo: Any, queries: Any
) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _for_each_form(b, args, _values)
        return context.get_dummy_value()

    return types.none(*_VALUES), codegen


@external(*_SCORES)
def score_rows(
    rows: Any, ahead: Any, size: Any, count: Any, width: Any, q: Any, ldq: Any, scale: Any, out: Any, ldo: Any, queries: Any
) -> None:
    """out[query, i] = scale · (q[query] · row i).

    Args:
        rows: [count, width], rounded up to whole KEYS rows, which are read and scored as well.
        ahead: what will be read soon: as many bytes are asked for.
        size: bytes of an element: 2 (float16) or 4 (float32).
        count: rows.
        width: elements of a row, whole vectors.
        q: float32 queries.
        ldq: elements from query to query.
        scale: factor.
        out: the scores.
        ldo: elements from query to query.
        queries: 1 … QUERIES.
    """
    _score_rows(rows, ahead, size, count, width, q, ldq, scale, out, ldo, queries)


@external(*_VALUES)
def weigh_rows(rows: Any, ahead: Any, size: Any, count: Any, width: Any, weights: Any, ldw: Any, out: Any, ldo: Any, queries: Any) -> None:
    """out[query] += Σ weights[query, i] · row i.

    Args:
        rows: [count, width].
        ahead: what will be read soon: as many bytes are asked for.
        size: bytes of an element: 2 (float16) or 4 (float32).
        count: rows.
        width: elements of a row, whole vectors.
        weights: [queries, count].
        ldw: elements from query to query.
        out: float32 sums.
        ldo: elements from query to query.
        queries: 1 … QUERIES.
    """
    _weigh_rows(rows, ahead, size, count, width, weights, ldw, out, ldo, queries)
