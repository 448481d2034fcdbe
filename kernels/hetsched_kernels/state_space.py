"""State-space layers (Mamba): the convolution over the last tokens, and the selective scan. Activations have a row a token."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.arrays import InF32, OutF32
from hetsched_kernels.compilation import REORDER, block, kernel
from hetsched_kernels.parts import span
from hetsched_kernels.wide import full_width

_ZERO = np.float32(0.0)


@kernel
def causal_conv_f32(
    x: InF32, w: InF32, bias: InF32, past: InF32, out: OutF32, present: OutF32, tokens: int, channels: int, width: int
) -> None:
    """Compute out[t, c] = bias[c] + Σ_k w[k, c] · x[t - width + 1 + k, c], one sequence.

    Args:
        x: [tokens · channels].
        w: [width · channels].
        bias: [channels], or empty.
        past: [channels · (width - 1)], the inputs before the first token, or empty for zeros.
        out: [tokens · channels].
        present: [channels · (width - 1)], the last inputs; or empty where they are not wanted.
        tokens: tokens.
        channels: channels.
        width: taps.
    """
    before = width - 1
    for t in range(tokens):
        row = span(out, t * channels, channels)
        for c in range(channels):
            row[c] = bias[c] if bias.shape[0] > 0 else _ZERO
        for k in range(width):
            at, taps = t - before + k, span(w, k * channels, channels)
            if at >= 0:
                source = span(x, at * channels, channels)
                for c in range(channels):
                    row[c] += taps[c] * source[c]
            elif past.shape[0] > 0:
                for c in range(channels):
                    row[c] += taps[c] * past[c * before + at + before]
    if present.shape[0] > 0:
        _keep(x, past, present, tokens, channels, before)


@block
def _keep(x: Any, past: Any, present: Any, tokens: Any, channels: Any, before: Any) -> None:
    """The last ``before`` inputs of every channel, some of them still from the past."""
    for c in range(channels):
        for i in range(before):
            at = tokens - before + i
            if at >= 0:
                present[c * before + i] = x[at * channels + c]
            else:
                present[c * before + i] = past[c * before + at + before] if past.shape[0] > 0 else _ZERO


@block(fast=REORDER)
def _advance(h: Any, decay: Any, into: Any, out: Any, delta: Any, drive: Any) -> Any:
    """H ← exp(delta · decay) · h + drive · into; returns out · h."""
    full_width()
    total = _ZERO
    for s in range(h.shape[0]):
        value = f.exp(delta * decay[s]) * h[s] + drive * into[s]
        h[s] = value
        total += out[s] * value
    return total


@kernel
def selective_scan_f32(
    u: InF32,
    step: InF32,
    decay: InF32,
    into: InF32,
    outward: InF32,
    skip: InF32,
    past: InF32,
    y: OutF32,
    state: OutF32,
    tokens: int,
    channels: int,
    size: int,
    first: int,
    last: int,
) -> None:
    """The scan h ← exp(Δ A) h + Δ B u, y = C h + D u with Δ = softplus(step), one sequence (Gu and Dao, 2023, algorithm 2).

    Args:
        u: [tokens · channels].
        step: [tokens · channels].
        decay: A, [channels · size], negative.
        into: B, [tokens · size].
        outward: C, [tokens · size].
        skip: D, [channels].
        past: [channels · size], or empty for zeros.
        y: [tokens · channels]; channels from ``first`` to ``last`` are written.
        state: [channels · size], the state after the last token.
        tokens: tokens.
        channels: channels.
        size: elements of a channel's state.
        first: first channel.
        last: one past the last.
    """
    for c in range(first, last):
        h, own = span(state, c * size, size), span(decay, c * size, size)
        for s in range(size):
            h[s] = past[c * size + s] if past.shape[0] > 0 else _ZERO
        for t in range(tokens):
            at = t * channels + c
            delta = f.softplus(step[at])
            total = _advance(h, own, span(into, t * size, size), span(outward, t * size, size), delta, delta * u[at])
            y[at] = total + skip[c] * u[at]
