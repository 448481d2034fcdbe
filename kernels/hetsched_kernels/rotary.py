"""Rotary position embedding and gated units, in float32."""

from __future__ import annotations

from typing import Any

from hetsched_kernels.arrays import InF32, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.functions import sigmoid
from hetsched_kernels.parts import span
from hetsched_kernels.wide import full_width


@block
def _halves(x: Any, cos: Any, sin: Any, out: Any) -> None:
    """Pairs are an element of the first half and one of the second."""
    n = cos.shape[0]
    first, second, low, high = span(x, 0, n), span(x, n, n), span(out, 0, n), span(out, n, n)
    for i in range(n):
        a, b = first[i], second[i]
        low[i] = a * cos[i] - b * sin[i]
        high[i] = b * cos[i] + a * sin[i]


@block
def _neighbours(x: Any, cos: Any, sin: Any, out: Any) -> None:
    """Pairs are neighbours."""
    for i in range(cos.shape[0]):
        a, b = x[2 * i], x[2 * i + 1]
        out[2 * i] = a * cos[i] - b * sin[i]
        out[2 * i + 1] = b * cos[i] + a * sin[i]


@kernel
def rotary_f32(
    x: InF32, cos: InF32, sin: InF32, out: OutF32, rows: int, heads: int, head_dim: int, pairs: int, interleaved: bool
) -> None:  # fmt: skip
    """Rotate the first ``2 · pairs`` elements of every head by a row's angles; the others are copied.

    Args:
        x: [rows · heads · head_dim]; may be ``out`` itself.
        cos: [rows · pairs].
        sin: [rows · pairs].
        out: the same size as ``x``.
        rows: tokens.
        heads: heads of a token.
        head_dim: elements of a head.
        pairs: rotated pairs of a head.
        interleaved: pairs are neighbours, rather than an element of each half.
    """
    for r in range(rows):
        own_cos, own_sin = span(cos, r * pairs, pairs), span(sin, r * pairs, pairs)
        for h in range(heads):
            at = (r * heads + h) * head_dim
            source, to = span(x, at, head_dim), span(out, at, head_dim)
            if interleaved:
                _neighbours(source, own_cos, own_sin, to)
            else:
                _halves(source, own_cos, own_sin, to)
            for i in range(2 * pairs, head_dim):
                to[i] = source[i]


@kernel
def swiglu_f32(gate: InF32, up: InF32, out: OutF32) -> None:
    """Compute out = silu(gate) · up; ``out`` may be either."""
    full_width()
    for i in range(out.shape[0]):
        out[i] = gate[i] * sigmoid(gate[i]) * up[i]
