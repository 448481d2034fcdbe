"""Several models for minutes: the pattern of arrivals, both paths, priorities once it is warm."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hetsched_simulations.conditions import Conditions
from hetsched_simulations.patterns import period_of
from hetsched_simulations.shared_run import SharedSimulation, simulate_streams
from hetsched_simulations.streams import Stream
from hetsched_simulations.workload import commands_of


def streams(toys: SimpleNamespace, busy_s: float = 12e-3) -> list[Stream]:
    """A fast one on the NPU and then the CPU, and one that keeps the CPU busy, which it may not delay."""
    fast = toys.table([{"compute": [6e-3, 6e-3, 5e-3], "bytes": 1e6}, {"reads": (0,), "compute": 3e-3, "bytes": 1e6}])
    slow = toys.table([{"compute": busy_s, "bytes": 4e6}])
    return [
        Stream("fast", commands_of(fast, [0, 1], toys.on(2, 0)), 1 / 30, 1 / 30, 0),
        Stream("slow", commands_of(slow, [0], toys.on(0)), 1 / 45, 1 / 45, 1),
    ]


def run(toys: SimpleNamespace, path: str, duration_s: float, busy_s: float = 12e-3) -> SharedSimulation:
    table = toys.table([{"compute": 1e-3}])
    soc = toys.soc(trip_c=50.0, polling_s=0.5, scale=0.05)
    made = streams(toys, busy_s)
    return simulate_streams(table, soc, made, Conditions(ambient_c=30.0), duration_s=duration_s, path=path)  # type: ignore[arg-type]


def test_the_pattern_repeats_with_the_arrivals(toys: SimpleNamespace) -> None:
    assert period_of(streams(toys)) == pytest.approx(10 / 15)  # five arrivals each, ten times
    odd = [Stream("a", (), 1 / 29.97, 1.0), Stream("b", (), 1 / 7, 1.0)]
    assert period_of(odd) == pytest.approx(20 / 7)


def test_both_paths_agree(toys: SimpleNamespace) -> None:
    """Energy, what finished and what was missed, and peak temperatures, while the governor slows the CPU."""
    full, fast = (run(toys, path, 20.0) for path in ("full", "multirate"))
    assert full.device.throttling.happened
    assert (full.device.path, fast.device.path) == ("full", "multirate")
    assert fast.device.energy.total == pytest.approx(full.device.energy.total, rel=1e-2)
    for node, hottest in full.device.peak_temperatures_c.items():
        assert fast.device.peak_temperatures_c[node] == pytest.approx(hottest, abs=1.1), node
    for a, b, s in zip(fast.streams, full.streams, streams(toys), strict=True):
        assert (a.arrived, b.arrived) == (pytest.approx(20 / s.period_s, abs=1),) * 2
        assert a.missed == pytest.approx(b.missed, abs=0.03)


def test_heat_makes_the_less_urgent_one_late(toys: SimpleNamespace) -> None:
    """Cool, both keep up; at the clocks of the trip the CPU has too much to do, and the other one pays first."""
    cool, warm = run(toys, "full", 0.5), run(toys, "multirate", 60.0)
    assert [o.missed for o in cool.streams] == [0.0, 0.0]
    assert warm.streams[0].missed < 0.5 * warm.streams[1].missed
    assert warm.device.states > 1
