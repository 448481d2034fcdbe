"""Activations as int8 in groups along the row, for products with weights of a few bits: largest value and codes in one pass.

scale = max |x| / 127 (1 where all are 0), code = round_half_even(x · (1 / scale)); the sum of each group's codes comes with
them. The same bits on every target.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from hetsched_kernels import vectors as v
from hetsched_kernels.arrays import InF32, OutF32, OutI32, OutU8
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.computed_rows import gate_row, norm_row
from hetsched_kernels.groups import CHUNK
from hetsched_kernels.lowlevel import F32P, I32P, U8P, alloca_once, for_range, intrinsic
from hetsched_kernels.parts import ptr, span
from hetsched_kernels.tile import LANES

_MAGIC = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, half to even
_MAGIC_BITS = 0x4B400000
_EXACT: frozenset[str] = frozenset()
#: Groups up to so many elements are taken in one go.
_SHORT = 128


def _codes(b: Any, x: Any, inverse: Any, lanes: int) -> Any:
    """A vector of whole numbers: x · inverse, rounded."""
    scaled = b.fmul(v.load(b, x, v.vector(v.F32, lanes), 4), v.splat(b, inverse, lanes))
    words = v.vector(v.I32, lanes)
    shifted = b.fadd(scaled, v.constant(scaled.type, _MAGIC))
    return b.sub(b.bitcast(shifted, words), v.constant(words, _MAGIC_BITS))


_CHAINS = 4


def _larger(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _reach_loop(b: Any, x: Any, start: Any, count: Any, slots: list[Any]) -> Any:
    """Largest |x| of whole runs of ``len(slots)`` vectors into ``slots``; returns where it stopped."""
    kind, step = v.vector(v.F32, LANES), v.index(LANES * len(slots))
    blocks = b.sdiv(b.sub(count, start), step)
    with for_range(b, blocks, intp=v.I64) as loop:
        at = b.add(start, b.mul(loop.index, step))
        for n, slot in enumerate(slots):
            value = v.load(b, b.gep(x, [b.add(at, v.index(LANES * n))]), kind, 4)
            b.store(_larger(b, v.call(b, f"llvm.fabs.v{LANES}f32", kind, [value]), b.load(slot)), slot)
    return b.add(start, b.mul(blocks, step))


def _across(b: Any, value: Any) -> Any:
    """The largest lane."""
    half = LANES // 2
    while half:
        value = _larger(b, b.shuffle_vector(value, value, v.lanes([(i + half) % LANES for i in range(LANES)])), value)
        half //= 2
    return b.extract_element(value, v.I32(0))


@intrinsic
def _reach(tc: Any, x: Any, count: Any) -> Any:
    """Largest |x| of ``count`` values, 0 of none; NaN are ignored."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, count = args
        kind = v.vector(v.F32, LANES)
        slots = [alloca_once(b, kind) for _ in range(_CHAINS)]
        for slot in slots:
            b.store(v.constant(kind, 0.0), slot)
        done = _reach_loop(b, x, _reach_loop(b, x, v.index(0), count, slots), count, slots[:1])
        total = b.load(slots[0])
        for slot in slots[1:]:
            total = _larger(b, b.load(slot), total)
        result = alloca_once(b, v.F32)
        b.store(_across(b, total), result)
        with for_range(b, b.sub(count, done), intp=v.I64) as loop:
            value = v.call(b, "llvm.fabs.f32", v.F32, [b.load(b.gep(x, [b.add(done, loop.index)]))])
            b.store(_larger(b, value, b.load(result)), result)
        return b.load(result)

    return types.float32(F32P, types.int64), codegen


@intrinsic
def _quantize(tc: Any, x: Any, q: Any, count: Any, inverse: Any) -> Any:
    """Quantize ``count`` values; returns the sum of the codes."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, q, count, inverse = args
        whole = alloca_once(b, v.vector(v.I32, LANES))
        b.store(v.constant(v.vector(v.I32, LANES), 0), whole)
        blocks = b.sdiv(count, v.index(LANES))
        with for_range(b, blocks, intp=v.I64) as loop:
            at = b.mul(loop.index, v.index(LANES))
            codes = _codes(b, b.gep(x, [at]), inverse, LANES)
            v.store(b, b.trunc(codes, v.vector(v.I8, LANES)), b.gep(q, [at]), 1)
            b.store(b.add(b.load(whole), codes), whole)
        total = alloca_once(b, v.I32)
        b.store(v.call(b, f"llvm.vector.reduce.add.v{LANES}i32", v.I32, [b.load(whole)]), total)
        done = b.mul(blocks, v.index(LANES))
        with for_range(b, b.sub(count, done), intp=v.I64) as loop:
            at = b.add(done, loop.index)
            codes = _codes(b, b.gep(x, [at]), inverse, 1)
            v.store(b, b.trunc(codes, v.vector(v.I8, 1)), b.gep(q, [at]), 1)
            b.store(b.add(b.load(total), b.extract_element(codes, v.I32(0))), total)
        return b.load(total)

    return types.int32(F32P, U8P, types.int64, types.float32), codegen


def _scale_of(b: Any, reach: Any, scale: Any) -> Any:
    """Write the scale of a group whose largest |x| are lanes of ``reach``; returns its reciprocal."""
    own = b.fdiv(_across(b, reach), v.F32(127.0))
    own = b.select(b.fcmp_ordered(">", own, v.F32(0.0)), own, v.F32(1.0))
    b.store(own, scale)
    return b.fdiv(v.F32(1.0), own)


def _whole_group(b: Any, x: Any, q: Any, scale: Any, total: Any) -> None:
    """A group of CHUNK elements, which stay in registers."""
    kind, steps = v.vector(v.F32, LANES), range(0, CHUNK, LANES)
    reach = v.constant(kind, 0.0)
    for at in steps:
        value = v.load(b, b.gep(x, [v.index(at)]), kind, 4)
        reach = _larger(b, v.call(b, f"llvm.fabs.v{LANES}f32", kind, [value]), reach)
    inverse = _scale_of(b, reach, scale)
    parts = [_codes(b, b.gep(x, [v.index(at)]), inverse, LANES) for at in steps]
    whole = parts[0]
    for at, codes in zip(steps, parts, strict=True):
        v.store(b, b.trunc(codes, v.vector(v.I8, LANES)), b.gep(q, [v.index(at)]), 1)
        whole = b.add(whole, codes) if at else whole
    b.store(v.call(b, f"llvm.vector.reduce.add.v{LANES}i32", v.I32, [whole]), total)


def _short_group(b: Any, x: Any, q: Any, vectors: Any, scale: Any, total: Any) -> None:
    """A group of a few vectors."""
    kind, words = v.vector(v.F32, LANES), v.vector(v.I32, LANES)
    reach, whole = alloca_once(b, kind), alloca_once(b, words)
    b.store(v.constant(kind, 0.0), reach)
    b.store(v.constant(words, 0), whole)
    _reach_loop(b, x, v.index(0), b.mul(vectors, v.index(LANES)), [reach])
    inverse = _scale_of(b, b.load(reach), scale)
    with for_range(b, vectors, intp=v.I64) as loop:
        at = b.mul(loop.index, v.index(LANES))
        codes = _codes(b, b.gep(x, [at]), inverse, LANES)
        v.store(b, b.trunc(codes, v.vector(v.I8, LANES)), b.gep(q, [at]), 1)
        b.store(b.add(b.load(whole), codes), whole)
    b.store(v.call(b, f"llvm.vector.reduce.add.v{LANES}i32", v.I32, [b.load(whole)]), total)


@intrinsic
def _quantize_short(tc: Any, x: Any, q: Any, vectors: Any, scale: Any, total: Any, groups: Any) -> Any:
    """``groups`` whole groups of a few vectors: their scales and sums are written, their codes too."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, q, vectors, scale, total, groups = args
        size = b.mul(vectors, v.index(LANES))

        def places(index: Any) -> tuple[Any, ...]:
            at = b.mul(index, size)
            return b.gep(x, [at]), b.gep(q, [at]), b.gep(scale, [index]), b.gep(total, [index])

        with b.if_else(b.icmp_signed("==", size, v.index(CHUNK))) as (one, other):
            with one, for_range(b, groups, intp=v.I64) as loop:
                _whole_group(b, *places(loop.index))
            with other, for_range(b, groups, intp=v.I64) as loop:
                source, to, own, sums = places(loop.index)
                _short_group(b, source, to, vectors, own, sums)
        return context.get_dummy_value()

    return types.none(F32P, U8P, types.int64, F32P, I32P, types.int64), codegen


@block(fast=_EXACT)
def quantize_row(x: Any, q: Any, scales: Any, sums: Any, group: Any) -> None:
    """One row; ``q`` may be longer than ``x``: zeros follow."""
    cols = x.shape[0]
    whole = cols // group if group <= _SHORT and group % LANES == 0 else 0
    _quantize_short(ptr(x, 0), ptr(q, 0), group // LANES, ptr(scales, 0), ptr(sums, 0), whole)
    for g in range(whole, scales.shape[0]):
        start = min(g * group, cols)
        count = min(cols - start, group)
        scale = np.float32(_reach(ptr(x, start), count) / np.float32(127.0))
        scale = scale if scale > np.float32(0.0) else np.float32(1.0)
        scales[g] = scale
        sums[g] = _quantize(ptr(x, start), ptr(q, g * group), count, np.float32(1.0) / scale)
    for i in range(cols, q.shape[0]):
        q[i] = np.uint8(0)


@block(fast=_EXACT)
def _place(row: Any, r: Any, q: Any, scales: Any, sums: Any, depth: Any, group: Any) -> None:
    """Quantize a row into place ``r``."""
    groups = depth // group
    at = r * groups
    quantize_row(row, span(q, r * depth, depth), span(scales, at, groups), span(sums, at, groups), group)


@kernel(fast=_EXACT)
def quantize_groups(
    x: InF32, factors: InF32, q: OutU8, scales: OutF32, sums: OutI32, scratch: OutF32, rows: int, cols: int, depth: int, group: int
) -> None:  # fmt: skip
    """Quantize every row in groups, optionally times a factor a column (SmoothQuant) first.

    Args:
        x: [rows · cols].
        factors: [cols], or empty for none.
        q: int8 as uint8 [rows · depth].
        scales: [rows · depth / group], written.
        sums: int32 [rows · depth / group], the sum of each group's codes, written.
        scratch: float32 [cols] where there are factors.
        rows: rows.
        cols: elements of a row.
        depth: elements of a row of ``q``: ``cols`` rounded up (:func:`hetsched_kernels.few_bits.padded_depth`), zeros follow.
        group: elements that share a scale; one group of ``depth`` is a scale a token.
    """
    for r in range(rows):
        row = span(x, r * cols, cols)
        if factors.shape[0] == 0:
            _place(row, r, q, scales, sums, depth, group)
            continue
        for i in range(cols):
            scratch[i] = row[i] * factors[i]
        _place(span(scratch, 0, cols), r, q, scales, sums, depth, group)


@kernel(fast=_EXACT)
def rms_norm_quantize_groups(
    x: InF32,
    skip: InF32,
    scale: InF32,
    total: OutF32,
    q: OutU8,
    scales: OutF32,
    sums: OutI32,
    scratch: OutF32,
    rows: int,
    cols: int,
    depth: int,
    group: int,
    epsilon: float,
) -> None:
    """Compute x / sqrt(mean(x²) + epsilon) · scale and quantize it, with x + skip in x's place where a residual comes in.

    Args:
        x: [rows · cols].
        skip: [rows · cols] added to ``x`` first, or empty.
        scale: [cols].
        total: [rows · cols], the sum x + skip, where there is one.
        q: as :data:`quantize_groups`, like all that follow.
        scales: as there.
        sums: as there.
        scratch: float32 [cols].
        rows: rows.
        cols: elements of a row.
        depth: elements of a row of ``q``.
        group: elements that share a scale.
        epsilon: added to the mean of the squares.
    """
    normal = span(scratch, 0, cols)
    for r in range(rows):
        norm_row(x, skip, scale, total, r, epsilon, normal)
        _place(normal, r, q, scales, sums, depth, group)


@kernel(fast=_EXACT)
def swiglu_quantize_groups(
    gate: InF32, up: InF32, q: OutU8, scales: OutF32, sums: OutI32, scratch: OutF32, rows: int, cols: int, depth: int, group: int
) -> None:  # fmt: skip
    """Compute silu(gate) · up and quantize it; arguments as :data:`quantize_groups`, ``scratch`` float32 [cols]."""
    product = span(scratch, 0, cols)
    for r in range(rows):
        gate_row(gate, up, r, product)
        _place(product, r, q, scales, sums, depth, group)
