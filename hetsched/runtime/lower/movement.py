"""Operators that move elements without changing them: copies, transpositions, slices, concatenations, padding.

They work on the stored elements where input and output are stored alike, and on reals where a quantization differs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.graph import Op, Tensor
from hetsched.runtime.lower.copying import contiguous, emit_copy
from hetsched.runtime.lower.lowering import Array, Lowering, affine_of, bits
from hetsched_kernels import codes, movement


def same_storage(low: Lowering, a: Tensor, b: Tensor) -> bool:
    """Whether equal stored elements of two tensors mean equal values."""
    if a.quantization is None or b.quantization is None:
        return a.dtype is b.dtype  # codes that only get their meaning on the other side
    if a.dtype is not b.dtype:
        return False
    x, y = affine_of(low.graph, a), affine_of(low.graph, b)
    return x.scales.size == y.scales.size == 1 and x.scale == y.scale and x.zero == y.zero


def endpoints(low: Lowering, inputs: Sequence[int] = (0,)) -> tuple[list[Array], list[Array]]:
    """The arrays of the inputs and of all outputs, as bits if all are stored alike, else as bits of float32."""
    outputs = [i for i, o in enumerate(low.op.outputs) if o]
    alike = all(same_storage(low, low.tensor(i), low.output(o)) for i in inputs for o in outputs)
    sources = [bits(low.raw(i) if alike else low.reals(i)) for i in inputs]
    return sources, [bits(low.raw_output(o) if alike else low.real_output(o)) for o in outputs]


def copy(low: Lowering) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze, Identity: the same elements in another shape, in a buffer of their own."""
    (source,), (target,) = endpoints(low)
    emit_copy(low, source, target, (source.size,), (1,), (1,))


def transpose(low: Lowering) -> None:
    """Transpose."""
    shape = low.shape(0)
    perm = low.op.attr_ints("perm", tuple(reversed(range(len(shape)))))
    (source,), (target,) = endpoints(low)
    strides = contiguous(shape)
    out = low.output().shape
    emit_copy(low, source, target, out, [strides[p] for p in perm], contiguous(out))


def slice_bounds(low: Lowering) -> list[tuple[int, int]]:
    """``(start, step)`` of Slice for every axis; counts come from the output's shape."""
    op, shape = low.op, low.shape(0)
    if len(op.inputs) > 1:
        starts = [int(v) for v in low.constant(1).reshape(-1)]
        axes = [int(v) for v in low.constant(3).reshape(-1)] if low.has(3) else list(range(len(starts)))
        steps = [int(v) for v in low.constant(4).reshape(-1)] if low.has(4) else [1] * len(starts)
    else:
        starts = list(op.attr_ints("starts", ()))
        axes, steps = list(op.attr_ints("axes", tuple(range(len(starts))))), [1] * len(starts)
    bounds = [(0, 1)] * len(shape)
    for start, axis, step in zip(starts, axes, steps, strict=True):
        n = shape[axis]
        start = start + n if start < 0 else start
        bounds[axis % len(shape)] = (min(max(start, 0), n if step > 0 else n - 1), step)
    return bounds


def cut(low: Lowering) -> None:
    """Slice with constant bounds; negative steps too."""
    bounds, strides, out = slice_bounds(low), contiguous(low.shape(0)), low.output().shape
    (source,), (target,) = endpoints(low)
    offset = sum(start * s for (start, _), s in zip(bounds, strides, strict=True))
    emit_copy(low, source, target, out, [step * s for (_, step), s in zip(bounds, strides, strict=True)], contiguous(out), offset)


def concatenate(low: Lowering) -> None:
    """Concat: one copy an input."""
    out = low.output().shape
    axis = low.op.attr_int("axis", 0) % len(out)
    target_strides = contiguous(out)
    sources, (target,) = endpoints(low, range(len(low.op.inputs)))
    at = 0
    for i, source in enumerate(sources):
        shape = low.shape(i)
        emit_copy(low, source, target, shape, contiguous(shape), target_strides, 0, at * target_strides[axis])
        at += shape[axis]


def split(low: Lowering) -> None:
    """Split: one copy an output."""
    shape = low.shape(0)
    axis = low.op.attr_int("axis", 0) % len(shape)
    strides = contiguous(shape)
    (source,), targets = endpoints(low)
    at = 0
    kept = iter(targets)
    for name in low.op.outputs:
        if not name:
            continue
        part = low.graph.tensors[name].shape
        emit_copy(low, source, next(kept), part, strides, contiguous(part), at * strides[axis])
        at += part[axis]


def expand(low: Lowering) -> None:
    """Expand: a stride of zero along repeated dims."""
    out, shape = low.output().shape, low.shape(0)
    padded = (1,) * (len(out) - len(shape)) + shape
    strides = [0 if n == 1 and m != 1 else s for n, m, s in zip(padded, out, contiguous(padded), strict=True)]
    (source,), (target,) = endpoints(low)
    emit_copy(low, source, target, out, strides, contiguous(out))


def tile(low: Lowering) -> None:
    """Tile: every dim becomes (repeats, n), with a stride of zero along the repeats."""
    shape, out = low.shape(0), low.output().shape
    strides, box, source_strides = contiguous(shape), [], []
    for n, m, s in zip(shape, out, strides, strict=True):
        box += [m // n if n else 0, n]
        source_strides += [0, s]
    (source,), (target,) = endpoints(low)
    emit_copy(low, source, target, box, source_strides, contiguous(box))


def pad(low: Lowering) -> None:
    """Pad: constant, reflect, edge and wrap."""
    op, shape, out = low.op, low.shape(0), low.output().shape
    begins = pad_begins(low, op, len(shape))
    (source,), (target,) = endpoints(low)
    mode = op.attr_str("mode", "constant")
    if mode != "constant":
        arrays = (np.array(v, np.int64) for v in (shape, begins, out))
        dims, starts, extents = arrays
        low.emit(movement.pad_index, source, target, dims, starts, extents, codes.PAD_MODE[mode], dtypes=(source.dtype,))
        return
    kind = low.tensor(0).dtype.numpy if target.dtype.itemsize == low.tensor(0).dtype.numpy.itemsize else np.dtype(np.float32)
    value = low.constant(2).reshape(-1)[:1] if low.has(2) else np.full(1, op.attr_float("value", 0.0))
    low.emit(movement.fill, target, bits(np.ascontiguousarray(value.astype(kind))), dtypes=(target.dtype,))
    strides, target_strides = contiguous(shape), contiguous(out)
    # Negative pads cut: the box is what is left of the source.
    skip = [max(-b, 0) for b in begins]
    box = [min(n - k, m - max(b, 0)) for n, k, m, b in zip(shape, skip, out, begins, strict=True)]
    source_offset = sum(k * s for k, s in zip(skip, strides, strict=True))
    target_offset = sum(max(b, 0) * t for b, t in zip(begins, target_strides, strict=True))
    emit_copy(low, source, target, box, strides, target_strides, source_offset, target_offset)


def pad_begins(low: Lowering, op: Op, rank: int) -> list[int]:
    """Elements added before each axis (negative: removed)."""
    pads = [int(v) for v in low.constant(1).reshape(-1)] if low.has(1) else list(op.attr_ints("pads", (0,) * (2 * rank)))
    axes = [int(v) % rank for v in low.constant(3).reshape(-1)] if low.has(3) else list(range(rank))
    begins = [0] * rank
    for axis, begin in zip(axes, pads[: len(axes)], strict=True):
        begins[axis] = begin
    return begins


def depth_to_space(low: Lowering) -> None:
    """DepthToSpace, both modes: a transposition of a 6-D view."""
    n, c, h, w = low.shape(0)
    b = low.op.attr_int("blocksize", 1)
    rows_first = low.op.attr_str("mode", "DCR") == "DCR"
    view = (n, b, b, c // (b * b), h, w) if rows_first else (n, c // (b * b), b, b, h, w)
    perm = (0, 3, 4, 1, 5, 2) if rows_first else (0, 1, 4, 2, 5, 3)
    _permuted(low, view, perm)


def space_to_depth(low: Lowering) -> None:
    """SpaceToDepth: a transposition of a 6-D view."""
    n, c, h, w = low.shape(0)
    b = low.op.attr_int("blocksize", 1)
    _permuted(low, (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4))


def _permuted(low: Lowering, view: tuple[int, ...], perm: tuple[int, ...]) -> None:
    strides, out = contiguous(view), [view[p] for p in perm]
    (source,), (target,) = endpoints(low)
    emit_copy(low, source, target, out, [strides[p] for p in perm], contiguous(out))
