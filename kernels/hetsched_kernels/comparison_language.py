"""Twins of the language kernels: products with weights of a few bits, their quantized activations, attention over a cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from hetsched_kernels import codes
from hetsched_kernels.arrays import NO_F32, Array
from hetsched_kernels.attention import attend_f32, attend_f32_scratch, attention_shape
from hetsched_kernels.cache_attention import attend_cache, attend_scratch
from hetsched_kernels.comparison import Comparison, Draw, flat, floats, poisoned
from hetsched_kernels.few_bits import GROUP, K, pack_groups
from hetsched_kernels.gemm_groups import gemm_groups_f32, gemm_groups_scratch
from hetsched_kernels.gemm_w4a16 import gemm_w4a16, pair_bf16
from hetsched_kernels.gguf_groups import BLOCKS, gguf_groups
from hetsched_kernels.groups import Groups, padded_depth
from hetsched_kernels.kv_cache import WIDTH, append_tokens, cache_bytes, cache_geometry
from hetsched_kernels.quantize_groups import quantize_groups, rms_norm_quantize_groups, swiglu_quantize_groups
from hetsched_kernels.rotary import rotary_f32, swiglu_f32
from hetsched_kernels.tile import COLS

#: Bits, groups, and whether there are minima, of the products.
_FORMATS = (
    (4, 32, False), (4, 64, True), (4, 96, False), (4, 128, False), (5, 32, True), (5, 64, False), (5, 160, True), (6, 16, False),
    (8, 32, False), (8, 224, False), (2, 256, False),
)  # fmt: skip


def quantized(x: Array, depth: int, group: int) -> tuple[Array, Array, Array]:
    """Codes [rows, depth], scales and sums [rows, groups] in the kernel's own order of operations."""
    wide = np.zeros((x.shape[0], depth), np.float32)
    wide[:, : x.shape[1]] = x
    parts = wide.reshape(x.shape[0], -1, group)
    scales = np.abs(parts).max(2) / np.float32(127)
    scales[scales == 0] = 1
    q = np.rint(parts * (np.float32(1) / scales)[:, :, None]).astype(np.int32)
    return q.reshape(wide.shape), scales, q.sum(2)


def quantized_rows(x: Array, depth: int, group: int) -> tuple[Array, Array, Array]:
    """The kernel's codes, scales and sums."""
    rows, cols = x.shape
    groups = depth // group
    q, scales, sums = poisoned(rows * depth, np.uint8), poisoned(rows * groups), poisoned(rows * groups, np.int32)
    quantize_groups(flat(x), NO_F32, q, scales, sums, NO_F32, rows, cols, depth, group)
    return q, scales, sums


def _joined(q: Array, scales: Array, sums: Array) -> Array:
    """One array that holds all three."""
    return np.concatenate([a.reshape(-1).astype(np.float64) for a in (q, scales, sums)])


def _quantize_groups(draw: Draw) -> tuple[Array, Array]:
    rows, cols, group = draw.integer(1, 4), draw.integer(1, 400), draw.choice([16, 32, 64, 256])
    x = floats(draw, rows, cols, scale=float(draw.choice([0.0, 1.0, 50.0])))
    depth = padded_depth(cols, group)
    factors = draw.choice([NO_F32, floats(draw, cols)])
    groups = depth // group
    q, scales, sums = poisoned(rows * depth, np.uint8), poisoned(rows * groups), poisoned(rows * groups, np.int32)
    quantize_groups(flat(x), factors, q, scales, sums, poisoned(cols), rows, cols, depth, group)
    expected = quantized(x * factors if factors.size else x, depth, group)
    return _joined(q.view(np.int8), scales, sums), _joined(*expected)


def _dequantized(q: Array, scales: Array, rows: int, group: int) -> Array:
    parts = q.view(np.int8).astype(np.float64).reshape(rows, -1, group)
    return np.asarray(parts * scales.reshape(rows, -1, 1)).reshape(rows, -1)


def _close(got: Array, value: Array, group: int) -> tuple[Array, Array]:
    """Whether dequantized rows are within half a step of the values, group by group."""
    wide = np.zeros(got.shape)
    wide[:, : value.shape[1]] = value
    reach = np.abs(wide.reshape(got.shape[0], -1, group)).max(2, keepdims=True)
    off = np.abs(got - wide).reshape(got.shape[0], -1, group)
    return off <= reach / 254 * 1.001 + 1e-5, np.ones(off.shape, np.bool_)


def _rms_norm_quantize(draw: Draw) -> tuple[Array, Array]:
    rows, cols, group, has_skip = draw.integer(1, 3), draw.integer(1, 300), draw.choice([32, 128]), draw.choice([False, True])
    x, skip, scale = floats(draw, rows, cols), floats(draw, rows if has_skip else 0, cols), floats(draw, cols)
    depth = padded_depth(cols, group)
    groups = depth // group
    q, scales, sums = poisoned(rows * depth, np.uint8), poisoned(rows * groups), poisoned(rows * groups, np.int32)
    total = poisoned(skip.size)
    args = (flat(x), flat(skip), scale, total, q, scales, sums, poisoned(cols), rows, cols, depth, group, 1e-5)
    rms_norm_quantize_groups(*args)
    wide = x.astype(np.float64) + (skip if has_skip else 0)
    assert not has_skip or np.allclose(total.reshape(wide.shape), wide, atol=1e-6)
    value = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-5) * scale
    return _close(_dequantized(q, scales, rows, group), value, group)


def _swiglu_quantize(draw: Draw) -> tuple[Array, Array]:
    rows, cols, group = draw.integer(1, 3), draw.integer(1, 300), draw.choice([32, 64])
    gate, up = floats(draw, rows, cols, scale=3.0), floats(draw, rows, cols)
    depth = padded_depth(cols, group)
    groups = depth // group
    q, scales, sums = poisoned(rows * depth, np.uint8), poisoned(rows * groups), poisoned(rows * groups, np.int32)
    swiglu_quantize_groups(flat(gate), flat(up), q, scales, sums, poisoned(cols), rows, cols, depth, group)
    return _close(_dequantized(q, scales, rows, group), gate / (1 + np.exp(-gate.astype(np.float64))) * up, group)


def weights_in_groups(draw: Draw, bits: int, group: int, with_mins: bool, n: int, k: int) -> Groups:
    """A random weight: scales that are float16 numbers, or that are not."""
    groups = -(-k // group)
    values = draw.rng.integers(0, 3 if bits == 2 else 1 << bits, (n, k)).astype(np.uint8)
    dtype = draw.choice([np.float16, np.float32])
    scales = (draw.rng.random((n, groups)) * 0.02 + 0.001).astype(dtype)
    return Groups(values, bits, group, scales, (draw.rng.standard_normal((n, groups)) * 0.05).astype(dtype) if with_mins else None)


def _product(draw: Draw, w: Groups, n: int, k: int) -> tuple[Array, Array]:
    """The kernel's product with a weight, and that of the dequantized operands."""
    m = draw.choice([1, 2, 3, 7, 8, 13, 20, 33])
    packed = pack_groups(w)
    depth, group = int(packed.shape[K]), int(packed.shape[GROUP])
    x, bias = floats(draw, m, k), floats(draw, draw.choice([0, n]))
    q, scales, sums = quantized_rows(x, depth, group)
    out, relu = poisoned(m * n), draw.choice([False, True])
    code = codes.RELU if relu else codes.NONE
    scratch = poisoned(gemm_groups_scratch(packed.shape))
    gemm_groups_f32(q, scales, sums, packed.data, packed.shape, bias, out, scratch, m, 0, n, code, 0.0, 0.0)
    value = _dequantized(q, scales, m, group)[:, :k] @ w.reals().astype(np.float64).T + (bias if bias.size else 0)
    return out.reshape(m, n), np.maximum(value, 0) if relu else value


def _gemm_groups(form: tuple[int, int, bool], draw: Draw) -> tuple[Array, Array]:
    n, k = draw.integer(1, 70), draw.integer(1, 600)
    return _product(draw, weights_in_groups(draw, *form, n, k), n, k)


def _bfloat16(x: Array) -> Array:
    """Values rounded to bfloat16, half to even."""
    bits = x.view(np.uint32).astype(np.int64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


def _gemm_w4a16(draw: Draw) -> tuple[Array, Array]:
    n, k, m, group = draw.integer(1, 70), draw.integer(1, 400), draw.choice([1, 2, 3, 5, 8]), draw.choice([32, 64, 128])
    w = weights_in_groups(draw, 4, group, draw.choice([False, True]), n, k)
    packed = pack_groups(w)
    depth = int(packed.shape[K])
    x, bias = floats(draw, m, k), floats(draw, draw.choice([0, n]))
    pairs, sums = poisoned(m * depth // 2, np.int32), poisoned(m * depth // group)
    pair_bf16(flat(x), pairs, sums, m, k, depth, group)
    out = poisoned(m * n)
    scratch = poisoned(gemm_groups_scratch(packed.shape))
    gemm_w4a16(pairs, sums, packed.data, packed.shape, bias, out, scratch, m, 0, n, codes.NONE, 0.0, 0.0)
    shift = np.zeros((n, k)) if w.mins is None else np.repeat(w.mins.astype(np.float64), group, 1)[:, :k]
    value = _bfloat16(x).astype(np.float64) @ (w.reals() - shift).T + x.astype(np.float64) @ shift.T
    return out.reshape(m, n), value + (bias if bias.size else 0)


def gguf_blocks(rng: np.random.Generator, kind: str, n: int, k: int) -> Array:
    """Random blocks of a kind: any bytes, but finite scales."""
    elements, nbytes = BLOCKS[kind]
    raw = rng.integers(0, 256, (n * k // elements, nbytes)).astype(np.uint8)
    halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "TQ2_0": (64,)}.get(kind, (0,))
    for at in halves:
        raw[:, at : at + 2] = (rng.standard_normal((len(raw), 1)) * 0.01).astype(np.float16).view(np.uint8)
    return raw.reshape(-1)


def _gemm_gguf(kind: str, draw: Draw) -> tuple[Array, Array]:
    n, k = draw.integer(1, 40), BLOCKS[kind][0] * draw.integer(1, 3)
    return _product(draw, gguf_groups(kind, gguf_blocks(draw.rng, kind, n, k), n, k), n, k)


def _cached(geometry: Array, key: Array, value: Array) -> tuple[Array, Array]:
    """Keys and values [tokens, kv_heads, head_dim] as the cache stores them."""
    k_scales = (np.abs(key).max(2, keepdims=True) / np.float32(127)).astype(np.float16).astype(np.float32)
    k_codes = np.clip(np.rint(key * (np.float32(1) / k_scales)), -127, 127)
    tokens, shared, dim = value.shape
    wide = np.zeros((tokens, shared, int(geometry[WIDTH])), np.float32)
    wide[:, :, :dim] = value
    parts = wide.reshape(tokens, shared, -1, 32)
    v_scales = (np.abs(parts).max(3, keepdims=True) / np.float32(7.5)).astype(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        v_codes = np.where(v_scales > 0, np.clip(np.rint(parts * (np.float32(1) / v_scales)), -8, 7), 0)
    return k_codes.astype(np.float64) * k_scales, (v_codes.astype(np.float64) * v_scales).reshape(wide.shape)[:, :, :dim]


def attended(q: Array, keys: Array, values: Array, window: int, scale: float, softcap: float) -> Array:
    """Causal attention by its definition: q [queries, heads, dim], keys and values [keys, kv_heads, dim]."""
    many = q.shape[1] // keys.shape[1]
    scores = np.einsum("qhd,khd->hqk", q.astype(np.float64), np.repeat(keys, many, 1).astype(np.float64)) * scale
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    distance = np.arange(len(keys) - len(q), len(keys))[:, None] - np.arange(len(keys))[None, :]
    seen = (distance >= 0) & (distance < window) if window else distance >= 0
    p = np.exp(np.where(seen, scores - scores.max(), -np.inf))
    out: Array = np.einsum("hqk,khd->qhd", p / p.sum(2, keepdims=True), np.repeat(values, many, 1).astype(np.float64))
    return out


def _attend_cache(draw: Draw) -> tuple[Array, Array]:
    shared, many, dim = draw.integer(1, 3), draw.integer(1, 6), draw.choice([32, 40, 64, 128])
    page, tokens = draw.choice([16, 48, 64]), draw.integer(1, 200)
    geometry = cache_geometry(shared * many, shared, dim, page)
    count = -(-tokens // page)
    pages = draw.rng.permutation(count + 2)[:count].astype(np.int64)
    cache = poisoned(cache_bytes(geometry, count + 2), np.uint8)
    key, value = floats(draw, tokens, shared, dim), floats(draw, tokens, shared, dim)
    split = draw.integer(0, tokens)
    append_tokens(flat(key[:split]), flat(value[:split]), cache, pages, geometry, 0, split)
    append_tokens(flat(key[split:]), flat(value[split:]), cache, pages, geometry, split, tokens - split)
    q = floats(draw, 1, shared * many, dim)
    window, scale, softcap = draw.choice([0, draw.integer(1, 220)]), dim**-0.5, draw.choice([0.0, 5.0])
    out = poisoned(q.size)
    attend_cache(flat(q), cache, pages, geometry, out, poisoned(attend_scratch(geometry)), tokens, window, scale, softcap)
    steps = np.abs(q).max(2, keepdims=True) / np.float32(127)
    asked = np.rint(q * (np.float32(1) / steps)) * steps
    return out.reshape(q.shape), attended(asked, *_cached(geometry, key, value), window, scale, softcap)


def _attend_f32(draw: Draw) -> tuple[Array, Array]:
    shared, many, dim = draw.integer(1, 3), draw.integer(1, 4), draw.choice([8, 33, 64, 80])
    keys = draw.integer(1, 300)
    queries = draw.choice([1, keys, draw.integer(1, keys)])
    window, scale, softcap = draw.choice([0, draw.integer(1, 320)]), dim**-0.5, draw.choice([0.0, 5.0])
    q, k, values = floats(draw, queries, shared * many, dim), floats(draw, keys, shared, dim), floats(draw, keys, shared, dim)
    shape = attention_shape(queries, keys, shared * many, shared, dim, window)
    padded = np.concatenate([flat(values.transpose(1, 0, 2)), poisoned(COLS)])
    out = poisoned(q.size)
    attend_f32(flat(q), flat(k.transpose(1, 0, 2)), padded, out, poisoned(attend_f32_scratch(shape)), shape, scale, softcap)
    return out.reshape(q.shape), attended(q, k, values, window, scale, softcap)


def _rotary(draw: Draw) -> tuple[Array, Array]:
    rows, heads, dim, interleaved = draw.integer(1, 4), draw.integer(1, 3), draw.integer(1, 70), draw.choice([False, True])
    pairs = draw.integer(0, dim // 2)
    x, angles = floats(draw, rows, heads, dim), floats(draw, rows, pairs, scale=3.0)
    cos, sin = np.cos(angles), np.sin(angles)
    in_place = draw.choice([False, True])
    source = flat(x).copy()
    out = source if in_place else poisoned(x.size)
    rotary_f32(source, flat(cos), flat(sin), out, rows, heads, dim, pairs, interleaved)
    expected, turned = x.astype(np.float64), x[..., : 2 * pairs].astype(np.float64)
    a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else (turned[..., :pairs], turned[..., pairs:])
    c, s = cos[:, None], sin[:, None]
    both = (a * c - b * s, b * c + a * s)
    expected[..., : 2 * pairs] = np.stack(both, -1).reshape(turned.shape) if interleaved else np.concatenate(both, -1)
    return out.reshape(x.shape), expected


def _swiglu(draw: Draw) -> tuple[Array, Array]:
    gate = floats(draw, draw.integer(0, 300), scale=4.0)
    up = floats(draw, gate.size)
    out = poisoned(gate.size)
    swiglu_f32(gate, up, out)
    return out, gate / (1 + np.exp(-gate.astype(np.float64))) * up


def _name(form: tuple[int, int, bool]) -> str:
    return f"gemm_groups_f32 {form[0]}-bit g{form[1]}{' with minima' if form[2] else ''}"


TABLE: list[Any] = [
    Comparison("quantize_groups", _quantize_groups), Comparison("rms_norm_quantize_groups", _rms_norm_quantize),
    Comparison("swiglu_quantize_groups", _swiglu_quantize),
    *(Comparison(_name(form), partial(_gemm_groups, form), 2e-5, 2e-5) for form in _FORMATS),
    *(Comparison(f"gemm_groups_f32 {kind}", partial(_gemm_gguf, kind), 2e-5, 5e-4) for kind in BLOCKS),
    Comparison("gemm_w4a16", _gemm_w4a16, 2e-5, 5e-5),
    Comparison("attend_cache", _attend_cache, 1e-4, 6e-4), Comparison("attend_f32", _attend_f32, 1e-5, 2e-5),
    Comparison("rotary_f32", _rotary, 1e-6, 1e-6), Comparison("swiglu_f32", _swiglu, 1e-6, 1e-6),
]  # fmt: skip
