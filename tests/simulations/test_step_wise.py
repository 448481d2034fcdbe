"""The step_wise governor, poll by poll, against the kernel's rules worked by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hetsched.errors import SoCError
from hetsched_simulations.governors import Governors

POWER_MW = [[400, 300, 200, 100]] * 3


def governor(toys: SimpleNamespace, trip_c: float = 60.0) -> Governors:
    return Governors.of(toys.soc(trip_c=trip_c), (0, 1, 2), POWER_MW)


def test_one_state_a_poll_up_and_down_with_hysteresis(toys: SimpleNamespace) -> None:
    g = governor(toys)
    npu = g.zones[2]
    log = []
    for temperature in (58, 61, 62, 62, 61, 63, 64, 65, 59.5, 59.2, 58.9, 58.8, 58.9, 58, 57, 56):
        events = g.poll(npu, temperature)
        log.append((temperature, g.states[2], *(e.fired for e in events)))
    assert log == [
        (58, 0),
        (61, 1, True),  # raising, over the trip: fired
        (62, 2),
        (62, 2),  # stable: keep
        (61, 2),  # dropping but over the trip: keep
        (63, 3),
        (64, 3),  # the last state
        (65, 3),
        (59.5, 3),  # under the trip, over the trip less its hysteresis: still throttling
        (59.2, 3),
        (58.9, 2, False),  # cleared, dropping: one state back
        (58.8, 1),
        (58.9, 1),  # not throttling, raising: keep
        (58, 0),
        (57, 0),
        (56, 0),
    ]
    assert g.states == [0, 0, 0]
    assert npu.quiet


def test_first_poll_over_the_trip_throttles_at_once(toys: SimpleNamespace) -> None:
    g = governor(toys)
    g.poll(g.zones[0], 70.0)
    assert g.states == [1, 0, 0]
    assert not g.zones[0].quiet


def test_temperatures_count_in_millidegrees(toys: SimpleNamespace) -> None:
    g = governor(toys)
    g.poll(g.zones[0], 59.0)
    g.poll(g.zones[0], 59.9994)
    assert g.states[0] == 0
    g.poll(g.zones[0], 59.9996)
    assert g.states[0] == 1
    g.poll(g.zones[0], 60.0003)  # the same millidegree: stable
    assert g.states[0] == 1


def test_the_deepest_request_wins(toys: SimpleNamespace) -> None:
    """Two zones cool the same device; the one that lets go does not undo the other."""
    soc = toys.soc()
    case = soc.thermal.trips[0].model_copy(update={"node": "case", "processors": ("cpu", "npu")})
    thermal = soc.thermal.model_copy(update={"trips": (*soc.thermal.trips, case)})
    g = Governors.of(soc.model_copy(update={"thermal": thermal}), (0, 1, 2), POWER_MW)
    cpu, skin = g.zones[0], g.zones[3]
    for t in (50, 61, 62):
        g.poll(cpu, t)
    assert g.states == [2, 0, 0]
    g.poll(skin, 50)
    g.poll(skin, 61)  # one deeper than the device's current state, and the npu's first
    assert g.states == [3, 0, 1]
    for t in (50, 49, 48, 47):
        g.poll(cpu, t)  # wants one less than the current state, 2, every time
    assert g.states == [3, 0, 1]
    log = []
    for zone, t in ((skin, 58), (skin, 57), (skin, 56), (cpu, 46), (cpu, 45), (skin, 55), (skin, 54), (cpu, 44)):
        g.poll(zone, t)
        log.append(tuple(g.states))
    assert log == [(2, 0, 0), (2, 0, 0), (2, 0, 0), (1, 0, 0), (1, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)]
    assert cpu.quiet
    assert skin.quiet


def test_polls_lie_on_a_grid(toys: SimpleNamespace) -> None:
    zone = governor(toys).zones[0]
    times, now = [], 0.0
    for _ in range(50):
        now = zone.next_poll(now)
        times.append(now)
    assert times == pytest.approx([0.1 * k for k in range(1, 51)], rel=1e-12)
    assert zone.next_poll(0.31) == pytest.approx(0.4)


def test_a_trip_must_cool_something_real(toys: SimpleNamespace) -> None:
    soc = toys.soc()
    bad = soc.thermal.trips[0].model_copy(update={"processors": ("dsp",)})
    soc = soc.model_copy(update={"thermal": soc.thermal.model_copy(update={"trips": (bad,)})})
    with pytest.raises(SoCError, match="at 60 °C on 'cpu' cools 'dsp', which is not a processor"):
        Governors.of(soc, (0, 1, 2), POWER_MW)


def test_a_cooling_map_bounds_how_deep_a_trip_goes(toys: SimpleNamespace) -> None:
    """A mild trip may ask for a third of the states, a hot one for all; the deepest request still wins."""
    soc = toys.soc()
    mild = soc.thermal.trips[0].model_copy(update={"upper": 1 / 3})
    hot = soc.thermal.trips[0].model_copy(update={"temperature_c": type(mild.temperature_c)(value=65.0, estimated="test")})
    thermal = soc.thermal.model_copy(update={"trips": (mild, hot)})
    g = Governors.of(soc.model_copy(update={"thermal": thermal}), (0, 1, 2), POWER_MW)
    log = []
    for t in (59, 61, 62, 64, 66, 67, 68, 63.5, 63, 62, 58, 57):
        g.poll(g.zones[0], t)
        log.append((t, g.states[0]))
    assert log == [(59, 0), (61, 1), (62, 1), (64, 1), (66, 2), (67, 3), (68, 3), (63.5, 2), (63, 1), (62, 1), (58, 0), (57, 0)]
