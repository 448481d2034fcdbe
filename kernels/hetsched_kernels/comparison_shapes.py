"""Twins of the kernels that move, pool, resize and search."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import codes, gather, movement, pool, resize, search
from hetsched_kernels.arrays import Array
from hetsched_kernels.comparison import Comparison, Draw, bytes_of, flat, floats, poisoned

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _bits(x: Array) -> Array:
    return flat(x).view(_BITS[x.itemsize])


def _longs(*values: int) -> Array:
    return np.array(values, np.int64)


def _strides(x: Array) -> Array:
    return np.array(x.strides, np.int64) // x.itemsize


def _offset(view: Array, base: Array) -> int:
    return int(view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize


def _copy_strided(draw: Draw) -> tuple[Array, Array]:
    shape = (draw.integer(1, 5), draw.integer(1, 5), draw.integer(1, 18), draw.integer(1, 40))
    x = floats(draw, *shape).astype(draw.choice([np.float32, np.float64, np.uint8, np.int16]))
    kind = draw.choice(["transpose", "slice", "expand"])
    view: Array = x
    if kind == "transpose":
        view = x.transpose(draw.choice([(0, 1, 3, 2), (3, 2, 1, 0), (1, 0, 2, 3), (0, 2, 3, 1), (0, 2, 1, 3)]))
    elif kind == "slice":
        view = x[:, ::-1, draw.integer(0, shape[2] - 1) :, draw.integer(0, shape[3] - 1) :: draw.integer(1, 3)]
    else:
        view = np.broadcast_to(x[:, :1, :, None], (shape[0], 4, shape[2], 3, shape[3]))
    out = poisoned(view.size + 5, x.dtype)
    target = out[5:].reshape(view.shape)
    movement.copy_strided(_bits(x), _offset(view, x), _strides(view), _bits(out), 5, _strides(target), _longs(*view.shape))
    return target, np.ascontiguousarray(view)


def _fill(draw: Draw) -> tuple[Array, Array]:
    out = poisoned(draw.integer(0, 200))
    movement.fill(out.view(np.uint32), np.array([1.5], np.float32).view(np.uint32))
    return out, np.full(out.size, 1.5, np.float32)


def _pad_index(draw: Draw) -> tuple[Array, Array]:
    shape = (draw.integer(1, 3), draw.integer(3, 6), draw.integer(3, 40))
    x = floats(draw, *shape)
    pads = [(0, 0), (draw.integer(0, 2), draw.integer(0, 2)), (draw.integer(0, 2), draw.integer(0, 2))]
    mode: Any = draw.choice(["reflect", "edge", "wrap"])
    expected = np.pad(x, pads, mode)
    out = poisoned(expected.size)
    begins = _longs(*(p[0] for p in pads))
    movement.pad_index(_bits(x), out.view(np.uint32), _longs(*shape), begins, _longs(*expected.shape), codes.PAD_MODE[mode])
    return out.reshape(expected.shape), expected


def _gather(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(1, 4), draw.integer(1, 9), draw.choice([1, 3, 17]))
    axis = x.shape[1]
    indices = draw.rng.integers(-axis, axis, draw.integer(0, 12)).astype(draw.choice([np.int64, np.int32]))
    expected = x[:, indices]
    out = poisoned(expected.size)
    fine = gather.gather(_bits(x), indices, out.view(np.uint32), x.shape[0], axis, x.shape[2])
    assert fine
    return out.reshape(expected.shape), expected


def _gather_elements(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(1, 4), draw.integer(1, 9), draw.integer(1, 5))
    axis = draw.integer(0, 2)
    shape = list(x.shape)
    shape[axis] = draw.integer(1, 7)
    indices = draw.rng.integers(-x.shape[axis], x.shape[axis], shape)
    expected = np.take_along_axis(x, indices, axis)
    out = poisoned(expected.size)
    assert gather.gather_elements(_bits(x), flat(indices), out.view(np.uint32), _longs(*x.shape), _longs(*shape), axis)
    return out.reshape(expected.shape), expected


def _gather_nd(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(1, 4), draw.integer(1, 5), draw.integer(1, 6))
    depth, count = draw.integer(1, 3), draw.integer(1, 6)
    indices = np.stack([draw.rng.integers(-x.shape[d], x.shape[d], count) for d in range(depth)], -1)
    expected = x[tuple(indices.T)]
    out = poisoned(expected.size)
    assert gather.gather_nd(_bits(x), flat(indices), out.view(np.uint32), _longs(1, *x.shape), depth, 1)
    return out.reshape(expected.shape), expected


def _scatter_nd(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(2, 9), draw.integer(1, 5))
    indices = draw.rng.permutation(x.shape[0])[: draw.integer(1, x.shape[0])].reshape(-1, 1)
    updates = floats(draw, indices.shape[0], x.shape[1])
    expected = x.copy()
    expected[indices[:, 0]] = updates
    out = flat(x).copy()
    assert gather.scatter_nd(flat(indices), _bits(updates), out.view(np.uint32), _longs(*x.shape), 1)
    return out.reshape(x.shape), expected


def _argmax(draw: Draw) -> tuple[Array, Array]:
    x = np.round(floats(draw, draw.integer(1, 3), draw.integer(1, 20), draw.integer(1, 4)))
    largest, last = draw.choice([True, False]), draw.choice([True, False])
    out = poisoned(x.shape[0] * x.shape[2], np.int64)
    search.argmax_f32(flat(x), out, *x.shape, largest, last)
    values = x if largest else -x
    expected = x.shape[1] - 1 - values[:, ::-1].argmax(1) if last else values.argmax(1)
    return out.reshape(expected.shape), expected


def _cumsum(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(1, 3), draw.integer(1, 20), draw.integer(1, 4), scale=9.0).astype(np.int64)
    exclusive, reverse = draw.choice([True, False]), draw.choice([True, False])
    out = poisoned(x.size, np.int64)
    search.cumsum(flat(x), out, *x.shape, exclusive, reverse)
    turned = x[:, ::-1] if reverse else x
    total = turned.cumsum(1) - (turned if exclusive else 0)
    return out.reshape(x.shape), total[:, ::-1] if reverse else total


def _top_k(draw: Draw) -> tuple[Array, Array]:
    x = np.round(floats(draw, draw.integer(1, 3), draw.integer(1, 20), draw.integer(1, 4)))
    k, largest = draw.integer(1, x.shape[1]), draw.choice([True, False])
    shape = (x.shape[0], k, x.shape[2])
    values, indices = poisoned(int(np.prod(shape))), poisoned(int(np.prod(shape)), np.int64)
    search.top_k_f32(flat(x), values, indices, *x.shape, k, largest)
    order = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :k]
    got = np.stack([values.reshape(shape), indices.reshape(shape)])
    return got, np.stack([np.take_along_axis(x, order, 1), order])


def _sizes(x: Array) -> tuple[int, int, int, int]:
    n, c, h, w = x.shape
    return n, c, h, w


def _pooling(draw: Draw) -> tuple[Array, tuple[int, int], tuple[int, int], tuple[int, ...], Array]:
    kernel, strides = (draw.integer(1, 3), draw.integer(1, 4)), (draw.integer(1, 2), draw.integer(1, 3))
    pads = tuple(draw.integer(0, k - 1) for k in kernel * 2)
    x = floats(draw, draw.integer(1, 2), draw.integer(1, 3), kernel[0] + draw.integer(0, 5), kernel[1] + draw.integer(0, 40))
    oh = (x.shape[2] + pads[0] + pads[2] - kernel[0]) // strides[0] + 1
    ow = (x.shape[3] + pads[1] + pads[3] - kernel[1]) // strides[1] + 1
    return x, kernel, strides, pads, pool.pool_geometry(*_sizes(x), oh, ow, kernel, strides, pads)


def _windows(x: Array, kernel: tuple[int, int], strides: tuple[int, int], pads: tuple[int, ...], fill: float) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))[:, :, :: strides[0], :: strides[1]]


def _max_pool(draw: Draw) -> tuple[Array, Array]:
    x, kernel, strides, pads, geometry = _pooling(draw)
    expected = _windows(x, kernel, strides, pads, -np.inf).max((-1, -2))
    out = poisoned(expected.size)
    pool.max_pool_f32(flat(x), out, geometry)
    return out.reshape(expected.shape), expected


def _max_pool_u8(draw: Draw) -> tuple[Array, Array]:
    x, kernel, strides, pads, geometry = _pooling(draw)
    dtype = draw.choice([np.int8, np.uint8])
    q = bytes_of(draw, dtype, *x.shape)
    expected = _windows(q, kernel, strides, pads, np.iinfo(dtype).min).max((-1, -2))
    out = poisoned(expected.size, np.uint8)
    pool.max_pool_u8(flat(q).view(np.uint8), out, geometry, dtype is np.int8)
    return out.view(dtype).reshape(expected.shape), expected


def _average_pool(draw: Draw) -> tuple[Array, Array]:
    x, kernel, strides, pads, geometry = _pooling(draw)
    include = draw.choice([True, False])
    total = _windows(x.astype(np.float64), kernel, strides, pads, 0.0).sum((-1, -2))
    count = _windows(np.ones_like(x), kernel, strides, pads, 1.0 if include else 0.0).sum((-1, -2))
    out = poisoned(total.size)
    pool.average_pool_f32(flat(x), out, geometry, include)
    return out.reshape(total.shape), total / count


def _resize(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, 2, draw.integer(1, 6), draw.integer(1, 30))
    out_shape = (draw.integer(1, 9), draw.integer(1, 50))
    mode, transform = draw.choice(["nearest", "linear", "cubic"]), draw.choice(["half_pixel", "asymmetric", "align_corners"])
    taps = [resize.resize_axis(size, to, to / size, mode, transform) for size, to in zip(x.shape[1:], out_shape, strict=True)]
    matrices = []
    for tap, size, to in zip(taps, x.shape[1:], out_shape, strict=True):
        matrix = np.zeros((to, size))
        per = tap.index.size // to
        np.add.at(matrix, (np.repeat(np.arange(to), per), tap.index), tap.weight)
        assert np.allclose(matrix.sum(1), 1, atol=1e-6)
        matrices.append(matrix)
    expected = np.einsum("yh,nhw,xw->nyx", matrices[0], x.astype(np.float64), matrices[1])
    out = poisoned(expected.size)
    if mode == "nearest":
        resize.resize_nearest(_bits(x), out.view(np.uint32), taps[0].index, taps[1].index, 2, *x.shape[1:], *out_shape)
    else:
        y, w = taps
        resize.resize_f32(flat(x), out, poisoned(x.shape[2]), y.index, y.weight, w.index, w.weight, 2, *x.shape[1:], *out_shape)
    return out.reshape(expected.shape), expected


TABLE = [
    Comparison("copy_strided", _copy_strided), Comparison("fill", _fill), Comparison("pad_index", _pad_index), Comparison("gather",
    _gather),
    Comparison("gather_elements", _gather_elements), Comparison("gather_nd", _gather_nd), Comparison("scatter_nd", _scatter_nd),
    Comparison("argmax_f32", _argmax), Comparison("cumsum", _cumsum), Comparison("top_k_f32", _top_k), Comparison("max_pool_f32",
    _max_pool),
    Comparison("max_pool_u8", _max_pool_u8), Comparison("average_pool_f32", _average_pool, 1e-6, 1e-6),
    Comparison("resize", _resize, 1e-5, 1e-5),
]  # fmt: skip
