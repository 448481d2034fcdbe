"""From a histogram to a range: everything, all but the outermost values, or what costs least when rounded to 8 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.ranges import Method
from hetsched.runtime.histogram import Floats, Histogram

_LEVELS = 255
#: Shares of the full range that the search for the least error tries, and how far around the best it looks then.
_COARSE = np.linspace(0.1, 1.0, 19)
_FINE = np.linspace(-0.04, 0.04, 9)


def clipped(histogram: Histogram, channel: int, method: Method, percentile: float, symmetric: bool) -> tuple[float, float]:
    """The range of one channel, within its smallest and largest value, and holding 0; ``(0, 0)`` if nothing was counted.

    Args:
        histogram: what was seen.
        channel: which of its rows.
        method: ``minmax`` keeps everything; ``percentile`` keeps that share of the values and cuts as many on either side;
            ``mse`` minimises the mean squared error of 8-bit rounding and clipping.
        percentile: in percent, for ``percentile``.
        symmetric: as far below 0 as above.
    """
    low, high = float(histogram.minimum[channel]), float(histogram.maximum[channel])
    if low > high:
        return 0.0, 0.0
    if method == "percentile":
        low, high = _percentile(histogram, channel, percentile, symmetric)
    elif method == "mse":
        low, high = _least_error(histogram, channel, symmetric)
    low, high = min(low, 0.0), max(high, 0.0)
    return (-max(-low, high), max(-low, high)) if symmetric else (low, high)


def _percentile(histogram: Histogram, channel: int, percentile: float, symmetric: bool) -> tuple[float, float]:
    counts, edges = histogram.counts[channel], histogram.edges(channel)
    low, high = float(histogram.minimum[channel]), float(histogram.maximum[channel])
    cut = (1 - percentile / 100) * float(counts.sum())
    if symmetric:
        half = histogram.bins // 2
        outward = np.cumsum((counts[half:] + counts[:half][::-1])[::-1])
        bound = float(edges[histogram.bins - int(np.searchsorted(outward, cut, side="right"))])
        return max(low, -bound), min(high, bound)
    up, down = np.cumsum(counts), np.cumsum(counts[::-1])
    first, last = (int(np.searchsorted(c, cut / 2, side="right")) for c in (up, down))
    return max(low, float(edges[first])), min(high, float(edges[histogram.bins - last]))


def _least_error(histogram: Histogram, channel: int, symmetric: bool) -> tuple[float, float]:
    """Clip both ends alike, then each end on its own, coarse and fine; the best of what was tried."""
    used = np.flatnonzero(histogram.counts[channel])
    edges = histogram.edges(channel)
    centres, counts = (edges[used] + edges[used + 1]) / 2, histogram.counts[channel][used].astype(np.float64)
    low, high = min(float(histogram.minimum[channel]), 0.0), max(float(histogram.maximum[channel]), 0.0)
    if symmetric:
        low, high = -max(-low, high), max(-low, high)
        share = _best(centres, counts, [(low * f, high * f) for f in _COARSE])[1] / (high or 1.0)
        return _best(centres, counts, [(low * f, high * f) for f in _around(share)])
    best = _best(centres, counts, [(low * f, high * f) for f in _COARSE])
    for shares in (lambda _: _COARSE, _around):
        best = _best(centres, counts, [best, *((low * f, best[1]) for f in shares(best[0] / (low or 1.0)))])
        best = _best(centres, counts, [best, *((best[0], high * f) for f in shares(best[1] / (high or 1.0)))])
    return best


def _around(share: float) -> Floats:
    return np.asarray(np.clip(share + _FINE, 0.0, 1.0))


def _best(centres: Floats, counts: Floats, candidates: Sequence[tuple[float, float]]) -> tuple[float, float]:
    found = [(rounding_error(centres, counts, low, high), low, high) for low, high in dict.fromkeys(candidates)]
    _, low, high = min(found)
    return float(low), float(high)


def rounding_error(values: Floats, counts: Floats, low: float, high: float) -> float:
    """Sum of squared errors of ``values``, each there ``counts`` times, in 8-bit integers over ``[low, high]``."""
    step = (high - low) / _LEVELS
    if step <= 0:
        return float(counts @ values**2)
    zero = np.rint(-low / step)
    rounded = (np.clip(np.rint(values / step) + zero, 0, _LEVELS) - zero) * step
    return float(counts @ (values - rounded) ** 2)
