"""Rows of float32 in vectors: several dot products with one row, and a weighted sum of rows. Widths are multiples of LANES."""

from __future__ import annotations

from typing import Any, Final

from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.lowlevel import F32P, alloca_once, for_range, intrinsic
from hetsched_kernels.tile import LANES

#: Rows that are taken together; their number is a multiple of it.
TOGETHER: Final = 4


def _across(b: Any, value: Any) -> Any:
    """The sum of all lanes."""
    half = LANES // 2
    while half:
        value = b.fadd(b.shuffle_vector(value, value, v.lanes([(i + half) % LANES for i in range(LANES)])), value)
        half //= 2
    return b.extract_element(value, v.I32(0))


@intrinsic
def dot_rows(tc: Any, x: Any, rows: Any, count: Any, width: Any, scale: Any, out: Any) -> Any:
    """Compute out[i] = scale · (x · row i), for ``count`` rows that follow each other."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, rows, count, width, scale, out = args
        kind = v.vector(v.F32, LANES)
        sums = [alloca_once(b, kind) for _ in range(TOGETHER)]
        with for_range(b, b.sdiv(count, v.index(TOGETHER)), intp=v.I64) as outer:
            first = b.mul(outer.index, v.index(TOGETHER))
            base = b.gep(rows, [b.mul(first, width)])
            for place in sums:
                b.store(v.constant(kind, 0.0), place)
            with for_range(b, b.sdiv(width, v.index(LANES)), intp=v.I64) as loop:
                at = b.mul(loop.index, v.index(LANES))
                own = v.load(b, b.gep(x, [at]), kind, 4)
                for i, place in enumerate(sums):
                    row = v.load(b, b.gep(base, [b.add(at, b.mul(width, v.index(i)))]), kind, 4)
                    b.store(v.multiply_add(b, own, row, b.load(place)), place)
            for i, place in enumerate(sums):
                b.store(b.fmul(_across(b, b.load(place)), scale), b.gep(out, [b.add(first, v.index(i))]))
        return context.get_dummy_value()

    return types.none(F32P, F32P, types.int64, types.int64, types.float32, F32P), codegen


@intrinsic
def add_rows(tc: Any, weights: Any, rows: Any, count: Any, width: Any, out: Any) -> Any:
    """Compute out += Σ weights[i] · row i, over ``count`` rows that follow each other."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        weights, rows, count, width, out = args
        kind = v.vector(v.F32, LANES)
        sums = [alloca_once(b, kind) for _ in range(TOGETHER)]
        with for_range(b, b.sdiv(width, v.index(LANES)), intp=v.I64) as outer:
            column = b.mul(outer.index, v.index(LANES))
            to = b.gep(out, [column])
            b.store(v.load(b, to, kind, 4), sums[0])
            for place in sums[1:]:
                b.store(v.constant(kind, 0.0), place)
            with for_range(b, b.sdiv(count, v.index(TOGETHER)), intp=v.I64) as loop:
                first = b.mul(loop.index, v.index(TOGETHER))
                base = b.gep(rows, [b.add(b.mul(first, width), column)])
                for i, place in enumerate(sums):
                    weight = v.splat(b, b.load(b.gep(weights, [b.add(first, v.index(i))])), LANES)
                    row = v.load(b, b.gep(base, [b.mul(width, v.index(i))]), kind, 4)
                    b.store(v.multiply_add(b, weight, row, b.load(place)), place)
            total = b.fadd(b.fadd(b.load(sums[0]), b.load(sums[1])), b.fadd(b.load(sums[2]), b.load(sums[3])))
            v.store(b, total, to, 4)
        return context.get_dummy_value()

    return types.none(F32P, F32P, types.int64, types.int64, F32P), codegen
