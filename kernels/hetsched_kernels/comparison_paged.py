"""Twins of the paged cache (what each format keeps of keys and values, attention over it) and of activations of 16 bits."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from hetsched_kernels import codes
from hetsched_kernels.arrays import Array
from hetsched_kernels.comparison import Comparison, Draw, flat, floats, poisoned
from hetsched_kernels.comparison_language import attended, weights_in_groups
from hetsched_kernels.few_bits import K, pack_groups
from hetsched_kernels.gemm_groups import gemm_groups_scratch, gemm_twofold_f32
from hetsched_kernels.groups import padded_depth
from hetsched_kernels.page_layout import SHARED, VALUE_GROUP, page_bytes, page_geometry
from hetsched_kernels.paged_attention import attend_pages, attend_pages_scratch, merge_parts, parts_room
from hetsched_kernels.paged_cache import append_pages, heads_apart, read_pages
from hetsched_kernels.tile import LANES
from hetsched_kernels.twofold import quantize_twofold, rms_norm_quantize_twofold, swiglu_quantize_twofold

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
    page, tokens = draw.choice([16, 17, 64]), draw.integer(1, 300)
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
    (tokens, _, dim), heads = keys.shape, int(geometry[0])
    rows = draw.integer(1, min(tokens, 5))
    q = floats(draw, rows, heads, dim)
    window, scale, softcap = draw.choice([0, draw.integer(1, 310)]), dim**-0.5, draw.choice([0.0, 5.0])
    got = _in_parts(q, cache, pages, geometry, NO_RECENT, tokens - rows, window, scale, softcap, draw.integer(1, 3))
    return got, attended(q, keys, values, window, scale, softcap)


def _in_parts(
    q: Array, cache: Array, pages: Array, geometry: Array, recent: tuple[Any, ...], position: int, window: int, scale: float,
    softcap: float, turns: int,
) -> Array:  # fmt: skip
    """Attention whose parts are taken in turns, in any order."""
    rows, room = len(q), parts_room(geometry, len(q), position + len(q))
    out, parts, scratch = poisoned(q.size), poisoned(room), poisoned(attend_pages_scratch(geometry, rows))
    for head in range(int(geometry[SHARED])):
        for turn in reversed(range(turns)):
            tail = (parts, scratch, head, turn, turns, rows, position, window, scale, softcap)
            attend_pages(flat(q), cache, pages, geometry, *recent, *tail)
        merge_parts(parts, geometry, out, head, rows, position, window)
    return out.reshape(q.shape)


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
    got = _in_parts(q, cache, pages, geometry, (recent, plain, fresh), position, 0, dim**-0.5, 0.0, draw.integer(1, 3))
    want = []
    for r in range(rows):
        own, stop = max((position + r) // page * page, fresh), position + r + 1
        both = [np.concatenate([a[:own], b[own:stop]]) if own < stop else a[:stop] for a, b in ((keys, exact_keys), (values, exact_values))]
        want.append(attended(q[r : r + 1], both[0], both[1], 0, dim**-0.5, 0.0))
    return got, np.concatenate(want)


def _apart(draw: Draw) -> tuple[Array, Array]:
    rows, heads, width, more = draw.integer(1, 4), draw.integer(1, 3), draw.integer(1, 20), draw.integer(0, 5)
    x, stride = floats(draw, rows, heads, width), (rows + more) * width
    apart, together = poisoned(heads * stride), poisoned(x.size)
    heads_apart(flat(x), apart, rows, heads, width, stride, False)
    heads_apart(apart, together, rows, heads, width, stride, True)
    got = apart.reshape(heads, stride)[:, : rows * width].reshape(heads, rows, width)
    return np.concatenate([flat(got), together]), np.concatenate([flat(x.transpose(1, 0, 2)), flat(x)])


def _room_for_twofold(rows: int, depth: int, group: int) -> tuple[Array, Array, Array]:
    """Where codes, scales and sums of rows and their rests go."""
    groups = depth // group
    return poisoned(2 * rows * depth, np.uint8), poisoned(2 * rows * groups), poisoned(2 * rows * groups, np.int32)


def _both(q: Array, scales: Array, sums: Array, rows: int, group: int) -> Array:
    """Rows and their rests as they were quantized, added; sums must be those of the codes."""
    stored = q.view(np.int8).astype(np.float64).reshape(rows, 2, -1, group)
    assert (stored.sum(3) == sums.reshape(rows, 2, -1)).all()
    return np.asarray((stored * scales.reshape(rows, 2, -1, 1)).sum(1).reshape(rows, -1))


def _close(got: Array, value: Array, group: int, slack: float) -> tuple[Array, Array]:
    """Whether values were kept within half a step of their rests, and ``slack`` of a group's largest one."""
    wide = np.zeros(got.shape)
    wide[:, : value.shape[1]] = value
    reach = np.abs(wide.reshape(got.shape[0], -1, group)).max(2).repeat(group, 1)
    return np.abs(got - wide) <= reach * (1.01 / 127 / 254 + slack), np.ones(got.shape, np.bool_)


def _twofold(draw: Draw) -> tuple[Array, Array]:
    rows, cols, group = draw.integer(1, 3), draw.integer(1, 200), draw.choice([16, 32, 64])
    x, depth = floats(draw, rows, cols, scale=float(draw.choice([0.0, 1.0, 50.0]))), padded_depth(cols, group)
    to = _room_for_twofold(rows, depth, group)
    quantize_twofold(flat(x), *to, poisoned(cols), rows, cols, depth, group)
    return _close(_both(*to, rows, group), x, group, 0.0)


def _norm_twofold(draw: Draw) -> tuple[Array, Array]:
    rows, cols, has_skip = draw.integer(1, 3), draw.integer(1, 300), draw.choice([False, True])
    x, skip, scale = floats(draw, rows, cols), floats(draw, rows if has_skip else 0, cols), floats(draw, cols)
    total, depth = poisoned(skip.size), padded_depth(cols, 32)
    to = _room_for_twofold(rows, depth, 32)
    rms_norm_quantize_twofold(flat(x), flat(skip), scale, total, *to, poisoned(cols), rows, cols, depth, 32, 1e-5)
    wide = x.astype(np.float64) + (skip if has_skip else 0)
    assert not has_skip or np.allclose(total.reshape(wide.shape), wide, atol=1e-6)
    value = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-5) * scale
    return _close(_both(*to, rows, 32), value, 32, 1e-6)


def _swiglu_twofold(draw: Draw) -> tuple[Array, Array]:
    rows, cols = draw.integer(1, 3), draw.integer(1, 300)
    gate, up, depth = floats(draw, rows, cols, scale=3.0), floats(draw, rows, cols), padded_depth(cols, 32)
    to = _room_for_twofold(rows, depth, 32)
    swiglu_quantize_twofold(flat(gate), flat(up), *to, poisoned(cols), rows, cols, depth, 32)
    return _close(_both(*to, rows, 32), gate / (1 + np.exp(-gate.astype(np.float64))) * up, 32, 1e-6)


def _twofold_product(bits: int, mins: bool, draw: Draw) -> tuple[Array, Array]:
    """A product of rows and their rests against that of both as they were quantized, in two parts of the columns."""
    m, n, k, relu = draw.choice([1, 2, 5, 20]), draw.integer(1, 150), draw.integer(1, 100), draw.choice([False, True])
    weights = weights_in_groups(draw, bits, 32, mins, n, k)
    packed, x, bias = pack_groups(weights), floats(draw, m, k), floats(draw, draw.choice([0, n]))
    depth = int(packed.shape[K])
    to = _room_for_twofold(m, depth, 32)
    quantize_twofold(flat(x), *to, poisoned(k), m, k, depth, 32)
    out, scratch, middle = poisoned(m * n), poisoned(gemm_groups_scratch(packed.shape)), min(draw.integer(0, 9) * LANES, n)
    for first, last in ((0, middle), (middle, n)):
        tail = (bias, out, scratch, m, first, last, codes.RELU if relu else codes.NONE, 0.0, 0.0)
        gemm_twofold_f32(*to, *packed, *tail)
    value = _both(*to, m, 32)[:, :k] @ weights.reals().astype(np.float64).T + (bias if bias.size else 0)
    return out.reshape(m, n), np.maximum(value, 0) if relu else value


TABLE: list[Any] = [
    *(Comparison(f"read_pages {k}/{v}", partial(_read, (k, v)), 1e-6, 1e-6) for k, v in _CACHES),
    *(Comparison(f"attend_pages {k}/{v}", partial(_attend, (k, v)), 1e-4, 1e-4) for k, v in _CACHES),
    Comparison("attend_pages recent", _attend_recent, 1e-4, 1e-4),
    Comparison("heads_apart", _apart),
    Comparison("quantize_twofold", _twofold), Comparison("rms_norm_quantize_twofold", _norm_twofold),
    Comparison("swiglu_quantize_twofold", _swiglu_twofold),
    *(
        Comparison(f"gemm_twofold_f32 {bits}-bit{' with minima' if mins else ''}", partial(_twofold_product, bits, mins), 1e-4, 1e-4)
        for bits, mins in ((4, True), (4, False), (8, False))
    ),
]  # fmt: skip
