"""Composites of language models in float32: RMS norms, rotary embedding, attention over a cache, the next token."""

from __future__ import annotations

import numpy as np

from hetsched.graph import DType
from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.lowering import Array, Lowering, bits
from hetsched_kernels import attention, heads, norm, rotary, search
from hetsched_kernels.tile import COLS


def rms_norm(low: Lowering) -> None:
    """RMSNorm over groups of the last axis as long as its scale: whole rows, or heads."""
    offset = low.op.attr_float("offset", 0.0)
    scale = low.reals(1)
    if offset:
        scale = low.packed(low.op.inputs[1], f"plus {offset}", lambda: aligned_copy(low.constant_reals(1).reshape(-1) + np.float32(offset)))
    x, out = low.reals(0), low.real_output()
    low.emit(norm.rms_norm_f32, x, scale, out, x.size // scale.size, scale.size, low.op.attr_float("epsilon", 1e-5))


def rotary_embedding(low: Lowering) -> None:
    """RotaryEmbedding of rows of heads, with a cosine and sine for each row and pair."""
    op, width = low.op, low.shape(0)[-1]
    many = op.attr_int("num_heads", 1) or 1
    x, cos, sin, out = low.reals(0), low.reals(1), low.reals(2), low.real_output()
    rows, pairs = x.size // width, low.shape(1)[-1]
    low.emit(rotary.rotary_f32, x, cos, sin, out, rows, many, width // many, pairs, bool(op.attr_int("interleaved", 0)))


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
    """Sample, greedy: the position of the highest score."""
    x, width = low.reals(0), low.shape(0)[-1]
    low.emit(search.argmax_f32, x, low.raw_output(), x.size // width, width, 1, True, False)


def _stored(low: Lowering, slot: int, batch: int, item: int) -> Array:
    """One sequence's part of a cache, float16 as bits."""
    cache = _plain(low.raw(slot), low.tensor(slot).dtype)
    return np.asarray(cache.reshape(batch, -1)[item])


def _plain(cache: Array, dtype: DType) -> Array:
    return bits(cache) if dtype is DType.F16 else cache
