"""Softmax of a row that comes in parts: its largest score and its sum so far, and a weighted sum that follows them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import functions as f
from hetsched_kernels.compilation import REORDER, block
from hetsched_kernels.extremes import row_max
from hetsched_kernels.wide import full_width

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_LOWEST = np.float32(-np.inf)


@block
def limit_scores(row: Any, first: Any, start: Any, stop: Any, softcap: Any) -> None:
    """Cap a row's scores and hide the positions outside [start, stop); the row begins at position ``first``."""
    if softcap > _ZERO:
        for i in range(row.shape[0]):
            row[i] = softcap * f.tanh(row[i] / softcap)
    for i in range(min(max(start - first, 0), row.shape[0])):
        row[i] = _LOWEST
    for i in range(max(min(stop - first, row.shape[0]), 0), row.shape[0]):
        row[i] = _LOWEST


@block(fast=REORDER)
def _shift(row: Any, largest: Any) -> Any:
    """e^(x - largest) in x's place, and their sum."""
    full_width()
    total = _ZERO
    for i in range(row.shape[0]):
        value = f.exp(row[i] - largest)
        row[i] = value
        total += value
    return total


@block
def advance_softmax(row: Any, out: Any, state: Any) -> Any:
    """One more part of a row, in place: ``state`` is the largest score and the sum so far; ``out``, a weighted sum, follows them.

    Returns the largest share of the part.
    """
    own = row_max(row)
    largest = max(own, state[0])
    if largest == _LOWEST:  # nothing is seen yet
        for i in range(row.shape[0]):
            row[i] = _ZERO
        return _ZERO
    total = _shift(row, largest)
    if state[0] != largest:
        factor = f.exp(state[0] - largest) if state[0] > _LOWEST else _ZERO
        for i in range(out.shape[0]):
            out[i] = out[i] * factor
        state[0], state[1] = largest, state[1] * factor
    state[1] += total
    if own == largest:
        return _ONE
    return f.exp(own - largest) if own > _LOWEST else _ZERO
