"""Twins of the paged cache (what each format keeps of keys and values, attention over it) and of activations of 16 bits."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from hetsched_kernels import codes
from hetsched_kernels.arrays import Array
from hetsched_kernels.comparison import Comparison, Draw, flat, floats, poisoned
from hetsched_kernels.comparison_language import attended
from hetsched_kernels.groups import padded_depth
from hetsched_kernels.paged_attention import attend_pages, attend_pages_scratch
from hetsched_kernels.paged_cache import VALUE_GROUP, append_pages, heads_apart, page_bytes, page_geometry, read_pages
from hetsched_kernels.twofold import add_twofold, quantize_twofold

_CACHES = (("fp16", "fp16"), ("fp8", "fp8"), ("int8", "int8"), ("int8", "int4"), ("fp16", "int4"))


def _e4m3(x: Array) -> Array:
    """Values rounded to 3 bits of mantissa, exponents from -6, at most 448."""
    wide = np.clip(x.astype(np.float64), -448, 448)
    exponent = np.floor(np.log2(np.maximum(np.abs(wide), 2.0**-6)))
    step = 2.0 ** (exponent - 3)
    return np.asarray(np.rint(wide / step) * step)


def _integers(x: Array, group: int, low: int, high: int, steps: float) -> Array:
    """The last axis in groups with a float16 scale each."""
    dim = x.shape[-1]
    wide = np.zeros((*x.shape[:-1], -(-dim // group) * group), np.float32)
    wide[..., :dim] = x
    parts = wide.reshape(*x.shape[:-1], -1, group)
    scales = (np.abs(parts).max(-1, keepdims=True) / np.float32(steps)).astype(np.float16).astype(np.float32)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    codes = np.clip(np.rint(parts * inverse), low, high).astype(np.float64)
    return np.asarray((codes * scales).reshape(wide.shape)[..., :dim])


#: Arguments for a cache without tokens in float16 beside it.
NO_RECENT = (np.zeros(0, np.uint8), np.zeros(0, np.int64), 0)


def kept(x: Array, form: str, group: int) -> Array:
    """What a format keeps of rows."""
    if form == "fp16":
        return x.astype(np.float16).astype(np.float64)
    if form == "fp8":
        return _e4m3(x)
    return _integers(x, group, -127, 127, 127) if form == "int8" else _integers(x, group, -8, 7, 7.5)


def _filled(draw: Draw, form: tuple[str, str]) -> tuple[Any, ...]:
    """A cache of some tokens in pages of any order: geometry, cache, pages, keys and values as they are kept."""
    shared, many, dim = draw.integer(1, 3), draw.integer(1, 4), draw.choice([20, 32, 64])
    page, tokens = draw.choice([16, 17, 64]), draw.integer(1, 150)
    geometry = page_geometry(shared * many, shared, dim, *form, page)
    count = -(-tokens // page)
    pages = draw.rng.permutation(count + 2)[:count].astype(np.int64)
    cache = poisoned(page_bytes(geometry) * (count + 2), np.uint8)
    key, value = floats(draw, tokens, shared, dim), floats(draw, tokens, shared, dim)
    before = draw.integer(0, tokens)
    append_pages(flat(key), flat(value), cache, pages, geometry, 0, 0, before)
    append_pages(flat(key[before:]), flat(value[before:]), cache, pages, geometry, before, 0, tokens - before)
    return geometry, cache, pages, kept(key, form[0], dim), kept(value, form[1], VALUE_GROUP)


def _read(form: tuple[str, str], draw: Draw) -> tuple[Array, Array]:
    geometry, cache, pages, keys, values = _filled(draw, form)
    tokens, shared, dim = keys.shape
    got = poisoned(2 * tokens * shared * dim).reshape(2, shared, tokens, dim)
    for head in range(shared):
        read_pages(cache, pages, geometry, got[0, head].reshape(-1), got[1, head].reshape(-1), head, tokens)
    return got, np.stack([keys.transpose(1, 0, 2), values.transpose(1, 0, 2)])


def _attend(form: tuple[str, str], draw: Draw) -> tuple[Array, Array]:
    geometry, cache, pages, keys, values = _filled(draw, form)
    tokens, shared, dim = keys.shape
    heads, rows = int(geometry[0]), draw.integer(1, min(tokens, 5))
    q = floats(draw, rows, heads, dim)
    window, scale, softcap = draw.choice([0, draw.integer(1, 160)]), dim**-0.5, draw.choice([0.0, 5.0])
    out, scratch = poisoned(q.size), poisoned(attend_pages_scratch(geometry, rows))
    for head in range(shared):
        attend_pages(flat(q), cache, pages, geometry, *NO_RECENT, out, scratch, head, rows, tokens - rows, window, scale, softcap)
    return out.reshape(q.shape), attended(q, keys, values, window, scale, softcap)


def _attend_recent(draw: Draw) -> tuple[Array, Array]:
    """Each query sees the tokens of its own page in float16, from some position on."""
    geometry, cache, pages, keys, values = _filled(draw, ("int8", "int4"))
    (tokens, shared, dim), heads, page = keys.shape, int(geometry[0]), int(geometry[3])
    rows = draw.integer(1, min(tokens, 5))
    plain, position = page_geometry(heads, shared, dim, "fp16", "fp16", page), tokens - rows
    exact_keys, exact_values = (kept(floats(draw, tokens, shared, dim), "fp16", 0).astype(np.float32) for _ in range(2))
    begin, recent = max(tokens - page, 0), poisoned(2 * page_bytes(plain), np.uint8)
    append_pages(flat(exact_keys[begin:]), flat(exact_values[begin:]), recent, np.arange(len(pages)) % 2, plain, begin, 0, tokens - begin)
    q, fresh = floats(draw, rows, heads, dim), draw.integer(begin, tokens)
    out, scratch = poisoned(q.size), poisoned(attend_pages_scratch(geometry, rows))
    for head in range(shared):
        args = (cache, pages, geometry, recent, plain, fresh, out, scratch, head, rows, position, 0, dim**-0.5, 0.0)
        attend_pages(flat(q), *args)
    want = []
    for r in range(rows):
        own, stop = max((position + r) // page * page, fresh), position + r + 1
        both = [np.concatenate([a[:own], b[own:stop]]) if own < stop else a[:stop] for a, b in ((keys, exact_keys), (values, exact_values))]
        want.append(attended(q[r : r + 1], both[0], both[1], 0, dim**-0.5, 0.0))
    return out.reshape(q.shape), np.concatenate(want)


def _apart(draw: Draw) -> tuple[Array, Array]:
    rows, heads, width, more = draw.integer(1, 4), draw.integer(1, 3), draw.integer(1, 20), draw.integer(0, 5)
    x, stride = floats(draw, rows, heads, width), (rows + more) * width
    apart, together = poisoned(heads * stride), poisoned(x.size)
    heads_apart(flat(x), apart, rows, heads, width, stride, False)
    heads_apart(apart, together, rows, heads, width, stride, True)
    got = apart.reshape(heads, stride)[:, : rows * width].reshape(heads, rows, width)
    return np.concatenate([flat(got), together]), np.concatenate([flat(x.transpose(1, 0, 2)), flat(x)])


def _twofold(draw: Draw) -> tuple[Array, Array]:
    """A row and its rest, dequantized, against the row; group sums against the codes."""
    rows, cols, group = draw.integer(1, 3), draw.integer(1, 200), draw.choice([16, 32, 64])
    x = floats(draw, rows, cols, scale=float(draw.choice([0.0, 1.0, 50.0])))
    depth = padded_depth(cols, group)
    groups = depth // group
    q, scales, sums = poisoned(2 * rows * depth, np.uint8), poisoned(2 * rows * groups), poisoned(2 * rows * groups, np.int32)
    quantize_twofold(flat(x), q, scales, sums, poisoned(cols), rows, cols, depth, group)
    stored = q.view(np.int8).astype(np.float64).reshape(rows, 2, groups, group)
    assert (stored.sum(3) == sums.reshape(rows, 2, groups)).all()
    both = (stored * scales.reshape(rows, 2, groups, 1)).sum(1).reshape(rows, depth)
    wide = np.zeros((rows, depth))
    wide[:, :cols] = x
    reach = np.abs(wide.reshape(rows, groups, group)).max(2).repeat(group, 1)
    return np.abs(both - wide) <= reach / 127 / 254 * 1.01, np.ones(wide.shape, np.bool_)


def _add_twofold(draw: Draw) -> tuple[Array, Array]:
    rows, n, relu = draw.integer(1, 3), draw.integer(1, 70), draw.choice([False, True])
    products, bias = floats(draw, 2 * rows, n), floats(draw, draw.choice([0, n]))
    out, middle = poisoned(rows * n), draw.integer(0, n)
    for first, last in ((0, middle), (middle, n)):
        add_twofold(flat(products), bias, out, rows, n, first, last, codes.RELU if relu else codes.NONE, 0.0, 0.0)
    value = products[0::2] + products[1::2] + (bias if bias.size else 0)
    return out.reshape(rows, n), np.maximum(value, 0) if relu else value


TABLE: list[Any] = [
    *(Comparison(f"read_pages {k}/{v}", partial(_read, (k, v)), 1e-6, 1e-6) for k, v in _CACHES),
    *(Comparison(f"attend_pages {k}/{v}", partial(_attend, (k, v)), 1e-4, 1e-4) for k, v in _CACHES),
    Comparison("attend_pages recent", _attend_recent, 1e-4, 1e-4),
    Comparison("heads_apart", _apart),
    Comparison("quantize_twofold", _twofold), Comparison("add_twofold", _add_twofold, 1e-6, 1e-6),
]  # fmt: skip
