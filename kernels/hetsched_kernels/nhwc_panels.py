"""Panels of float32 weights: how channels-last convolutions lay them out, and how they walk through one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from hetsched_kernels.arrays import Array
from hetsched_kernels.compilation import block
from hetsched_kernels.nhwc_tile_f32 import LINE, ORIGIN, nhwc_tile_f32
from hetsched_kernels.parts import ptr
from hetsched_kernels.tile import LANES, ROWS, VECTORS

_TILE = nhwc_tile_f32.call
#: Elements of weights that stay in the first cache while all rows of the result pass.
_BLOCK = 7680
_INF = np.float32(np.inf)


def pack_panels(order: Array) -> Array:
    """Weights [taps, channels, columns] (columns a multiple of LANES) panel after panel: [taps, channels, columns of the panel]."""
    vectors = order.shape[2] // LANES
    panels = -(-vectors // VECTORS)
    edges = [LANES * (j * vectors // panels) for j in range(panels + 1)]
    return np.concatenate([order[:, :, a:b].reshape(-1) for a, b in pairwise(edges)])


@block
def panel_products(
    table: Any, taps: Any, channels: Any, offset: Any, w: Any, at: Any, width: Any, origin: Any, bias: Any, mode: Any, lo: Any, hi: Any,
    out: Any, to: Any, ldc: Any, count: Any, cols: Any,
) -> None:  # fmt: skip
    """Compute out[to + r · ldc + c] = clamp(origin[to + r · ldc + c] + bias[c] + Σ x · w) for ``count`` rows of a panel's columns.

    The sum is taken in blocks of weights that fit the first cache, whose unfinished results wait in ``out``.

    Args:
        table: int64, the rows' addresses: [rows / ROWS, taps, ROWS].
        taps: kernel elements.
        channels: of each tap.
        offset: elements to skip in each row.
        w: weights.
        at: where the panel starts.
        width: its columns, a multiple of LANES.
        origin: pointer to an array like ``out``.
        bias: pointer to the panel's biases.
        mode: of the tile.
        lo: lower clamp.
        hi: upper clamp.
        out: the result.
        to: its first element.
        ldc: its row stride.
        count: rows.
        cols: columns that there are.
    """
    deep = _BLOCK // width
    per = (channels + deep - 1) // deep
    part, together = (channels + per - 1) // per, max(min(deep // channels, taps), 1)
    rounds = (taps + together - 1) // together
    together = (taps + rounds - 1) // rounds
    blocks = rounds * per
    for i in range(blocks):
        first, inside = i // per * together, i % per * part
        some, depth = min(together, taps - first), min(part, channels - inside)
        here, steps = at + (first * channels + inside) * width, some * depth
        low, high = (lo, hi) if i == blocks - 1 else (-_INF, _INF)
        for r in range(0, count, ROWS):
            target = ptr(out, to + r * ldc)
            more = r // ROWS * steps * LINE
            soon = here + steps * width + more if more < steps * width else here
            source = target if i > 0 else ptr(origin, r * ldc)
            _TILE(
                ptr(table, r * taps + first * ROWS), some, depth, offset + inside, ptr(w, here), ptr(w, soon), source, bias,
                ORIGIN if i > 0 else mode, low, high, target, ldc, min(ROWS, count - r), cols,
            )  # fmt: skip
