"""The thermal network against analytic solutions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.errors import OptionError, SoCError
from hetsched.socs import SoC
from hetsched_simulations import simulate
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
        # theta2(0) = theta2'(0) = 0, theta2(inf) = p r2a
        theta2 = p * r2a * (slow * np.expm1(-fast * t) - fast * np.expm1(-slow * t)) / (fast - slow)
        assert got[0] - ambient == pytest.approx(theta1, rel=1e-9)
        assert got[1] - ambient == pytest.approx(theta2, rel=1e-9, abs=1e-12)
    assert network.steady(np.array([p, 0.0])) == pytest.approx([ambient + p * (r12 + r2a), ambient + p * r2a], rel=1e-12)


def test_a_ladder_of_equal_cells_has_the_modes_of_a_rod() -> None:
    """A Cauer ladder of n equal cells, insulated at one end and at ambient behind the other: mode k is a cosine over the cells.

    Its rates are 4 / (R C) sin^2((2 k - 1) pi / (4 n + 2)). A ladder that starts in one mode stays in it.
    """
    n, r, c = 6, 2.0, 5.0
    between = np.diag(np.full(n - 1, 1 / r), 1)
    network = Network(np.full(n, c), between + between.T, np.array([0.0] * (n - 1) + [1 / r]), 20.0)
    for k in (1, 3, 6):
        rate = 4 / (r * c) * np.sin((2 * k - 1) * np.pi / (4 * n + 2)) ** 2
        shape = np.cos((np.arange(n) + 0.5) * (2 * k - 1) * np.pi / (2 * n + 1))
        for t in (0.1, 5.0, 40.0):
            assert network.step(20.0 + shape, np.zeros(n), t) == pytest.approx(20.0 + shape * np.exp(-rate * t), rel=1e-9)
    # 1 W into the first cell: every cell is as many resistances above ambient as lie between.
    power = np.eye(n)[0]
    assert network.steady(power) == pytest.approx(20.0 + r * np.arange(n, 0, -1), rel=1e-12)
    assert network.step(np.full(n, 20.0), power, 1e6) == pytest.approx(network.steady(power), rel=1e-9)


def test_a_steady_die_on_a_spreader_loses_what_it_gets() -> None:
    """HotSpot's layers: 4 x 4 blocks that touch, each on its piece of a spreader that touches too, all of it on a sink in the air."""
    rng = np.random.default_rng(7)
    side, cells = 4, 16
    n = 2 * cells + 1
    g = np.zeros((n, n))
    for layer, across in ((0, 0.4), (cells, 6.0)):
        for i in range(cells):
            for j in ((i + 1) if (i + 1) % side else None, i + side if i + side < cells else None):
                if j is not None:
                    g[layer + i, layer + j] = across
    for i in range(cells):
        g[i, cells + i], g[cells + i, n - 1] = 0.9, 2.0
    g += g.T
    out = np.zeros(n)
    out[-1] = 0.3
    capacity = np.concatenate([np.full(cells, 0.01), np.full(cells, 0.5), [80.0]])
    power = np.concatenate([rng.uniform(0, 1, cells), np.zeros(cells + 1)])
    network = Network(capacity, g, out, 30.0)
    steady = network.steady(power)
    flows = g * (steady[:, None] - steady[None, :])
    assert power - flows.sum(axis=1) - out * (steady - 30.0) == pytest.approx(np.zeros(n), abs=1e-9)
    assert 0.3 * (steady[-1] - 30.0) == pytest.approx(power.sum(), rel=1e-12)
    assert network.step(np.full(n, 30.0), power, 1e5) == pytest.approx(steady, rel=1e-9)


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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("path", ["full", "multirate"])
def test_a_network_that_runs_away_is_named_without_warnings(toys: SimpleNamespace, path: str) -> None:
    """Leakage makes heat and heat leakage, far beyond what figures can hold."""
    raw = toys.soc(trip_c=400.0).model_dump()
    for r in raw["thermal"]["resistances"]:
        r["k_per_w"]["value"] = 1e5
    for n in raw["thermal"]["nodes"]:
        n["capacity_j_per_k"]["value"] = 1e-3
    with pytest.raises(SoCError, match="the thermal node 'cpu' of test-soc runs away, beyond 1000 °C after"):
        simulate(toys.table([{"compute": 1e-3}]), SoC.model_validate(raw), [0], toys.on(0), duration_s=3.0, path=path)
