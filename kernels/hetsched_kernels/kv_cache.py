"""A paged key-value cache in 8-bit keys and 4-bit values; :mod:`hetsched_kernels.cache_attention` attends to it.

A page holds ``page`` tokens of one key-value head: key codes (LANES tokens side by side), key scales, value codes, value
scales, each on a cache line. Keys have one scale a token, values one for each group of 32 elements; both are float16. A
sequence is a list of page numbers, so pages need not be in order, and one page may belong to several sequences.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import Array, InF32, InI64, OutU8
from hetsched_kernels.cast import float_to_half, half_to_float
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.parts import as_u16, span
from hetsched_kernels.tile import LANES

#: Elements of a value that share a scale.
GROUP: Final = 32
#: Positions in :func:`cache_geometry`'s result.
HEADS, SHARED, DIM, WIDTH, PAGE, KEY_SCALES, VALUES, VALUE_SCALES, STRIDE = range(9)
_LINE: Final = 64
_ZERO = np.float32(0.0)


def cache_geometry(heads: int, kv_heads: int, head_dim: int, page: int = 64) -> Array:
    """The int64 descriptor of a cache.

    Args:
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: elements of a head.
        page: tokens of a page, a multiple of 16.

    Raises:
        ValueError: the heads do not share evenly, or the page has another size.
    """
    if heads < 1 or kv_heads < 1 or heads % kv_heads or head_dim < 1:
        raise ValueError(f"{heads} query heads of {head_dim} elements cannot share {kv_heads} key-value heads")
    if page < 16 or page % 16:
        raise ValueError(f"a page holds a multiple of 16 tokens, not {page}")
    width = -(-head_dim // GROUP) * GROUP
    at, offsets = 0, []
    for size in (page * width, 2 * page, page * width // 2, 2 * page * width // GROUP):
        offsets.append(at)
        at += -(-size // _LINE) * _LINE
    return np.array([heads, kv_heads, head_dim, width, page, *offsets[1:], at], np.int64)


def cache_bytes(geometry: Array, pages: int) -> int:
    """Bytes (uint8) of a cache of so many pages of every key-value head."""
    return int(pages * geometry[SHARED] * geometry[STRIDE])


@block
def page_of(cache: Any, geometry: Any, number: Any, head: Any) -> Any:
    """A key-value head's part of page ``number``."""
    stride = geometry[STRIDE]
    return span(cache, (number * geometry[SHARED] + head) * stride, stride)


@block
def _scale_of(x: Any, steps: Any) -> Any:
    """A float16 scale (as bits) that covers a run with ``steps`` steps each side, and its value."""
    reach = _ZERO
    for i in range(x.shape[0]):
        value = f.absolute(x[i])
        reach = value if value > reach else reach
    half = float_to_half(np.float32(reach / steps))
    return half, half_to_float(half)


@block
def _code(value: Any, inverse: Any, low: Any, high: Any) -> Any:
    return np.int32(f.clip(f.round_even(value * inverse), low, high))


@block
def _inverse(scale: Any) -> Any:
    return np.float32(1.0) / scale if scale > _ZERO else _ZERO


@block
def _store_key(x: Any, page: Any, geometry: Any, slot: Any) -> None:
    width, depth = geometry[WIDTH], geometry[WIDTH] // 4
    half, scale = _scale_of(x, np.float32(127.0))
    as_u16(page, geometry[KEY_SCALES], 2 * geometry[PAGE])[slot] = half
    inverse = _inverse(scale)
    base = slot // LANES * depth * LANES * 4 + slot % LANES * 4
    for d in range(width):
        code = _code(x[d], inverse, np.float32(-127.0), np.float32(127.0)) if d < x.shape[0] else np.int32(0)
        page[base + d // 4 * LANES * 4 + d % 4] = np.uint8(code + 128)


@block
def _store_value(x: Any, page: Any, geometry: Any, slot: Any) -> None:
    size, width = geometry[PAGE], geometry[WIDTH]
    codes, scales = span(page, geometry[VALUES], size * width // 2), as_u16(page, geometry[VALUE_SCALES], 2 * size * (width // GROUP))
    base, upper = slot // 8 * LANES * 4 + slot % 4, slot % 8 >= 4
    for g in range(width // GROUP):
        start = min(g * GROUP, x.shape[0])
        part = span(x, start, min(GROUP, x.shape[0] - start))
        half, scale = _scale_of(part, np.float32(7.5))
        scales[g * size + slot] = half
        inverse = _inverse(scale)
        for i in range(GROUP):
            d = g * GROUP + i
            code = np.uint8(_code(part[i], inverse, np.float32(-8.0), np.float32(7.0)) + 8) if i < part.shape[0] else np.uint8(8)
            at = base + d // LANES * (size // 8) * LANES * 4 + d % LANES * 4
            other = codes[at] & np.uint8(0x0F if upper else 0xF0)
            codes[at] = np.uint8(other | (np.uint8(code << np.uint8(4)) if upper else code))


@kernel
def append_tokens(key: InF32, value: InF32, cache: OutU8, pages: InI64, geometry: InI64, position: int, tokens: int) -> None:
    """Write new tokens' keys and values into the cache.

    Args:
        key: [tokens · kv_heads · head_dim].
        value: the same size.
        cache: uint8 [:func:`cache_bytes`].
        pages: int64, the sequence's page numbers in order.
        geometry: :func:`cache_geometry`.
        position: position of the first new token in the sequence.
        tokens: new tokens.
    """
    shared, dim, size = geometry[SHARED], geometry[DIM], geometry[PAGE]
    for t in range(tokens):
        number, slot = pages[(position + t) // size], (position + t) % size
        for h in range(shared):
            page, at = page_of(cache, geometry, number, h), (t * shared + h) * dim
            _store_key(span(key, at, dim), page, geometry, slot)
            _store_value(span(value, at, dim), page, geometry, slot)
