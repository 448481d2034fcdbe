"""A phone's own controllers: the PID of power budgets stepped by hand, hard caps, staged set points, then a closed loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from hetsched.errors import SoCError
from hetsched.soc_thermal import PowerBudget, Trip
from hetsched.socs import SoC
from hetsched_simulations import simulate
from hetsched_simulations.governors import Governors
from hetsched_simulations.vendor_pid import BudgetPid, VendorPid

POWER_MW = [[4000, 2000, 1000, 500], [3000, 1500, 700, 300], [2000, 1000, 500, 250]]


def figure(value: float) -> dict[str, Any]:
    return {"value": value, "estimated": "test"}


def budget(**fields: float) -> dict[str, Any]:
    return {k: figure(v) for k, v in fields.items()}


LIGHT = budget(
    sustainable_w=0.8, k_po_w_per_k=0.4, k_pu_w_per_k=0.4, k_i_w_per_k=0.005, integral_most_w=2.2, integral_cutoff_k=4.0,
    least_w=0.8, most_w=4.6,
)  # fmt: skip
"""SKIN-CPU-LIGHT-ODPM of the Pixel 8 (thermal study 2.2)."""


def trip(temperature_c: float, node: str = "case", governor: str = "vendor_pid", **more: Any) -> Trip:
    fields = {"processors": ["cpu", "npu"], "hysteresis_k": figure(1.9), "polling_s": figure(7.0), **more}
    return Trip.model_validate({"node": node, "temperature_c": figure(temperature_c), "governor": governor, **fields})


def with_trips(soc: SoC, *trips: Trip) -> SoC:
    return soc.model_copy(update={"thermal": soc.thermal.model_copy(update={"trips": trips})})


def busy(g: Governors, seconds: float, *share: float) -> None:
    """Let the devices work so much of the time; they are where the governors hold them."""
    g.actors.advance(seconds, np.array(share))
    g.actors.at = list(g.actors.states)


def test_the_budget_step_by_step() -> None:
    """Set point 39 °C. 37 °C: 0.8 + 0.4 x 2, and 0.005 x 2 more at every poll, since the error is below the cut-off of 4."""
    pid, light = BudgetPid(7.0), PowerBudget.model_validate(LIGHT)
    log = [pid.budget_w(light, 39.0, t) for t in (34.0, 37.0, 37.0, 40.0, 43.0, 45.0)]
    assert log == pytest.approx([
        2.8,  # 0.8 + 2.0; the error of 5 is over the cut-off and not summed
        1.61,  # 0.8 + 0.8 + 0.01
        1.62,
        0.8,  # 0.8 - 0.4 + 0.015: at least 0.8
        0.8,
        0.8,
    ])  # fmt: skip
    assert pid.integral_w == pytest.approx(0.01 + 0.01 - 0.005 - 0.02 - 0.03)
    pid.reset()
    assert [pid.budget_w(light, 39.0, 29.0), pid.integral_w] == pytest.approx([4.6, 0.0])  # 0.8 + 4.0: at most 4.6


def test_the_sum_is_bounded_and_the_slope_counts() -> None:
    eager = PowerBudget.model_validate(budget(sustainable_w=1.0, k_i_w_per_k=1.0, integral_most_w=1.5, k_d_ws_per_k=14.0))
    pid = BudgetPid(7.0)
    log = [pid.budget_w(eager, 40.0, t) for t in (39.0, 41.0, 41.5, 41.5)]
    # no cut-off: only errors below zero are summed; d = 14 W s/K x change / 7 s; never below nothing
    assert log == pytest.approx([1.0, 0.0, 0.0, 0.0])
    assert pid.integral_w == pytest.approx(-1.5)
    assert pid.budget_w(eager, 40.0, 40.0) == pytest.approx(1.0 - 1.5 + 14.0 * 1.5 / 7.0)


def governor(toys: SimpleNamespace, *trips: Trip) -> Governors:
    return Governors.of(with_trips(toys.soc(), *trips), (0, 1, 2), POWER_MW)


def test_it_works_from_its_first_trip_on_and_splits_by_weight(toys: SimpleNamespace) -> None:
    """Weights 3 and 1. The first trip has no budget: the set point is the next."""
    g = governor(toys, trip(39.0, budget={**LIGHT, "weights": {"cpu": figure(3.0)}}), trip(37.0))
    zone, log = g.zones[0], []
    for t in (36.9, 37.0, 38.0, 39.5, 35.5, 35.0):
        busy(g, 7.0, 1.0, 0.0, 1.0)
        g.poll(zone, t)
        log.append((t, g.states[0], g.states[2]))
    assert log == [
        (36.9, 0, 0),
        (37.0, 2, 3),  # 1.61 W: 1.2 for the cpu (1.0 W), 0.4 for the npu (0.25 W)
        (38.0, 3, 3),  # 1.215 W: 0.91 and 0.30
        (39.5, 3, 3),  # 0.8 W
        (35.5, 2, 2),  # 2.23 W: 1.67 and 0.56
        (35.0, 0, 0),  # 1.9 below 37: off, and the sum is forgotten
    ]
    assert isinstance(zone, VendorPid)
    assert zone.pid.integral_w == 0.0
    assert zone.quiet


def test_who_draws_less_than_its_share_leaves_the_rest(toys: SimpleNamespace) -> None:
    """1.61 W and equal weights; the npu, free, draws 0.1 x 2 W: the cpu gets 1.41 W and runs at 1.0 W, not at 0.5 W."""
    g = governor(toys, trip(37.0), trip(39.0, budget=LIGHT))
    busy(g, 7.0, 1.0, 0.0, 0.1)
    g.poll(g.zones[0], 37.0)
    assert g.states == [2, 0, 0]
    busy(g, 7.0, 1.0, 0.0, 1.0)
    g.poll(g.zones[0], 37.0)
    assert g.states == [3, 0, 2]


def test_ceilings_by_number_of_states_and_by_cluster(toys: SimpleNamespace) -> None:
    g = governor(toys, trip(37.0, deepest={"cpu:cpu": figure(1), "npu": figure(2)}), trip(39.0, budget=LIGHT, upper=1.0))
    busy(g, 7.0, 1.0, 0.0, 1.0)
    g.poll(g.zones[0], 38.0)
    assert g.states == [1, 0, 2]  # the trip that has fired counts
    busy(g, 7.0, 1.0, 0.0, 1.0)
    g.poll(g.zones[0], 39.0)
    assert g.states == [3, 0, 3]


def test_staged_set_points(toys: SimpleNamespace) -> None:
    """Between 43 and 45 °C the budget is that of 45; beyond the last trip still the last one's."""
    tight = budget(sustainable_w=0.3)
    g = governor(toys, trip(37.0), trip(43.0, budget=budget(sustainable_w=9.0)), trip(45.0, budget=tight))
    log = []
    for t in (36.0, 40.0, 43.5, 46.0):
        busy(g, 7.0, 1.0, 0.0, 1.0)
        g.poll(g.zones[0], t)
        log.append(g.states[0])
    assert log == [0, 0, 3, 3]


def test_several_controllers_of_one_sensor(toys: SimpleNamespace) -> None:
    g = governor(
        toys, trip(37.0, zone="light"), trip(39.0, zone="light", budget=LIGHT),
        trip(37.0, zone="gpu", processors=["gpu"]), trip(45.0, zone="gpu", processors=["gpu"], budget=budget(sustainable_w=1.5)),
    )  # fmt: skip
    assert [z.name for z in g.zones] == ["light", "gpu"]
    for zone in g.zones:
        busy(g, 7.0, 1.0, 1.0, 1.0)
        g.poll(zone, 38.0)
    assert g.states == [3, 1, 2]


def test_caps_go_straight_to_their_state(toys: SimpleNamespace) -> None:
    """States 1, 2, 3 from 39, 43, 45 °C on, 1.9 K of hysteresis."""
    g = governor(toys, *(trip(c, governor="cap", processors=["npu"], deepest={"npu": figure(s)}) for c, s in ((39, 1), (43, 2), (45, 3))))
    log = []
    for t in (38.9, 39.0, 46.0, 43.2, 43.0, 41.2, 41.0, 37.2, 37.0):
        g.poll(g.zones[0], t)
        log.append(g.states[2])
    assert log == [0, 1, 3, 3, 2, 2, 1, 1, 0]
    assert g.zones[0].quiet


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_it_holds_the_set_point_in_a_closed_loop(toys: SimpleNamespace, path: Any) -> None:
    """A light package: 4 W would warm it by 20 K; the PID keeps it near 39 °C."""
    soc = toys.soc(scale=0.02)
    trips = (trip(36.0, "package", processors=["cpu"]), trip(39.0, "package", processors=["cpu"], budget={**LIGHT, "least_w": figure(0.0)}))
    soc = with_trips(soc, *(t.model_copy(update={"polling_s": t.polling_s.model_copy(update={"value": 0.2})}) for t in trips))
    s = simulate(toys.table([{"compute": 2e-3}]), soc, [0], toys.on(0), duration_s=12.0, path=path)
    assert s.throttling.trips == ("package",)
    assert 36.0 < s.final_temperatures_c["package"] < 41.5
    assert s.peak_temperatures_c["package"] < 45.0


def test_a_controller_needs_a_set_point_and_somebody_to_cool(toys: SimpleNamespace) -> None:
    with pytest.raises(SoCError, match="the controller 'case' has no set point"):
        governor(toys, trip(37.0), trip(39.0))
    with pytest.raises(SoCError, match="has nobody to give its budget to"):
        governor(toys, trip(37.0), trip(39.0, budget=LIGHT, processors=[]))
    with pytest.raises(ValidationError, match="needs sustainable_w"):
        trip(39.0, budget={})
    with pytest.raises(ValidationError, match="which only vendor_pid knows"):
        trip(39.0, governor="power_allocator", budget=budget(least_w=1.0))
