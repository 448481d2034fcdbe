"""Attention in float32 with a mask, over heads that lie in any order, in blocks of keys, without a score matrix.

What encoders and decoders without a cache need: every query sees all keys, or those that a mask or the order leaves. After
FlashAttention (Dao et al., 2022): a tile of queries meets a block of keys at a time, the softmax is carried along.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hetsched_kernels.arrays import Array, InF32, InI64, OutF32
from hetsched_kernels.compilation import block, kernel
from hetsched_kernels.gemm import pack_panel
from hetsched_kernels.online_softmax import advance_softmax, limit_scores
from hetsched_kernels.parts import as_i64, onward, ptr, span
from hetsched_kernels.tile import COLS, LANES, ROWS, TILE
from hetsched_kernels.tile_f32 import NO_BIAS, tile_f32
from hetsched_kernels.wide import full_width

_TILE_CALL = tile_f32.call
_INF, _ZERO, _ONE = np.float32(np.inf), np.float32(0.0), np.float32(1.0)
#: Keys of a block.
BLOCK: Final = 5 * COLS
#: What a mask is: none, numbers that are added, or numbers that take the place of a score where they are not 0.
NO_MASK, ADDED, REPLACED = range(3)
#: Positions of a shape: sizes, strides of tokens and elements of the four tensors, strides of the mask, its kind, and whether query i
#: sees the first i + 1 keys only.
QUERIES, KEYS, DIM, WIDTH, Q, K, V, Y, MASK, KIND, CAUSAL = 0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 15
#: Positions of a row of ``starts``.
Q_AT, K_AT, V_AT, Y_AT, MASK_AT, STARTS = range(6)


def attend_masked_scratch(shape: Array) -> int:
    """Float32 elements of scratch that :data:`attend_masked_f32` wants."""
    keys, dim, width = (int(shape[i]) for i in (KEYS, DIM, WIDTH))
    panels, wide = -(-keys // COLS) * COLS, -(-width // COLS) * COLS
    return panels * dim + keys * wide + 2 * max(dim, BLOCK) + ROWS * (BLOCK + wide + 2) + 2 * TILE


@block
def _pack(keys: Any, values: Any, shape: Any, scale: Any, packed: Any, panels: Any) -> None:
    """Keys times ``scale`` as panels of columns, values as panels of rows."""
    count, dim, width = shape[KEYS], shape[DIM], shape[WIDTH]
    for c0 in range(0, count, COLS):
        to = span(packed, c0 * dim, COLS * dim)
        pack_panel(onward(keys, c0 * shape[K]), shape[K + 1], shape[K], dim, min(COLS, count - c0), to)
        for i in range(COLS * dim):
            to[i] = to[i] * scale
    for d0 in range(0, width, COLS):
        source = onward(values, d0 * shape[V + 1])
        pack_panel(source, shape[V], shape[V + 1], count, min(COLS, width - d0), onward(panels, d0 * count))


@block
def _hide(row: Any, mask: Any, start: Any, shape: Any) -> None:
    """A row of scores with its part of the mask."""
    full_width()
    step = shape[MASK + 1]
    if shape[KIND] == ADDED and step == 1:
        own = span(mask, start, row.shape[0])
        for i in range(row.shape[0]):
            row[i] += own[i]
    elif shape[KIND] == ADDED:
        for i in range(row.shape[0]):
            row[i] += mask[start + i * step]
    else:
        for i in range(row.shape[0]):
            value = mask[start + i * step]
            row[i] = value if value != _ZERO else row[i]


@block
def _whole(count: Any) -> Any:
    """As many columns of a panel as whole vectors hold."""
    return min(COLS, (count + LANES - 1) // LANES * LANES)


@block
def _scores(q: Any, packed: Any, table: Any, first: Any, count: Any, shape: Any, rows: Any, scores: Any, spare: Any) -> None:
    dim = shape[DIM]
    for c0 in range(0, count, COLS):
        _TILE_CALL(
            ptr(q, 0), shape[Q], shape[Q + 1], ptr(packed, (first + c0) * dim), table, dim, ptr(scores, c0), BLOCK, spare, NO_BIAS,
            -_INF, _INF, rows, _whole(count - c0), spare,
        )  # fmt: skip


@block
def _add_values(
    scores: Any, panels: Any, table: Any, first: Any, count: Any, shape: Any, rows: Any, sums: Any, wide: Any, part: Any
) -> None:
    """Sums [rows, wide] += scores · values, for a block of keys; the first block begins them."""
    spare = span(part, TILE, TILE)
    for d0 in range(0, wide, COLS):
        panel, cols = ptr(panels, d0 * shape[KEYS] + first * COLS), _whole(wide - d0)
        to, step = (ptr(sums, d0), wide) if first == 0 else (ptr(part, 0), COLS)
        _TILE_CALL(ptr(scores, 0), BLOCK, 1, panel, table, count, to, step, spare, NO_BIAS, -_INF, _INF, rows, cols, spare)
        if first > 0:
            for r in range(rows):
                line, own = span(sums, r * wide + d0, cols), span(part, r * COLS, cols)
                for i in range(cols):
                    line[i] += own[i]


@block
def _finish(sums: Any, wide: Any, states: Any, out: Any, shape: Any, rows: Any) -> None:
    for r in range(rows):
        factor, own = _ONE / states[2 * r + 1], span(sums, r * wide, shape[WIDTH])
        to, step = onward(out, r * shape[Y]), shape[Y + 1]
        for i in range(shape[WIDTH]):
            to[i * step] = own[i] * factor


@kernel(needs=(tile_f32,))
def attend_masked_f32(
    q: InF32,
    keys: InF32,
    values: InF32,
    mask: InF32,
    out: OutF32,
    scratch: OutF32,
    shape: InI64,
    starts: InI64,
    scale: float,
    softcap: float,
    first: int,
    last: int,
) -> None:
    """softmax(cap(q kᵀ · scale) + mask) v, head by head.

    Args:
        q: all queries.
        keys: all keys.
        values: all values.
        mask: numbers for scores, or empty.
        out: all results.
        scratch: float32 [:func:`attend_masked_scratch`].
        shape: int64 [16]; the positions are named above.
        starts: int64 [heads of all sequences · STARTS]: where each head's queries, keys, values, results and mask begin. Heads
            that share keys follow each other.
        scale: factor on the products.
        softcap: scores s become softcap · tanh(s / softcap) before the mask; 0 for none.
        first: first head.
        last: one past the last head.
    """
    queries, count, dim = shape[QUERIES], shape[KEYS], shape[DIM]
    wide = (shape[WIDTH] + LANES - 1) // LANES * LANES
    table = as_i64(scratch, 0, 2 * max(dim, BLOCK))
    for i in range(max(dim, BLOCK)):
        table[i] = i * COLS
    rest = onward(scratch, 2 * max(dim, BLOCK))
    scores, part, states = span(rest, 0, ROWS * BLOCK), span(rest, ROWS * BLOCK, 2 * TILE), span(rest, ROWS * BLOCK + 2 * TILE, 2 * ROWS)
    sums = span(rest, ROWS * (BLOCK + 2) + 2 * TILE, ROWS * wide)
    panels = onward(rest, ROWS * (BLOCK + 2 + wide) + 2 * TILE)
    packed, spare = onward(panels, count * ((wide + COLS - 1) // COLS * COLS)), span(part, TILE, TILE)
    for head in range(first, last):
        at = span(starts, head * STARTS, STARTS)
        if head == first or at[K_AT] != starts[(head - 1) * STARTS + K_AT]:
            _pack(onward(keys, at[K_AT]), onward(values, at[V_AT]), shape, scale, packed, panels)
        for r0 in range(0, queries, ROWS):
            rows = min(ROWS, queries - r0)
            for r in range(rows):
                states[2 * r], states[2 * r + 1] = -_INF, _ZERO
            stop = min(count, r0 + rows) if shape[CAUSAL] else count
            for begin in range(0, stop, BLOCK):
                n = min(BLOCK, stop - begin)
                _scores(onward(q, at[Q_AT] + r0 * shape[Q]), packed, table, begin, n, shape, rows, scores, spare)
                for r in range(rows):
                    row = span(scores, r * BLOCK, n)
                    if softcap > _ZERO:
                        limit_scores(row, begin, 0, count, softcap)
                    if shape[KIND] != NO_MASK:
                        _hide(row, mask, at[MASK_AT] + (r0 + r) * shape[MASK] + begin * shape[MASK + 1], shape)
                    if shape[CAUSAL]:  # last: what a mask puts in a score's place must not bring hidden keys back
                        limit_scores(row, begin, 0, r0 + r + 1, _ZERO)
                    advance_softmax(row, span(sums, r * wide, wide), span(states, 2 * r, 2))
                _add_values(scores, panels, table, begin, n, shape, rows, sums, wide, part)
            _finish(sums, wide, states, onward(out, at[Y_AT] + r0 * shape[Y]), shape, rows)
