"""The thermal network against analytic solutions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.errors import OptionError, SoCError
from hetsched_simulations.thermal import Network, initial_temperatures


def test_one_node_is_an_exponential() -> None:
    """T = T_amb + R P + (T0 - T_amb - R P) exp(-t / R C)."""
    r, c, p, start, ambient = 4.0, 20.0, 3.0, 60.0, 25.0
    network = Network(np.array([c]), np.zeros((1, 1)), np.array([1 / r]), ambient)
    for t in (1e-6, 0.1, 10.0, 80.0, 1e4):
        expected = ambient + r * p + (start - ambient - r * p) * np.exp(-t / (r * c))
        assert network.step(np.array([start]), np.array([p]), t)[0] == pytest.approx(expected, rel=1e-12)
    assert network.steady(np.array([p]))[0] == pytest.approx(ambient + r * p, rel=1e-12)


def test_two_nodes_have_the_two_modes_of_the_quadratic() -> None:
    """Block (C1) - R12 - case (C2) - R2a - ambient: rates are the roots of x^2 - (a + b + d) x + a d."""
    c1, c2, r12, r2a, p, ambient = 0.5, 50.0, 3.0, 4.0, 2.0, 30.0
    network = Network(np.array([c1, c2]), np.array([[0, 1 / r12], [1 / r12, 0]]), np.array([0, 1 / r2a]), ambient)
    a, b, d = 1 / (r12 * c1), 1 / (r12 * c2), 1 / (r2a * c2)
    root = np.sqrt((a + b + d) ** 2 - 4 * a * d)
    slow, fast = (a + b + d - root) / 2, (a + b + d + root) / 2
    # theta1(0) = 0, theta1'(0) = p / c1, theta1(inf) = p (r12 + r2a)
    final = p * (r12 + r2a)
    k_fast = (p / c1 - final * slow) / (slow - fast)
    k_slow = -final - k_fast
    for t in (0.01, 1.0, 30.0, 500.0):
        got = network.step(np.full(2, ambient), np.array([p, 0.0]), t)
        theta1 = final + k_fast * np.exp(-fast * t) + k_slow * np.exp(-slow * t)
        slope = -k_fast * fast * np.exp(-fast * t) - k_slow * slow * np.exp(-slow * t)
        assert got[0] - ambient == pytest.approx(theta1, rel=1e-9)
        assert got[1] - ambient == pytest.approx(theta1 + r12 * (c1 * slope - p), rel=1e-7)
    assert network.steady(np.array([p, 0.0])) == pytest.approx([ambient + p * (r12 + r2a), ambient + p * r2a], rel=1e-12)


def test_a_node_without_a_path_to_ambient_heats_for_ever() -> None:
    network = Network(np.array([10.0]), np.zeros((1, 1)), np.zeros(1), 20.0)
    assert network.step(np.array([20.0]), np.array([5.0]), 8.0)[0] == pytest.approx(24.0)
    with pytest.raises(SoCError, match="no path to 'ambient'"):
        network.steady(np.array([5.0]))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_one_long_step_is_many_short_ones_and_heat_is_conserved(seed: int, n: int) -> None:
    from scipy.linalg import expm

    rng = np.random.default_rng(seed)
    between = np.triu(rng.uniform(0, 1, (n, n)), 1)
    between += between.T
    outside, capacity = rng.uniform(0, 0.5, n), rng.uniform(0.05, 100, n)
    power, start = rng.uniform(0, 5, n), rng.uniform(20, 80, n)
    network = Network(capacity, between, outside, 25.0)
    end = network.step(start, power, 10.0)
    short = start
    for _ in range(10):
        short = network.grid_step(short, power, 1.0)
    assert short == pytest.approx(end, rel=1e-9)
    a = -network.laplacian / capacity[:, None]
    augmented = np.block([[a, (power / capacity)[:, None]], [np.zeros((1, n + 1))]])
    assert (expm(10.0 * augmented) @ np.append(start - 25.0, 1.0))[:n] + 25.0 == pytest.approx(end, rel=1e-8)
    sealed = Network(capacity, between, np.zeros(n), 25.0)
    gained = float(capacity @ (sealed.step(start, power, 10.0) - start))
    assert gained == pytest.approx(10.0 * power.sum(), rel=1e-7)


def test_the_network_of_a_soc_file(toys: SimpleNamespace) -> None:
    """1 W into the npu: through 4, 5 and 4.5 K/W in series."""
    thermal = toys.soc().thermal
    steady = Network.of(thermal, 25.0).steady(np.array([0.0, 0.0, 1.0, 0.0, 0.0]))
    assert steady == pytest.approx([34.5, 34.5, 38.5, 34.5, 29.5])


def test_initial_temperatures_by_node(toys: SimpleNamespace) -> None:
    thermal = toys.soc().thermal
    assert initial_temperatures(thermal, 25.0, None).tolist() == [25.0] * 5
    assert initial_temperatures(thermal, 25.0, 40.0).tolist() == [40.0] * 5
    assert initial_temperatures(thermal, 25.0, {"case": 38.0}).tolist() == [25.0] * 4 + [38.0]
    with pytest.raises(OptionError, match="'skin' is not a thermal node"):
        initial_temperatures(thermal, 25.0, {"skin": 38.0})
