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


def _extreme(relation: str) -> Any:
    """An intrinsic (pointer, count ≥ 1) → float32; NaN are ignored unless the first element is one."""

    def typing(typing_context: Any, pointer: Any, count: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            pointer, count = args
            kind = v.vector(v.F32, LANES)

            def better(x: Any, y: Any) -> Any:
                return b.select(b.fcmp_ordered(relation, x, y), x, y)

            first = v.splat(b, b.load(pointer), LANES)
            slots = [alloca_once(b, kind) for _ in range(_WIDE)]
            for slot in slots:
                b.store(first, slot)
            step = v.index(_WIDE * LANES)
            blocks = b.sdiv(count, step)
            with for_range(b, blocks, intp=v.I64) as loop:
                row = b.gep(pointer, [b.mul(loop.index, step)])
                for n, slot in enumerate(slots):
                    b.store(better(v.load(b, b.gep(row, [v.index(LANES * n)]), kind, 4), b.load(slot)), slot)
            total = b.load(slots[0])
            for slot in slots[1:]:
                total = better(b.load(slot), total)
            half = LANES // 2
            while half:
                total = better(b.shuffle_vector(total, total, v.lanes([(i + half) % LANES for i in range(LANES)])), total)
                half //= 2
            result = alloca_once(b, v.F32)
            b.store(b.extract_element(total, v.I32(0)), result)
            done = b.mul(blocks, step)
            with for_range(b, b.sub(count, done), intp=v.I64) as loop:
                b.store(better(b.load(b.gep(pointer, [b.add(done, loop.index)])), b.load(result)), result)
            return b.load(result)

        return types.float32(F32P, types.int64), codegen

    return intrinsic(typing)


_largest = _extreme(">")
_smallest = _extreme("<")


@block
def row_max(x: Any) -> Any:
    """Largest element of a non-empty run (NaN are ignored)."""
    return _largest(ptr(x, 0), x.shape[0])


@block
def row_min(x: Any) -> Any:
    """Smallest element of a non-empty run (NaN are ignored)."""
    return _smallest(ptr(x, 0), x.shape[0])
