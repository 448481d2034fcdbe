"""Composites of language models: normalisation, rotary embedding, attention over a cache, experts, state spaces.

Activations are matrices with a row per token (``batch`` sequences of equal length, one after the other); caches and states
are ``[batch, …]``. Sums are in float64.
"""

from __future__ import annotations

import numpy as np

from hetsched.graph import Op
from hetsched.reference.attention import rotary_by_broadcast
from hetsched.reference.elementwise import Array, Function, Inputs, gelu, given, optional, sigmoid
from hetsched.reference.reductions import softmax


def _rms_norm(op: Op, x: Inputs) -> list[Array]:
    """``x / rms(x) · (scale + offset)`` over groups of the last axis as long as ``scale`` (the whole axis, or heads)."""
    a, scale = given(op, x, 0), given(op, x, 1)
    y = a.astype(np.float64).reshape(*a.shape[:-1], -1, scale.size)
    y = y / np.sqrt((y * y).mean(-1, keepdims=True) + op.attr_float("epsilon", 1e-5))
    return [(y * (scale.astype(np.float64) + op.attr_float("offset", 0.0))).reshape(a.shape).astype(a.dtype)]


def _rotary_embedding(op: Op, x: Inputs) -> list[Array]:
    """ONNX's RotaryEmbedding on ``[batch, heads, tokens, dim]``, ``[batch, tokens, heads · dim]`` or ``[rows, heads · dim]``.

    Cosines and sines are given per token, or as tables with ``position_ids``; with ``broadcast`` as the file's own products
    have them.
    """
    if op.attr_int("broadcast", 0):
        return rotary_by_broadcast(op, x)
    a, cos, sin, positions = given(op, x, 0), given(op, x, 1), given(op, x, 2), optional(x, 3)
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    heads = op.attr_int("num_heads", 0) or 1
    y = np.moveaxis(a, 1, 2) if a.ndim == 4 else a.reshape(*a.shape[:-1], heads, -1)
    dim = op.attr_int("rotary_embedding_dim", 0) or y.shape[-1]
    turned = _rotate(y[..., :dim].astype(np.float64), cos[..., None, : dim // 2], sin[..., None, : dim // 2], op.attr_int("interleaved", 0))
    y = np.concatenate([turned.astype(a.dtype), y[..., dim:]], -1)
    return [np.ascontiguousarray(np.moveaxis(y, 1, 2) if a.ndim == 4 else y.reshape(a.shape))]


def _rotate(y: Array, cos: Array, sin: Array, interleaved: int) -> Array:
    if interleaved:
        even, odd = y[..., 0::2], y[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(y.shape)
    first, second = np.split(y, 2, -1)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], -1)


def _heads(a: Array, batch: int, heads: int) -> Array:
    """``[batch · tokens, heads · dim]`` as ``[batch, heads, tokens, dim]``."""
    return np.moveaxis(a.reshape(batch, a.shape[0] // batch, heads, -1), 1, 2)


def _group_query_attention(op: Op, x: Inputs) -> list[Array]:
    """Causal attention of new tokens over the cache and themselves; writes the caches with the new tokens appended."""
    q, batch = given(op, x, 0), op.attr_int("batch", 1)
    shared = op.attr_int("kv_num_heads", 1)
    query = _heads(q, batch, op.attr_int("num_heads", 1))
    caches = []
    for new, past in ((given(op, x, 1), optional(x, 3)), (given(op, x, 2), optional(x, 4))):
        rows = _heads(new, batch, shared)
        caches.append(rows if past is None else np.concatenate([past.astype(rows.dtype), rows], 2))
    keys, values = (np.repeat(c, query.shape[1] // shared, 1).astype(np.float64) for c in caches)
    scores = query.astype(np.float64) @ np.swapaxes(keys, 2, 3) * op.attr_float("scale", 1.0)
    cap = op.attr_float("softcap", 0.0)
    scores = cap * np.tanh(scores / cap) if cap else scores
    window = op.attr_int("window", 0)
    seen = _visible(query.shape[2], keys.shape[2], window)
    y = softmax(np.where(seen, scores, -np.inf), -1) @ values
    out = [np.moveaxis(y, 1, 2).reshape(q.shape).astype(q.dtype)]
    kept = min(keys.shape[2], window - 1) if window and not op.attr_int("whole_cache", 0) else keys.shape[2]
    out += [c[:, :, c.shape[2] - kept :].astype(np.float16 if (p := optional(x, 3)) is None else p.dtype) for c in caches]
    return out[: len(op.outputs)]


def _visible(queries: int, keys: int, window: int) -> Array:
    """Which keys each of the last ``queries`` positions sees."""
    distance = np.arange(keys - queries, keys)[:, None] - np.arange(keys)[None, :]
    return (distance >= 0) & (distance < window) if window else distance >= 0


def _router(op: Op, x: Inputs) -> list[Array]:
    """The experts with the highest scores and their shares (softmax over all; ``normalize``: over the chosen)."""
    scores, k = given(op, x, 0), op.attr_int("experts_per_token", 1)
    chosen = np.argsort(-scores, -1, kind="stable")[..., :k]
    share = np.take_along_axis(softmax(scores, -1), chosen, -1)
    if op.attr_int("normalize", 1):
        share = share / share.sum(-1, keepdims=True)
    return [share.astype(scores.dtype), chosen.astype(np.int64)]


def _mixture(op: Op, x: Inputs) -> list[Array]:
    """Sum of the chosen experts' outputs, weighted with their shares."""
    a, share, chosen = given(op, x, 0), given(op, x, 1), given(op, x, 2)
    count = 1 if op.attr_int("stacked", 1) else op.attr_int("num_experts", 1)
    if op.attr_int("joined", 0):
        weights = [*np.split(given(op, x, 3), 2, 1), given(op, x, 4)]
    else:
        weights = [given(op, x, 3 + i) for i in range(3 * count)]
    y = np.zeros(a.shape, np.float64)
    for e in np.unique(chosen):
        rows, slot = np.nonzero(chosen == e)
        gate, up, down = (weights[i][e] if count == 1 else weights[i * count + e] for i in range(3))
        inner = _activation(op, a[rows].astype(np.float64) @ gate.T) * (a[rows] @ up.T)
        y[rows] += share[rows, slot][:, None] * (inner @ down.T)
    return [y.astype(a.dtype)]


def _activation(op: Op, a: Array) -> Array:
    name = op.attr_str("activation", "silu")
    if name == "silu":
        return np.asarray(a * sigmoid(a))
    if name == "relu":
        return np.maximum(a, 0)
    return gelu(a, "tanh" if name == "gelu_tanh" else "none")


def _causal_conv(op: Op, x: Inputs) -> list[Array]:
    """Depthwise convolution over the last tokens: ``y[t, c] = bias[c] + Σ_k w[c, k] x[t - K + 1 + k, c]``; state: the last K - 1 inputs."""
    a, w, bias, past = given(op, x, 0), given(op, x, 1), optional(x, 2), optional(x, 3)
    batch, channels = op.attr_int("batch", 1), a.shape[1]
    w = w.reshape(channels, -1)
    width = w.shape[1]
    new = np.swapaxes(a.reshape(batch, -1, channels), 1, 2)
    before = np.zeros((batch, channels, width - 1), a.dtype) if past is None else past
    line = np.concatenate([before, new], 2)
    y = np.einsum("bctk,ck->btc", np.lib.stride_tricks.sliding_window_view(line, width, 2).astype(np.float64), w)
    y = y if bias is None else y + bias
    return [y.reshape(a.shape).astype(a.dtype), line[:, :, line.shape[2] - width + 1 :]]


def _selective_scan(op: Op, x: Inputs) -> list[Array]:
    """``h ← exp(Δ A) h + Δ B x``, ``y = C h + D x`` per token, with ``Δ = softplus(step)`` (Gu and Dao, 2023, algorithm 2)."""
    a, step, decay, to_state, from_state, skip = (given(op, x, i) for i in range(6))
    past, batch = optional(x, 6), op.attr_int("batch", 1)
    decay = -np.exp(decay.astype(np.float64)) if op.attr_int("logarithmic", 0) else decay.astype(np.float64)
    u, delta, into, out = (v.astype(np.float64).reshape(batch, -1, v.shape[1]) for v in (a, step, to_state, from_state))
    delta = np.logaddexp(delta, 0)
    h = np.zeros((batch, *decay.shape)) if past is None else past.astype(np.float64)
    y = np.empty(u.shape)
    for t in range(u.shape[1]):
        h = np.exp(delta[:, t, :, None] * decay) * h + (delta[:, t] * u[:, t])[:, :, None] * into[:, t, None, :]
        y[:, t] = np.einsum("bcs,bs->bc", h, out[:, t]) + skip * u[:, t]
    return [y.reshape(a.shape).astype(a.dtype), h.astype(np.float32)]


def _sample(op: Op, x: Inputs) -> list[Array]:
    """The position of the highest score (``greedy``); the other methods are random and have no reference."""
    if (method := op.attr_str("method", "greedy")) != "greedy":
        raise ValueError(f"sampling with {method} is random, so there is no reference for it")
    return [np.argmax(given(op, x, 0), -1).astype(np.int64)]


OPS: dict[str, Function] = {
    "RMSNorm": _rms_norm,
    "RotaryEmbedding": _rotary_embedding,
    "GroupQueryAttention": _group_query_attention,
    "Router": _router,
    "MoE": _mixture,
    "CausalConv": _causal_conv,
    "SelectiveScan": _selective_scan,
    "Sample": _sample,
}
