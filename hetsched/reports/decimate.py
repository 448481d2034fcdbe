"""Long series made short enough to draw, without losing an extreme."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def decimate(
    times: Sequence[float], values: Sequence[float], buckets: int = 240
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Keep the first, least, greatest and last sample of each of ``buckets`` equal spans of time (M4 aggregation).

    Args:
        times: [n] ascending.
        values: [n].
        buckets: number of spans; at most four samples of each are kept.

    Returns:
        Times and values of the kept samples, in order. The overall minimum and maximum, the first and the last sample
        are always among them.
    """
    t, v = np.asarray(times, np.float64), np.asarray(values, np.float64)
    if len(t) <= 4 * buckets or t[-1] <= t[0]:
        return t, v
    bucket = np.minimum(((t - t[0]) / (t[-1] - t[0]) * buckets).astype(np.int64), buckets - 1)
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    last = np.append(first[1:], len(t)) - 1
    low = np.lexsort((v, bucket))  # by bucket, then by value
    keep = np.unique(np.concatenate([first, last, low[first], low[last]]))
    return t[keep], v[keep]


def means(
    times: Sequence[float], values: Sequence[float], end: float, buckets: int = 240
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Time-weighted means of a series whose values hold until the next sample (the last until ``end``).

    Args:
        times: [n] ascending.
        values: [n].
        end: when the last value ends.
        buckets: number of equal spans of time from the first sample to ``end``.

    Returns:
        Starts of the spans and the mean over each; their integral is that of the series.
    """
    t, v = np.asarray(times, np.float64), np.asarray(values, np.float64)
    edges = np.linspace(t[0], end, buckets + 1)
    integral = np.concatenate([[0.0], np.cumsum(v * np.diff(np.append(t, end)))])
    at_edges = np.interp(edges, np.append(t, end), integral)
    width = np.diff(edges)
    return edges[:-1], np.diff(at_edges) / np.where(width > 0, width, 1.0)
