"""Attention of one new token over a paged cache (:mod:`hetsched_kernels.kv_cache`).

A few pages are worked on together. What comes next is asked for meanwhile, a part at each stage, so that memory is never waited for
nor idle: values while keys are scored, the next pages' keys while shares are made and values added.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hetsched_kernels.ahead import ask_for
from hetsched_kernels.arrays import Array, InF32, InI64, InU8, OutF32
from hetsched_kernels.cast import half_to_float
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.extremes import row_max
from hetsched_kernels.kv_cache import (
    DIM,
    GROUP,
    HEADS,
    KEY_SCALES,
    PAGE,
    SHARED,
    STRIDE,
    VALUE_SCALES,
    VALUES,
    WIDTH,
    page_of,
)  # fmt: skip
from hetsched_kernels.online_softmax import advance_softmax, limit_scores
from hetsched_kernels.parts import as_i32, as_u8, as_u16, onward, ptr, span
from hetsched_kernels.quantize_groups import quantize_row
from hetsched_kernels.tile import LANES
from hetsched_kernels.tile_kv import ROWS, tile_keys, tile_values, whole_shares
from hetsched_kernels.wide import full_width

#: Pages that are worked on together.
_TOGETHER: Final = 4
_KEYS_CALL, _VALUES_CALL = tile_keys.call, tile_values.call
_ZERO = np.float32(0.0)
_LOWEST = np.float32(-np.inf)
_NOTHING = np.float32(1e-30)
#: What the largest share of a few pages becomes: 127 · 128, so that its high part is an int8.
_WHOLE = np.float32(127 * 128)


def attend_scratch(geometry: Array) -> int:
    """Float32 elements of scratch that :data:`attend_cache` wants."""
    many, size, width = int(geometry[HEADS] // geometry[SHARED]), _TOGETHER * int(geometry[PAGE]), int(geometry[WIDTH])
    groups = width // GROUP
    return size * (1 + groups) + groups + many * (size + width + 4 + 3 * groups + groups * size // 2 + width // 4)


@block
def _scratch_of(scratch: Any, many: Any, groups: Any, width: Any, size: Any) -> Any:
    """The scratch of :data:`attend_cache` in parts, for ``size`` tokens at once; the second half of the sums is zeros."""
    key_scales, value_scales, rest = span(scratch, 0, size), span(scratch, size, groups * size), onward(scratch, size * (1 + groups))
    tops, scores, rest = span(rest, 0, groups), span(rest, groups, many * size), onward(rest, groups + many * size)
    total, states, rest = span(rest, 0, many * width), span(rest, many * width, 2 * many), onward(rest, many * (width + 2))
    factors, sums, rest = span(rest, 0, many * groups), as_i32(rest, many * groups, 2 * many * groups), onward(rest, 3 * many * groups)
    q_scales, q_sums, rest = span(rest, 0, many), as_i32(rest, many, many), onward(rest, 2 * many)
    shares, codes = as_u8(rest, 0, many * groups * size // 2), as_u8(rest, many * groups * size // 2, many * width // 4)
    return key_scales, value_scales, tops, scores, total, states, factors, shares, codes, q_scales, q_sums, sums


@block
def _coming(cache: Any, geometry: Any, pages: Any, head: Any, p: Any, first: Any, last: Any) -> Any:
    """Page ``p``; after the last one the next head's pages follow, and at the very end addresses that are nobody's."""
    ends = p > last
    stride = geometry[STRIDE]
    number = pages[min(first + p - last - 1, last) if ends else p]
    return ptr(cache, (number * geometry[SHARED] + head + (1 if ends else 0)) * stride)


@block
def _ask_for_page(page: Any, geometry: Any) -> None:
    """Ask for what :data:`_open_page` reads and for the first half of the keys."""
    size, width = geometry[PAGE], geometry[WIDTH]
    ask_for(page, size * width // 2)
    ask_for(ptr(page, geometry[KEY_SCALES]), geometry[VALUES] - geometry[KEY_SCALES])
    ask_for(ptr(page, geometry[VALUE_SCALES]), geometry[STRIDE] - geometry[VALUE_SCALES])


@block
def _weigh(row: Any, reach: Any, scales: Any, tops: Any, shares: Any, room: Any, sums: Any, factors: Any) -> None:
    """Whole shares of a head's tokens for every group of values; none is above ``reach``, no scale above ``tops``."""
    for g in range(tops.shape[0]):
        top = reach * tops[g]
        factor = _WHOLE / top if top > _NOTHING else _ZERO
        high, low = ptr(shares, 2 * g * room), ptr(shares, (2 * g + 1) * room)
        sums[g] = whole_shares(ptr(row, 0), ptr(scales, g * room), factor, high, low, row.shape[0])
        factors[g] = top / _WHOLE


@block
def _open_page(page: Any, geometry: Any, filled: Any, at: Any, room: Any, key_scales: Any, value_scales: Any) -> None:
    """The scales of a page as float32, from token ``at`` on of ``room`` tokens; after its ``filled`` tokens values weigh nothing."""
    full_width()
    size, groups = geometry[PAGE], geometry[WIDTH] // GROUP
    keys, values = as_u16(page, geometry[KEY_SCALES], 2 * size), as_u16(page, geometry[VALUE_SCALES], 2 * groups * size)
    for i in range(size):
        key_scales[at + i] = half_to_float(keys[i])
    for g in range(groups):
        own, to = span(values, g * size, size), span(value_scales, g * room + at, size)
        for i in range(size):
            to[i] = half_to_float(own[i])
        for i in range(filled, size):
            to[i] = _ZERO


@block
def _score_page(
    page: Any, geometry: Any, many: Any, codes: Any, q_scales: Any, q_sums: Any, key_scales: Any, at: Any, room: Any, scores: Any
) -> None:  # fmt: skip
    """Scores of every head that shares a page with its tokens, which are those from ``at`` on of ``room``."""
    width, size = geometry[WIDTH], geometry[PAGE]
    for m in range(0, many, ROWS):
        _KEYS_CALL(
            ptr(page, 0), ptr(page, geometry[VALUES]), size // LANES, width // 4, ptr(codes, m * width), width, ptr(q_sums, m),
            ptr(q_scales, m), ptr(key_scales, at), ptr(scores, m * room + at), room, min(ROWS, many - m),
        )  # fmt: skip


@block
def _add_page(
    page: Any, coming: Any, geometry: Any, many: Any, shares: Any, at: Any, room: Any, sums: Any, factors: Any, total: Any
) -> None:  # fmt: skip
    """Add the values of a page to every head's weighted sum."""
    width, size, values = geometry[WIDTH], geometry[PAGE], geometry[VALUES]
    groups = width // GROUP
    for m in range(0, many, ROWS):
        _VALUES_CALL(
            ptr(page, values), ptr(coming, size * width // 2), width // LANES, size // 8, GROUP // LANES,
            ptr(shares, m * 2 * groups * room + at), 2 * groups * room, 2 * room, ptr(sums, m * groups), ptr(factors, m * groups), groups,
            ptr(total, m * width), width, min(ROWS, many - m),
        )  # fmt: skip


@kernel(needs=(tile_keys, tile_values))
def attend_cache(
    q: InF32,
    cache: InU8,
    pages: InI64,
    geometry: InI64,
    out: OutF32,
    scratch: OutF32,
    length: int,
    window: int,
    scale: float,
    softcap: float,
) -> None:
    """Attention of one token over the cache that ends with it: softmax(cap(q kᵀ · scale)) v, head by head.

    Args:
        q: [heads · head_dim].
        cache: uint8 [:func:`hetsched_kernels.kv_cache.cache_bytes`].
        pages: int64, the sequence's page numbers in order.
        geometry: :func:`hetsched_kernels.kv_cache.cache_geometry`.
        out: [heads · head_dim].
        scratch: float32 [:func:`attend_scratch`].
        length: tokens in the cache, at least 1.
        window: the last tokens that are seen; 0 for all.
        scale: factor on the scores.
        softcap: scores s become softcap · tanh(s / softcap); 0 for none.
    """
    shared, dim, width, size = geometry[SHARED], geometry[DIM], geometry[WIDTH], geometry[PAGE]
    many, groups = geometry[HEADS] // shared, width // GROUP
    room = _TOGETHER * size
    s = _scratch_of(scratch, many, groups, width, room)
    key_scales, value_scales, tops, scores, total, states, factors, shares, codes, q_scales, q_sums, sums = s
    start = max(length - window, 0) if window > 0 else 0
    first, last = start // size, (length - 1) // size
    for i in range(many * groups):
        sums[many * groups + i] = np.int32(0)
    for head in range(shared):
        for m in range(many):
            own = span(q, (head * many + m) * dim, dim)
            quantize_row(own, span(codes, m * width, width), span(q_scales, m, 1), span(q_sums, m, 1), width)
            q_scales[m] *= scale
            states[2 * m], states[2 * m + 1] = _LOWEST, _ZERO
        for i in range(many * width):
            total[i] = _ZERO
        for p in range(first, last + 1, _TOGETHER):
            count = min(_TOGETHER, last + 1 - p)
            for i in range(count):
                page = page_of(cache, geometry, pages[p + i], head)
                _open_page(page, geometry, min(length - (p + i) * size, size), i * size, room, key_scales, value_scales)
                _score_page(page, geometry, many, codes, q_scales, q_sums, key_scales, i * size, room, scores)
            for g in range(groups):
                tops[g] = row_max(span(value_scales, g * room, min(length - p * size, room)))
            for m in range(many):
                row, whole, at = span(scores, m * room, count * size), span(shares, m * 2 * groups * room, 2 * groups * room), m * groups
                for i in range(m * _TOGETHER // many, (m + 1) * _TOGETHER // many):
                    _ask_for_page(_coming(cache, geometry, pages, head, p + _TOGETHER + i, first, last), geometry)
                limit_scores(row, p * size, start, length, softcap)
                reach = advance_softmax(row, span(total, m * width, width), span(states, 2 * m, 2))
                _weigh(row, reach, value_scales, tops, whole, room, span(sums, at, groups), span(factors, at, groups))
            for i in range(count):
                page = page_of(cache, geometry, pages[p + i], head)
                coming = _coming(cache, geometry, pages, head, p + _TOGETHER + i, first, last)
                _add_page(page, coming, geometry, many, shares, i * size, room, onward(sums, many * groups * min(i, 1)), factors, total)
        for m in range(many):
            to, line = span(out, (head * many + m) * dim, dim), span(total, m * width, width)
            factor = np.float32(1.0) / states[2 * m + 1]
            for i in range(dim):
                to[i] = line[i] * factor
