"""How far one array is from its reference: cosine, signal-to-noise ratio, largest absolute error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: SNR of an exact match, where the logarithm has no value.
EXACT_DB = 300.0


@dataclass(frozen=True, slots=True)
class Difference:
    """``cosine`` in [-1, 1], ``snr_db`` = 10 log10(sum ref^2 / sum (ref - got)^2), ``max_abs`` the largest absolute error.

    ``bad_values`` counts elements that are NaN or infinite here and finite in the reference (or the other way round);
    the figures are of the elements that are finite in both. ``constant`` says that the reference has one value only.
    """

    cosine: float
    snr_db: float
    max_abs: float
    bad_values: int
    constant: bool
    reference_peak: float
    elements: int


def compare(got: npt.NDArray[Any], reference: npt.NDArray[Any]) -> Difference:
    """Compare two arrays of one shape, in float64."""
    a = np.asarray(got, np.float64).ravel()
    b = np.asarray(reference, np.float64).ravel()
    finite = np.isfinite(a) & np.isfinite(b)
    # An infinity of the same sign in both is a match (masks are often -inf); a NaN never is.
    bad = int(np.count_nonzero(~finite & ~(a == b)))
    a, b = a[finite], b[finite]
    if not a.size:
        return Difference(1.0, EXACT_DB, 0.0, bad, True, 0.0, 0)
    error = a - b
    noise, signal = float(error @ error), float(b @ b)
    snr = EXACT_DB if noise == 0 else -EXACT_DB if signal == 0 else min(EXACT_DB, 10 * math.log10(signal / noise))
    return Difference(_cosine(a, b), snr, float(np.abs(error).max()), bad, bool(b.min() == b.max()), float(np.abs(b).max()), a.size)


def _cosine(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    norm = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    if norm == 0:
        return 1.0 if not a.any() and not b.any() else 0.0
    return min(1.0, float(a @ b) / norm)
