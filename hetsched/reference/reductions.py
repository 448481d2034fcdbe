"""Reductions, softmax and normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.graph import Op
from hetsched.reference.elementwise import Array, Function, Inputs, given, optional
from hetsched.reference.layout import normal_axes

Reduction = Callable[[Array, tuple[int, ...]], Any]


def _reduce(f: Reduction) -> Function:
    def run(op: Op, x: Inputs) -> list[Array]:
        a, axes = given(op, x, 0), optional(x, 1)
        if (axes is None or axes.size == 0) and op.attr_int("noop_with_empty_axes", 0):
            return [a]
        over = normal_axes(None if axes is None or axes.size == 0 else axes, a.ndim)
        y = np.asarray(f(a, over)).astype(a.dtype)
        shape = [1 if i in over else d for i, d in enumerate(a.shape)]
        keep = op.attr_int("keepdims", 1)
        return [y.reshape(shape if keep else [d for i, d in enumerate(a.shape) if i not in over])]

    return run


def _wide(a: Array) -> Array:
    return a.astype(np.float64) if a.dtype.kind == "f" else a


def _log_sum_exp(a: Array, over: tuple[int, ...]) -> Array:
    top = a.max(over, keepdims=True)
    return np.asarray(np.log(np.exp(_wide(a) - top).sum(over)) + top.squeeze(over))


def softmax(a: Array, axis: int) -> Array:
    """Softmax along ``axis``; a row of -inf gives NaN, as in ONNX Runtime."""
    with np.errstate(invalid="ignore"):
        e = np.exp(_wide(a) - a.max(axis, keepdims=True))
        return np.asarray((e / e.sum(axis, keepdims=True)).astype(a.dtype))


def _softmax(op: Op, x: Inputs) -> list[Array]:
    return [softmax(given(op, x, 0), op.attr_int("axis", -1))]


def _log_softmax(op: Op, x: Inputs) -> list[Array]:
    a, axis = given(op, x, 0), op.attr_int("axis", -1)
    shifted = _wide(a) - a.max(axis, keepdims=True)
    return [np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))).astype(a.dtype)]


def _arg(f: Callable[..., Any]) -> Function:
    def run(op: Op, x: Inputs) -> list[Array]:
        a, axis = given(op, x, 0), op.attr_int("axis", 0)
        keep = bool(op.attr_int("keepdims", 1))
        if op.attr_int("select_last_index", 0):
            last = a.shape[axis] - 1 - f(np.flip(a, axis), axis=axis, keepdims=keep)
            return [np.asarray(last, np.int64)]
        return [np.asarray(f(a, axis=axis, keepdims=keep), np.int64)]

    return run


def _layer_normalization(op: Op, x: Inputs) -> list[Array]:
    a, scale, bias = given(op, x, 0), given(op, x, 1), optional(x, 2)
    axis = op.attr_int("axis", -1) % a.ndim
    over = tuple(range(axis, a.ndim))
    y = a.astype(np.float64)
    mean = y.mean(over, keepdims=True)
    inverse = 1 / np.sqrt(((y - mean) ** 2).mean(over, keepdims=True) + op.attr_float("epsilon", 1e-5))
    out = ((y - mean) * inverse).astype(a.dtype) * scale
    out = out if bias is None else out + bias
    return [out.astype(a.dtype), mean.astype(np.float32), inverse.astype(np.float32)][: len(op.outputs)]


def _rms_normalization(op: Op, x: Inputs) -> list[Array]:
    a, scale = given(op, x, 0), given(op, x, 1)
    over = tuple(range(op.attr_int("axis", -1) % a.ndim, a.ndim))
    y = a.astype(np.float64)
    inverse = 1 / np.sqrt((y * y).mean(over, keepdims=True) + op.attr_float("epsilon", 1e-5))
    return [((y * inverse).astype(a.dtype) * scale).astype(a.dtype)]


def _per_channel(v: Array, rank: int) -> Array:
    return v.reshape(1, -1, *[1] * (rank - 2)).astype(np.float64)


def batch_normalization(a: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    """Inference batch normalisation over channel axis 1."""
    scale, bias, mean, variance = (_per_channel(v, a.ndim) for v in (scale, bias, mean, variance))
    return np.asarray((a.astype(np.float64) - mean) * (scale / np.sqrt(variance + epsilon)) + bias).astype(a.dtype)


def _batch_normalization(op: Op, x: Inputs) -> list[Array]:
    scale, bias, mean, variance = (given(op, x, i) for i in range(1, 5))
    return [batch_normalization(given(op, x, 0), scale, bias, mean, variance, op.attr_float("epsilon", 1e-5))]


def _instance_normalization(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0)
    over = tuple(range(2, a.ndim))
    y = a.astype(np.float64)
    normal = (y - y.mean(over, keepdims=True)) / np.sqrt(y.var(over, keepdims=True) + op.attr_float("epsilon", 1e-5))
    return [(normal * _per_channel(given(op, x, 1), a.ndim) + _per_channel(given(op, x, 2), a.ndim)).astype(a.dtype)]


def _lrn(op: Op, x: Inputs) -> list[Array]:
    a, size = given(op, x, 0), op.attr_int("size", 1)
    square = _wide(a) ** 2
    low, high = (size - 1) // 2, size // 2
    channels = a.shape[1]
    total = np.stack([square[:, max(c - low, 0) : c + high + 1].sum(1) for c in range(channels)], 1)
    base = op.attr_float("bias", 1.0) + op.attr_float("alpha", 1e-4) / size * total
    return [(a / base ** op.attr_float("beta", 0.75)).astype(a.dtype)]


def _cumsum(op: Op, x: Inputs) -> list[Array]:
    a, axis = given(op, x, 0), int(given(op, x, 1).reshape(()))
    a = np.flip(a, axis) if op.attr_int("reverse", 0) else a
    y = np.cumsum(a, axis, dtype=a.dtype)
    y = y - a if op.attr_int("exclusive", 0) else y
    return [np.flip(y, axis) if op.attr_int("reverse", 0) else y]


def _top_k(op: Op, x: Inputs) -> list[Array]:
    a, k, axis = given(op, x, 0), int(given(op, x, 1).reshape(())), op.attr_int("axis", -1)
    descending = -a if a.dtype.kind == "f" else ~a
    key = descending if op.attr_int("largest", 1) else a
    index = np.take(np.argsort(key, axis, kind="stable"), np.arange(k), axis)
    return [np.take_along_axis(a, index, axis), index.astype(np.int64)]


OPS: dict[str, Function] = {
    "ReduceSum": _reduce(lambda a, o: _wide(a).sum(o)),
    "ReduceMean": _reduce(lambda a, o: _wide(a).mean(o)),
    "ReduceMax": _reduce(lambda a, o: a.max(o)),
    "ReduceMin": _reduce(lambda a, o: a.min(o)),
    "ReduceProd": _reduce(lambda a, o: _wide(a).prod(o)),
    "ReduceL1": _reduce(lambda a, o: np.abs(_wide(a)).sum(o)),
    "ReduceL2": _reduce(lambda a, o: np.sqrt((_wide(a) ** 2).sum(o))),
    "ReduceSumSquare": _reduce(lambda a, o: (_wide(a) ** 2).sum(o)),
    "ReduceLogSumExp": _reduce(_log_sum_exp),
    "ReduceLogSum": _reduce(lambda a, o: np.log(_wide(a).sum(o))),
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "ArgMax": _arg(np.argmax),
    "ArgMin": _arg(np.argmin),
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "BatchNormalization": _batch_normalization,
    "InstanceNormalization": _instance_normalization,
    "LRN": _lrn,
    "CumSum": _cumsum,
    "TopK": _top_k,
}
