"""The power_allocator governor: the kernel's arithmetic worked by hand, then in a closed loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from hetsched.errors import SoCError
from hetsched.soc_thermal import PowerBudget, Trip
from hetsched.soc_words import quantity
from hetsched.socs import SoC
from hetsched_simulations import Simulation, simulate
from hetsched_simulations.governors import Governors
from hetsched_simulations.power_allocator import Gains, Pid, divide, state_within

ALL = ("cpu", "gpu", "npu")
OPS = [{"compute": 2e-3, "bytes": 20e6}, {"compute": 3e-3, "bytes": 10e6, "reads": [0]}, {"compute": 2e-3, "bytes": 40e6, "reads": [1]}]


def figure(value: float) -> dict[str, Any]:
    return {"value": value, "estimated": "test"}


def trip(temperature_c: float, node: str = "package", polling_s: float = 0.1, **more: Any) -> Trip:
    settings = {"processors": ALL, "governor": "power_allocator", **more}
    return Trip.model_validate(
        {"node": node, "temperature_c": figure(temperature_c), "hysteresis_k": figure(1.0), "polling_s": figure(polling_s), **settings}
    )


def with_trips(soc: SoC, *trips: Trip) -> SoC:
    return soc.model_copy(update={"thermal": soc.thermal.model_copy(update={"trips": trips})})


def watts(**fields: float) -> dict[str, Any]:
    return {k: figure(v) for k, v in fields.items()}


def test_the_kernels_estimates_of_the_gains() -> None:
    budget = PowerBudget.model_validate(watts(sustainable_w=2.0))
    assert Gains.of(budget, 80_000, 60_000, 0) == Gains(2000, 102, 204, 20, 0, 0)  # 2000 * 1024 // 20000, twice that, a tenth
    assert Gains.of(PowerBudget(), 80_000, 60_000, 300).sustainable_mw == 300
    assert Gains.of(PowerBudget(), 80_000, None, 100).k_i == 1  # 200 * 1024 // 80000 // 10 would be none
    given = PowerBudget.model_validate(
        watts(k_po_w_per_k=0.4, k_pu_w_per_k=0.3, k_i_w_per_k=0.005, k_d_ws_per_k=0.5, integral_cutoff_k=4, sustainable_w=0.8)
    )
    assert Gains.of(given, 39_000, 37_000, 0) == Gains(800, 410, 307, 5, 512_000, 4000)


def test_the_controller_step_by_step() -> None:
    pid = Pid(Gains(2000, 102, 204, 20, 0, 0), 100)
    log = [pid.budget_mw(80_000, t, 9000) for t in (60_000, 70_000, 85_000, 83_000, 80_000, 79_000)]
    assert log == [
        5984,  # p = 204 * 20000 / 1024
        3992,
        1404,  # p = -498.05, i = 20 * -5000 / 1024 = -97.66, both in units of 1/1024: -610000 >> 10 = -596
        1544,  # p = -298.83, i = -97.66 - 58.59
        1843,  # p = 0; no error to sum up; i stays at -156.25
        2042,  # p = 199.22, and the sum is kept below the control temperature
    ]
    assert pid.budget_mw(80_000, 50_000, 3000) == 3000
    assert pid.budget_mw(80_000, 120_000, 3000) == 0
    pid.reset()
    assert pid.budget_mw(80_000, 80_000, 9000) == 2000


def test_the_integral_stops_at_the_power_of_all_devices_and_starts_at_its_cutoff() -> None:
    """1 W/K on a sum of errors of -0.4 K a poll, at most 1 W: two polls are summed, the third would go beyond."""
    pid = Pid(Gains(1000, 0, 0, 1024, 0, 0), 100)
    assert [pid.budget_mw(80_000, 80_400, 1000) for _ in range(4)] == [600, 200, 200, 200]
    early = Pid(Gains(1000, 0, 0, 1024, 0, 500), 100)
    assert [early.budget_mw(80_000, t, 2000) for t in (79_500, 79_600, 79_600)] == [1000, 1400, 1800]


def test_the_derivative_counts_the_change_in_a_millisecond() -> None:
    """0.5 W s/K: 1 K colder within 100 ms gives 5 W more, and then nothing."""
    pid = Pid(Gains(1000, 0, 0, 0, 512_000, 0), 100)
    assert [pid.budget_mw(80_000, t, 9000) for t in (80_000, 79_000, 79_000, 80_000)] == [1000, 6000, 1000, 0]


def test_division_by_request_with_what_is_left_over() -> None:
    assert divide(3000, [1000, 500], [4000, 4000]) == [2000, 1000]
    assert divide(3000, [3000, 1000], [2000, 2000]) == [2000, 1000]  # 2250 and 750: 250 go over
    assert divide(9000, [3000, 1000], [2000, 2000]) == [2000, 2000]
    assert divide(500, [0, 0], [2000, 1000]) == [2000, 1000]
    # The example of the kernel's patch that rounds this: 759 mW to spare, 395 and 365 mW lacking.
    assert divide(2999, [1759, 605, 635], [1000, 1000, 1000]) == [1000, 999, 1000]


def test_the_fastest_point_within_the_grant() -> None:
    power = (400, 300, 200, 100)
    assert [state_within(g, 1024, power, 3) for g in (500, 400, 399, 300, 199, 100, 10)] == [0, 0, 1, 1, 3, 3, 3]
    assert state_within(150, 512, power, 3) == 1  # at half load, 300 mW at full load
    assert state_within(10, 1024, power, 1) == 1  # no deeper than the cooling map allows
    assert state_within(0, 0, power, 3) == 3


def test_a_zone_poll_by_poll(toys: SimpleNamespace) -> None:
    """Control at 80 °C from 60 °C on, 0.6 W to share; the CPU works all the time, the GPU half of it, the NPU not."""
    soc = with_trips(toys.soc(), trip(80.0, budget=watts(sustainable_w=0.6)), trip(60.0))
    g = Governors.of(soc, (0, 1, 2), [[1000, 700, 400, 100]] * 3)
    zone = g.zones[0]
    assert zone.lowest_mc == 60_000
    log = []
    for t in (59.0, 70.0, 80.0, 85.0, 60.0, 59.5, 58.9):
        g.actors.advance(0.1, np.array([1.0, 0.5, 0.0]))
        events = g.poll(zone, t)
        g.actors.at = list(g.states)
        log.append((t, tuple(g.states), *(e.trip_c for e in events)))
    assert log == [
        (59.0, (0, 0, 0)),
        (70.0, (1, 1, 3), 60.0),  # 600 + 585 mW (k_pu 61, not 61.44) in 2:1: 796 mW, and 398 at half load
        (80.0, (2, 2, 3), 80.0),  # 700 mW and 350 mW asked for, 600 to share: 400 and 200, which is 400 at half load
        (85.0, (3, 3, 3)),  # 600 - 147 - 29 mW: 283 and 141
        (60.0, (0, 0, 0), 80.0),  # 600 + 1191 - 29 mW in 2:1, but 1 W at most: the rest goes on, and some of it to the NPU
        (59.5, (0, 0, 0)),  # off, though the trip clears at 59 only
        (58.9, (0, 0, 0), 60.0),
    ]
    assert zone.quiet


def run(toys: SimpleNamespace, path: str, control_c: float, **options: Any) -> Simulation:
    """A phone a fiftieth as heavy, controlled at its package."""
    budget = watts(sustainable_w=options.pop("sustainable_w", 1.5))
    soc = with_trips(toys.soc(scale=0.02), trip(control_c - 5, polling_s=0.02), trip(control_c, polling_s=0.02, budget=budget))
    settings: dict[str, Any] = {"duration_s": 3.0, **options}
    return simulate(toys.table(OPS, sync_s=30e-6, launch_s=50e-6), soc, [0, 1, 2], toys.on(0, 1, 2), path=path, **settings)


@pytest.mark.parametrize("control_c", [36.0, 38.0, 40.0])
def test_it_holds_the_control_temperature(toys: SimpleNamespace, control_c: float) -> None:
    free = run(toys, "multirate", 200.0, duration_s=60.0)
    s = run(toys, "multirate", control_c, duration_s=60.0)
    assert free.final_temperatures_c["package"] > control_c + 3
    package = s.trace.counters["temperature/package"]
    settled = [v for t, v in zip(package.times_s, package.values, strict=True) if t > 20.0]
    assert max(settled) < control_c + 1.5
    assert min(settled) > control_c - 1.5
    assert s.inferences < free.inferences


@pytest.mark.parametrize("control_c", [33.0, 34.0, 36.0])
def test_both_paths_agree(toys: SimpleNamespace, control_c: float) -> None:
    full, fast = run(toys, "full", control_c), run(toys, "multirate", control_c)
    assert full.throttling.happened
    assert fast.throttling.first_s == pytest.approx(full.throttling.first_s, abs=0.041)
    assert fast.inferences == pytest.approx(full.inferences, rel=0.04)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.02)
    for node, c in full.final_temperatures_c.items():
        assert fast.final_temperatures_c[node] == pytest.approx(c, abs=1.0)
    for s in (full, fast):
        total = s.trace.counters["power/total"]
        assert float(np.diff(total.times_s) @ np.array(total.values[:-1])) == pytest.approx(s.energy.total, rel=1e-9)


def test_two_governors_on_one_node_and_the_deepest_wins(toys: SimpleNamespace) -> None:
    soc = with_trips(toys.soc(), trip(60.0), trip(50.0), trip(55.0, governor="step_wise"))
    g = Governors.of(soc, (0, 1, 2), [[1000, 700, 400, 100]] * 3)
    assert [z.lowest_mc for z in g.zones] == [50_000, 55_000]
    g.actors.advance(0.1, np.array([1.0, 1.0, 1.0]))
    g.poll(g.zones[1], 56.0)
    assert g.states == [1, 1, 1]
    g.poll(g.zones[0], 70.0)
    assert g.states == [3, 3, 3]


def test_a_single_trip_always_controls(toys: SimpleNamespace) -> None:
    soc = with_trips(toys.soc(), trip(60.0, budget=watts(sustainable_w=1.0)))
    g = Governors.of(soc, (0, 1, 2), [[1000, 700, 400, 100]] * 3)
    g.actors.advance(0.1, np.array([1.0, 1.0, 1.0]))
    g.poll(g.zones[0], 45.0)  # k_pu = 2 * 1000 mW / 60 K: 1500 mW for three
    assert g.states == [2, 2, 2]
    assert not g.zones[0].quiet


def test_budgets_in_the_wrong_place(toys: SimpleNamespace) -> None:
    with pytest.raises(ValidationError, match="has a budget, which only governor: power_allocator and vendor_pid divide"):
        trip(60.0, governor="step_wise", budget={})
    soc = with_trips(toys.soc(), trip(60.0), trip(50.0, budget=watts(sustainable_w=1.0)))
    with pytest.raises(SoCError, match="the budget of power_allocator on 'package' belongs to its hottest trip"):
        Governors.of(soc, (0, 1, 2), [[100, 50]] * 3)


def test_weights_shift_the_shares(toys: SimpleNamespace) -> None:
    budget = {**watts(sustainable_w=1.2), "weights": {"npu": figure(4.0)}}
    g = Governors.of(with_trips(toys.soc(), trip(50.0), trip(60.0, budget=budget)), (0, 1, 2), [[1000, 700, 400, 100]] * 3)
    g.actors.advance(0.1, np.array([1.0, 1.0, 1.0]))
    g.poll(g.zones[0], 60.0)  # 1:1:4 of 1200 mW: 200, 200, 800
    assert g.states == [3, 3, 1]


def test_figures_of_a_budget_have_their_units() -> None:
    assert quantity("thermal.trips.4.budget.k_po_w_per_k", 0.4) == "0.4 W/K"
    assert quantity("thermal.trips.4.budget.k_d_ws_per_k", 0.4) == "0.4 W s/K"
    with pytest.raises(ValidationError, match="k_i_w_per_k"):
        PowerBudget.model_validate(watts(k_i_w_per_k=2e6))


def test_it_throttles_what_schedutil_asks_for_alike_in_both_paths(toys: SimpleNamespace) -> None:
    full, fast = (run(toys, path, 33.0, governor="schedutil", period_s=0.012) for path in ("full", "multirate"))
    assert fast.inferences == pytest.approx(full.inferences, rel=0.04)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.03)
    assert fast.final_temperatures_c["package"] == pytest.approx(full.final_temperatures_c["package"], abs=0.5)
