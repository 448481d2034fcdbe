"""Copies between strided views: transpose, slice, expand, concatenate, split, tile, the interior of a pad.

Elements are moved by their size, so pass unsigned views (``x.view(np.uint32)`` for float32).
"""

from __future__ import annotations

from typing import Any

from numba import types

from hetsched_kernels import codes as c
from hetsched_kernels import vectors as v
from hetsched_kernels.arrays import InI64, InT, OutT
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.lowlevel import intrinsic
from hetsched_kernels.parts import ptr, span, zero_index

_TILE = 16
_SIDE = 8
_SIZES = ("uint32", "uint8", "uint64", "uint16")


@block
def _merge(shape: Any, src_strides: Any, dst_strides: Any, sizes: Any, src_steps: Any, dst_steps: Any) -> Any:
    """Drop dimensions of 1 and join neighbours that step alike; fills sizes and steps, and returns the rank left (≥ 1)."""
    rank = 0
    for axis in range(shape.shape[0]):
        if shape[axis] == 1:
            continue
        joins = (
            rank > 0 and src_steps[rank - 1] == src_strides[axis] * shape[axis] and dst_steps[rank - 1] == dst_strides[axis] * shape[axis]
        )
        if joins:
            sizes[rank - 1] *= shape[axis]
        else:
            sizes[rank] = shape[axis]
            rank += 1
        src_steps[rank - 1] = src_strides[axis]
        dst_steps[rank - 1] = dst_strides[axis]
    if rank == 0:
        sizes[0], src_steps[0], dst_steps[0] = 1, 1, 1
        rank = 1
    return rank


@block
def _copy_run(src: Any, so: Any, ss: Any, dst: Any, do: Any, ds: Any, n: Any) -> None:
    """One dimension."""
    if ss == 1 and ds == 1:
        source, target = span(src, so, n), span(dst, do, n)
        for i in range(n):
            target[i] = source[i]
    elif ss == 0 and ds == 1:
        value = src[so]
        target = span(dst, do, n)
        for i in range(n):
            target[i] = value
    else:
        for i in range(n):
            dst[do + i * ds] = src[so + i * ss]


@intrinsic
def _transpose_square(typing_context: Any, src: Any, src_step: Any, dst: Any, dst_step: Any) -> Any:
    """Move an 8 x 8 square: 8 runs of 8 elements ``src_step`` apart become columns of 8 runs ``dst_step`` apart."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        src, src_step, dst, dst_step = args
        kind = v.vector(src.type.pointee, _SIDE)
        size = signature.args[0].dtype.bitwidth // 8
        rows = [v.load(b, b.gep(src, [b.mul(src_step, v.index(i))]), kind, size) for i in range(_SIDE)]
        half = _SIDE // 2
        low = [i // 2 + (i % 2) * _SIDE for i in range(_SIDE)]
        high = [i + half for i in low]
        for _ in range(3):  # three perfect shuffles of 8 rows are a transposition
            pairs = [(rows[i], rows[i + half]) for i in range(half)]
            rows = [b.shuffle_vector(x, y, v.lanes(order)) for x, y in pairs for order in (low, high)]
        for i, row in enumerate(rows):
            v.store(b, row, b.gep(dst, [b.mul(dst_step, v.index(i))]), size)
        return context.get_dummy_value()

    return types.none(src, types.int64, dst, types.int64), codegen


@block
def _copy_rectangle(
    src: Any, so: Any, sr: Any, sc: Any, dst: Any, do: Any, dr: Any, dc: Any, r0: Any, r1: Any, c0: Any, c1: Any
) -> None:  # fmt: skip
    for r in range(r0, r1):
        for k in range(c0, c1):
            dst[do + r * dr + k * dc] = src[so + r * sr + k * sc]


@block
def _copy_plane(src: Any, so: Any, sr: Any, sc: Any, dst: Any, do: Any, dr: Any, dc: Any, rows: Any, cols: Any) -> None:
    """Two dimensions whose fast directions differ: tile by tile, so that both sides stay in cache."""
    if sr == 1 and dc == 1 and rows >= _SIDE and cols >= _SIDE:
        whole_rows, whole_cols = rows // _SIDE * _SIDE, cols // _SIDE * _SIDE
        for k in range(0, whole_cols, _SIDE):
            for r in range(0, whole_rows, _SIDE):
                _transpose_square(ptr(src, so + r + k * sc), sc, ptr(dst, do + r * dr + k), dr)
        _copy_rectangle(src, so, sr, sc, dst, do, dr, dc, 0, rows, whole_cols, cols)
        _copy_rectangle(src, so, sr, sc, dst, do, dr, dc, whole_rows, rows, 0, whole_cols)
        return
    for r0 in range(0, rows, _TILE):
        r1 = min(r0 + _TILE, rows)
        for c0 in range(0, cols, _TILE):
            c1 = min(c0 + _TILE, cols)
            _copy_rectangle(src, so, sr, sc, dst, do, dr, dc, r0, r1, c0, c1)


@kernel(T=_SIZES)
def copy_strided(src: InT, src_offset: int, src_strides: InI64, dst: OutT, dst_offset: int, dst_strides: InI64, shape: InI64) -> None:
    """dst[dst_offset + Σ i·dst_strides] = src[src_offset + Σ i·src_strides] for every index of ``shape``.

    Args:
        src: flat source (unsigned view of the element's size).
        src_offset: element where index 0 lies.
        src_strides: int64 [rank] element strides; 0 repeats, negative reverses.
        dst: flat destination, not overlapping the source.
        dst_offset: the same for the destination.
        dst_strides: the same for the destination.
        shape: int64 [rank]; rank 0 copies one element.
    """
    sizes, src_steps, dst_steps = zero_index(), zero_index(), zero_index()
    rank = _merge(shape, src_strides, dst_strides, sizes, src_steps, dst_steps)
    total = 1
    for axis in range(rank):
        total *= sizes[axis]
    if total == 0:
        return
    last = rank - 1
    other = -1
    if src_steps[last] != 1 and src_steps[last] != 0:
        for axis in range(last):
            if src_steps[axis] == 1:
                other = axis
    index = zero_index()
    so, do = src_offset, dst_offset
    n = sizes[last]
    outer = total // n if other < 0 else total // (n * sizes[other])
    for _ in range(outer):
        if other < 0:
            _copy_run(src, so, src_steps[last], dst, do, dst_steps[last], n)
        else:
            _copy_plane(src, so, 1, src_steps[last], dst, do, dst_steps[other], dst_steps[last], sizes[other], n)
        axis = last - 1
        while axis >= 0:
            if axis != other:
                index[axis] += 1
                so += src_steps[axis]
                do += dst_steps[axis]
                if index[axis] < sizes[axis]:
                    break
                so -= src_steps[axis] * sizes[axis]
                do -= dst_steps[axis] * sizes[axis]
                index[axis] = 0
            axis -= 1


@kernel(T=_SIZES)
def fill(dst: OutT, value: InT) -> None:
    """Set every element to value[0]."""
    v = value[0]
    for i in range(dst.shape[0]):
        dst[i] = v


@block
def _reflected(i: Any, size: Any, mode: Any) -> Any:
    """The source index for position ``i`` outside or inside [0, size)."""
    if mode == c.EDGE or size == 1:
        return min(max(i, 0), size - 1)
    if mode == c.WRAP:
        return i % size
    period = 2 * (size - 1)
    i = i % period
    return period - i if i >= size else i


@kernel(T=_SIZES)
def pad_index(src: InT, dst: OutT, shape: InI64, begins: InI64, out_shape: InI64, mode: int) -> None:
    """Pad by repeating the tensor's own elements.

    Args:
        src: contiguous input of ``shape``.
        dst: contiguous output of ``out_shape``.
        shape: int64 [rank], rank ≥ 1, no zero.
        begins: int64 [rank], elements added (negative: removed) before each dimension.
        out_shape: int64 [rank].
        mode: ``codes.REFLECT``, ``codes.EDGE`` or ``codes.WRAP``.
    """
    rank = shape.shape[0]
    index = zero_index()
    inner = out_shape[rank - 1]
    rows = 1
    for axis in range(rank - 1):
        rows *= out_shape[axis]
    for row in range(rows):
        base = 0
        for axis in range(rank - 1):
            base = (base + _reflected(index[axis] - begins[axis], shape[axis], mode)) * shape[axis + 1]
        for i in range(inner):
            dst[row * inner + i] = src[base + _reflected(i - begins[rank - 1], shape[rank - 1], mode)]
        axis = rank - 2
        while axis >= 0:
            index[axis] += 1
            if index[axis] < out_shape[axis]:
                break
            index[axis] = 0
            axis -= 1
