"""Operators that move data without computing: shapes, slices, gathers, pads."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.graph import Op
from hetsched.reference.elementwise import Array, Function, Inputs, given, optional


def reshape_target(shape: tuple[int, ...], target: list[int], allow_zero: bool) -> tuple[int, ...]:
    """The shape a Reshape asks for, with 0 (copy) and -1 (the rest) resolved as far as numpy needs."""
    return tuple(shape[i] if d == 0 and not allow_zero else d for i, d in enumerate(target))


def normal_axes(axes: Array | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; every axis where none are given."""
    return tuple(range(rank)) if axes is None else tuple(int(a) % rank for a in axes.reshape(-1))


def _reshape(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0)
    return [a.reshape(reshape_target(a.shape, given(op, x, 1).tolist(), bool(op.attr_int("allowzero", 0))))]


def _flatten(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0)
    axis = op.attr_int("axis", 1)
    lead = int(np.prod(a.shape[: axis + a.ndim if axis < 0 else axis], dtype=np.int64))
    return [a.reshape(lead, a.size // lead if lead else 0)]


def _transpose(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0)
    return [a.transpose(op.attr_ints("perm", tuple(range(a.ndim))[::-1]))]


def _squeeze(op: Op, x: Inputs) -> list[Array]:
    a, axes = given(op, x, 0), optional(x, 1)
    return [np.squeeze(a) if axes is None else np.squeeze(a, normal_axes(axes, a.ndim))]


def _unsqueeze(op: Op, x: Inputs) -> list[Array]:
    a, axes = given(op, x, 0), given(op, x, 1)
    return [np.expand_dims(a, normal_axes(axes, a.ndim + axes.size))]


def _concat(op: Op, x: Inputs) -> list[Array]:
    return [np.concatenate([given(op, x, i) for i in range(len(x))], op.attr_int("axis", 0))]


def _split(op: Op, x: Inputs) -> list[Array]:
    a, sizes = given(op, x, 0), optional(x, 1)
    axis = op.attr_int("axis", 0)
    if sizes is None:
        n = op.attr_int("num_outputs", len(op.outputs))
        each = -(-a.shape[axis] // n)
        cuts = [min(each * i, a.shape[axis]) for i in range(1, n)]
    else:
        cuts = np.cumsum(sizes)[:-1].tolist()
    return list(np.split(a, cuts, axis))


def _slice(op: Op, x: Inputs) -> list[Array]:
    a, starts, ends = given(op, x, 0), given(op, x, 1).tolist(), given(op, x, 2).tolist()
    axes_in, steps_in = optional(x, 3), optional(x, 4)
    axes = list(range(len(starts))) if axes_in is None else list(normal_axes(axes_in, a.ndim))
    steps = [1] * len(starts) if steps_in is None else steps_in.tolist()
    cut = [slice(None)] * a.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = a.shape[axis]
        start, end = (v + size if v < 0 else v for v in (start, end))
        if step > 0:
            cut[axis] = slice(min(max(start, 0), size), min(max(end, 0), size), step)
        else:
            stop = min(max(end, -1), size - 1)
            cut[axis] = slice(min(max(start, 0), size - 1), None if stop < 0 else stop, step)
    return [a[tuple(cut)]]


def _gather(op: Op, x: Inputs) -> list[Array]:
    a, index = given(op, x, 0), given(op, x, 1)
    axis = op.attr_int("axis", 0)
    return [np.take(a, np.where(index < 0, index + a.shape[axis], index), axis)]


def _gather_elements(op: Op, x: Inputs) -> list[Array]:
    a, index = given(op, x, 0), given(op, x, 1)
    axis = op.attr_int("axis", 0) % a.ndim
    grid: list[Array] = list(np.indices(index.shape, sparse=True))
    grid[axis] = np.where(index < 0, index + a.shape[axis], index)
    return [a[tuple(grid)]]


def _gather_nd(op: Op, x: Inputs) -> list[Array]:
    a, index = given(op, x, 0), given(op, x, 1)
    batch = op.attr_int("batch_dims", 0)
    lead = a.shape[:batch]
    flat_a = a.reshape(-1, *a.shape[batch:])
    flat_i = index.reshape(-1, *index.shape[batch:])
    rows = [r[tuple(np.moveaxis(i, -1, 0))] for r, i in zip(flat_a, flat_i, strict=True)]
    out = np.stack(rows)
    return [out.reshape(*lead, *out.shape[1:])]


def _scatter_elements(op: Op, x: Inputs) -> list[Array]:
    out, index, updates = given(op, x, 0).copy(), given(op, x, 1), given(op, x, 2)
    axis = op.attr_int("axis", 0) % out.ndim
    grid: list[Array] = list(np.indices(index.shape, sparse=True))
    grid[axis] = np.where(index < 0, index + out.shape[axis], index)
    _accumulate(out, tuple(grid), updates, op.attr_str("reduction", "none"))
    return [out]


def _scatter_nd(op: Op, x: Inputs) -> list[Array]:
    out, index, updates = given(op, x, 0).copy(), given(op, x, 1), given(op, x, 2)
    _accumulate(out, tuple(np.moveaxis(index, -1, 0)), updates, op.attr_str("reduction", "none"))
    return [out]


def _accumulate(out: Array, index: tuple[Any, ...], updates: Array, reduction: str) -> None:
    ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction)
    if ufunc is None:
        out[index] = updates
    else:
        ufunc.at(out, index, updates)


def _pad(op: Op, x: Inputs) -> list[Array]:
    a, pads, value = given(op, x, 0), given(op, x, 1).tolist(), optional(x, 2)
    axes = normal_axes(optional(x, 3), a.ndim)
    width = [[0, 0] for _ in range(a.ndim)]
    for k, axis in enumerate(axes):
        width[axis] = [pads[k], pads[k + len(axes)]]
    crop = tuple(slice(-min(lo, 0), a.shape[i] + min(hi, 0)) for i, (lo, hi) in enumerate(width))
    grow = [(max(lo, 0), max(hi, 0)) for lo, hi in width]
    mode = op.attr_str("mode", "constant")
    if mode == "constant":
        return [np.pad(a[crop], grow, constant_values=a.dtype.type(0) if value is None else value.reshape(()).astype(a.dtype))]
    names: dict[str, Any] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    return [np.pad(a[crop], grow, mode=names[mode])]


def _constant_of_shape(op: Op, x: Inputs) -> list[Array]:
    value = op.attrs.get("value")
    scalar = value.reshape(()) if isinstance(value, np.ndarray) else np.float32(0)
    return [np.broadcast_to(scalar, tuple(given(op, x, 0).tolist()))]


def _expand(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0)
    return [np.broadcast_to(a, np.broadcast_shapes(a.shape, tuple(given(op, x, 1).tolist())))]


def _shape(op: Op, x: Inputs) -> list[Array]:
    dims = np.array(given(op, x, 0).shape, np.int64)
    return [dims[op.attr_int("start", 0) : op.attr_int("end", dims.size)]]


def _range(op: Op, x: Inputs) -> list[Array]:
    start, limit, delta = (given(op, x, i).reshape(()) for i in range(3))
    count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
    return [(start + np.arange(count) * delta).astype(start.dtype)]


def _depth_to_space(op: Op, x: Inputs) -> list[Array]:
    a, b = given(op, x, 0), op.attr_int("blocksize", 1)
    n, c, h, w = a.shape
    if op.attr_str("mode", "DCR") == "DCR":
        y = a.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = a.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return [y.reshape(n, c // (b * b), h * b, w * b)]


def _space_to_depth(op: Op, x: Inputs) -> list[Array]:
    a, b = given(op, x, 0), op.attr_int("blocksize", 1)
    n, c, h, w = a.shape
    return [a.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)]


def _constant(op: Op, x: Inputs) -> list[Array]:
    return [np.asarray(op.attrs["value"])]


def _tile(op: Op, x: Inputs) -> list[Array]:
    return [np.tile(given(op, x, 0), given(op, x, 1).tolist())]


def _trilu(op: Op, x: Inputs) -> list[Array]:
    a, k = given(op, x, 0), optional(x, 1)
    cut = np.triu if op.attr_int("upper", 1) else np.tril
    return [cut(a, 0 if k is None else int(k))]


def _one_hot(op: Op, x: Inputs) -> list[Array]:
    index, depth, values = given(op, x, 0), int(given(op, x, 1).reshape(())), given(op, x, 2)
    axis = op.attr_int("axis", -1)
    hot = np.arange(depth) == np.where(index < 0, index + depth, index)[..., None].astype(np.int64)
    return [np.moveaxis(np.where(hot, values[1], values[0]), -1, axis)]


OPS: dict[str, Function] = {
    "Reshape": _reshape, "Flatten": _flatten, "Transpose": _transpose, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Concat": _concat, "Split": _split, "Slice": _slice, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_nd, "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd, "Pad": _pad,
    "ConstantOfShape": _constant_of_shape, "Expand": _expand, "Shape": _shape, "Range": _range, "Tile": _tile, "Trilu": _trilu,
    "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth, "Constant": _constant, "OneHot": _one_hot,
    "Identity": lambda op, x: [given(op, x, 0)],
    "Size": lambda op, x: [np.array(given(op, x, 0).size, np.int64)],
}  # fmt: skip
