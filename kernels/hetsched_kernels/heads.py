"""Rows of heads side by side, and caches with one head after the other: what attention over a growing cache moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.arrays import InF32, InT, OutF32, OutT
from hetsched_kernels.cast import float_to_half, half_to_float
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.parts import span


@block
def _widened(source: Any, out: Any) -> None:
    """Float16 bits, or float32, as float32."""
    if source.itemsize == 2:
        for i in range(out.shape[0]):
            out[i] = half_to_float(np.uint16(source[i]))
    else:
        for i in range(out.shape[0]):
            out[i] = np.float32(source[i])


@kernel(T=("float32", "uint16"))
def join_heads(past: InT, rows: InF32, out: OutF32, heads: int, before: int, tokens: int, dim: int) -> None:
    """Out [heads, before + tokens, dim] = the cache, then the new rows.

    Args:
        past: [heads · before · dim], float32 or float16 bits.
        rows: [tokens · heads · dim].
        out: float32, at least as long as that.
        heads: heads.
        before: tokens in the cache.
        tokens: new tokens.
        dim: elements of a head.
    """
    total = before + tokens
    for h in range(heads):
        _widened(span(past, h * before * dim, before * dim), span(out, h * total * dim, before * dim))
        for t in range(tokens):
            source, to = span(rows, (t * heads + h) * dim, dim), span(out, (h * total + before + t) * dim, dim)
            for i in range(dim):
                to[i] = source[i]


@kernel(T=("float32", "uint16"))
def keep_heads(cache: InF32, out: OutT, heads: int, total: int, kept: int, dim: int) -> None:
    """Out [heads, kept, dim] = the last tokens of a cache [heads, total, dim], as float32 or float16 bits."""
    for h in range(heads):
        source, to = span(cache, (h * total + total - kept) * dim, kept * dim), span(out, h * kept * dim, kept * dim)
        if out.itemsize == 2:
            for i in range(kept * dim):
                to[i] = float_to_half(source[i])
        else:
            for i in range(kept * dim):
                to[i] = source[i]
