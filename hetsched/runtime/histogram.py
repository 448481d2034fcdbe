"""Streaming histograms: the distribution of a tensor over many samples in a fixed amount of memory.

Bins are equally wide over ``[-limit, limit)``, where ``limit`` is a power of two. When a larger value comes, the limit doubles
and neighbouring bins are added up, which loses nothing but resolution; so the result does not depend on the order of the
samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

#: Bins of a whole tensor and of one channel.
TENSOR_BINS = 8192
CHANNEL_BINS = 1024
_SMALLEST_EXPONENT = -126
_CHUNK = 1 << 18


class Histogram:
    """Counts, minimum and maximum of each of ``channels`` rows of values (one row: a whole tensor).

    Infinite values are left out: they are masks, not magnitudes.
    """

    def __init__(self, channels: int = 1, bins: int = TENSOR_BINS) -> None:
        self.bins = bins
        self.counts: npt.NDArray[np.int64] = np.zeros((channels, bins), np.int64)
        self.exponent: npt.NDArray[np.int64] = np.full(channels, _SMALLEST_EXPONENT, np.int64)
        self.minimum: Floats = np.full(channels, np.inf)
        self.maximum: Floats = np.full(channels, -np.inf)

    def add(self, rows: Array) -> None:
        """Count ``rows`` of floats, ``[channels, n]``."""
        for start in range(0, rows.shape[1], _CHUNK):
            self._add(np.asarray(rows[:, start : start + _CHUNK], np.float64))

    def _add(self, rows: Floats) -> None:
        finite = np.isfinite(rows)
        self.minimum = np.minimum(self.minimum, np.where(finite, rows, np.inf).min(1, initial=np.inf))
        self.maximum = np.maximum(self.maximum, np.where(finite, rows, -np.inf).max(1, initial=-np.inf))
        peak = np.abs(np.where(finite, rows, 0.0)).max(1, initial=0.0)
        self._widen(np.where(peak > 0, np.frexp(peak)[1], _SMALLEST_EXPONENT).astype(np.int64))
        half = self.bins // 2
        width = np.ldexp(1.0, self.exponent) / half
        at = np.floor(np.where(finite, rows, 0.0) / width[:, None]).astype(np.int64) + half
        at = np.clip(at, 0, self.bins - 1) + np.arange(len(rows))[:, None] * self.bins
        self.counts += np.bincount(at[finite], minlength=self.counts.size).reshape(self.counts.shape)

    def _widen(self, exponent: npt.NDArray[np.int64]) -> None:
        """Make room for values below ``2 ** exponent``."""
        half = self.bins // 2
        for c in np.flatnonzero(exponent > self.exponent):
            shift = min(int(exponent[c] - self.exponent[c]), 62)
            at = half + ((np.arange(self.bins) - half) >> shift)
            merged = np.zeros(self.bins, np.int64)
            np.add.at(merged, at, self.counts[c])
            self.counts[c] = merged
            self.exponent[c] = exponent[c]

    def edges(self, channel: int = 0) -> Floats:
        """The ``bins + 1`` edges of a channel's bins."""
        limit = float(np.ldexp(1.0, int(self.exponent[channel])))
        return np.linspace(-limit, limit, self.bins + 1)
