"""Addresses of the rows that channels-last convolutions read: one for each output position and kernel tap."""

from __future__ import annotations

from typing import Any

from hetsched_kernels.arrays import Array
from hetsched_kernels.compilation import block
from hetsched_kernels.parts import span
from hetsched_kernels.tile import ROWS

#: Addresses that are kept at a time, and the most output positions that share a pass over the weights.
_ADDRESSES, _POSITIONS = 1024, 512


@block
def table_positions(taps: Any) -> Any:
    """Output positions whose addresses are kept at a time."""
    return min(max(_ADDRESSES // taps, 4 * ROWS), _POSITIONS) // ROWS * ROWS


def table_elements(geometry: Array) -> int:
    """Elements (int64) that are enough for a table of addresses."""
    return _ADDRESSES + 4 * ROWS * int(geometry[5] * geometry[6])


@block
def row_addresses(g: Any, pixel: Any, base: Any, blank: Any, p0: Any, count: Any, table: Any) -> None:
    """Where each tap's channels of positions p0 … p0 + count lie: [tiles, taps, ROWS]; ``blank`` outside the image.

    ``pixel`` is the bytes of a position's channels. The rows of a last, smaller tile repeat its last position.
    """
    h, w, kh, kw, oh, ow = g[2], g[3], g[5], g[6], g[16], g[17]
    step = g[8] * pixel
    for tile in range((count + ROWS - 1) // ROWS):
        first = p0 + tile * ROWS
        rows = min(ROWS, p0 + count - first)
        image, rest = first // (oh * ow), first % (oh * ow)
        oy, ox = rest // ow, rest % ow
        left, top = ox * g[8] - g[10], oy * g[7] - g[9]
        whole = rows == ROWS and ox + ROWS <= ow
        for ky in range(kh):
            for kx in range(kw):
                line = span(table, (tile * kh * kw + ky * kw + kx) * ROWS, ROWS)
                iy, ix = top + ky * g[13], left + kx * g[14]
                if whole and 0 <= iy < h and ix >= 0 and ix + (ROWS - 1) * g[8] < w:
                    start = base + ((image * h + iy) * w + ix) * pixel
                    for r in range(ROWS):
                        line[r] = start + r * step
                elif whole and not 0 <= iy < h:
                    for r in range(ROWS):
                        line[r] = blank
                else:
                    for r in range(ROWS):
                        p = first + min(r, rows - 1)
                        rest = p % (oh * ow)
                        jy, jx = rest // ow * g[7] - g[9] + ky * g[13], rest % ow * g[8] - g[10] + kx * g[14]
                        inside = 0 <= jy < h and 0 <= jx < w
                        line[r] = base + ((p // (oh * ow) * h + jy) * w + jx) * pixel if inside else blank
