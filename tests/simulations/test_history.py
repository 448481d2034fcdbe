"""Thinning of counters keeps integrals and extremes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hetsched_simulations.history import thin_points, thin_rate


@given(st.integers(0, 10**9), st.integers(1, 500), st.sampled_from([10, 64, 100]))
def test_a_thinned_rate_keeps_its_integral_and_its_extremes(seed: int, n: int, limit: int) -> None:
    rng = np.random.default_rng(seed)
    t = np.concatenate([[0.0], np.cumsum(rng.uniform(0.01, 1.0, n))])
    v = rng.integers(0, 5, n).astype(float)
    times, values = thin_rate(t[:-1], v, t[-1], limit)
    assert len(times) <= limit
    assert times[0] == 0.0
    assert (np.diff(times) > 0).all()
    assert np.isclose(np.diff(np.append(times, t[-1])) @ values, np.diff(t) @ v, rtol=1e-12)
    assert values.min() == v.min()
    assert values.max() == v.max()


@given(st.integers(0, 10**9), st.integers(1, 500))
def test_thinned_points_are_points_with_the_extremes_and_the_ends(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    t, v = np.arange(n, dtype=float), rng.normal(size=n)
    times, values = thin_points(t, v, 50)
    assert len(times) <= 52
    assert (values == v[times.astype(int)]).all()
    assert (times[0], times[-1]) == (0.0, n - 1.0)
    assert values.min() == v.min()
    assert values.max() == v.max()
