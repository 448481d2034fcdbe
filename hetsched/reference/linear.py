"""Convolution, matrix products and pooling. Sums are in float64 (integers: int64 -> int32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.graph import Op
from hetsched.reference.elementwise import Array, Function, Inputs, given, optional


def spatial_pads(op: Op, size: tuple[int, ...], kernel: tuple[int, ...]) -> list[tuple[int, int]]:
    """Padding before and after each spatial axis, from ``pads`` or ``auto_pad``."""
    rank = len(size)
    strides, dilations = op.attr_ints("strides", (1,) * rank), op.attr_ints("dilations", (1,) * rank)
    mode = op.attr_str("auto_pad", "NOTSET")
    if mode in {"NOTSET", ""}:
        pads = op.attr_ints("pads", (0,) * (2 * rank))
        return [(pads[i], pads[i + rank]) for i in range(rank)]
    if mode == "VALID":
        return [(0, 0)] * rank
    out = []
    for n, k, s, d in zip(size, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        small = total // 2
        out.append((small, total - small) if mode == "SAME_UPPER" else (total - small, small))
    return out


def windows(a: Array, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]) -> Array:
    """View ``[N, C, out..., kernel...]`` of the patches of a padded ``[N, C, spatial...]`` array."""
    rank = len(kernel)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(a, reach, tuple(range(2, 2 + rank)))
    cut = (slice(None), slice(None), *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilations))
    return view[cut]


def _accumulator(a: Array) -> Array:
    return a.astype(np.float64) if a.dtype.kind == "f" else a.astype(np.int64)


def _conv(op: Op, x: Inputs) -> list[Array]:
    a, w, b = given(op, x, 0), given(op, x, 1), optional(x, 2)
    kernel, rank = w.shape[2:], w.ndim - 2
    pads = spatial_pads(op, a.shape[2:], kernel)
    padded = np.pad(_accumulator(a), [(0, 0), (0, 0), *pads])
    view = windows(padded, kernel, op.attr_ints("strides", (1,) * rank), op.attr_ints("dilations", (1,) * rank))
    group = op.attr_int("group", 1)
    outs, ins = w.shape[0] // group, w.shape[1]
    parts = []
    for g in range(group):
        patch = view[:, g * ins : (g + 1) * ins]
        weights = _accumulator(w[g * outs : (g + 1) * outs])
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        parts.append(np.moveaxis(np.tensordot(patch, weights, (axes, list(range(1, 2 + rank)))), -1, 1))
    y = np.concatenate(parts, 1)
    if b is not None:
        y = y + b.reshape(1, -1, *[1] * rank)
    return [y.astype(a.dtype if a.dtype.kind == "f" else np.int32)]


def _conv_transpose(op: Op, x: Inputs) -> list[Array]:
    a, w, b = given(op, x, 0), given(op, x, 1), optional(x, 2)
    kernel, rank = w.shape[2:], w.ndim - 2
    strides, dilations = op.attr_ints("strides", (1,) * rank), op.attr_ints("dilations", (1,) * rank)
    extra = op.attr_ints("output_padding", (0,) * rank)
    full = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in zip(a.shape[2:], kernel, strides, dilations, strict=True)]
    begin, size = _transposed_extent(op, a.shape[2:], full, extra)
    group = op.attr_int("group", 1)
    ins, outs = w.shape[0] // group, w.shape[1]
    y = np.zeros((a.shape[0], outs * group, *(max(f, lo + n) for f, lo, n in zip(full, begin, size, strict=True))))
    for g in range(group):
        left, weights = _accumulator(a[:, g * ins : (g + 1) * ins]), _accumulator(w[g * ins : (g + 1) * ins])
        for tap in np.ndindex(*kernel):
            part = np.moveaxis(np.tensordot(left, weights[(..., *tap)], (1, 0)), -1, 1)
            at = [slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, a.shape[2:], strides, strict=True)]
            y[(slice(None), slice(g * outs, (g + 1) * outs), *at)] += part
    y = y[(slice(None), slice(None), *(slice(lo, lo + n) for lo, n in zip(begin, size, strict=True)))]
    if b is not None:
        y = y + b.reshape(1, -1, *[1] * rank)
    return [y.astype(a.dtype)]


def _transposed_extent(op: Op, size: tuple[int, ...], full: list[int], extra: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """First kept index and kept length per spatial axis of a transposed convolution's full output."""
    rank, strides = len(size), op.attr_ints("strides", (1,) * len(size))
    mode = op.attr_str("auto_pad", "NOTSET")
    wanted = op.attr_ints("output_shape", ())[-rank:]
    if not wanted and "SAME" in mode:
        wanted = tuple(n * s for n, s in zip(size, strides, strict=True))
    if wanted:
        total = [f + e - n for f, e, n in zip(full, extra, wanted, strict=True)]
        begin = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        return begin, list(wanted)
    pads = op.attr_ints("pads", (0,) * (2 * rank))
    return list(pads[:rank]), [f + e - pads[i] - pads[i + rank] for i, (f, e) in enumerate(zip(full, extra, strict=True))]


def _matmul(op: Op, x: Inputs) -> list[Array]:
    a, b = given(op, x, 0), given(op, x, 1)
    return [np.asarray(np.matmul(_accumulator(a), _accumulator(b))).astype(a.dtype)]


def _gemm(op: Op, x: Inputs) -> list[Array]:
    a, b, c = given(op, x, 0), given(op, x, 1), optional(x, 2)
    left = a.T if op.attr_int("transA", 0) else a
    right = b.T if op.attr_int("transB", 0) else b
    y = op.attr_float("alpha", 1.0) * np.matmul(_accumulator(left), _accumulator(right))
    if c is not None:
        y = y + op.attr_float("beta", 1.0) * c
    return [np.asarray(y).astype(a.dtype)]


def _matmul_integer(op: Op, x: Inputs) -> list[Array]:
    a, b, za, zb = given(op, x, 0), given(op, x, 1), optional(x, 2), optional(x, 3)
    left = a.astype(np.int64) - (0 if za is None else za.astype(np.int64).reshape(-1, 1) if za.ndim else int(za))
    right = b.astype(np.int64) - (0 if zb is None else zb.astype(np.int64))
    return [np.matmul(left, right).astype(np.int32)]


def _conv_integer(op: Op, x: Inputs) -> list[Array]:
    a, w, za, zw = given(op, x, 0), given(op, x, 1), optional(x, 2), optional(x, 3)
    left = a.astype(np.int64) - (0 if za is None else int(za.reshape(())))
    right = w.astype(np.int64) - (0 if zw is None else zw.astype(np.int64).reshape(-1, *[1] * (w.ndim - 1)) if zw.ndim else int(zw))
    return _conv(op, [left, right])


def _pool(reduce: Callable[[Array, tuple[int, ...]], Any], fill: float) -> Function:
    def run(op: Op, x: Inputs) -> list[Array]:
        a = given(op, x, 0)
        kernel = op.attr_ints("kernel_shape", ())
        rank = len(kernel)
        strides, dilations = op.attr_ints("strides", (1,) * rank), op.attr_ints("dilations", (1,) * rank)
        pads = spatial_pads(op, a.shape[2:], kernel)
        average = op.type == "AveragePool"
        inside = np.ones((1, 1, *a.shape[2:]))
        if average and op.attr_int("count_include_pad", 0):
            inside = np.pad(inside, [(0, 0), (0, 0), *pads], constant_values=1)
        else:
            inside = np.pad(inside, [(0, 0), (0, 0), *pads])
        grow = _ceil_growth(op, a.shape[2:], kernel, pads) if op.attr_int("ceil_mode", 0) else [(0, 0)] * rank
        start = np.full((), fill if a.dtype.kind == "f" else np.iinfo(a.dtype).min if fill else 0, a.dtype)
        wide = np.pad(np.pad(a, [(0, 0), (0, 0), *pads], constant_values=start), [(0, 0), (0, 0), *grow], constant_values=start)
        over = tuple(range(2 + rank, 2 + 2 * rank))
        y = reduce(windows(wide, kernel, strides, dilations), over)
        if average:
            y = y / windows(np.pad(inside, [(0, 0), (0, 0), *grow]), kernel, strides, dilations).sum(over)
        return [np.asarray(y).astype(a.dtype)]

    return run


def _ceil_growth(op: Op, size: tuple[int, ...], kernel: tuple[int, ...], pads: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Extra padding at the end that a ``ceil_mode`` pool needs; a window must start inside the padded input."""
    rank = len(size)
    strides, dilations = op.attr_ints("strides", (1,) * rank), op.attr_ints("dilations", (1,) * rank)
    out = []
    for n, k, s, d, (lo, hi) in zip(size, kernel, strides, dilations, pads, strict=True):
        reach = (k - 1) * d + 1
        count = -(-(n + lo + hi - reach) // s) + 1
        if (count - 1) * s >= n + lo:
            count -= 1
        out.append((0, max((count - 1) * s + reach - (n + lo + hi), 0)))
    return out


def _global_pool(reduce: Callable[[Array, tuple[int, ...]], Any]) -> Function:
    def run(op: Op, x: Inputs) -> list[Array]:
        a = given(op, x, 0)
        y = np.asarray(reduce(a, tuple(range(2, a.ndim))))
        return [y.reshape(*a.shape[:2], *[1] * (a.ndim - 2)).astype(a.dtype)]

    return run


def _einsum(op: Op, x: Inputs) -> list[Array]:
    terms = [given(op, x, i) for i in range(len(x))]
    y = np.einsum(op.attr_str("equation", ""), *(_accumulator(t) for t in terms))
    return [np.asarray(y).astype(terms[0].dtype)]


OPS: dict[str, Function] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
    "MaxPool": _pool(lambda v, o: v.max(o), -np.inf),
    "AveragePool": _pool(lambda v, o: v.astype(np.float64).sum(o), 0.0),
    "GlobalAveragePool": _global_pool(lambda a, o: a.astype(np.float64).mean(o)),
    "GlobalMaxPool": _global_pool(lambda a, o: a.max(o)),
}
