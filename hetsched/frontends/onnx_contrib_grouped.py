"""RotaryEmbedding and GroupQueryAttention of ``com.microsoft``.

Caches are taken to be full: every sequence of a batch has as many past positions as the cache, as when nothing is padded. So
``seqlens_k`` and ``total_sequence_length`` are not read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.frontends.onnx_contrib_attention import attend, causal_mask, heads_of, num_heads, plus
from hetsched.frontends.onnx_expansion import Expansion
from hetsched.graph import AttrValue


def _rotary_embedding(e: Expansion) -> None:
    """``input, position_ids, cos_cache, sin_cache``; one position id is the first of consecutive ones."""
    x, positions, cos, sin = (e.input(i) for i in range(4))
    if e.op.attr_int("is_packed_batching", 0) or e.op.attr_float("scale", 1.0) != 1.0:
        raise e.refuse("packs its batch or scales")
    shape = e.shape(x)
    dim = e.op.attr_int("rotary_embedding_dim", 0) or 2 * e.shape(cos)[1]
    heads = e.op.attr_int("num_heads", 0) or (shape[1] if len(shape) == 4 else shape[2] // dim)
    batch, tokens = shape[0], shape[2] if len(shape) == 4 else shape[1]
    if e.shape(positions) == (1,):
        steps = e.constant(np.broadcast_to(e.steps(0, tokens), (batch, tokens)), "steps")
        positions = e.add("Add", (steps, positions))
    attrs: dict[str, AttrValue] = {"num_heads": heads, "interleaved": e.op.attr_int("interleaved", 0)}
    attrs["rotary_embedding_dim"] = e.op.attr_int("rotary_embedding_dim", 0)
    e.trace.step(e.standard("RotaryEmbedding", (x, cos, sin, positions), e.op.outputs, attrs))


_GROUP_UNSUPPORTED = {11: "attention sinks", 12: "a scale for its cached keys", 13: "a scale for its cached values"}


def _group_query_attention(e: Expansion) -> None:
    e.refuse_outputs(3)
    for slot, what in _GROUP_UNSUPPORTED.items():
        if e.has(slot):
            raise e.refuse(f"has {what}")
    if e.op.attr_int("smooth_softmax", 0) not in {0, -1}:
        raise e.refuse("has a smooth softmax")
    heads, shared = num_heads(e), num_heads(e, "kv_num_heads")
    q, k, v = _grouped_inputs(e, heads, shared)
    batch, tokens, width = e.shape(q)
    dim = width // heads
    past = (e.optional(3), e.optional(4))
    before = e.shape(past[0])[2] if past[0] else 0
    if e.op.attr_int("do_rotary", 0):
        q, k = _turned(e, (q, k), (heads, shared), before)
    scaled = heads_of(e, heads, shared, dim)
    softcap = e.op.attr_float("softcap", 0.0)
    window = max(e.op.attr_int("local_window_size", -1), 0)
    outputs = [e.output(), *(e.output(i) or e.fresh("present") for i in (1, 2))]
    if e.has(10):
        mask = plus(e, causal_mask(e, tokens, before + tokens, window, q), e.optional(10))
        attend(e, (q, k, v), mask, past, outputs, scaled, {"softcap": softcap})
        return
    attrs: dict[str, AttrValue] = {
        "num_heads": heads, "kv_num_heads": shared, "head_dim": dim, "batch": batch, "window": window,
        "scale": scaled.scale, "softcap": softcap, **({"whole_cache": 1} if window else {}),
    }  # fmt: skip
    rows = [e.reshape(x, batch * tokens, e.shape(x)[2]) for x in (q, k, v)]
    y = e.fresh("rows")

    def build() -> None:
        whole = [e.reshape(x, batch, tokens, e.shape(x)[1]) for x in rows]
        mask = causal_mask(e, tokens, before + tokens, window, q) if before or window else ""
        inner = e.fresh("attention")
        causal = {"is_causal": int(not mask and tokens > 1), "softcap": softcap}
        attend(e, whole, mask, past, [inner, *outputs[1:]], scaled, dict(causal))
        e.reshape(inner, batch * tokens, width, out=y)

    e.composite("GroupQueryAttention", (*rows, *past), (y, *outputs[1:]), attrs, build)
    e.reshape(y, batch, tokens, width, out=e.output())


def _grouped_inputs(e: Expansion, heads: int, shared: int) -> tuple[str, str, str]:
    """Queries, keys and values, which may come in one tensor."""
    if e.has(1):
        return e.input(0), e.input(1), e.input(2)
    dim = e.shape(e.input(0))[2] // (heads + 2 * shared)
    q, k, v = e.split(e.input(0), (heads * dim, shared * dim, shared * dim), 2)
    return q, k, v


def _turned(e: Expansion, pair: tuple[str, str], heads: tuple[int, int], before: int) -> tuple[str, str]:
    """Queries and keys after rotary embedding at the positions after the cache."""
    cos, sin = e.input(7), e.input(8)
    batch, tokens = e.shape(pair[0])[:2]
    positions = e.optional(9) or e.constant(np.broadcast_to(e.steps(before, before + tokens), (batch, tokens)), "positions")
    out = []
    for x, count in zip(pair, heads, strict=True):
        attrs: dict[str, AttrValue] = {
            "num_heads": count, "interleaved": e.op.attr_int("rotary_interleaved", 0), "rotary_embedding_dim": _rotated(e, x, count, cos),
        }  # fmt: skip
        y = e.fresh("rotated")
        e.trace.step(e.standard("RotaryEmbedding", (x, cos, sin, positions), (y,), attrs))
        out.append(y)
    return out[0], out[1]


def _rotated(e: Expansion, x: str, heads: int, cos: str) -> int:
    """How many elements of a head are turned; 0: all."""
    dim = 2 * e.shape(cos)[1]
    return 0 if dim == e.shape(x)[2] // heads else dim


GROUPED: dict[str, Callable[[Expansion], None]] = {
    "RotaryEmbedding": _rotary_embedding,
    "GroupQueryAttention": _group_query_attention,
}
