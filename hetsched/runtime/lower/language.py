"""Composites of language models in float32: RMS norms, rotary embedding, attention over a cache, the next token."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.graph import DType
from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.lowering import Array, Lowering, bits
from hetsched.runtime.lower.splitting import MANY
from hetsched_kernels import attention, heads, norm, rotary, sampling, search
from hetsched_kernels.sampling_scratch import sample_scratch
from hetsched_kernels.tile import COLS


def rms_norm(low: Lowering) -> None:
    """RMSNorm over groups of the last axis as long as its scale: whole rows, or heads."""
    offset = low.op.attr_float("offset", 0.0)
    scale = low.reals(1)
    if offset:
        scale = low.packed(low.op.inputs[1], f"plus {offset}", lambda: aligned_copy(low.constant_reals(1).reshape(-1) + np.float32(offset)))
    x, out = low.reals(0), low.real_output()
    cols, epsilon = scale.size, low.op.attr_float("epsilon", 1e-5)
    low.emit_split(
        norm.rms_norm_f32, x.size // cols, -(-MANY // cols),
        lambda first, last: (x[first * cols : last * cols], scale, out[first * cols : last * cols], last - first, cols, epsilon),
    )  # fmt: skip


def rotary_embedding(low: Lowering) -> None:
    """RotaryEmbedding of rows of heads, with a cosine and sine for each row and pair."""
    op, width = low.op, low.shape(0)[-1]
    many = op.attr_int("num_heads", 1) or 1
    x, cos, sin, out = low.reals(0), low.reals(1), low.reals(2), low.real_output()
    rows, pairs = x.size // width, low.shape(1)[-1]
    tail = (many, width // many, pairs, bool(op.attr_int("interleaved", 0)))

    def part(first: int, last: int) -> tuple[Any, ...]:
        at, angles = slice(first * width, last * width), slice(first * pairs, last * pairs)
        return x[at], cos[angles], sin[angles], out[at], last - first, *tail

    low.emit_split(rotary.rotary_f32, rows, -(-MANY // width), part)


def group_query_attention(low: Lowering) -> None:
    """GroupQueryAttention: causal, over the cache and the new tokens; writes the caches that follow."""
    op = low.op
    batch, many, shared = op.attr_int("batch", 1), op.attr_int("num_heads", 1), op.attr_int("kv_num_heads", 1)
    rows, width = low.shape(0)
    tokens, dim = rows // batch, width // many
    before = low.shape(3)[2] if low.has(3) else 0
    total = before + tokens
    shape = attention.attention_shape(tokens, total, many, shared, dim, op.attr_int("window", 0))
    caches = [low.scratch(shared * total * dim + COLS, np.float32) for _ in range(2)]
    scratch = low.scratch(attention.attend_f32_scratch(shape), np.float32)
    q, new, out = low.reals(0), (low.reals(1), low.reals(2)), low.raw_output()
    for b in range(batch):
        for part, cache in enumerate(caches):
            past = _stored(low, 3 + part, batch, b) if before else np.zeros(0, np.float32)
            own = new[part].reshape(batch, -1)[b]
            low.emit(heads.join_heads, past, own, cache, shared, before, tokens, dim, dtypes=(past.dtype,))
        args = (scratch, shape, op.attr_float("scale", 1.0), op.attr_float("softcap", 0.0))
        low.emit(attention.attend_f32, q.reshape(batch, -1)[b], *caches, out.reshape(batch, -1)[b], *args)
        for part, cache in enumerate(caches):
            if 1 + part < len(op.outputs) and op.outputs[1 + part]:
                kept = low.output(1 + part).shape[2]
                to = _plain(low.raw_output(1 + part), low.output(1 + part).dtype).reshape(batch, -1)[b]
                low.emit(heads.keep_heads, cache, to, shared, total, kept, dim, dtypes=(to.dtype,))


def sample(low: Lowering) -> None:
    """Sample: the position of the highest score, or a token drawn by its probability; every run goes on with the stream of its seed."""
    x, width = low.reals(0), low.shape(0)[-1]
    rows, method = x.size // width, low.op.attr_str("method", "greedy")
    if method == "greedy":
        low.emit(search.argmax_f32, x, low.raw_output(), rows, width, 1, True, False)
        return
    k, p = low.op.attr_int("k", 40) if method == "top_k" else 0, low.op.attr_float("p", 0.95) if method == "top_p" else 1.0
    state = np.arange(rows, dtype=np.uint64) + np.uint64(low.op.attr_int("seed", 0))
    scratch = low.scratch(sample_scratch(width), np.float32)
    terms = (rows, width, low.op.attr_float("temperature", 1.0), k, p, 1.0)
    low.emit(sampling.sample_f32, x, np.zeros(0, np.int64), low.raw_output(), state, scratch, *terms)


def _stored(low: Lowering, slot: int, batch: int, item: int) -> Array:
    """One sequence's part of a cache, float16 as bits."""
    cache = _plain(low.raw(slot), low.tensor(slot).dtype)
    return np.asarray(cache.reshape(batch, -1)[item])


def _plain(cache: Array, dtype: DType) -> Array:
    return bits(cache) if dtype is DType.F16 else cache
