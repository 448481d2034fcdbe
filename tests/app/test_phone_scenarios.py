"""Cases, battery, charging and loads through the verb: what is read, what comes back, in JSON and in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.app.scenario import Scenario
from hetsched.app.simulating import Simulated
from hetsched.cli import show_simulation
from hetsched.errors import OptionError


def simulated(model: Path, **scenario: Any) -> Simulated:
    found = hetsched.simulate(model, "tensor-g3", dims={"width": 16}, duration_s=20.0, **scenario)
    assert isinstance(found, Simulated)
    return found


def test_loads_are_watts_or_the_brightness_of_a_display() -> None:
    said = Scenario.of({"loads": "display=400nit, modem=0.3", "battery": 0.35, "charging": 18, "case": "pocket"})
    assert said.loads == pytest.approx({"display": 0.38 + 0.0018 * 400, "modem": 0.3})
    assert said == Scenario.of({"loads": {"display": "400 nits", "modem": 0.3}, "battery": 0.35, "charging_w": 18.0, "case": "pocket"})
    assert Scenario.of({}).loads == {}
    assert Scenario.of({}).battery is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loads": "modem=300nit"}, "only the display's load is told in nits"),
        ({"loads": "modem"}, "loads.modem"),
        ({"loads": "modem=-1"}, "it must be at least 0"),
        ({"charging": 18}, "charging needs a state of charge to begin with: give the battery"),
        ({"battery": 35}, "battery = 35: it must be at most 1"),
    ],
)
def test_what_makes_no_sense_is_said(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Scenario.of(values)


def test_a_table_without_a_battery_is_as_before(two_branch: Path) -> None:
    s = simulated(two_branch).summary()
    assert s["case"] == {"name": "table", "seen_c": 25.0, "cooling": 1.0}
    assert s["battery"] is None
    assert set(s["final_temperatures_c"]) == {"cpu", "gpu", "npu", "soc", "case"}


def test_a_pocket_with_a_bright_display(two_branch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = simulated(two_branch, case="pocket", battery=0.5, loads="display=400nit")
    s, bare = run.summary(), simulated(two_branch).summary()
    assert s["case"]["name"] == "pocket"
    assert s["case"]["seen_c"] > 25.0
    assert s["energy_j"]["load/display"] == pytest.approx(1.1 * 20.0)
    assert s["average_power_w"] == pytest.approx(bare["average_power_w"] + 1.1, rel=0.05)
    assert s["battery"]["start_percent"] == 50.0
    assert s["battery"]["used_percent"] == pytest.approx(100 * s["average_power_w"] * 20.0 / 3600 / 17.5, rel=0.1)
    assert run.trace.counters["battery/charge"].values[-1] == pytest.approx(s["battery"]["end_percent"] / 100)
    show_simulation.simulation(run, None)
    out = " ".join(capsys.readouterr().out.split())
    assert "(pocket: as at 31.4 °C, heat leaves 0.68 x as well as on a table)" in out
    assert "; display 22 J" in out
    assert "battery: 50.0 -> 49.6 % of 17.5 Wh, empty in" in out


def test_charging(two_branch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = simulated(two_branch, battery=0.5, charging_w=18.0)
    b = run.summary()["battery"]
    assert b["used_percent"] < 0.0
    assert b["time_to_empty_s"] is None
    assert b["input_j"] == pytest.approx(18.0 * 20.0, rel=0.01)
    show_simulation.simulation(run, None)
    assert "over the cable" in capsys.readouterr().out


def test_no_phone_no_pocket(two_branch: Path) -> None:
    with pytest.raises(OptionError, match="is no phone: leave --case pocket out"):
        hetsched.simulate(two_branch, "snapdragon-x-elite", dims={"width": 16}, duration_s=2.0, case="pocket")
