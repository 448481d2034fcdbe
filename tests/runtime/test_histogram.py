"""Histograms of streamed values, and the ranges that are made of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hetsched.runtime.clipping import clipped, rounding_error
from hetsched.runtime.histogram import Histogram

VALUES = st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=40)


def filled(*chunks: Any, bins: int = 64) -> Histogram:
    h = Histogram(1, bins)
    for c in chunks:
        h.add(np.asarray(c, np.float32).reshape(1, -1))
    return h


@given(VALUES, VALUES)
def test_the_order_of_the_samples_does_not_matter(a: list[float], b: list[float]) -> None:
    x, y, z = filled(a, b), filled(b, a), filled([*a, *b])
    for h in (y, z):
        assert (h.counts == x.counts).all() and (h.exponent == x.exponent).all()
        assert (h.minimum == x.minimum).all() and (h.maximum == x.maximum).all()


@given(VALUES)
def test_every_value_is_in_its_bin(values: list[float]) -> None:
    h, x = filled(values), np.asarray(values, np.float32).astype(np.float64)
    edges = h.edges()
    assert h.counts.sum() == len(x) and edges[0] <= x.min() and x.max() < edges[-1]
    assert (h.counts[0] == [((x >= low) & (x < high)).sum() for low, high in pairwise(edges)]).all()


def test_channels_are_counted_apart() -> None:
    h = Histogram(2, 64)
    h.add(np.array([[1, 2, 3], [100, -200, 0.5]], np.float32))
    assert h.minimum.tolist() == [1, -200] and h.maximum.tolist() == [3, 100]
    assert h.counts.sum(1).tolist() == [3, 3] and h.exponent.tolist() == [2, 8]


def test_infinities_are_left_out() -> None:
    h = filled([-np.inf, 1.0, np.inf])
    assert (h.minimum[0], h.maximum[0], h.counts.sum()) == (1.0, 1.0, 1)
    assert clipped(filled([np.inf]), 0, "minmax", 100, False) == (0.0, 0.0)


@given(arrays(np.float32, st.integers(1, 200), elements=st.floats(-1000, 1000, width=32)), st.booleans())
def test_ranges_lie_within_what_was_seen_and_hold_zero(x: Any, symmetric: bool) -> None:
    h = filled(x, bins=8192)
    peak = float(np.abs(x).max())
    for method in ("minmax", "percentile", "mse"):
        low, high = clipped(h, 0, method, 99.0, symmetric)  # type: ignore[arg-type]
        assert low <= 0 <= high
        assert low >= (-peak if symmetric else min(float(x.min()), 0.0)) and high <= (peak if symmetric else max(float(x.max()), 0.0))
        assert not symmetric or low == -high
    if not symmetric:
        assert clipped(h, 0, "minmax", 99.0, False) == (min(float(x.min()), 0.0), max(float(x.max()), 0.0))


@pytest.mark.parametrize("symmetric", [False, True])
def test_percentiles_agree_with_numpy(symmetric: bool) -> None:
    x = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    low, high = clipped(filled(x, bins=8192), 0, "percentile", 99.0, symmetric)
    want = (-np.percentile(np.abs(x), 99), np.percentile(np.abs(x), 99)) if symmetric else np.percentile(x, [0.5, 99.5])
    np.testing.assert_allclose((low, high), want, atol=0.01)


def test_all_percent_is_everything() -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert clipped(filled(x), 0, "percentile", 100.0, False) == clipped(filled(x), 0, "minmax", 100.0, False)


@pytest.mark.parametrize("symmetric", [False, True])
def test_least_error_beats_the_full_range_on_long_tails(symmetric: bool) -> None:
    x = np.random.default_rng(0).standard_t(2, 100_000).astype(np.float32)
    h, ones = filled(x, bins=8192), np.ones(len(x))
    full, best = (clipped(h, 0, m, 100.0, symmetric) for m in ("minmax", "mse"))  # type: ignore[arg-type]
    assert rounding_error(x.astype(np.float64), ones, *best) < 0.9 * rounding_error(x.astype(np.float64), ones, *full)


@given(arrays(np.float32, st.integers(2, 100), elements=st.floats(-50, 50, width=32)))
def test_least_error_is_never_much_worse_than_the_full_range(x: Any) -> None:
    h = filled(x, bins=8192)
    full, best = (clipped(h, 0, m, 100.0, False) for m in ("minmax", "mse"))  # type: ignore[arg-type]
    values, ones = x.astype(np.float64), np.ones(len(x))
    step = (full[1] - full[0]) / 255
    # The histogram knows a value to a bin, an eighth of a step at most.
    assert rounding_error(values, ones, *best) ** 0.5 <= rounding_error(values, ones, *full) ** 0.5 + len(x) ** 0.5 * step / 4
