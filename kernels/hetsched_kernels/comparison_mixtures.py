"""Twins of mixtures of experts, state spaces and sampled images."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import codes, experts, grid_sample, state_space
from hetsched_kernels.arrays import NO_F32, Array
from hetsched_kernels.comparison import Comparison, Draw, flat, floats, poisoned
from hetsched_kernels.comparison_language import quantized
from hetsched_kernels.few_bits import GROUP, K, pack_groups
from hetsched_kernels.gemm import pack_b_f32
from hetsched_kernels.groups import Groups
from hetsched_kernels.tile import COLS, LANES


def _route(draw: Draw) -> tuple[Array, Array]:
    rows, many = draw.integer(1, 4), draw.integer(1, 70)
    each, normalize = draw.integer(1, min(many, 6)), draw.choice([False, True])
    scores = np.round(floats(draw, rows, many, scale=2.0), draw.choice([0, 3]))
    share, chosen = poisoned(rows * each), poisoned(rows * each, np.int64)
    experts.route_f32(flat(scores), share, chosen, rows, many, each, normalize)
    best = np.argsort(-scores, -1, kind="stable")[:, :each]
    wide = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
    own = np.take_along_axis(wide / wide.sum(1, keepdims=True), best, 1)
    own = own / own.sum(1, keepdims=True) if normalize else own
    return np.concatenate([share, chosen]), np.concatenate([own.reshape(-1), best.reshape(-1)])


def _chosen(draw: Draw, tokens: int, many: int, each: int) -> tuple[Array, Array]:
    """Shares and experts of every token."""
    which = np.stack([draw.rng.permutation(many)[:each] for _ in range(tokens)])
    return draw.rng.random((tokens, each)).astype(np.float32), which.astype(np.int64)


def _halves(cols: int, step: int) -> list[tuple[int, int]]:
    """Columns in two parts, the first a multiple of ``step`` (it may be all)."""
    middle = min(-(-cols // (2 * step)) * step, cols)
    return [(a, b) for a, b in ((0, middle), (middle, cols)) if a < b]


def _silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def _sizes(draw: Draw) -> tuple[int, int, int, int, int]:
    many = draw.integer(1, 5)
    return draw.choice([1, 2, 9]), draw.integer(1, 60), draw.integer(1, 60), many, draw.integer(1, many)


def _mixture(draw: Draw) -> tuple[Array, Array]:
    tokens, width, inner, many, each = _sizes(draw)
    share, which = _chosen(draw, tokens, many, each)
    x, gates, ups, downs = (floats(draw, *s) for s in ((tokens, width), (many, inner, width), (many, inner, width), (many, width, inner)))
    packed = [np.concatenate([pack_b_f32(w, True) for w in weights]) for weights in (gates, ups, downs)]
    out = poisoned(tokens * width)
    shape = experts.experts_shape(tokens, width, inner, many, each, codes.ACTIVATION["Silu"])
    hidden, scratch = poisoned(tokens * each * inner), poisoned(experts.experts_scratch(shape))
    for part in _halves(inner, COLS):
        experts.gate_experts_f32(flat(x), flat(which), *packed[:2], hidden, scratch, shape, *part)
    for part in _halves(width, COLS):
        experts.down_experts_f32(hidden, flat(share), flat(which), packed[2], out, scratch, shape, *part)
    expected = np.zeros((tokens, width))
    for t in range(tokens):
        for s, e in zip(share[t], which[t], strict=True):
            hidden = _silu(gates[e].astype(np.float64) @ x[t]) * (ups[e].astype(np.float64) @ x[t])
            expected[t] += s * (downs[e].astype(np.float64) @ hidden)
    return out.reshape(expected.shape), expected


def _grouped(draw: Draw, many: int, n: int, k: int) -> tuple[list[Groups], Array, Array]:
    """Every expert's weight, their packed data and common shape."""
    bits, group = draw.choice([(4, 32), (8, 32)])
    width = -(-k // group)
    made = [
        Groups(
            draw.rng.integers(0, 1 << bits, (n, k)).astype(np.uint8), bits, group,
            (draw.rng.random((n, width)) * 0.02 + 0.001).astype(np.float16),
        )
        for _ in range(many)
    ]  # fmt: skip
    packed = [pack_groups(w) for w in made]
    return made, np.concatenate([p.data for p in packed]), packed[0].shape


def _rounded(x: Array, shape: Array) -> Array:
    """Rows as the kernel's codes stand for them."""
    depth, group = int(shape[K]), int(shape[GROUP])
    q, scales, _ = quantized(np.asarray(x, np.float32), depth, group)
    wide = q.reshape(len(x), -1, group).astype(np.float64) * scales[:, :, None]
    return wide.reshape(len(x), depth)[:, : x.shape[1]]


def _mixture_groups(draw: Draw) -> tuple[Array, Array]:
    """The products are exact, but hidden values near a half step may round either way: the result is close to its own size."""
    tokens, width, inner, many, each = _sizes(draw)
    share, which = _chosen(draw, tokens, many, each)
    x = floats(draw, tokens, width)
    gates, ups, downs = (_grouped(draw, many, *s) for s in ((inner, width), (inner, width), (width, inner)))
    out, shape = poisoned(tokens * width), experts.experts_shape(tokens, width, inner, many, each, codes.ACTIVATION["Silu"])
    hidden, scratch = poisoned(tokens * each * inner), poisoned(experts.experts_groups_scratch(shape, gates[2], ups[2], downs[2]))
    for part in _halves(inner, LANES):
        experts.gate_experts_groups_f32(flat(x), flat(which), *gates[1:], *ups[1:], hidden, scratch, shape, *part)
    for part in _halves(width, LANES):
        experts.down_experts_groups_f32(hidden, flat(share), flat(which), *downs[1:], out, scratch, shape, *part)
    expected = np.zeros((tokens, width))
    for t in range(tokens):
        for s, e in zip(share[t], which[t], strict=True):
            row = _rounded(x[t : t + 1], gates[2]), _rounded(x[t : t + 1], ups[2])
            hidden = _silu(row[0] @ gates[0][e].reals().T) * (row[1] @ ups[0][e].reals().T)
            expected[t] += s * (_rounded(hidden, downs[2]) @ downs[0][e].reals().T)[0]
    size = np.abs(expected).max() + 1e-6
    return out.reshape(expected.shape) / size, expected / size


def _causal_conv(draw: Draw) -> tuple[Array, Array]:
    tokens, channels, width, has_past = draw.integer(1, 7), draw.integer(1, 40), draw.integer(1, 5), draw.choice([False, True])
    x, w, past = floats(draw, tokens, channels), floats(draw, width, channels), floats(draw, channels, width - 1)
    bias = draw.choice([NO_F32, floats(draw, channels)])
    out, present = poisoned(x.size), poisoned(past.size)
    given = flat(past) if has_past else NO_F32
    state_space.causal_conv_f32(flat(x), flat(w), bias, given, out, present, tokens, channels, width)
    line = np.concatenate([past.T if has_past else np.zeros((width - 1, channels)), x]).astype(np.float64)
    expected = np.stack([(line[t : t + width] * w).sum(0) for t in range(tokens)]) + (bias if bias.size else 0)
    return np.concatenate([out, present]), np.concatenate([expected.reshape(-1), line[len(line) - width + 1 :].T.reshape(-1)])


def _scan(draw: Draw) -> tuple[Array, Array]:
    tokens, channels, size = draw.integer(1, 9), draw.integer(1, 20), draw.choice([1, 5, 16, 40])
    u, step, skip = floats(draw, tokens, channels), floats(draw, tokens, channels), floats(draw, channels)
    decay, into, outward = -np.exp(floats(draw, channels, size)), floats(draw, tokens, size), floats(draw, tokens, size)
    past = draw.choice([NO_F32, floats(draw, channels, size)])
    y, state = poisoned(u.size), poisoned(channels * size)
    for first, last in ((0, channels // 2), (channels // 2, channels)):
        reads = (flat(u), flat(step), flat(decay), flat(into), flat(outward), skip, flat(past))
        state_space.selective_scan_f32(*reads, y, state, tokens, channels, size, first, last)
    h, expected = past.astype(np.float64) if past.size else np.zeros((channels, size)), np.zeros((tokens, channels))
    for t in range(tokens):
        delta = np.logaddexp(step[t].astype(np.float64), 0)
        h = np.exp(delta[:, None] * decay) * h + (delta * u[t])[:, None] * into[t]
        expected[t] = h @ outward[t] + skip * u[t]
    return np.concatenate([y, state]), np.concatenate([expected.reshape(-1), h.reshape(-1)])


def _grid_of_centres(draw: Draw) -> tuple[Array, Array]:
    """A grid that holds every pixel's centre, shifted by whole pixels, copies the image; between them bilinear is the mean."""
    n, channels, h, w = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 7), draw.integer(2, 9)
    mode, corners = draw.choice(["nearest", "linear", "cubic"]), draw.choice([False, True])
    x, shift = floats(draw, n, channels, h, w), draw.integer(0, 2)
    half = 0.5 if mode == "linear" and draw.choice([False, True]) else 0.0
    cols, rows = np.arange(w) + shift + half, np.arange(h)
    scaled = [2 * v / max(s - 1, 1) - 1 if corners else (2 * v + 1) / s - 1 for v, s in ((cols, w), (rows, h))]
    grid = np.stack(np.broadcast_arrays(scaled[0][None, :], scaled[1][:, None]), -1).astype(np.float32)
    out = poisoned(x.size)
    sizes = (n, channels, h, w, h * w, grid_sample.MODE[mode], grid_sample.ZEROS, corners)
    grid_sample.grid_sample_f32(flat(x), np.tile(flat(grid), n), out, poisoned(grid_sample.SCRATCH), *sizes)
    wide = np.concatenate([x, np.zeros((n, channels, h, 4), np.float32)], 3)
    moved = wide[..., shift : shift + w], wide[..., shift + 1 : shift + 1 + w]
    return out.reshape(x.shape), moved[0] * (1 - half) + moved[1] * half


TABLE: list[Any] = [
    Comparison("route_f32", _route, 1e-5, 1e-6), Comparison("experts_f32", _mixture, 2e-5, 2e-3),
    Comparison("experts_groups_f32", _mixture_groups, 1e-2, 1e-2), Comparison("causal_conv_f32", _causal_conv, 1e-5, 1e-5),
    Comparison("selective_scan_f32", _scan, 1e-5, 2e-5), Comparison("grid_sample_f32", _grid_of_centres, 1e-4, 1e-4),
]  # fmt: skip
