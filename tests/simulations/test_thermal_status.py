"""Android's thermal status and headroom, iOS's thermal state: thresholds, hysteresis and forecasts by hand, then on a run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hetsched.socs import SoC
from hetsched_simulations import Simulation, simulate
from hetsched_simulations.status import APPLES, PIXELS, forecasts, headroom, levels


def test_severities_rise_at_once_and_fall_below_the_hysteresis() -> None:
    skin = [38.9, 39.0, 42.9, 43.0, 41.2, 41.1, 37.2, 37.1, 46.5, 45.2, 45.1, 56.0, 20.0]
    assert levels(np.array(skin)).tolist() == [0, 1, 1, 2, 2, 1, 1, 0, 4, 4, 3, 6, 0]


def test_critical_is_a_severity_and_a_state() -> None:
    assert (PIXELS.critical_c, APPLES.critical_c) == (46.5, 46.5)


def test_headroom_is_one_at_severe_and_a_thirtieth_for_every_kelvin() -> None:
    assert headroom(np.array([10.0, 15.0, 30.0, 36.0, 45.0, 48.0])) == pytest.approx([0.0, 0.0, 0.5, 0.7, 1.0, 1.1])


def test_forecasts_extend_the_slope_from_the_oldest_sample() -> None:
    """A ramp of 0.3 K/s from 30 °C: two samples are too few; then 30 + 3 °C until the oldest of 30 samples moves on."""
    ramp = 30.0 + 0.3 * np.arange(40.0)
    found = forecasts(ramp)
    assert found[:2] == pytest.approx(headroom(ramp[:2]))
    assert found[2:30] == pytest.approx(np.full(28, 18.0 / 30.0))
    assert found[30:] == pytest.approx((15.0 + 0.3 * np.arange(1, 11) + 3.0) / 30.0)
    assert forecasts(np.full(5, 36.0)) == pytest.approx(np.full(5, 0.7))
    noisy = np.array([36.0, 36.5, 35.5, 37.0])  # slope = (-1.5 * 36 - 0.5 * 36.5 + 0.5 * 35.5 + 1.5 * 37) / 5 = 0.2
    assert forecasts(noisy)[-1] == pytest.approx((36.0 + 2.0 - 15.0) / 30.0)


def skin_phone(toys: SimpleNamespace, **fields: object) -> SoC:
    soc = toys.soc(scale=0.05)
    trips = tuple(t.model_copy(update={"node": "case", "upper": 0.3}) for t in soc.thermal.trips)
    return soc.model_copy(update={"thermal": soc.thermal.model_copy(update={"trips": trips}), **fields})


def run(toys: SimpleNamespace, soc: SoC) -> Simulation:
    return simulate(toys.table([{"compute": 2e-3}]), soc, [0], toys.on(0), duration_s=60.0, ambient_c=20.0)


def test_a_run_reports_status_and_headroom(toys: SimpleNamespace) -> None:
    s = run(toys, skin_phone(toys))
    status = s.status
    assert status is not None
    assert status.api == "android"
    assert len(status.skin_c) == 60
    assert status.skin_c[0] == pytest.approx(20.0)
    found = status.to_dict()
    assert found["worst"] == found["last"] == "CRITICAL"
    assert sum(found["seconds"].values()) == pytest.approx(60.0)
    assert list(found["first_s"]) == ["NONE", "LIGHT", "MODERATE", "SEVERE", "CRITICAL"]
    changes = [i for i in s.trace.instants if i.kind == "status"]
    assert [(i.name, i.time_s) for i in changes] == list(found["first_s"].items())[1:]
    assert status.skin_c[int(found["first_s"]["SEVERE"])] >= 45.0 > status.skin_c[int(found["first_s"]["SEVERE"]) - 1]
    counter = s.trace.counters["status/android"]
    assert counter.values == [0.0, 1.0, 2.0, 3.0, 4.0, 4.0]
    assert counter.times_s[-1] == pytest.approx(60.0)
    assert max(s.trace.counters["headroom/now"].values) == pytest.approx((s.status.skin_c.max() - 15.0) / 30.0)
    assert "headroom/forecast" in s.trace.counters
    assert [i.time_s for i in s.trace.instants] == sorted(i.time_s for i in s.trace.instants)


def test_apple_has_states_and_no_headroom(toys: SimpleNamespace) -> None:
    s = run(toys, skin_phone(toys, vendor="Apple"))
    assert s.status is not None
    assert s.trace.counters["status/ios"].values == [0.0, 1.0, 2.0, 3.0, 3.0]
    assert s.status.to_dict()["worst"] == "critical"
    assert "headroom" not in s.status.to_dict()
    assert not any(name.startswith("headroom/") for name in s.trace.counters)


def test_no_skin_no_status(toys: SimpleNamespace) -> None:
    assert run(toys, toys.soc()).status is None
    cold = simulate(toys.table([{"compute": 2e-3}]), skin_phone(toys), [0], toys.on(0), thermal=False)
    assert cold.status is None
