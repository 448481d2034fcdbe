"""Attention operators of ``com.microsoft``, written with ONNX's own Attention (opset 23)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.frontends.onnx_contrib_products import dynamic_product, float_product
from hetsched.frontends.onnx_expansion import Expansion
from hetsched.graph import AttrValue, DType, Op
from hetsched.reference.element_types import NUMBER_OF

#: Largest mask that is made as a constant (elements); longer prompts are refused by name.
_MAX_MASK = 1 << 24


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, heads of keys and values, and the scale of the scores."""

    query: int
    shared: int
    scale: float

    @property
    def attrs(self) -> dict[str, AttrValue]:
        """As attributes of ONNX's Attention."""
        return {"q_num_heads": self.query, "kv_num_heads": self.shared, "scale": self.scale}


def heads_of(e: Expansion, query: int, shared: int, dim: int) -> Heads:
    """Heads of ``dim`` elements, with the node's scale or 1 / √dim."""
    scale = e.op.attr_float("scale", 0.0)
    return Heads(query, shared, scale or 1 / math.sqrt(dim))


def num_heads(e: Expansion, name: str = "num_heads") -> int:
    """The node's number of heads, which must be given."""
    heads = e.op.attr_int(name, 0)
    if heads <= 0:
        raise e.refuse(f"has {name} = {heads}")
    return heads


def attend(
    e: Expansion, qkv: Sequence[str], mask: str, past: tuple[str, str], outputs: Sequence[str], heads: Heads,
    extra: dict[str, AttrValue] | None = None,
) -> None:  # fmt: skip
    """ONNX's Attention; the mask is added to the scores, or boolean."""
    inputs = (*qkv, mask, *past)
    kept = list(outputs)
    if len(kept) > 1 and not (past[0] or any(kept[1:])):
        kept = kept[:1]
    named = tuple(o or e.fresh("present") for o in kept)
    e.trace.step(Op(_name(e, named), "Attention", _trimmed(inputs), named, {**heads.attrs, **(extra or {})}, "", e.op.origin))


def _name(e: Expansion, outputs: Sequence[str]) -> str:
    return e.op.name if outputs[0] == e.output() else f"{e.op.name}/attention"


def _trimmed(names: Sequence[str]) -> tuple[str, ...]:
    out = list(names)
    while out and not out[-1]:
        out.pop()
    return tuple(out)


def causal_mask(e: Expansion, tokens: int, total: int, window: int, like: str) -> str:
    """Which of ``total`` keys each of the last ``tokens`` positions sees, as zeros and the lowest number to add; ``""``: all."""
    if tokens == 1 and (window <= 0 or total <= window):
        return ""
    if tokens * total > _MAX_MASK:
        raise e.refuse(f"needs a mask of {tokens} x {total}")
    distance = np.arange(total - tokens, total)[:, None] - np.arange(total)[None, :]
    seen = (distance >= 0) & (distance < window) if window > 0 else distance >= 0
    lowest = -65504.0 if e.dtype(like) is DType.F16 else -3.4028234e38
    return e.constant(np.where(seen, 0.0, lowest), "mask", e.dtype(like))


def plus(e: Expansion, a: str, b: str) -> str:
    """The sum of two masks, either of which may be ``""``."""
    return e.add("Add", (a, b)) if a and b else a or b


# -- masks of MultiHeadAttention and Attention ------------------------------------------------------------------------


def _padding_mask(e: Expansion, mask: str, total: int, like: str) -> str:
    """A mask of keys as something to add to ``[batch, heads, tokens, total]``: lengths ``[B]``, or 1 where a key counts."""
    if not mask:
        return ""
    shape, to = e.shape(mask), {"to": NUMBER_OF[e.dtype(like)]}
    if len(shape) == 1:
        positions = e.constant(e.steps(0, total), "positions")
        lengths = e.add("Unsqueeze", (e.add("Cast", (mask,), {"to": NUMBER_OF[DType.I64]}), e.indices(1)))
        mask = e.add("Cast", (e.add("Less", (positions, lengths)),), to)
        shape = (*shape, total)
    else:
        mask = e.add("Cast", (mask,), to)
    if len(shape) not in {2, 3} or shape[-1] != total:
        raise e.refuse(f"has a mask of shape {list(shape)} over {total} keys")
    mask = e.add("Unsqueeze", (mask, e.indices(1, 2) if len(shape) == 2 else e.indices(1)))
    away = e.add("Sub", (e.like(1.0, mask, "one"), mask))
    return e.add("Mul", (away, e.like(e.op.attr_float("mask_filter_value", -10000.0), mask, "filter")))


def _multi_head_attention(e: Expansion) -> None:
    e.refuse_outputs(3)
    if e.has(8) or e.has(9):
        raise e.refuse("shares its cache between steps or beams")
    heads = num_heads(e)
    q, k, v = _projected(e, heads)
    past = (e.optional(6), e.optional(7))
    tokens = e.shape(q)[1]
    new = e.shape(k)[2] if len(e.shape(k)) == 4 else e.shape(k)[1]
    total = new + (e.shape(past[0])[2] if past[0] else 0)
    mask = plus(e, _padding_mask(e, e.optional(4), total, q), e.optional(5))
    if e.op.attr_int("unidirectional", 0):
        mask = plus(e, mask, causal_mask(e, tokens, total, 0, q))
    q, k, v = _same_rank(e, (q, k, v), heads)
    outputs = [e.output() if len(e.shape(q)) == 3 else e.fresh("heads"), e.output(1), e.output(2)]
    size = e.shape(q)[-1] if len(e.shape(q)) == 4 else e.shape(q)[2] // heads
    attend(e, (q, k, v), mask, past, outputs, heads_of(e, heads, heads, size))
    if len(e.shape(q)) == 4:
        _joined(e, outputs[0])


def _projected(e: Expansion, heads: int) -> tuple[str, str, str]:
    """Queries, keys and values out of the forms in which they may be packed, with their biases."""
    q = e.input(0)
    if not e.has(1):  # [batch, tokens, heads, 3, dim]
        b, s, n, _, d = e.shape(q)
        parts = e.split(q, (1, 1, 1), 3)
        q, k, v = (e.reshape(p, b, s, n * d) for p in parts)
    elif not e.has(2):  # [batch, tokens, heads, 2, dim]
        b, s, n, _, d = e.shape(e.input(1))
        k, v = (e.reshape(p, b, s, n * d) for p in e.split(e.input(1), (1, 1), 3))
    else:
        k, v = e.input(1), e.input(2)
    if not e.has(3):
        return q, k, v
    sizes = [e.shape(t)[-1] if len(e.shape(t)) == 3 else e.shape(t)[1] * e.shape(t)[3] for t in (q, k, v)]
    q_bias, k_bias, v_bias = e.split(e.input(3), sizes, 0)
    return _biased(e, q, q_bias), _biased(e, k, k_bias), _biased(e, v, v_bias)


def _biased(e: Expansion, x: str, bias: str) -> str:
    """Keys and values of cross attention that come as ``[batch, heads, tokens, dim]`` have their bias already."""
    return e.add("Add", (x, bias)) if len(e.shape(x)) == 3 else x


def _same_rank(e: Expansion, qkv: Sequence[str], heads: int) -> tuple[str, ...]:
    """All three with the heads apart if one of them has them apart."""
    if all(len(e.shape(x)) == 3 for x in qkv):
        return tuple(qkv)
    return tuple(_apart(e, x, heads) if len(e.shape(x)) == 3 else x for x in qkv)


def _apart(e: Expansion, x: str, heads: int) -> str:
    b, s, width = e.shape(x)
    return e.add("Transpose", (e.reshape(x, b, s, heads, width // heads),), {"perm": (0, 2, 1, 3)})


def _joined(e: Expansion, x: str) -> None:
    b, n, s, d = e.shape(x)
    e.reshape(e.add("Transpose", (x,), {"perm": (0, 2, 1, 3)}), b, s, n * d, out=e.output())


def _core(e: Expansion, qkv: str, mask: str, past: str, bias: str) -> None:
    """What Attention and QAttention do after the projection: ``past`` and the second output are keys and values stacked."""
    heads, width = num_heads(e), e.shape(qkv)[-1]
    sizes = e.op.attr_ints("qkv_hidden_sizes", ()) or (width // 3,) * 3
    if e.op.attr_int("do_rotary", 0):
        raise e.refuse("rotates its queries and keys")
    q, k, v = e.split(qkv, sizes, 2)
    s = e.shape(q)[1]
    pasts, before = ("", ""), 0
    if past:
        parts = e.split(past, (1, 1), 0)
        pasts = tuple(e.reshape(p, *e.shape(past)[1:]) for p in parts)  # type: ignore[assignment]
        before = e.shape(past)[3]
    total = before + s
    added = plus(e, _padding_mask(e, mask, total, q), bias)
    if e.op.attr_int("unidirectional", 0):
        added = plus(e, added, causal_mask(e, s, total, 0, q))
    present = e.output(1)
    caches = [e.fresh("key"), e.fresh("value")] if present or past else ["", ""]
    attend(e, (q, k, v), added, pasts, [e.output(), *caches], heads_of(e, heads, heads, sizes[0] // heads))
    if present:
        e.add("Concat", [e.add("Unsqueeze", (c, e.indices(0))) for c in caches], {"axis": 0}, present)


def _attention(e: Expansion) -> None:
    product = e.add("MatMul", (e.input(0), e.input(1)))
    qkv = e.add("Add", (product, e.input(2))) if e.has(2) else product
    if e.has(6):
        raise e.refuse("shares its cache between steps")
    _core(e, qkv, e.optional(3), e.optional(4), e.optional(5))


def _q_attention(e: Expansion) -> None:
    """The projection on integers, then Attention."""
    x, w, bias, x_scale, w_scale = (e.input(i) for i in range(5))
    qkv = e.fresh("qkv")
    if e.dtype(x).is_float:
        dynamic_product(e, x, w, w_scale, e.optional(7), bias, qkv)
    else:
        float_product(e, x, w, (x_scale, w_scale), (e.optional(6), e.optional(7)), bias, qkv)
    _core(e, qkv, e.optional(5), e.optional(8), "")


ATTENTION: dict[str, Callable[[Expansion], None]] = {
    "MultiHeadAttention": _multi_head_attention,
    "Attention": _attention,
    "QAttention": _q_attention,
}
