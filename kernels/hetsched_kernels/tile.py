"""The register tile that every product uses: how many rows and columns of the result live in registers at once."""

from __future__ import annotations

from typing import Final

from hetsched_kernels.target import target

#: Lanes of one vector (float32 or int32).
LANES: Final = target().f32_lanes
#: Vectors across a tile.
VECTORS: Final = 3 if target().f32_lanes > 4 or target().registers > 16 else 2
#: Rows of a tile.
ROWS: Final = 8 if target().registers > 16 else 4
#: Columns of a tile.
COLS: Final = LANES * VECTORS
#: Elements of a tile.
TILE: Final = ROWS * COLS


def heights() -> list[int]:
    """Numbers of rows for which a microkernel exists, largest first."""
    return [h for h in (8, 4, 2, 1) if h <= ROWS]
