"""Attention of a few new tokens over a paged cache in any of its formats; each page of a head is decoded once for all that ask."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.arrays import Array, InF32, InI64, InU8, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.online_softmax import advance_softmax, limit_scores
from hetsched_kernels.paged_cache import DIM, HEADS, PAGE, SHARED, head_page, load_newest, load_page
from hetsched_kernels.parts import onward, ptr, span
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_rows import TOGETHER, add_rows, dot_rows
from hetsched_kernels.wide import full_width

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_LOWEST = np.float32(-np.inf)


def attend_pages_scratch(geometry: Array, rows: int) -> int:
    """Float32 elements of scratch that :data:`attend_pages` wants for up to ``rows`` new tokens."""
    many, size = int(geometry[HEADS] // geometry[SHARED]), int(geometry[PAGE]) + TOGETHER
    width = padded(int(geometry[DIM]))
    return 2 * size * width + size + 2 * rows * many * (1 + width)


def padded(dim: int) -> int:
    """Elements of a row that is whole vectors."""
    return -(-dim // LANES) * LANES


@block
def _widen(query: Any, to: Any) -> None:
    for i in range(query.shape[0]):
        to[i] = query[i]
    for i in range(query.shape[0], to.shape[0]):
        to[i] = _ZERO


@block
def _clear(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = _ZERO


@kernel
def attend_pages(
    q: InF32,
    cache: InU8,
    pages: InI64,
    geometry: InI64,
    recent: InU8,
    recent_geometry: InI64,
    fresh: int,
    out: OutF32,
    scratch: OutF32,
    head: int,
    rows: int,
    position: int,
    window: int,
    scale: float,
    softcap: float,
) -> None:
    """Causal attention of new tokens over a cache that holds them: softmax(cap(q kᵀ · scale)) v, for one key-value head.

    Args:
        q: [rows · heads · head_dim].
        cache: uint8, :func:`hetsched_kernels.paged_cache.page_bytes` a page.
        pages: int64, the sequence's page numbers in order.
        geometry: :func:`hetsched_kernels.paged_cache.page_geometry`.
        recent: uint8, pages of float16 whose tokens a query sees instead, where they are of its own page: page p of the sequence is
            page p mod 2 there. Empty for none.
        recent_geometry: its :func:`hetsched_kernels.paged_cache.page_geometry`.
        fresh: position from which on tokens are there.
        out: as ``q``; only the heads that share key-value head ``head`` are written.
        scratch: float32 [:func:`attend_pages_scratch`].
        head: the key-value head.
        rows: new tokens.
        position: position of the first of them.
        window: the last tokens that each sees; 0 for all.
        scale: factor on the scores.
        softcap: scores s become softcap · tanh(s / softcap); 0 for none.
    """
    full_width()
    dim, size, heads = geometry[DIM], geometry[PAGE], geometry[HEADS]
    width, many, length = (dim + LANES - 1) // LANES * LANES, heads // geometry[SHARED], position + rows
    asking = rows * many
    store = (size + TOGETHER) * width
    keys, values, rest = span(scratch, 0, store), span(scratch, store, store), onward(scratch, 2 * store)
    scores, rest = span(rest, 0, size + TOGETHER), onward(rest, size + TOGETHER)
    states, queries, totals = span(rest, 0, 2 * asking), span(rest, 2 * asking, asking * width), onward(rest, asking * (2 + width))
    _clear(span(scratch, 0, 2 * store))
    for a in range(asking):
        states[2 * a], states[2 * a + 1] = _LOWEST, _ZERO
        _widen(span(q, (a // many * heads + head * many + a % many) * dim, dim), span(queries, a * width, width))
    _clear(span(totals, 0, asking * width))
    start = max(position + 1 - window, 0) if window > 0 else 0
    for p in range(start // size, (length - 1) // size + 1):
        first = p * size
        count = min(size, length - first)
        load_page(head_page(cache, geometry, pages[p], head), geometry, count, width, keys, values)
        for own in range(2):
            if own == 1 and recent.shape[0] > 0 and first + size > position:
                newest = head_page(recent, recent_geometry, p % 2, head)
                load_newest(newest, recent_geometry, max(fresh - first, 0), count, width, keys, values)
            for a in range(asking):
                stop = position + a // many + 1
                seen = min(count, stop - first)
                if seen <= 0 or (stop <= first + size) != (own == 1):
                    continue
                whole = (seen + TOGETHER - 1) // TOGETHER * TOGETHER
                row, to = span(scores, 0, whole), span(totals, a * width, width)
                dot_rows(ptr(queries, a * width), ptr(keys, 0), whole, width, scale, ptr(scores, 0))
                limit_scores(row, first, max(stop - window, 0) if window > 0 else 0, first + seen, softcap)
                advance_softmax(row, to, span(states, 2 * a, 2))
                add_rows(ptr(scores, 0), ptr(values, 0), whole, width, ptr(totals, a * width))
    for a in range(asking):
        to, own = span(out, (a // many * heads + head * many + a % many) * dim, dim), span(totals, a * width, dim)
        factor = _ONE / states[2 * a + 1]
        for j in range(dim):
            to[j] = own[j] * factor
