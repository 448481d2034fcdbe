"""Attention in float32 over keys and values that lie in memory as they are, in blocks of keys, without a score matrix.

After FlashAttention (Dao et al., 2022): a tile of queries meets a block of keys at a time, the softmax is carried along.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hetsched_kernels.arrays import Array, InF32, InI64, OutF32
from hetsched_kernels.compilation import REORDER, block, kernel
from hetsched_kernels.gemm import pack_panel
from hetsched_kernels.online_softmax import advance_softmax, limit_scores
from hetsched_kernels.parts import as_i64, onward, ptr, span
from hetsched_kernels.tile import COLS, ROWS, TILE
from hetsched_kernels.tile_f32 import NO_BIAS, tile_f32

_TILE_CALL = tile_f32.call
#: Keys of a block.
BLOCK: Final = 5 * COLS
#: Positions in :func:`attention_shape`'s result.
QUERIES, KEYS, HEADS, SHARED, DIM, WINDOW = range(6)
_INF = np.float32(np.inf)
_ZERO = np.float32(0.0)


def attention_shape(queries: int, keys: int, heads: int, kv_heads: int, head_dim: int, window: int = 0) -> Array:
    """The int64 descriptor of :data:`attend_f32`: the last ``queries`` of ``keys`` positions ask; a window of 0 is none.

    Raises:
        ValueError: there are more queries than keys, or the heads do not share evenly.
    """
    if not 1 <= queries <= keys:
        raise ValueError(f"{queries} queries cannot be the last of {keys} positions")
    if heads < 1 or kv_heads < 1 or heads % kv_heads or head_dim < 1:
        raise ValueError(f"{heads} query heads of {head_dim} elements cannot share {kv_heads} key-value heads")
    return np.array([queries, keys, heads, kv_heads, head_dim, window], np.int64)


def attend_f32_scratch(shape: Array) -> int:
    """Float32 elements of scratch that :data:`attend_f32` wants."""
    keys, dim = int(shape[KEYS]), int(shape[DIM])
    return (-(-keys // COLS) * COLS) * dim + 2 * (max(dim, BLOCK) + 1) * 2 + ROWS * BLOCK + 2 * TILE + 2 * ROWS + 64


@block(fast=REORDER)
def _dot(x: Any, y: Any) -> Any:
    total = _ZERO
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@block
def _score(q: Any, shape: Any, keys: Any, packed: Any, table: Any, first: Any, count: Any, scores: Any, rows: Any, spare: Any) -> None:
    """scores[row, i] = q[row] · key[first + i], for a block of keys; one query reads them where they are."""
    dim, stride = shape[DIM], shape[HEADS] * shape[DIM]
    if shape[QUERIES] == 1:
        row = span(q, 0, dim)
        for i in range(count):
            scores[i] = _dot(row, span(keys, (first + i) * dim, dim))
        return
    for c0 in range(0, count, COLS):
        panel = ptr(packed, (first + c0) * dim)
        _TILE_CALL(
            ptr(q, 0), stride, 1, panel, table, dim, ptr(scores, c0), BLOCK, spare, NO_BIAS, -_INF, _INF, rows, COLS, spare
        )  # fmt: skip


@block
def _add_values(
    scores: Any, values: Any, dim: Any, count: Any, table: Any, out: Any, stride: Any, rows: Any, part: Any, spare: Any
) -> None:
    """out[row] += scores[row] · values, for a block of keys."""
    for d0 in range(0, dim, COLS):
        cols = min(COLS, dim - d0)
        _TILE_CALL(
            ptr(scores, 0), BLOCK, 1, ptr(values, d0), table, count, ptr(part, 0), COLS, spare, NO_BIAS, -_INF, _INF, rows, cols, spare
        )  # fmt: skip
        for r in range(rows):
            to, own = span(out, r * stride + d0, cols), span(part, r * COLS, cols)
            for i in range(cols):
                to[i] += own[i]


@block
def _tables(scratch: Any, dim: Any) -> Any:
    """Where the rows of a packed panel and of the values begin, and the rest of the scratch."""
    panel_rows, value_rows = as_i64(scratch, 0, 2 * dim), as_i64(scratch, 2 * dim, 2 * BLOCK)
    for i in range(dim):
        panel_rows[i] = i * COLS
    for i in range(BLOCK):
        value_rows[i] = i * dim
    return panel_rows, value_rows, onward(scratch, 2 * (dim + BLOCK))


@kernel(needs=(tile_f32,))
def attend_f32(q: InF32, keys: InF32, values: InF32, out: OutF32, scratch: OutF32, shape: InI64, scale: float, softcap: float) -> None:
    """Causal attention: softmax(cap(q kᵀ · scale)) v, head by head, each query seeing the keys up to its own position.

    Args:
        q: [queries · heads · head_dim].
        keys: [kv_heads · keys · head_dim].
        values: as ``keys``; must be readable for COLS elements beyond.
        out: as ``q``.
        scratch: float32 [:func:`attend_f32_scratch`].
        shape: :func:`attention_shape`.
        scale: factor on the scores.
        softcap: scores s become softcap · tanh(s / softcap); 0 for none.
    """
    queries, total, heads, shared, dim, window = shape[QUERIES], shape[KEYS], shape[HEADS], shape[SHARED], shape[DIM], shape[WINDOW]
    panel_rows, value_rows, rest = _tables(scratch, dim)
    scores, part, spare = span(rest, 0, ROWS * BLOCK), span(rest, ROWS * BLOCK, TILE), span(rest, ROWS * BLOCK + TILE, TILE)
    states = span(rest, ROWS * BLOCK + 2 * TILE, 2 * ROWS)
    packed, many, stride = onward(rest, ROWS * BLOCK + 2 * TILE + 2 * ROWS), heads // shared, heads * dim
    for head in range(shared):
        own_keys, own_values = onward(keys, head * total * dim), onward(values, head * total * dim)
        if queries > 1:
            for c0 in range(0, total, COLS):
                pack_panel(onward(own_keys, c0 * dim), 1, dim, dim, min(COLS, total - c0), onward(packed, c0 * dim))
        for m in range(many):
            for r0 in range(0, queries, ROWS):
                rows, at = min(ROWS, queries - r0), r0 * stride + (head * many + m) * dim
                query, to = onward(q, at), onward(out, at)
                for r in range(rows):
                    states[2 * r], states[2 * r + 1] = -_INF, _ZERO
                    for i in range(dim):
                        to[r * stride + i] = _ZERO
                before = total - queries + r0 + 1
                begin = max(before - window, 0) // BLOCK * BLOCK if window > 0 else 0
                for first in range(begin, before + rows - 1, BLOCK):
                    count = min(BLOCK, before + rows - 1 - first)
                    _score(query, shape, own_keys, packed, panel_rows, first, count, scores, rows, spare)
                    for r in range(rows):
                        row = span(scores, r * BLOCK, count)
                        for i in range(count):
                            row[i] = row[i] * scale
                        limit_scores(row, first, max(before + r - window, 0) if window > 0 else 0, before + r, softcap)
                        advance_softmax(row, span(to, r * stride, dim), span(states, 2 * r, 2))
                    _add_values(scores, onward(own_values, first * dim), dim, count, value_rows, to, stride, rows, part, spare)
                for r in range(rows):
                    factor, row = np.float32(1.0) / states[2 * r + 1], span(to, r * stride, dim)
                    for i in range(dim):
                        row[i] = row[i] * factor
