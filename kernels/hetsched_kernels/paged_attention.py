"""Attention of a few new tokens over a paged cache in any of its formats, in parts that threads take side by side.

A part is some pages of one key-value head: its softmax and its weighted sum of values stand for themselves, and parts are put
together at the end (as Flash-Decoding does: Dao et al., 2023). Which pages make a part depends on neither threads nor new tokens, so
that results are the same bits however many there are.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import Array, InF32, InI64, InU8, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.online_softmax import advance_softmax, limit_scores
from hetsched_kernels.page_layout import DIM, FP16, HEADS, KEYS_AS, PAGE, SHARED, VALUES, VALUES_AS
from hetsched_kernels.paged_cache import head_page, load_keys, load_newest, load_values
from hetsched_kernels.parts import as_u8, onward, ptr, span
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_heads import KEYS, QUERIES, score_rows, weigh_rows
from hetsched_kernels.wide import full_width

#: Tokens of a part, in whole pages (at least one).
PART: Final = 128
_SCORE, _WEIGH = score_rows.call, weigh_rows.call
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_LOWEST = np.float32(-np.inf)
_HALF, _FLOAT = 2, 4


def padded(dim: int) -> int:
    """Elements of a row that is whole vectors."""
    return -(-dim // LANES) * LANES


def part_pages(geometry: Array) -> int:
    """Pages of a part."""
    return max(PART // int(geometry[PAGE]), 1)


def attend_pages_scratch(geometry: Array, rows: int) -> int:
    """Float32 elements of scratch that :data:`attend_pages` wants for up to ``rows`` new tokens."""
    many, size, width = int(geometry[HEADS] // geometry[SHARED]), int(geometry[PAGE]), padded(int(geometry[DIM]))
    return (size + KEYS) * width + rows * many * (width + padded(part_pages(geometry) * size + KEYS))


def parts_room(geometry: Array, rows: int, context: int) -> int:
    """Float32 elements of all parts of a context of so many tokens, for up to ``rows`` new ones."""
    parts = -(-context // (part_pages(geometry) * int(geometry[PAGE])))
    return parts * rows * int(geometry[HEADS]) * (padded(int(geometry[DIM])) + LANES)


@block
def _place_of(geometry: Any, rows: Any, part: Any, head: Any, width: Any) -> Any:
    """Where the results of a part and key-value head begin: of each query its largest score, its sum, and from LANES on its values."""
    return (part * geometry[HEADS] + head * (geometry[HEADS] // geometry[SHARED])) * rows * (width + LANES)


@block
def _query_at(geometry: Any, head: Any, a: Any) -> Any:
    """Where query ``a`` of a key-value head is in a matrix of tokens."""
    many = geometry[HEADS] // geometry[SHARED]
    return (a // many * geometry[HEADS] + head * many + a % many) * geometry[DIM]


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


@block
def _askers(p: Any, size: Any, position: Any, rows: Any, many: Any, has_recent: Any) -> Any:
    """The first query that sees page ``p``, and the first of those that do not see it as its newest tokens are."""
    begin = min(max(p * size - position, 0), rows) * many
    return begin, min(max((p + 1) * size - position, 0), rows) * many if has_recent else begin


@block
def _decoded(loaded: Any) -> Any:
    return ptr(as_u8(loaded, 0, loaded.shape[0]), 0), _FLOAT


@block
def _keys_of(page: Any, geometry: Any, count: Any, width: Any, loaded: Any) -> Any:
    """Where a page's keys can be read, and how many bytes an element has there: in place, or decoded."""
    if geometry[KEYS_AS] == FP16 and width == geometry[DIM]:
        return ptr(page, 0), _HALF
    load_keys(page, geometry, count, width, loaded)
    return _decoded(loaded)


@block
def _newest_keys_of(page: Any, geometry: Any, newest: Any, plain: Any, stale: Any, count: Any, width: Any, loaded: Any) -> Any:
    """As :data:`_keys_of`, in float16 from token ``stale`` on."""
    if stale == 0:
        return _keys_of(newest, plain, count, width, loaded)
    load_keys(page, geometry, count, width, loaded)
    load_newest(newest, plain, 0, stale, count, width, loaded)
    return _decoded(loaded)


@block
def _values_of(page: Any, geometry: Any, count: Any, width: Any, loaded: Any) -> Any:
    """As :data:`_keys_of`."""
    if geometry[VALUES_AS] == FP16 and width == geometry[DIM]:
        return ptr(page, geometry[VALUES]), _HALF
    load_values(page, geometry, count, width, loaded)
    return _decoded(loaded)


@block
def _newest_values_of(page: Any, geometry: Any, newest: Any, plain: Any, stale: Any, count: Any, width: Any, loaded: Any) -> Any:
    """As :data:`_newest_keys_of`."""
    if stale == 0:
        return _values_of(newest, plain, count, width, loaded)
    load_values(page, geometry, count, width, loaded)
    load_newest(newest, plain, plain[VALUES], stale, count, width, loaded)
    return _decoded(loaded)


@block
def _coming(cache: Any, geometry: Any, pages: Any, head: Any, p: Any) -> Any:
    """The keys of page ``p``, if the sequence has it."""
    return ptr(head_page(cache, geometry, pages[min(p, pages.shape[0] - 1)], head), 0)


@block
def _score(
    keys: Any, ahead: Any, size: Any, count: Any, width: Any, queries: Any, first: Any, last: Any, scale: Any, out: Any, room: Any
) -> None:  # fmt: skip
    """Scores of queries ``first`` to ``last`` with a page's keys."""
    for a in range(first, last, QUERIES):
        _SCORE(keys, ahead, size, count, width, ptr(queries, a * width), width, scale, ptr(out, a * room), room, min(QUERIES, last - a))


@block
def _weigh(values: Any, ahead: Any, size: Any, count: Any, width: Any, shares: Any, room: Any, first: Any, last: Any, out: Any) -> None:
    """Add a page's values to the sums of queries ``first`` to ``last``."""
    own = width + LANES
    for a in range(first, last, QUERIES):
        _WEIGH(values, ahead, size, count, width, ptr(shares, a * room), room, ptr(out, a * own + LANES), own, min(QUERIES, last - a))


@kernel(needs=(score_rows, weigh_rows))
def attend_pages(
    q: InF32,
    cache: InU8,
    pages: InI64,
    geometry: InI64,
    recent: InU8,
    recent_geometry: InI64,
    fresh: int,
    parts: OutF32,
    scratch: OutF32,
    head: int,
    turn: int,
    turns: int,
    rows: int,
    position: int,
    window: int,
    scale: float,
    softcap: float,
) -> None:
    """Every ``turns``-th part of causal attention of new tokens over a cache that holds them, for one key-value head.

    Args:
        q: [rows · heads · head_dim].
        cache: uint8, :func:`hetsched_kernels.paged_cache.page_bytes` a page.
        pages: int64, the sequence's page numbers in order.
        geometry: :func:`hetsched_kernels.paged_cache.page_geometry`.
        recent: uint8, pages of float16 whose tokens a query sees instead, where they are of its own page: page p of the sequence is
            page p mod 2 there. Empty for none.
        recent_geometry: its :func:`hetsched_kernels.paged_cache.page_geometry`.
        fresh: position from which on tokens are there.
        parts: float32 [:func:`parts_room`]; :data:`merge_parts` puts them together.
        scratch: float32 [:func:`attend_pages_scratch`].
        head: the key-value head.
        turn: the first part.
        turns: parts from one to the next.
        rows: new tokens.
        position: position of the first of them.
        window: the last tokens that each sees; 0 for all.
        scale: factor on the scores.
        softcap: scores s become softcap · tanh(s / softcap); 0 for none.
    """
    full_width()
    dim, size, many = geometry[DIM], geometry[PAGE], geometry[HEADS] // geometry[SHARED]
    width, together, asking, length = (dim + LANES - 1) // LANES * LANES, max(PART // size, 1), rows * many, position + rows
    room, own = (together * size + KEYS + LANES - 1) // LANES * LANES, width + LANES
    loaded, queries = span(scratch, 0, (size + KEYS) * width), span(scratch, (size + KEYS) * width, asking * width)
    scores = span(scratch, (size + KEYS + asking) * width, asking * room)
    start, has_recent = max(position + 1 - window, 0) if window > 0 else 0, recent.shape[0] > 0
    earliest, latest = start // (together * size), (length - 1) // (together * size)
    earliest += (turn - earliest) % turns
    if earliest > latest:
        return
    if width != dim:
        _clear(loaded)
    for a in range(asking):
        _widen(span(q, _query_at(geometry, head, a), dim), span(queries, a * width, width))
    for part in range(earliest, latest + 1, turns):
        first, out = part * together, onward(parts, _place_of(geometry, rows, part, head, width))
        seen = range(max(first, start // size), min(first + together, (length - 1) // size + 1))
        for p in seen:
            page = head_page(cache, geometry, pages[p], head)
            count, stale, to = min(size, length - p * size), max(fresh - p * size, 0), onward(scores, (p - first) * size)
            begin, middle = _askers(p, size, position, rows, many, has_recent)
            if middle < asking:
                keys, nbytes = _keys_of(page, geometry, count, width, loaded)
                _score(keys, ptr(page, geometry[VALUES]), nbytes, count, width, queries, middle, asking, scale, to, room)
            if begin < middle:
                newest = head_page(recent, recent_geometry, p % 2, head)
                keys, nbytes = _newest_keys_of(page, geometry, newest, recent_geometry, stale, count, width, loaded)
                _score(keys, ptr(page, geometry[VALUES]), nbytes, count, width, queries, begin, middle, scale, to, room)
        for a in range(asking):
            stop, row, state = position + a // many + 1, span(scores, a * room, room), span(out, a * own, 2)
            limit_scores(row, first * size, max(stop - window, 0) if window > 0 else 0, min(stop, (first + together) * size), softcap)
            state[0], state[1] = _LOWEST, _ZERO
            advance_softmax(row, span(out, a * own, 0), state)
            _clear(span(out, a * own + LANES, width))
        for p in seen:
            page = head_page(cache, geometry, pages[p], head)
            count, stale, shares = min(size, length - p * size), max(fresh - p * size, 0), onward(scores, (p - first) * size)
            begin, middle = _askers(p, size, position, rows, many, has_recent)
            coming = _coming(cache, geometry, pages, head, p + turns * together)
            if middle < asking:
                values, nbytes = _values_of(page, geometry, count, width, loaded)
                _weigh(values, coming, nbytes, count, width, shares, room, middle, asking, out)
            if begin < middle:
                newest = head_page(recent, recent_geometry, p % 2, head)
                values, nbytes = _newest_values_of(page, geometry, newest, recent_geometry, stale, count, width, loaded)
                _weigh(values, coming, nbytes, count, width, shares, room, begin, middle, out)


@kernel
def merge_parts(parts: InF32, geometry: InI64, out: OutF32, head: int, rows: int, position: int, window: int) -> None:
    """Put the parts of :data:`attend_pages` together, for one key-value head: softmax(cap(q kᵀ · scale)) v.

    Args:
        parts: float32 [:func:`parts_room`].
        geometry: :func:`hetsched_kernels.paged_cache.page_geometry`.
        out: [rows · heads · head_dim]; only the heads that share key-value head ``head`` are written.
        head: the key-value head.
        rows: new tokens.
        position: position of the first of them.
        window: the last tokens that each sees; 0 for all.
    """
    full_width()
    dim, size, many = geometry[DIM], geometry[PAGE], geometry[HEADS] // geometry[SHARED]
    width, tokens = (dim + LANES - 1) // LANES * LANES, max(PART // size, 1) * size
    start = max(position + 1 - window, 0) if window > 0 else 0
    first, last = start // tokens, (position + rows - 1) // tokens + 1
    for a in range(rows * many):
        to, largest, total = span(out, _query_at(geometry, head, a), dim), _LOWEST, _ZERO
        for part in range(first, last):
            largest = max(largest, parts[_place_of(geometry, rows, part, head, width) + a * (width + LANES)])
        _clear(to)
        for part in range(first, last):
            at = _place_of(geometry, rows, part, head, width) + a * (width + LANES)
            factor, own = f.exp(parts[at] - largest), span(parts, at + LANES, dim)
            total += factor * parts[at + 1]
            for i in range(dim):
                to[i] += factor * own[i]
        factor = _ONE / total
        for i in range(dim):
            to[i] = to[i] * factor
