"""A paged key-value cache: how a row of a head is stored in each format, how new tokens get in and whole heads come out.

A page (:mod:`hetsched_kernels.page_layout`) holds ``page`` tokens of every key-value head; of one head first all key rows, their
scales, then the value rows and theirs, each part on a cache line. A sequence is a list of page numbers, so pages need not be in order,
and one page may belong to several sequences. :mod:`hetsched_kernels.kv_cache` is the same for 8-bit keys and 4-bit values alone,
computed on in integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import InF32, InI64, InU8, OutF32, OutU8
from hetsched_kernels.cast import float_to_half, half_to_float
from hetsched_kernels.compilation import REORDER, block, kernel
from hetsched_kernels.functions import bits_to_float, float_to_bits
from hetsched_kernels.page_layout import (
    DIM,
    FP8,
    FP16,
    INT4,
    INT8,
    KEY_GROUP,
    KEY_SCALES,
    KEYS_AS,
    PAGE,
    SHARED,
    STRIDE,
    VALUE_GROUP,
    VALUE_SCALES,
    VALUES,
    VALUES_AS,
)
from hetsched_kernels.parts import as_u16, span

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_E4M3_MOST = np.float32(448.0)
_TO_E4M3, _FROM_E4M3 = np.float32(2.0**-120), np.float32(2.0**120)


@block
def head_page(cache: Any, geometry: Any, number: Any, head: Any) -> Any:
    """The part of page ``number`` that belongs to a key-value head."""
    stride = geometry[STRIDE]
    return span(cache, (number * geometry[SHARED] + head) * stride, stride)


@block(fast=REORDER)
def _reach(x: Any) -> Any:
    reach = _ZERO
    for i in range(x.shape[0]):
        value = f.absolute(x[i])
        reach = value if value > reach else reach
    return reach


@block(inline=True)
def _to_e4m3(value: Any) -> Any:
    """A float8 of 4 bits exponent and 3 bits mantissa: half to even, saturating at 448."""
    bits = float_to_bits(f.clip(value, -_E4M3_MOST, _E4M3_MOST) * _TO_E4M3)
    magnitude = np.int32(bits & 0x7FFFFFFF)
    rounded = np.int32(magnitude + np.int32(0x7FFFF) + ((magnitude >> np.int32(20)) & np.int32(1))) >> np.int32(20)
    return np.uint8(rounded | ((bits >> np.int32(24)) & np.int32(0x80)))


@block(inline=True)
def _from_e4m3(code: Any) -> Any:
    value = bits_to_float(np.int32(np.int32(code & 0x7F) << np.int32(20))) * _FROM_E4M3
    return -value if code & 0x80 else value


@block
def _group_scale(x: Any, steps: Any) -> Any:
    """A float16 scale (as bits) with which a group needs ``steps`` steps each side, and the inverse of its value."""
    half = float_to_half(np.float32(_reach(x) / steps))
    scale = half_to_float(half)
    return half, _ONE / scale if scale > _ZERO else _ZERO


@block
def _write_int8(x: Any, codes: Any, inverse: Any) -> None:
    for i in range(x.shape[0]):
        codes[i] = np.uint8(np.int32(f.clip(f.round_even(x[i] * inverse), np.float32(-127.0), np.float32(127.0))) & 255)


@block
def _write_int4(x: Any, codes: Any, inverse: Any) -> None:
    """Elements i and i + 16 of a group share a byte."""
    half = VALUE_GROUP // 2
    for i in range(half):
        low = x[i] if i < x.shape[0] else _ZERO
        high = x[i + half] if i + half < x.shape[0] else _ZERO
        a = np.int32(f.clip(f.round_even(low * inverse), np.float32(-8.0), np.float32(7.0))) + 8
        b = np.int32(f.clip(f.round_even(high * inverse), np.float32(-8.0), np.float32(7.0))) + 8
        codes[i] = np.uint8(a | (b << 4))


@block
def _write_row(x: Any, form: Any, group: Any, codes: Any, scales: Any) -> None:
    """Store a row; ``scales`` are those of its groups, as float16 bits."""
    dim = x.shape[0]
    if form == FP16:
        halves = as_u16(codes, 0, codes.shape[0])
        for i in range(dim):
            halves[i] = float_to_half(x[i])
        return
    if form == FP8:
        for i in range(dim):
            codes[i] = _to_e4m3(x[i])
        return
    for g in range((dim + group - 1) // group):
        part = span(x, g * group, min(group, dim - g * group))
        if form == INT8:
            scales[g], inverse = _group_scale(part, np.float32(127.0))
            _write_int8(part, span(codes, g * group, part.shape[0]), inverse)
        else:
            scales[g], inverse = _group_scale(part, np.float32(7.5))
            _write_int4(part, span(codes, g * group // 2, group // 2), inverse)


@block
def _read_int4(codes: Any, scale: Any, out: Any) -> None:
    half = VALUE_GROUP // 2
    for i in range(min(half, out.shape[0])):
        out[i] = np.float32(np.int32(codes[i] & 15) - 8) * scale
    for i in range(half, out.shape[0]):
        out[i] = np.float32(np.int32(codes[i - half] >> 4) - 8) * scale


@block
def _read_int8(codes: Any, scale: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = np.float32(np.int8(codes[i])) * scale


@block
def _read_row(form: Any, group: Any, codes: Any, scales: Any, out: Any) -> None:
    """A stored row as float32."""
    dim = out.shape[0]
    if form == FP16:
        halves = as_u16(codes, 0, codes.shape[0])
        for i in range(dim):
            out[i] = half_to_float(halves[i])
        return
    if form == FP8:
        for i in range(dim):
            out[i] = _from_e4m3(codes[i])
        return
    for g in range((dim + group - 1) // group):
        to, scale = span(out, g * group, min(group, dim - g * group)), half_to_float(scales[g])
        if form == INT8:
            _read_int8(span(codes, g * group, to.shape[0]), scale, to)
        else:
            _read_int4(span(codes, g * group // 2, group // 2), scale, to)


@block
def _width(form: Any, dim: Any) -> Any:
    if form == FP16:
        return 2 * dim
    return (dim + VALUE_GROUP - 1) // VALUE_GROUP * VALUE_GROUP // 2 if form == INT4 else dim


@block
def _keys_at(page: Any, geometry: Any, slot: Any) -> Any:
    """Codes and scales of a token's key."""
    width = _width(geometry[KEYS_AS], geometry[DIM])
    return span(page, slot * width, width), as_u16(page, geometry[KEY_SCALES] + 2 * slot, 2)


@block
def _values_at(page: Any, geometry: Any, slot: Any) -> Any:
    """Codes and scales of a token's value."""
    width, groups = _width(geometry[VALUES_AS], geometry[DIM]), (geometry[DIM] + VALUE_GROUP - 1) // VALUE_GROUP
    return span(page, geometry[VALUES] + slot * width, width), as_u16(page, geometry[VALUE_SCALES] + 2 * slot * groups, 2 * groups)


@block
def _load_halves(source: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = half_to_float(source[i])


@block
def load_keys(page: Any, geometry: Any, count: Any, width: Any, keys: Any) -> None:
    """The keys of the first ``count`` tokens of a head's page as float32, ``width`` elements from row to row."""
    dim = geometry[DIM]
    if geometry[KEYS_AS] == FP16 and width == dim:
        _load_halves(as_u16(page, 0, 2 * count * dim), span(keys, 0, count * dim))
    else:
        for slot in range(count):
            codes, scales = _keys_at(page, geometry, slot)
            _read_row(geometry[KEYS_AS], geometry[KEY_GROUP], codes, scales, span(keys, slot * width, dim))


@block
def load_values(page: Any, geometry: Any, count: Any, width: Any, values: Any) -> None:
    """The values, as :data:`load_keys`."""
    dim = geometry[DIM]
    if geometry[VALUES_AS] == FP16 and width == dim:
        _load_halves(as_u16(page, geometry[VALUES], 2 * count * dim), span(values, 0, count * dim))
    else:
        for slot in range(count):
            codes, scales = _values_at(page, geometry, slot)
            _read_row(geometry[VALUES_AS], VALUE_GROUP, codes, scales, span(values, slot * width, dim))


@block
def load_newest(page: Any, geometry: Any, at: Any, first: Any, count: Any, width: Any, rows: Any) -> None:
    """Tokens ``first`` to ``count`` of a head's page in float16: keys (``at`` 0) or values (``geometry[VALUES]``)."""
    dim = geometry[DIM]
    for slot in range(first, count):
        _load_halves(as_u16(page, at + 2 * slot * dim, 2 * dim), span(rows, slot * width, dim))


@kernel
def append_pages(
    key: InF32, value: InF32, cache: OutU8, pages: InI64, geometry: InI64, position: int, begin: int, count: int
) -> None:  # fmt: skip
    """Write new tokens' keys and values into the cache.

    Args:
        key: [tokens · kv_heads · head_dim].
        value: the same size.
        cache: uint8, :func:`~hetsched_kernels.page_layout.page_bytes` a page.
        pages: int64, the sequence's page numbers in order.
        geometry: :func:`~hetsched_kernels.page_layout.page_geometry`.
        position: position of the first new token in the sequence.
        begin: the first new token that is written.
        count: how many are.
    """
    shared, dim, size = geometry[SHARED], geometry[DIM], geometry[PAGE]
    for t in range(begin, begin + count):
        number, slot = pages[(position + t) // size], (position + t) % size
        for h in range(shared):
            page, at = head_page(cache, geometry, number, h), (t * shared + h) * dim
            codes, scales = _keys_at(page, geometry, slot)
            _write_row(span(key, at, dim), geometry[KEYS_AS], geometry[KEY_GROUP], codes, scales)
            codes, scales = _values_at(page, geometry, slot)
            _write_row(span(value, at, dim), geometry[VALUES_AS], VALUE_GROUP, codes, scales)


@kernel
def read_pages(cache: InU8, pages: InI64, geometry: InI64, keys: OutF32, values: OutF32, head: int, length: int) -> None:
    """The keys and values of one head's first ``length`` tokens as float32.

    Args:
        cache: uint8, :func:`~hetsched_kernels.page_layout.page_bytes` a page.
        pages: int64, the sequence's page numbers in order.
        geometry: :func:`~hetsched_kernels.page_layout.page_geometry`.
        keys: [length · head_dim] or longer.
        values: the same.
        head: the key-value head.
        length: tokens.
    """
    dim, size = geometry[DIM], geometry[PAGE]
    for first in range(0, length, size):
        count = min(size, length - first)
        to_keys, to_values = span(keys, first * dim, count * dim), span(values, first * dim, count * dim)
        page = head_page(cache, geometry, pages[first // size], head)
        load_keys(page, geometry, count, dim, to_keys)
        load_values(page, geometry, count, dim, to_values)


@kernel
def heads_apart(x: InF32, out: OutF32, rows: int, heads: int, width: int, stride: int, back: bool) -> None:
    """Rows of ``heads`` parts of ``width`` elements, regrouped: each part of all rows together, part h from ``h · stride`` on.

    Args:
        x: [rows · heads · width], or with ``back`` the regrouped rows.
        out: [heads · stride], or with ``back`` [rows · heads · width].
        rows: rows.
        heads: parts of a row.
        width: elements of a part.
        stride: elements from part to part where they are regrouped, at least rows · width.
        back: put them together again.
    """
    for r in range(rows):
        for h in range(heads):
            at, apart = (r * heads + h) * width, h * stride + r * width
            source, to = span(x, apart if back else at, width), span(out, at if back else apart, width)
            for i in range(width):
                to[i] = source[i]
