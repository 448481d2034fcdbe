"""Strided slices, gathers, shapes as values, and blocks moved between space and batch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hetsched.frontends.tflite_builder import Builder, Value
from hetsched.frontends.tflite_movement import slice_inputs

Lower = Callable[[Builder], None]
_MAX_VALUES = 1 << 16


def _strided_slice(b: Builder) -> None:
    """Cut, then reshape for the axes that appear or disappear (one index instead of a range, new axes)."""
    begin, end, strides, shape = b.integers(1), b.integers(2), b.integers(3), b.shape(0)
    if not len(begin) == len(end) == len(strides) <= 2 * len(shape) + 16:
        raise b.bad(f"it cuts {list(shape)} from {begin} to {end} by {strides}")
    masks = {k: b.option(k) for k in ("begin", "end", "ellipsis", "new_axis", "shrink")}
    spec = len(begin)
    real = [i for i in range(spec) if not (masks["new_axis"] | masks["ellipsis"]) >> i & 1]
    fill = max(len(shape) - len(real), 0)
    starts, ends, steps = [0] * len(shape), list(shape), [1] * len(shape)
    target: list[int | None] = []
    axis = 0
    for i in range(spec):
        if masks["ellipsis"] >> i & 1:
            target += list(range(axis, axis + fill))
            axis, fill = axis + fill, 0
        elif masks["new_axis"] >> i & 1:
            target.append(None)
        else:
            if axis >= len(shape):
                raise b.bad(f"it cuts more axes than {list(shape)} has")
            if masks["shrink"] >> i & 1:
                first = begin[i] + shape[axis] * (begin[i] < 0)
                if not 0 <= first < shape[axis]:
                    raise b.bad(f"it takes element {begin[i]} of an axis of {shape[axis]}")
                starts[axis], ends[axis] = first, first + 1
            else:
                row = _range(b, shape[axis], begin[i], end[i] + begin[i] * b.option("offset"), strides[i], masks, i)
                starts[axis], ends[axis], steps[axis] = row
                target.append(axis)
            axis += 1
    target += list(range(axis, len(shape)))
    _write_cut(b, starts, ends, steps, target)


def _range(b: Builder, size: int, begin: int, end: int, step: int, masks: dict[str, int], i: int) -> tuple[int, int, int]:
    """Start, end and step of one axis, as ONNX's Slice has them."""
    if step == 0:
        raise b.bad("it has the step 0")
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = begin + size * (begin < 0)
    last = end + size * (end < 0)
    first = min(max(first, low), high)
    last = min(max(last, low), high)
    if masks["begin"] >> i & 1:
        first = 0 if step > 0 else size - 1
    if masks["end"] >> i & 1:
        last = size if step > 0 else -1
    if step > 0:
        return (first, max(last, first), step) if (first, last) != (0, size) or step != 1 else (0, size, 1)
    return first, -(size + 1) if last < 0 else last, step


def _write_cut(b: Builder, starts: list[int], ends: list[int], steps: list[int], target: list[int | None]) -> None:
    x = b.value(0)
    inputs = slice_inputs(b, x, starts, ends, steps)
    if target == list(range(len(x.order))):
        read, raw = b.carrier([0])
        b.write("Slice" if inputs else "Identity", (read(x, x.order), *inputs), order=x.order, raw=raw)
        return
    name = b.keep_meaning(b.emit("Slice", (x.name, *inputs), "slice"), x.name) if inputs else x.name
    cut = b.raw(Value(name, x.order))
    shape = b.tensors[cut].shape
    b.write_reshaped(cut, tuple(1 if k is None else shape[k] for k in target))


def _gather(b: Builder) -> None:
    if b.option("batch_dims"):
        raise b.unsupported(f"it gathers with {b.option('batch_dims')} batch dims")
    _gather_along(b, 0, 1, b.axis(b.option("axis"), max(b.rank(0), 1)))


def _gather_along(b: Builder, data: int, index: int, axis: int) -> None:
    if b.rank(data) < 1:
        raise b.bad("it gathers from a scalar")
    read, raw = b.carrier([data])
    b.write("Gather", (read(b.value(data), None), b.raw(b.value(index))), {"axis": axis}, raw=raw)


def _gather_nd(b: Builder) -> None:
    read, raw = b.carrier([0])
    b.write("GatherND", (read(b.value(0), None), b.int64(1)), raw=raw)


def _shape(b: Builder) -> None:
    b.write_value(np.array(b.shape(0)))


def _rank(b: Builder) -> None:
    b.write_value(np.array(b.rank(0)))


def _fill(b: Builder) -> None:
    shape = b.integers(0)
    if any(d < 0 for d in shape) or math.prod(shape) > 1 << 40:
        raise b.bad(f"it fills the shape {shape}")
    read, raw = b.carrier([1])
    b.write("Expand", (read(b.value(1), None), b.ints("shape", shape)), raw=raw)


def _zeros_like(b: Builder) -> None:
    zero = b.constant("zero", np.zeros((), b.result().element_type().numpy))
    b.write("Expand", (zero, b.ints("shape", b.shape(0))), raw=b.quantization(b.result()) is None)


def _sequence(b: Builder) -> None:
    start, limit, delta = (b.number(k).reshape(-1) for k in range(3))
    if not start.size == limit.size == delta.size == 1 or delta[0] == 0 or abs((limit[0] - start[0]) / delta[0]) > _MAX_VALUES:
        raise b.bad(f"it counts from {start.tolist()} to {limit.tolist()} by {delta.tolist()}")
    b.write_value(np.arange(start[0], limit[0], delta[0]))


def _top_k(b: Builder) -> None:
    """Values and int32 indices of the ``k`` largest along the last axis."""
    from hetsched.reference.element_types import NUMBER_OF

    x, k = b.value(0), b.integers(1)
    if len(k) != 1 or not x.order or not 0 < k[0] <= b.shape(0)[-1]:
        raise b.bad(f"it takes the {k} largest of {list(b.shape(0))}")
    values, indices = b.emit_many("TopK", (b.real(x), b.ints("k", k)), 2, {"axis": len(x.order) - 1})
    b.write("Identity", (values,))
    b.write("Cast", (indices,), {"to": NUMBER_OF[b.result(1).element_type()]}, k=1)


def _blocks_of(b: Builder) -> tuple[list[int], list[list[int]], tuple[int, ...]]:
    blocks, rows, shape = b.integers(1), b.number(2), b.shape(0)
    if rows.shape != (len(blocks), 2) or len(shape) < 1 + len(blocks) or any(not 0 < n < _MAX_VALUES for n in blocks) or (rows < 0).any():
        raise b.bad(f"it moves blocks of {blocks} of {list(shape)}")
    return blocks, rows.tolist(), shape


def _space_to_batch(b: Builder) -> None:
    """``[N, H, W, C]`` padded to ``[N, H/b, b, W/b, b, C]``, whose blocks go to the front, then into the batch."""
    blocks, rows, shape = _blocks_of(b)
    read, raw = b.carrier([0])
    raw = raw and not b.is_quantized(0)
    name = read(b.value(0), None) if raw else b.real(b.value(0))
    m, rest = len(blocks), len(shape) - 1 - len(blocks)
    amounts = [row[side] for side in (0, 1) for row in ([0, 0], *rows, *[[0, 0]] * rest)]
    if any(amounts):
        name = b.emit("Pad", (name, b.ints("pads", amounts)), "padded", {"mode": "constant"})
    padded = b.tensors[name].shape
    if any(padded[1 + i] % n for i, n in enumerate(blocks)):
        raise b.bad(f"its blocks {blocks} do not divide {list(padded)}")
    split = [v for i, n in enumerate(blocks) for v in (padded[1 + i] // n, n)]
    name = b.reshaped(name, (shape[0], *split, *shape[1 + m :]), "blocks")
    perm = (*(2 + 2 * i for i in range(m)), 0, *(1 + 2 * i for i in range(m)), *range(1 + 2 * m, 1 + 2 * m + rest))
    name = b.emit("Transpose", (name,), "moved", {"perm": perm})
    target = (shape[0] * math.prod(blocks), *(padded[1 + i] // n for i, n in enumerate(blocks)), *shape[1 + m :])
    b.write("Reshape", (name, b.ints("shape", target)), raw=raw)


def _batch_to_space(b: Builder) -> None:
    blocks, rows, shape = _blocks_of(b)
    m, rest, count = len(blocks), len(shape) - 1 - len(blocks), math.prod(blocks)
    if shape[0] % count:
        raise b.bad(f"its blocks {blocks} do not divide a batch of {shape[0]}")
    read, raw = b.carrier([0])
    batch = shape[0] // count
    name = b.reshaped(read(b.value(0), None), (*blocks, batch, *shape[1:]), "blocks")
    perm = (m, *(v for i in range(m) for v in (m + 1 + i, i)), *range(1 + 2 * m, 1 + 2 * m + rest))
    name = b.emit("Transpose", (name,), "moved", {"perm": perm})
    sizes = [n * shape[1 + i] for i, n in enumerate(blocks)]
    name = b.reshaped(name, (batch, *sizes, *shape[1 + m :]), "joined")
    ends = [max(n - row[1], row[0]) for n, row in zip(sizes, rows, strict=True)]
    cut = (b.ints("starts", [r[0] for r in rows]), b.ints("ends", ends), b.ints("axes", list(range(1, 1 + m))))
    b.write("Slice", (name, *cut), raw=raw)


LOWERINGS: dict[str, Lower] = {
    "STRIDED_SLICE": _strided_slice,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "EMBEDDING_LOOKUP": lambda b: _gather_along(b, 1, 0, 0),
    "SHAPE": _shape,
    "RANK": _rank,
    "FILL": _fill,
    "ZEROS_LIKE": _zeros_like,
    "RANGE": _sequence,
    "TOPK_V2": _top_k,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "BATCH_TO_SPACE_ND": _batch_to_space,
}
