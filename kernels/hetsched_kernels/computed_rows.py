"""Rows that are computed before they are quantized: norms, and gates."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels.compilation import REORDER, block
from hetsched_kernels.functions import sigmoid
from hetsched_kernels.parts import span

_EXACT: frozenset[str] = frozenset()


@block(fast=REORDER)
def _sum_of_squares(x: Any) -> Any:
    total = np.float32(0.0)
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    return total


@block(fast=_EXACT)
def norm_row(x: Any, skip: Any, scale: Any, total: Any, r: Any, epsilon: Any, normal: Any) -> None:
    """The norm of row ``r`` of x, or of x + skip, which ``total`` then holds."""
    cols = normal.shape[0]
    row = span(x, r * cols, cols)
    if skip.shape[0] > 0:
        other, to = span(skip, r * cols, cols), span(total, r * cols, cols)
        for i in range(cols):
            to[i] = row[i] + other[i]
        row = to
    factor = np.float32(1.0) / np.sqrt(np.float32(_sum_of_squares(row) / np.float32(cols)) + epsilon)
    for i in range(cols):
        normal[i] = row[i] * factor * scale[i]


@block(fast=_EXACT)
def gate_row(left: Any, right: Any, r: Any, product: Any) -> None:
    """Row ``r`` of silu(left) · right."""
    cols = product.shape[0]
    one, other = span(left, r * cols, cols), span(right, r * cols, cols)
    for i in range(cols):
        product[i] = one[i] * sigmoid(one[i]) * other[i]
