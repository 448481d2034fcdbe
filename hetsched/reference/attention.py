"""Composites of transformers: attention, residual sums with norms, gated units, merged products.

Sums are in float64. Where an operator has a ``body``, that is run instead; these say what the composites mean.
"""

from __future__ import annotations

import numpy as np

from hetsched.errors import ExecutionError
from hetsched.graph import Op
from hetsched.reference.elementwise import Array, Function, Inputs, gelu, given, optional, sigmoid
from hetsched.reference.reductions import softmax


def _heads(a: Array, batch: int, heads: int) -> Array:
    """Rows ``[…, heads · dim]``, or ``[batch, heads, tokens, dim]`` as it is, as the latter in float64."""
    if a.ndim == 4:
        return a.astype(np.float64)
    return np.moveaxis(a.reshape(batch, -1, heads, a.shape[-1] // heads), 1, 2).astype(np.float64)


def _attention(op: Op, x: Inputs) -> list[Array]:
    """``softmax(softcap(q kᵀ · scale) + mask) v`` over the cache and the new tokens, as ONNX's Attention (opset 23)."""
    q, shared = given(op, x, 0), op.attr_int("kv_num_heads", 1)
    batch = op.attr_int("batch", 0) or q.shape[0]
    query, key, value = (
        _turned(op, name, _heads(given(op, x, i), batch, op.attr_int("q_num_heads", 1) if i == 0 else shared))
        for i, name in enumerate(("query", "key", "value"))
    )
    past_key, past_value = optional(x, 4), optional(x, 5)
    key = key if past_key is None else np.concatenate([past_key, key], 2)
    value = value if past_value is None else np.concatenate([past_value, value], 2)
    groups = query.shape[1] // key.shape[1]
    scores = query @ np.swapaxes(np.repeat(key, groups, 1), 2, 3) * op.attr_float("scale", query.shape[-1] ** -0.5)
    cap = op.attr_float("softcap", 0.0)
    scores = cap * np.tanh(scores / cap) if cap else scores
    scores = _masked(op, scores, optional(x, 3), 0 if past_key is None else past_key.shape[2])
    y = _turned(op, "y", softmax(scores, -1) @ np.repeat(value, groups, 1))
    shape = op.attr_ints("y_shape", q.shape)
    y = y if len(shape) == 4 else np.moveaxis(y, 1, 2).reshape(shape)
    return [y.astype(q.dtype), key.astype(q.dtype), value.astype(q.dtype)][: len(op.outputs)]


def _turned(op: Op, name: str, a: Array) -> Array:
    """``a`` with its last axes swapped where the attribute ``<name>_transposed`` says so."""
    return np.swapaxes(a, 2, 3) if op.attr_int(f"{name}_transposed", 0) else a


def _masked(op: Op, scores: Array, mask: Array | None, before: int) -> Array:
    """Scores with their mask; where the order counts, a query sees the ``before`` keys of the cache, and keys up to its own place."""
    if mask is not None and mask.dtype == np.bool_:
        scores = np.where(mask ^ bool(op.attr_int("mask_inverted", 0)), scores, op.attr_float("mask_fill", -np.inf))
    elif mask is not None:
        scores = scores + mask
    if op.attr_int("is_causal", 0):
        queries, keys = scores.shape[-2:]
        scores = np.where(np.tri(queries, keys, before, dtype=bool), scores, -np.inf)
    return scores


def rotary_by_broadcast(op: Op, x: Inputs) -> list[Array]:
    """``x · cos + rotate(x) · sin`` with tables as wide as a head, or half, that broadcast to ``[batch, heads, tokens, dim]``.

    With ``heads_first`` x is rows ``[batch, tokens, heads · dim]`` and the result is ``[batch, heads, tokens, dim]``.
    """
    a, tables = given(op, x, 0), (given(op, x, 1), given(op, x, 2))
    if op.attr_int("heads_first", 0):
        heads, batch = op.attr_int("num_heads", 1), op.attr_int("batch", 1)
        a = np.moveaxis(a.reshape(batch, -1, heads, a.shape[-1] // heads), 1, 2)
    y, interleaved = a.astype(np.float64), op.attr_int("interleaved", 0)
    times = [a.shape[-1] // t.shape[-1] for t in tables]
    cos, sin = (np.repeat(t, n, -1) if interleaved else np.concatenate([t] * n, -1) for t, n in zip(tables, times, strict=True))
    if interleaved:
        turned = np.stack([-y[..., 1::2], y[..., 0::2]], -1).reshape(y.shape)
    else:
        first, second = np.split(y, 2, -1)
        turned = np.concatenate([-second, first], -1)
    return [(y * cos + turned * sin).astype(a.dtype)]


def _skip_layer_norm(op: Op, x: Inputs) -> list[Array]:
    total = (given(op, x, 0) + given(op, x, 1)).astype(given(op, x, 0).dtype)
    y = total.astype(np.float64)
    axis = op.attr_int("axis", -1) % y.ndim
    over = tuple(range(axis, y.ndim))
    y = y - y.mean(over, keepdims=True)
    y = y / np.sqrt((y * y).mean(over, keepdims=True) + op.attr_float("epsilon", 1e-5)) * given(op, x, 2)
    bias = optional(x, 3)
    y = y if bias is None else y + bias
    return [y.astype(total.dtype), total][: len(op.outputs)]


def _skip_rms_norm(op: Op, x: Inputs) -> list[Array]:
    total = (given(op, x, 0) + given(op, x, 1)).astype(given(op, x, 0).dtype)
    scale = given(op, x, 2).astype(np.float64) + op.attr_float("offset", 0.0)
    y = total.astype(np.float64).reshape(*total.shape[:-1], -1, scale.size)
    y = y / np.sqrt((y * y).mean(-1, keepdims=True) + op.attr_float("epsilon", 1e-5)) * scale
    return [y.reshape(total.shape).astype(total.dtype), total][: len(op.outputs)]


def _swiglu(op: Op, x: Inputs) -> list[Array]:
    gate = given(op, x, 0).astype(np.float64)
    return [(gate * sigmoid(gate) * given(op, x, 1)).astype(given(op, x, 0).dtype)]


def _geglu(op: Op, x: Inputs) -> list[Array]:
    gate = given(op, x, 0)
    return [(gelu(gate.astype(np.float64), op.attr_str("approximate", "none")) * given(op, x, 1)).astype(gate.dtype)]


def _quick_gelu(op: Op, x: Inputs) -> list[Array]:
    a = given(op, x, 0).astype(np.float64)
    return [(a * sigmoid(op.attr_float("alpha", 1.702) * a)).astype(given(op, x, 0).dtype)]


def _merged_matmul(op: Op, x: Inputs) -> list[Array]:
    """``x w_i + b_i``; one product that is taken apart (``joined``) is known by its body only."""
    if op.attr_int("joined", 0):
        raise ExecutionError(f"node {op.name!r} (MergedMatMul) takes one product apart as only its body says: keep the body")
    a, count = given(op, x, 0), op.attr_int("count", 1)
    a = a.reshape(-1, a.shape[-1]) if op.attr_int("rows", 0) else a
    out = []
    for i in range(count):
        w, bias = given(op, x, 1 + i), optional(x, 1 + count + i)
        y = a.astype(np.float64) @ (w.T if op.attr_int("transB", 0) else w)
        out.append((y if bias is None else y + bias).astype(a.dtype))
    return out


OPS: dict[str, Function] = {
    "Attention": _attention,
    "SkipLayerNorm": _skip_layer_norm,
    "SkipRMSNorm": _skip_rms_norm,
    "SwiGLU": _swiglu,
    "GeGLU": _geglu,
    "QuickGelu": _quick_gelu,
    "MergedMatMul": _merged_matmul,
}
