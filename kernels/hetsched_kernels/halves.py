"""Weights in 16 bits, float16 or bfloat16: how they are packed, once, for :mod:`hetsched_kernels.gemm_halves`."""

from __future__ import annotations

from typing import Final

import numpy as np

from hetsched_kernels.arrays import Array
from hetsched_kernels.tile import COLS

#: Formats.
HALF: Final = 0
BRAIN: Final = 1


def pack_halves(w: Array) -> Array:
    """Weights in the order the register tile reads them: panels of COLS columns, each [K, COLS], zero-padded.

    Args:
        w: uint16 [N, K], the bits of float16 or bfloat16 (as ONNX Gemm with transB).

    Returns:
        Flat uint16 [ceil(N / COLS) · K · COLS], on a cache line.
    """
    n, k = w.shape
    panels = -(-n // COLS)
    room = np.zeros(panels * k * COLS + 32, np.uint16)
    start = -room.ctypes.data % 64 // 2
    out = room[start : start + panels * k * COLS]
    whole = n // COLS
    packed = out.reshape(panels, k, COLS)
    packed[:whole] = w[: whole * COLS].reshape(whole, COLS, k).transpose(0, 2, 1)
    if whole < panels:
        packed[whole, :, : n - whole * COLS] = w[whole * COLS :].T
    return out
