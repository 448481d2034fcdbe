"""What the int8 register tile needs besides the operands: row and column terms (see :mod:`hetsched_kernels.tile_i8`), and stores."""

from __future__ import annotations

from typing import Any

from hetsched_kernels.compilation import block
from hetsched_kernels.parts import as_f32, as_i32, onward, span
from hetsched_kernels.tile import COLS, ROWS, TILE
from hetsched_kernels.tile_f32 import scatter_rows_f32
from hetsched_kernels.tile_i8 import quantize_tile

_SCATTER = scatter_rows_f32.call
_QUANTIZE = quantize_tile.call


def term_bytes(rows: int) -> int:
    """Bytes of scratch for the terms of ``rows`` rows (whole tiles), one panel's columns, the float tile and a spare line."""
    return (-(-rows // ROWS) * ROWS) * 16 + COLS * 16 + TILE * 4 + COLS + 256


@block
def split_terms(scratch: Any, rows: Any) -> Any:
    """Row ints [tiles, 2, ROWS], row floats, column ints [2, COLS], column floats, float tile, spare bytes, the rest."""
    padded = (rows + ROWS - 1) // ROWS * ROWS * 8
    at = 2 * padded
    row_ints, row_floats = as_i32(scratch, 0, padded), as_f32(scratch, padded, padded)
    col_ints, col_floats = as_i32(scratch, at, COLS * 8), as_f32(scratch, at + COLS * 8, COLS * 8)
    at += COLS * 16
    tile = as_f32(scratch, at, TILE * 4)
    at += TILE * 4
    return row_ints, row_floats, col_ints, col_floats, tile, span(scratch, at, COLS), onward(scratch, at + (COLS + 63) // 64 * 64)


@block
def set_row(row_ints: Any, row_floats: Any, slot: Any, u: Any, p: Any, s: Any, r: Any) -> None:
    """Terms of one row; ``slot`` counts rows over whole tiles."""
    at = slot // ROWS * 2 * ROWS + slot % ROWS
    row_ints[at], row_ints[at + ROWS] = u, p
    row_floats[at], row_floats[at + ROWS] = s, r


@block(inline=True)
def store_tile(
    tile: Any, out: Any, q: Any, ldc: Any, rows: Any, low: Any, high: Any, quantize: Any, scale: Any, zero: Any, signed: Any, spare: Any
) -> None:  # fmt: skip
    """Columns low … high of a finished float tile to ``out`` (float32) or ``q`` (8-bit); all are pointers.

    Both start where column ``low`` of row 0 goes.
    """
    if quantize:
        _QUANTIZE(tile, q, ldc, rows, low, high, scale, zero, 1 if signed else 0, spare)
    else:
        _SCATTER(tile, out, ldc, rows, low, high)
