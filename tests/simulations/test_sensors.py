"""Sensors: weighted means that lag behind, are sampled and come in steps; trips and the thermal status read them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hetsched.soc_thermal import Sensor, StatusLevel, Thermal
from hetsched.soc_words import trip_lines
from hetsched.socs import SoC
from hetsched_simulations import Simulation, simulate
from hetsched_simulations.sensors import Sampling
from hetsched_simulations.switching import _staged_trips
from hetsched_simulations.thermal import Mix, Network


def figure(value: float) -> dict[str, Any]:
    return {"value": value, "estimated": "test"}


def sensor(name: str = "skin", weights: dict[str, float] | None = None, **fields: Any) -> Sensor:
    return Sensor.model_validate({"name": name, "weights": weights or {"case": 1.0}, "estimated": "test", **fields})


def with_sensors(soc: SoC, *sensors: Sensor, node: str | None = None, **trip: Any) -> SoC:
    """The SoC with sensors; ``node``: what its first trip, the only one left, reads."""
    trips = soc.thermal.trips
    if node is not None:
        trips = (trips[0].model_copy(update={"node": node, "processors": ("cpu",), **trip}),)
    thermal = Thermal.model_validate({**soc.thermal.model_dump(), "sensors": [s.model_dump() for s in sensors], "trips": trips})
    return soc.model_copy(update={"thermal": thermal})


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_sensors_are_exact_whatever_the_step(seed: int, n: int) -> None:
    """Against the matrix exponential of the whole system; one lag is as slow as a mode of the network, one sensor has none."""
    from scipy.linalg import expm

    rng = np.random.default_rng(seed)
    between = np.triu(rng.uniform(0, 1, (n, n)), 1)
    between += between.T
    outside, capacity = rng.uniform(0.01, 0.5, n), rng.uniform(0.05, 100, n)
    slow = Network(capacity, between, outside, 25.0).rates_per_s[0]
    mixes = [Mix(rng.uniform(0, 1, n), -0.25, 7.0), Mix(rng.uniform(-1, 1, n), 1.0, 1.0 / slow), Mix(rng.uniform(0, 1, n), 0.5, 0.0)]
    network = Network(capacity, between, outside, 25.0, mixes)
    power, start = np.append(rng.uniform(0, 5, n), np.zeros(3)), network.with_sensors(rng.uniform(20, 80, n))
    start[n : n + 2] = 30.0, 50.0
    lagged = np.arange(n + 2)
    a, b = np.zeros((n + 2, n + 2)), np.zeros(n + 2)
    a[:n, :n], b[:n] = -network.laplacian / capacity[:, None], (power[:n] + outside * 25.0) / capacity
    for j, m in enumerate(mixes[:2]):
        a[n + j, :n], a[n + j, n + j], b[n + j] = m.weights / m.lag_s, -1 / m.lag_s, m.offset_k / m.lag_s
    whole = np.block([[a, b[:, None]], [np.zeros((1, n + 3))]])
    for dt in (1e-3, 0.7, 40.0):
        got = network.step(start, power, dt)
        assert got[lagged] == pytest.approx((expm(dt * whole) @ np.append(start[lagged], 1.0))[:-1], rel=1e-9)
        assert got[-1] == pytest.approx(mixes[2].weights @ got[:n] + 0.5, rel=1e-12)
    assert network.step(start, power, 1e9) == pytest.approx(network.steady(power), rel=1e-9)


def test_a_lag_behind_a_step_of_one_node() -> None:
    """T = R P (1 - e^-t/RC) and S behind it: S = R P (1 - (a e^-t/a - b e^-t/b) / (a - b)), a = R C = 80 s, b = 20 s."""
    network = Network(np.array([20.0]), np.zeros((1, 1)), np.array([0.25]), 25.0, [Mix(np.ones(1), 0.0, 20.0)])
    for t in (0.5, 20.0, 300.0):
        s = network.step(np.full(2, 25.0), np.array([3.0, 0.0]), t)[1]
        assert s == pytest.approx(25.0 + 12.0 * (1 - (80 * np.exp(-t / 80) - 20 * np.exp(-t / 20)) / 60), rel=1e-12)


def run(toys: SimpleNamespace, soc: SoC, seconds: float = 60.0, **more: Any) -> Simulation:
    return simulate(toys.table([{"compute": 2e-3}]), soc, [0], toys.on(0), duration_s=seconds, ambient_c=20.0, **more)


def throttle_s(s: Simulation) -> float:
    assert s.throttling.first_s is not None
    return s.throttling.first_s


def test_a_trip_waits_for_its_sensor(toys: SimpleNamespace) -> None:
    """The package passes 30 °C after 4.9 s; a sensor that lags 5 s behind it sees that later, on both paths at the same poll."""
    soc = toys.soc(scale=0.3, polling_s=0.05, trip_c=30.0)
    fresh = with_sensors(soc, sensor("late", {"package": 1.0}), node="package")
    late = with_sensors(soc, sensor("late", {"package": 1.0}, lag_s=5.0), node="late")
    first = throttle_s(run(toys, fresh, 20.0, path="multirate"))
    delayed = run(toys, late, 20.0, path="multirate")
    assert throttle_s(delayed) > first + 2.0
    assert throttle_s(run(toys, late, throttle_s(delayed) + 0.1, path="full")) == pytest.approx(throttle_s(delayed), abs=0.051)
    counter = delayed.trace.counters["temperature/late"]
    assert np.interp(throttle_s(delayed), counter.times_s, counter.values) == pytest.approx(30.0, abs=0.05)
    assert delayed.throttling.trips == ("late",)


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_the_hottest_of_several_counts(toys: SimpleNamespace, path: str) -> None:
    """A trip on all processors fires with the one that works; it is also in the way of policies on each of them."""
    soc = toys.soc(scale=0.3, polling_s=0.05, trip_c=35.0)
    one = run(toys, with_sensors(soc, node="cpu"), 3.0, path=path)
    all_of_them = with_sensors(soc, sensor("rough", {"npu": 1.0}, step_k=5.0), node="gpu", also=("rough", "cpu"))
    assert throttle_s(run(toys, all_of_them, 3.0, path=path)) == throttle_s(one)
    cool = run(toys, with_sensors(soc, node="gpu", also=("npu",)), 3.0, path=path)
    assert not cool.throttling.happened
    assert [(t.node, t.temperature_c) for t in _staged_trips(all_of_them, all_of_them.thermal.points)] == [(0, 35.0), (1, 35.0), (5, 35.0)]
    assert trip_lines(all_of_them)[1].startswith("trip: the hottest of gpu, rough, cpu above 35 °C")


def test_a_trip_reads_what_there_is(toys: SimpleNamespace) -> None:
    with pytest.raises(ValidationError, match="trip on 'nose', which is not a thermal node or a sensor"):
        with_sensors(toys.soc(), node="cpu", also=("nose",))


def test_held_samples_and_steps(toys: SimpleNamespace) -> None:
    """Read every 4 s: polls in between do not fire. In steps of 2 K: 29 °C reads as 30."""
    soc = toys.soc(scale=0.3, polling_s=0.1, trip_c=30.0)
    fresh = run(toys, with_sensors(soc, sensor("s", {"package": 1.0}), node="s"))
    held = run(toys, with_sensors(soc, sensor("s", {"package": 1.0}, sampling_s=4.0), node="s"))
    stepped = run(toys, with_sensors(soc, sensor("s", {"package": 1.0}, step_k=2.0), node="s"))
    assert throttle_s(held) == pytest.approx(4.0 * np.ceil(throttle_s(fresh) / 4.0))
    counter = fresh.trace.counters["temperature/s"]
    assert throttle_s(stepped) < throttle_s(fresh)
    assert np.interp(throttle_s(stepped), counter.times_s, counter.values) >= 28.99
    fired = next(i for i in stepped.trace.instants if i.kind == "trip")
    assert fired.detail == "30 °C trip fired at 30.00 °C"


def test_readings_between_samples() -> None:
    sampling = Sampling((0.0, 4.0), (0.0, 0.5))
    assert [sampling.last(1, t) for t in (0.0, 3.9, 4.0, 11.0)] == [0.0, 0.0, 4.0, 8.0]
    assert sampling.last(0, 3.9) == 3.9
    times, ramp = np.array([0.0, 10.0]), np.array([20.0, 30.0])
    assert sampling.seen(1, times, np.array([1.0, 5.0, 9.9]), ramp).tolist() == [20.0, 24.0, 28.0]
    assert sampling.seen(0, times, np.array([1.26]), ramp).tolist() == [21.26]


def test_the_status_reads_the_hottest_skin_sensor(toys: SimpleNamespace) -> None:
    skin = sensor("back", {"case": 0.5, "package": 0.5}, offset_k=-0.25, skin=True), sensor("front", {"case": 1.0}, skin=True)
    soc = with_sensors(toys.soc(scale=0.05), *skin, node="back")
    s = run(toys, soc)
    assert s.status is not None
    package, case = (s.trace.counters[f"temperature/{n}"] for n in ("package", "case"))
    mean = (np.interp(30.0, package.times_s, package.values) + np.interp(30.0, case.times_s, case.values)) / 2
    assert s.status.skin_c[30] == pytest.approx(mean - 0.25, abs=0.02)
    assert s.final_temperatures_c["front"] == pytest.approx(s.final_temperatures_c["case"], abs=1e-9)


def test_a_file_has_its_own_thresholds(toys: SimpleNamespace) -> None:
    given = [StatusLevel.model_validate({"name": n, "from_c": figure(c), "hysteresis_k": figure(1.0)}) for n, c in
             (("fair", 25.0), ("serious", 28.0), ("critical", 90.0))]  # fmt: skip
    soc = with_sensors(toys.soc(scale=0.05), sensor(skin=True), node="skin")
    soc = soc.model_copy(update={"thermal": soc.thermal.model_copy(update={"status": tuple(given)})})
    found = run(toys, soc).status
    assert found is not None
    assert found.to_dict()["worst"] == "serious"
    assert found.skin_c[int(found.to_dict()["first_s"]["fair"])] >= 25.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sensors": [{"name": "s", "weights": {"lid": 1.0}, "estimated": "x"}]}, "weighs 'lid', which is not a thermal node"),
        ({"sensors": [{"name": "case", "weights": {"case": 1.0}, "estimated": "x"}]}, "share a name"),
        ({"sensors": [{"name": "s", "weights": {"case": 1.0}}]}, "a sensor needs either 'source"),
        ({"status": [{"name": "LIGHT", "from_c": figure(39), "hysteresis_k": figure(1)}]}, "it must have LIGHT, MODERATE"),
    ],
)
def test_wrong_sensors(toys: SimpleNamespace, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Thermal.model_validate({**toys.soc().thermal.model_dump(), **change})
