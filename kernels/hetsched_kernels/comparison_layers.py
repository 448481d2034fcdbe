"""Twins of recurrent layers and of local response normalisation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from hetsched_kernels import attention_masked, codes, recurrent, recurrent_state
from hetsched_kernels.arrays import NO_F32, NO_I32, Array
from hetsched_kernels.comparison import Comparison, Draw, flat, floats, poisoned
from hetsched_kernels.gemm import pack_b_f32
from hetsched_kernels.local_response import local_response_f32


def _local_response(draw: Draw) -> tuple[Array, Array]:
    images, channels, inner, size = draw.integer(1, 3), draw.integer(1, 12), draw.integer(1, 1100), draw.integer(1, 7)
    x, beta = floats(draw, images, channels, inner, scale=3.0), draw.choice([0.5, 0.75, 1.3])
    out, rows = poisoned(x.size), images * channels
    for first, last in ((0, rows // 2), (rows // 2, rows)):
        local_response_f32(flat(x), out, channels, inner, size, 0.2 / size, beta, 1.5, first, last)
    square = x.astype(np.float64) ** 2
    total = np.stack([square[:, max(c - (size - 1) // 2, 0) : c + size // 2 + 1].sum(1) for c in range(channels)], 1)
    return out.reshape(x.shape), x / (1.5 + 0.2 / size * total) ** beta


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _lstm_step(g: Array, r: Array, b: Array, h: Array, c: Array, early: bool) -> tuple[Array, Array]:
    i, o, f, cell = np.split(g + h @ r.T, 4)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(cell)
    return _sigmoid(o) * np.tanh(c), c


def _gru_step(g: Array, r: Array, b: Array, h: Array, c: Array, early: bool) -> tuple[Array, Array]:
    n = h.size
    z, reset = np.split(_sigmoid(g[: 2 * n] + h @ r[: 2 * n].T), 2)
    own = reset * (h @ r[2 * n :].T + b) if early else (reset * h) @ r[2 * n :].T
    return (1 - z) * np.tanh(g[2 * n :] + own) + z * h, c


def _rnn_step(g: Array, r: Array, b: Array, h: Array, c: Array, early: bool) -> tuple[Array, Array]:
    return np.tanh(g + h @ r.T), c


_STEPS = {"LSTM": _lstm_step, "GRU": _gru_step, "RNN": _rnn_step}
_FUNCTIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def _run(kind: str, given: Array, r: Array, bias: Array, lengths: Array, states: list[Array], outs: list[Array], shape: Array) -> None:
    """The kernel of ``kind``; ``outs`` are y, h and c."""
    functions = np.array([codes.UNARY[f] for f in _FUNCTIONS[kind]], np.int64)
    tail = (poisoned(recurrent_state.recurrent_scratch(kind, shape)), shape, functions, np.zeros(6, np.float32), 0.0)
    n = r.shape[1]
    if kind == "LSTM":
        recurrent.lstm_f32(given, pack_b_f32(r, True), lengths, *states, *outs, *tail)
    elif kind == "GRU":
        packed = pack_b_f32(r[: 2 * n], True), pack_b_f32(r[2 * n :], True)
        recurrent.gru_f32(given, *packed, bias, lengths, states[0], *outs[:2], *tail)
    else:
        recurrent.rnn_f32(given, pack_b_f32(r, True), lengths, states[0], *outs[:2], *tail)


def _recurrent(kind: str, draw: Draw) -> tuple[Array, Array]:
    steps, batch, n, gates = draw.integer(1, 6), draw.choice([1, 2, 3, 9]), draw.integer(1, 40), recurrent_state.GATES[kind]
    backwards, batch_first, early = (draw.choice([False, True]) for _ in range(3))
    given, r = floats(draw, steps, batch, gates * n), floats(draw, gates * n, n, scale=n**-0.5)
    bias = floats(draw, n) if early else NO_F32
    lengths = draw.choice([NO_I32, draw.rng.integers(0, steps + 1, batch).astype(np.int32)])
    h, c = (floats(draw, batch, n) for _ in range(2))
    states = [flat(h), flat(c)] if draw.choice([False, True]) else [NO_F32, NO_F32]
    shape = recurrent_state.recurrent_shape(steps, batch, n, 1, backwards, batch_first)
    outs = [poisoned(steps * batch * n), poisoned(batch * n), poisoned(batch * n if kind == "LSTM" else 0)]
    _run(kind, flat(given.swapaxes(0, 1) if batch_first else given), r, bias, lengths, states, outs, shape)
    h, c = (np.zeros((batch, n)) if not s.size else v.astype(np.float64) for s, v in zip(states, (h, c), strict=True))
    y = np.zeros((steps, batch, n))
    for b in range(batch):
        run = range(int(lengths[b]) if lengths.size else steps)
        for t in reversed(run) if backwards else run:
            h[b], c[b] = _STEPS[kind](given[t, b].astype(np.float64), r, bias, h[b], c[b], early)
            y[t, b] = h[b]
    wanted = [y.swapaxes(0, 1) if batch_first else y, h, *([c] if kind == "LSTM" else [])]
    return np.concatenate(outs), np.concatenate([w.reshape(-1) for w in wanted])


def _attend_masked(draw: Draw) -> tuple[Array, Array]:
    """A mask that hides by -30: a row that it hides wholly has the digits of its scores left in float32, as it has not at -10000."""
    shared, many, dim, width = draw.integer(1, 2), draw.integer(1, 3), draw.choice([4, 33, 64]), draw.choice([5, 64])
    queries, keys, turned = draw.integer(1, 20), draw.integer(1, 300), draw.choice([False, True])
    kind, causal = draw.integer(0, 2), draw.choice([False, True])
    heads, softcap = shared * many, draw.choice([0.0, 5.0])
    q, k, v = floats(draw, heads, queries, dim), floats(draw, shared, keys, dim), floats(draw, shared, keys, width)
    mask = np.where(draw.rng.random((queries, keys)) < 0.3, np.float32(-30), np.float32(0)) if kind else NO_F32
    laid = [x.transpose(0, 2, 1) if turned else x for x in (q, k, v)]
    sides = [(1, x.shape[1]) if turned else (x.shape[2], 1) for x in (q, k, v)]
    strides = [*sides[0], *sides[1], *sides[2], heads * width, 1, keys, 1]
    shape = np.array([queries, keys, dim, width, *strides, kind, causal], np.int64)
    starts = [[h * queries * dim, h // many * keys * dim, h // many * keys * width, h * width, 0] for h in range(heads)]
    out, scratch = poisoned(heads * queries * width), poisoned(attention_masked.attend_masked_scratch(shape))
    for first, last in ((0, many), (many, heads)):
        args = (*(flat(x) for x in laid), flat(mask), out, scratch, shape, np.array(starts).reshape(-1), dim**-0.5, softcap, first, last)
        attention_masked.attend_masked_f32(*args)
    s = np.einsum("hqd,hkd->hqk", q.astype(np.float64), np.repeat(k, many, 0)) * dim**-0.5
    s = softcap * np.tanh(s / softcap) if softcap else s
    if kind:
        s = s + mask if kind == attention_masked.ADDED else np.where(mask != 0, mask, s)
    s = np.where(np.tri(queries, keys, dtype=bool), s, -np.inf) if causal else s
    p = np.exp(s - s.max(2, keepdims=True))
    expected = np.einsum("hqk,hkd->qhd", p / p.sum(2, keepdims=True), np.repeat(v, many, 0))
    return out.reshape(expected.shape), expected


TABLE: list[Any] = [
    Comparison("attend_masked_f32", _attend_masked, 1e-4, 2e-5),
    Comparison("local_response_f32", _local_response, 1e-5, 1e-6),
    *(Comparison(f"{kind.lower()}_f32", partial(_recurrent, kind), 1e-5, 1e-5) for kind in _STEPS),
]
