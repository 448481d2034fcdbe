"""The battery: currents and losses by hand, charging in steps, conservation on both paths, what heat does to charging."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from hetsched.errors import OptionError, SoCError
from hetsched.soc_battery import Battery
from hetsched.soc_files import load_soc
from hetsched.soc_thermal import Sensor
from hetsched.socs import SoC
from hetsched_simulations import Simulation, simulate
from hetsched_simulations.battery import Store, battery_of, display_w
from hetsched_simulations.supply import Supply

OPS = [{"compute": 2e-3, "bytes": 20e6}]


def figure(value: float) -> dict[str, Any]:
    return {"value": value, "estimated": "test"}


def cell(capacity_wh: float = 10.0, v: tuple[float, float] = (4.0, 4.0), ohm: float = 0.1, **more: Any) -> Battery:
    """A battery whose voltage goes straight from empty to full."""
    curve = {"charge": [0.0, 1.0], "v": list(v), "estimated": "test"}
    steps = [{"c_rate": figure(1.0), "until_v": figure(4.3)}, {"c_rate": figure(0.5), "until_v": figure(4.4)}]
    return Battery.model_validate({
        "capacity_wh": figure(capacity_wh), "open_circuit_v": curve, "resistance_ohm": figure(ohm), "charge": steps,
        "charger_efficiency": figure(0.9), **more,
    })  # fmt: skip


def powered(soc: SoC, battery: Battery) -> SoC:
    return soc.model_copy(update={"battery": battery})


def test_what_leaves_the_battery_by_hand() -> None:
    """4 V behind 0.1 ohm: 3.9 W take 1 A, which costs 0.1 W; 10 Wh last 9000 s."""
    store = Store(cell(), 1.0)
    flow = store.flow(3.9)
    assert flow == pytest.approx((4.0, 0.1, 0.0, 0.0))
    assert store.lasts_s(flow) == pytest.approx(9000.0)
    store.pass_time(flow, 900.0)
    assert store.charge == pytest.approx(0.9)
    with pytest.raises(SoCError, match=r"the battery cannot give 41 W: at 4 V and 0\.1 ohm it gives 40 W at most"):
        store.flow(41.0)


def test_what_the_cable_brings_by_hand() -> None:
    """9 W after a loss of a tenth; 4 W for the phone; 5 W into 4 V: I = 1.2132 A, R I^2 = 0.147 W."""
    store = Store(cell(), 0.5, charging_w=10.0)
    flow = store.flow(4.0)
    amperes = (-4.0 + np.sqrt(16.0 + 4 * 0.1 * 5.0)) / 0.2
    assert flow == pytest.approx((-4.0 * amperes, 0.1 * amperes**2, 10.0, 1.0))
    weak = store.flow(9.0 + 3.9)
    assert weak == pytest.approx((4.0, 0.1, 10.0, 1.0))  # the battery helps with 1 A
    store.limit_w = 0.0
    assert store.flow(4.0) == pytest.approx((0.0, 0.0, 4.0 / 0.9, 0.4 / 0.9))


def test_constant_current_then_constant_voltage() -> None:
    """10 Wh at 4 V are 2.5 Ah. 1 C until 4.3 V (reached at 4.05 V and 2.5 A), 0.5 C until 4.4 V (at 4.275 V), then what 4.4 V push."""
    battery = cell(v=(3.6, 4.4))
    currents = []
    for open_v in (3.7, 4.04, 4.10, 4.20, 4.27, 4.30, 4.40):
        store = Store(battery, (open_v - 3.6) / 0.8, charging_w=100.0)
        currents.append(-store.flow(0.0).store_w / open_v)
    assert currents == pytest.approx([2.5, 2.5, 2.0, 1.25, 1.25, 1.0, 0.0], abs=1e-9)


def test_the_default_battery_charges_as_the_phone_that_it_is_modelled_on() -> None:
    """The Pixel 9's own table, google,ttf-soc-table: 32 s a percent up to 71 %, 50 up to 80, 80 up to 89; here within a fifth."""
    battery = battery_of(load_soc("tensor-g3"))
    assert battery is not None
    store, seconds, marks = Store(battery, 0.01, charging_w=27.0), 0, {}
    while store.charge < 0.89:
        store.pass_time(store.flow(0.0), 5.0)
        seconds += 5
        marks[round(100 * store.charge)] = seconds
    assert marks[70] / 69 == pytest.approx(32.0, rel=0.2)
    assert seconds == pytest.approx(70 * 32 + 9 * 50 + 9 * 80, rel=0.2)


def check(s: Simulation, charging_w: float = 0.0) -> None:
    """Nothing is lost between cable, battery, device and heat."""
    b = s.battery
    assert b is not None
    assert b.input_j + b.store_j == pytest.approx(s.energy.total + b.loss_j + b.conversion_j, rel=1e-9)
    assert (b.start - b.end) * b.capacity_wh * 3600.0 == pytest.approx(b.store_j, rel=1e-9, abs=1e-9 * b.capacity_wh)
    assert b.input_j <= charging_w * s.duration_s * (1 + 1e-9)
    for name, joules in (("power/battery", b.store_j), ("power/total", s.energy.total)):
        power = s.trace.counters[name]
        assert float(np.diff(power.times_s) @ np.array(power.values[:-1])) == pytest.approx(joules, rel=1e-9, abs=1e-9)
    assert s.trace.counters["battery/charge"].values[-1] == pytest.approx(b.end)


@pytest.mark.parametrize("path", ["full", "multirate"])
@pytest.mark.parametrize("charging_w", [0.0, 2.0, 7.0, 20.0])
def test_energy_is_conserved_with_a_battery(toys: SimpleNamespace, path: Any, charging_w: float) -> None:
    """Drawn = delivered + lost, while the governor steps and the charge moves by percents."""
    soc = powered(toys.soc(trip_c=34.0, scale=0.1), cell(capacity_wh=0.02, v=(3.6, 4.3), ohm=0.05))
    s = simulate(
        toys.table(OPS), soc, [0], toys.on(0), duration_s=4.0, path=path, battery=0.6, charging_w=charging_w, loads_w={"display": 0.8}
    )
    assert s.throttling.happened
    check(s, charging_w)
    assert s.energy.loads == pytest.approx({"display": 3.2})


def test_losses_heat_the_case(toys: SimpleNamespace) -> None:
    """0.5 A from 4 V through 0.4 ohm: 0.1 W more into the case, 0.45 K after long; charging adds what the charger loses."""
    soc = powered(toys.soc(scale=0.01), cell(ohm=0.4, capacity_wh=1000.0))
    table, kept = toys.table([{"compute": 1e-6}]), dict[str, Any](duration_s=100.0, period_s=1.0)
    dry = simulate(table, soc, [0], toys.on(0), **kept)
    wet = simulate(table, soc, [0], toys.on(0), battery=0.5, loads_w={"modem": 0.9}, **kept)
    more = {n: wet.final_temperatures_c[n] - dry.final_temperatures_c[n] for n in ("case", "package")}
    assert wet.battery is not None
    loss_w = wet.battery.loss_j / wet.duration_s
    assert loss_w == pytest.approx(0.4 * (1.9 / 4.0 / 0.95) ** 2, rel=0.01)
    assert more["case"] == pytest.approx(4.5 * (0.9 + loss_w), rel=1e-3)
    fed = simulate(table, soc, [0], toys.on(0), battery=0.5, charging_w=10.0, **kept)
    assert fed.battery is not None
    heat_w = (fed.battery.loss_j + fed.battery.conversion_j) / fed.duration_s
    assert fed.final_temperatures_c["case"] - dry.final_temperatures_c["case"] == pytest.approx(4.5 * heat_w, rel=1e-3)


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_the_run_ends_with_the_battery(toys: SimpleNamespace, path: Any) -> None:
    """5.4 W (4 dynamic, 0.4 leakage, 1 base) and no resistance empty 10.8 J in 2 s."""
    soc = powered(toys.soc(scale=100.0), cell(capacity_wh=0.03, ohm=0.0)).model_copy(update={"thermal": toys.soc().thermal})
    s = simulate(toys.table([{"compute": 2e-3}]), soc, [0], toys.on(0), duration_s=5.0, battery=0.1, path=path, thermal=False)
    assert s.battery is not None
    assert s.battery.empty_s == pytest.approx(2.0, rel=1e-6)
    assert s.duration_s == pytest.approx(2.0, rel=1e-6)
    assert s.battery.end == 0.0
    assert s.inferences in (999, 1000)
    assert s.battery.to_empty_s == 0.0
    assert [i.time_s for i in s.trace.instants if i.kind == "battery"] == pytest.approx([2.0], rel=1e-6)
    check(s)


def test_nothing_is_computed_after_the_battery_is_empty(toys: SimpleNamespace) -> None:
    """Of 100 s op by op, 2 s and at most a hundredth of the run."""
    ends: list[float] = []
    soc = powered(toys.soc(), cell(capacity_wh=0.003, ohm=0.0))
    table = toys.table([{"compute": 10e-3}])
    s = simulate(table, soc, [0], toys.on(0), duration_s=100.0, battery=1.0, thermal=False, path="full", progress=lambda v: ends.append(v))
    assert s.battery is not None and s.battery.empty_s == pytest.approx(2.0, rel=1e-2)
    assert max(e for e in ends if e < 1.0) <= 0.031


def test_what_is_left_by_rounding_does_not_last() -> None:
    """A charge too small to take any time at the time of the run: the battery is empty, not for ever about to be."""
    supply = Supply(load_soc("tensor-g3"), Store(cell(ohm=0.0), 1e-20))
    warm = np.full(5, 30.0)
    assert supply.feed(5.0, 1000.0, 1001.0, (warm, warm), None)[0] == 1000.0
    assert supply.empty_s == 1000.0


def hot(**fields: float) -> dict[str, Any]:
    budget = {"sustainable_w": figure(1.0), "k_po_w_per_k": figure(1.0), "k_pu_w_per_k": figure(1.0), "most_w": figure(6.0)}
    return {"node": "case", "from_c": figure(26.0), "control_c": figure(28.0), "hysteresis_k": figure(1.0), "polling_s": figure(0.5),
            "budget": budget}  # fmt: skip


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_heat_slows_charging(toys: SimpleNamespace, path: Any) -> None:
    """From 26 °C on the battery gets 1 W + 1 W/K below 28 °C; the case settles where that balances."""
    soc = powered(toys.soc(scale=0.004), cell(capacity_wh=100.0, ohm=0.02, hot=hot()))
    s = simulate(
        toys.table([{"compute": 1e-5}]), soc, [0], toys.on(0), duration_s=6.0, period_s=0.1, battery=0.3, charging_w=30.0, path=path
    )
    assert s.battery is not None
    check(s, 30.0)
    cable = s.trace.counters["power/cable"]
    assert max(cable.values) == pytest.approx(30.0)
    assert cable.values[-1] < 5.0
    assert s.throttling.trips == ()
    assert not s.throttling.happened
    assert any(i.kind == "trip" and i.name == "charging" for i in s.trace.instants)


def test_both_paths_agree_on_heat_and_charge(toys: SimpleNamespace) -> None:
    """In a pocket, on a cable, with a lagging skin sensor that slows charging and a trip that throttles."""
    skin = Sensor(name="skin", weights={"case": 0.7, "package": 0.3}, lag_s=0.5, skin=True, estimated="test")
    soc = toys.soc(scale=0.02, trip_c=52.0, polling_s=0.05)
    soc = soc.model_copy(update={"thermal": soc.thermal.model_copy(update={"sensors": (skin,)})})
    soc = powered(
        soc, cell(capacity_wh=1.0, v=(3.6, 4.3), ohm=0.05, hot={**hot(), "node": "skin", "from_c": figure(33), "control_c": figure(36)})
    )
    kept = dict[str, Any](duration_s=8.0, battery=0.4, charging_w=12.0, case="pocket", loads_w={"display": 1.0})
    full, fast = (simulate(toys.table(OPS), soc, [0], toys.on(0), path=p, **kept) for p in ("full", "multirate"))
    assert full.battery is not None
    assert fast.battery is not None
    assert fast.battery.end == pytest.approx(full.battery.end, abs=5e-4)
    assert fast.inferences == pytest.approx(full.inferences, rel=0.01)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.01)
    for node in ("skin", "case", "package"):
        assert fast.final_temperatures_c[node] == pytest.approx(full.final_temperatures_c[node], abs=0.3)


def test_policies_see_the_charge(toys: SimpleNamespace) -> None:
    from hetsched.plans import Switch
    from hetsched.policies import Observation
    from hetsched_simulations import LevelPlan, Levels

    seen: list[float] = []

    class Watch:
        period_s = 0.5

        def wanted(self, now: Observation) -> int:
            seen.append(now.battery)
            return 0

    soc, table = powered(toys.soc(), cell(capacity_wh=0.05)), toys.table([{"compute": 2e-3}])
    free = Switch(before=("inference", 0), after=("inference", 1), weight_bytes=0, pack_s=0.0, state_bytes=0, handover_s=0.0)
    levels = Levels(Watch(), {1: LevelPlan(table, [0], toys.on(1))}, lambda a, b: free, 0, 1.0)
    s = simulate(table, soc, [0], toys.on(0), duration_s=3.0, battery=0.5, levels=levels)
    assert s.battery is not None
    assert seen == sorted(seen, reverse=True)
    assert 0.5 > seen[0] > seen[-1] > s.battery.end


def test_who_has_a_battery(toys: SimpleNamespace) -> None:
    phone, board = load_soc("snapdragon-8-gen-3"), load_soc("qcs6490")
    assert battery_of(phone) is not None
    assert battery_of(board) is None
    apple = battery_of(load_soc("apple-a19-pro"))
    assert apple is not None
    assert float(apple.capacity_wh) == 16.5
    table = toys.table(OPS)
    assert simulate(table, toys.soc(), [0], toys.on(0), battery=0.5).battery is None
    with pytest.raises(OptionError, match="Test has no battery to charge: describe one in its file"):
        simulate(table, toys.soc(), [0], toys.on(0), battery=0.5, charging_w=5.0)
    with pytest.raises(OptionError, match="needs a state of charge to begin with"):
        simulate(table, powered(toys.soc(), cell()), [0], toys.on(0), charging_w=5.0)
    assert display_w(0.0) < display_w(400.0) == pytest.approx(0.38 + 0.72)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"open_circuit_v": {"charge": [0.0, 0.9], "v": [3.0, 4.0], "estimated": "x"}}, "from 0 to 1, ascending"),
        ({"open_circuit_v": {"charge": [0.0, 1.0], "v": [4.0, 3.0], "estimated": "x"}}, "must not fall"),
        ({"charge": [{"c_rate": figure(1), "until_v": figure(4.4)}, {"c_rate": figure(2), "until_v": figure(4.5)}]}, "rise in voltage"),
        ({"hot": {**hot(), "control_c": figure(20.0)}}, "must begin below"),
        ({"hot": {**hot(), "budget": {}}}, "needs sustainable_w"),
    ],
)
def test_wrong_batteries(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        cell(**change)
