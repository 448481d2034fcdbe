"""Attention of encoders and of decoders without a cache, on heads that lie as the model has them: nothing is transposed."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.graph import DType
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched_kernels import attention_masked as kernels
from hetsched_kernels import binary, broadcast
from hetsched_kernels.arrays import NO_F32

#: Sizes and strides of a tensor: (batch, heads, tokens, dim) each.
Axes = tuple[tuple[int, ...], tuple[int, ...]]


def attention(low: Lowering) -> None:
    """Attention, heads divided among the queue's threads."""
    op = low.op
    batch, many, shared = _sequences(low), op.attr_int("q_num_heads", 1), op.attr_int("kv_num_heads", 1)
    query, key, value = (_axes(low, i, name, many if i == 0 else shared) for i, name in enumerate(("query", "key", "value")))
    out = _laid(low.output().shape, batch, many, bool(op.attr_int("y_transposed", 0)))
    mask, spread, kind = _mask(low, (batch, many, query[0][2], key[0][2]))
    sizes = (query[0][2], key[0][2], query[0][3], value[0][3])
    strides = [s for axes in (query, key, value, out) for s in axes[1][2:]]
    shape = np.array([*sizes, *strides, *spread[2:], kind, op.attr_int("is_causal", 0)], np.int64)
    starts = _starts(batch, many, shared, [query[1], key[1], value[1], out[1], spread])
    reads = (low.reals(0), low.reals(1), low.reals(2), mask, low.real_output())
    tail = (shape, starts, op.attr_float("scale", query[0][3] ** -0.5), op.attr_float("softcap", 0.0))

    def part(first: int, last: int) -> tuple[Any, ...]:
        return *reads, low.scratch(kernels.attend_masked_scratch(shape), np.float32), *tail, first, last

    low.emit_split(kernels.attend_masked_f32, batch * many, many // shared, part)


def _sequences(low: Lowering) -> int:
    """How many sequences there are: the first dimension, unless the op says how many its rows hold."""
    return low.op.attr_int("batch", 0) or low.tensor(0).shape[0]


def _axes(low: Lowering, slot: int, name: str, heads: int) -> Axes:
    turned = bool(low.op.attr_int(f"{name}_transposed", 0))
    return _laid(low.tensor(slot).shape, _sequences(low), heads, turned)


def _laid(shape: tuple[int, ...], batch: int, heads: int, turned: bool) -> Axes:
    """How a tensor lies: ``[batch, heads, tokens, dim]`` (``turned``: the last two swapped), or rows with the heads side by side."""
    if len(shape) == 4:  # one axis each
        tokens, dim = (shape[3], shape[2]) if turned else (shape[2], shape[3])
        inner = (1, tokens) if turned else (dim, 1)
        return (batch, heads, tokens, dim), (heads * tokens * dim, tokens * dim, *inner)
    width = shape[-1]
    tokens = int(np.prod(shape, dtype=np.int64)) // (batch * width)
    return (batch, heads, tokens, width // heads), (tokens * width, width // heads, width, 1)


def _mask(low: Lowering, full: tuple[int, ...]) -> tuple[Array, tuple[int, ...], int]:
    """The mask in float32, its strides over (batch, heads, queries, keys), and its kind."""
    if not low.has(3):
        return NO_F32, (0, 0, 0, 0), kernels.NO_MASK
    tensor = low.tensor(3)
    strides = np.broadcast_to(np.empty(tensor.shape, np.bool_), full).strides
    if tensor.dtype is not DType.BOOL:
        return low.reals(3), strides, kernels.ADDED
    out, kept = low.scratch(tensor.elements, np.float32), np.zeros(1, np.float32)
    fill = np.full(1, low.op.attr_float("mask_fill", -np.inf), np.float32)
    sides = (fill, kept) if low.op.attr_int("mask_inverted", 0) else (kept, fill)
    shape, plan = broadcast.broadcast_plan((tensor.elements,), (1,), (1,))
    values = (side.view(np.uint32) for side in sides)
    low.emit(binary.where, low.raw(3), *values, out.view(np.uint32), shape, *plan, dtypes=(np.uint32,))
    return out, strides, kernels.REPLACED


def _starts(batch: int, many: int, shared: int, strides: list[tuple[int, ...]]) -> Array:
    """Where every head of every sequence begins in queries, keys, values, result and mask."""
    group = many // shared
    rows = [
        [b * s[0] + (h // group if i in (kernels.K_AT, kernels.V_AT) else h) * s[1] for i, s in enumerate(strides)]
        for b in range(batch)
        for h in range(many)
    ]
    return np.array(rows, np.int64).reshape(-1)
