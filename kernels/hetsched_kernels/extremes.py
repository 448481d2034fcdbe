"""Largest and smallest element of a run: explicit vectors, since LLVM vectorises neither without being told to ignore NaN."""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.compilation import block
from hetsched_kernels.lowlevel import F32P, alloca_once, for_range, intrinsic
from hetsched_kernels.parts import ptr
from hetsched_kernels.tile import LANES

_WIDE = 4
_same: Any = types.UniTuple


def _scan(b: Any, pointer: Any, count: Any, relations: str) -> list[Any]:
    """For each relation the element that stands in it to all others, in one pass."""
    kind = v.vector(v.F32, LANES)

    def keep(relation: str, x: Any, slot: Any) -> None:
        b.store(_better(b, relation, x, b.load(slot)), slot)

    first = v.splat(b, b.load(pointer), LANES)
    slots = {relation: [alloca_once(b, kind) for _ in range(_WIDE)] for relation in relations}
    for slot in [slot for group in slots.values() for slot in group]:
        b.store(first, slot)
    step = v.index(_WIDE * LANES)
    blocks = b.sdiv(count, step)
    with for_range(b, blocks, intp=v.I64) as loop:
        row = b.gep(pointer, [b.mul(loop.index, step)])
        for n in range(_WIDE):
            value = v.load(b, b.gep(row, [v.index(LANES * n)]), kind, 4)
            for relation, group in slots.items():
                keep(relation, value, group[n])
    results = {relation: alloca_once(b, v.F32) for relation in relations}
    for relation, result in results.items():
        b.store(_across(b, relation, [b.load(slot) for slot in slots[relation]]), result)
    done = b.mul(blocks, step)
    with for_range(b, b.sub(count, done), intp=v.I64) as loop:
        value = b.load(b.gep(pointer, [b.add(done, loop.index)]))
        for relation, result in results.items():
            keep(relation, value, result)
    return [b.load(result) for result in results.values()]


def _better(b: Any, relation: str, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(relation, x, y), x, y)


def _across(b: Any, relation: str, values: list[Any]) -> Any:
    """The one lane of several vectors."""
    total = values[0]
    for value in values[1:]:
        total = _better(b, relation, value, total)
    half = LANES // 2
    while half:
        total = _better(b, relation, b.shuffle_vector(total, total, v.lanes([(i + half) % LANES for i in range(LANES)])), total)
        half //= 2
    return b.extract_element(total, v.I32(0))


def _extremes(relations: str) -> Any:
    """An intrinsic (pointer, count ≥ 1) → tuple of float32; NaN are ignored unless the first element is one."""

    def typing(typing_context: Any, pointer: Any, count: Any) -> Any:
        kind = _same(types.float32, len(relations))

        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            return context.make_tuple(b, kind, _scan(b, args[0], args[1], relations))

        return kind(F32P, types.int64), codegen

    return intrinsic(typing)


_largest, _smallest, _both = (_extremes(relations) for relations in (">", "<", "<>"))


@block
def row_max(x: Any) -> Any:
    """Largest element of a non-empty run (NaN are ignored)."""
    return _largest(ptr(x, 0), x.shape[0])[0]


@block
def row_min(x: Any) -> Any:
    """Smallest element of a non-empty run (NaN are ignored)."""
    return _smallest(ptr(x, 0), x.shape[0])[0]


@block
def row_range(x: Any) -> Any:
    """Smallest and largest element of a non-empty run, in one pass (NaN are ignored)."""
    return _both(ptr(x, 0), x.shape[0])
