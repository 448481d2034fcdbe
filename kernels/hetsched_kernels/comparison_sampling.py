"""Twins of the choice of the next token."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.arrays import Array
from hetsched_kernels.comparison import Comparison, Draw, flat, floats, poisoned
from hetsched_kernels.sampling import sample_f32
from hetsched_kernels.sampling_scratch import sample_scratch

_MASK = (1 << 64) - 1


def share_of(seed: int) -> float:
    """The first number of the stream that begins at ``seed`` (splitmix64)."""
    z = (seed + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return float(((z ^ (z >> 31)) >> 11) * 2.0**-53)


def kept_shares(logits: Array, recent: Array, temperature: float, k: int, p: float, penalty: float) -> Array:
    """The probability of every token."""
    scores = logits.astype(np.float64)
    once = np.unique(recent)
    scores[once] = np.where(scores[once] > 0, scores[once] / penalty, scores[once] * penalty)
    if temperature == 0 or k == 1:
        return np.asarray(np.eye(len(scores))[np.argmax(scores)])
    weights = np.exp((scores - scores.max()) / temperature)
    order = np.argsort(-scores, kind="stable")
    weights[order[k or len(order) :]] = 0
    shares = weights / weights.sum()
    if p < 1:
        before = np.cumsum(shares[order]) - shares[order]
        shares[order[before >= p]] = 0
    return np.asarray(shares / shares.sum())


def _sample(draw: Draw) -> tuple[Array, Array]:
    """Tokens are those on which the drawn number falls, or the neighbour of a number within 1e-4 of an edge."""
    rows, cols = draw.integer(1, 3), draw.choice([1, 2, 40, 300, 1000])
    logits, recent = floats(draw, rows, cols, scale=2.0), draw.rng.integers(0, cols, draw.integer(0, 9))
    options = (draw.choice([0.0, 0.7, 1.0, 2.0]), draw.choice([0, 1, 5, 50, 2000]), draw.choice([1.0, 0.95, 0.3]), draw.choice([1.0, 1.3]))
    seeds = draw.rng.integers(0, 1 << 63, rows).astype(np.uint64)
    state, out = seeds.copy(), poisoned(rows, np.int64)
    sample_f32(flat(logits), recent, out, state, poisoned(sample_scratch(cols)), rows, cols, *options)
    near = []
    for r in range(rows):
        shares = kept_shares(logits[r], recent, *options)
        temperature, k, p, _ = options
        sorted_first = (0 < k < cols) or p < 1
        order = np.argsort(-shares, kind="stable") if sorted_first else np.arange(cols)[::-1]
        place = int(np.nonzero(order == out[r])[0][0])
        edge = np.cumsum(shares[order])
        low, high, at = edge[place] - shares[out[r]], edge[place], share_of(int(seeds[r]))
        near.append(shares[out[r]] > 0 and (low - 1e-4 <= at <= high + 1e-4 or temperature == 0 or k == 1))
    return np.array(near), np.ones(rows, np.bool_)


TABLE: list[Any] = [Comparison("sample_f32", _sample)]
