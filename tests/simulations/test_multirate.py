"""The fast path of long runs against the full one; determinism; what a long trace holds."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetsched.errors import OptionError
from hetsched_simulations import Simulation, simulate

OPS = [
    {"compute": 2e-3, "bytes": 20e6},
    {"compute": 3e-3, "bytes": 10e6, "reads": [0]},
    {"compute": 2e-3, "bytes": 40e6, "reads": [0], "overhead": 20e-6},
    {"compute": 1e-3, "bytes": 5e6, "reads": [1, 2]},
]


def run(toys: SimpleNamespace, path: str, trip_c: float, skin: bool = False, **options: Any) -> Simulation:
    """Two seconds on a phone a fiftieth as heavy, so that it heats up and throttles within them."""
    table = toys.table(OPS, sync_s=30e-6, launch_s=50e-6, transfer=(20e-6, 10e-6, 1e6))
    soc = toys.soc(trip_c=trip_c, polling_s=0.01, scale=0.02, skin=skin)
    settings: dict[str, Any] = {"duration_s": 2.0, **options}
    return simulate(table, soc, [0, 1, 2, 3], toys.on(0, 1, 2, 2), path=path, **settings)


@pytest.mark.parametrize(
    ("trip_c", "skin", "tolerance"),
    [(31.0, True, 0.02), (34.0, True, 0.02), (33.0, False, 0.07), (34.0, False, 0.07), (38.0, False, 0.07)],
)
def test_the_fast_path_agrees_with_the_full_one(toys: SimpleNamespace, trip_c: float, skin: bool, tolerance: float) -> None:
    """A skin trip sees means over many inferences; a junction trip also sees the ripple within one, which the fast path lacks."""
    full, fast = run(toys, "full", trip_c, skin), run(toys, "multirate", trip_c, skin)
    assert full.path == "full"
    assert fast.path == "multirate"
    assert full.throttling.happened
    assert fast.throttling.first_s == pytest.approx(full.throttling.first_s, abs=0.021)
    assert fast.first_s == pytest.approx(full.first_s, rel=1e-9)
    assert fast.inferences == pytest.approx(full.inferences, rel=tolerance)
    assert fast.latencies_s.mean() == pytest.approx(full.latencies_s.mean(), rel=tolerance)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.02)
    assert fast.bytes_moved == pytest.approx(full.bytes_moved, rel=tolerance)
    for node, c in full.final_temperatures_c.items():
        assert fast.final_temperatures_c[node] == pytest.approx(c, abs=1.0)
    for name, hz in full.throttling.mean_hz.items():
        assert fast.throttling.mean_hz[name] == pytest.approx(hz, rel=tolerance)


@pytest.mark.parametrize("skin", [True, False])
def test_the_fast_path_is_right_on_average_where_single_runs_lock_differently(toys: SimpleNamespace, skin: bool) -> None:
    """Near some trips the governor's cycle locks one poll apart, and the two paths part by up to a tenth; there is no trend."""
    ratios = []
    for trip_c in (30.0, 31.5, 32.0, 32.5, 33.5, 36.0):
        full, fast = run(toys, "full", trip_c, skin), run(toys, "multirate", trip_c, skin)
        ratios.append(fast.inferences / full.inferences)
        assert fast.energy.total == pytest.approx(full.energy.total, rel=0.06)
    assert max(abs(r - 1.0) for r in ratios) < 0.1
    assert float(np.mean(ratios)) == pytest.approx(1.0, abs=0.04)


def test_without_throttling_both_paths_are_the_same(toys: SimpleNamespace) -> None:
    full, fast = run(toys, "full", 120.0), run(toys, "multirate", 120.0)
    assert not full.throttling.happened
    assert fast.states == 1
    assert fast.latencies_s == pytest.approx(full.latencies_s, rel=1e-9)
    assert fast.bytes_moved == pytest.approx(full.bytes_moved, rel=0.02)
    for node, c in full.final_temperatures_c.items():
        assert fast.final_temperatures_c[node] == pytest.approx(c, abs=0.2)


def test_a_period_leaves_the_device_idle_in_both_paths(toys: SimpleNamespace) -> None:
    full, fast = run(toys, "full", 120.0, period_s=0.02), run(toys, "multirate", 120.0, period_s=0.02)
    assert full.inferences == fast.inferences == 100
    assert fast.latencies_s == pytest.approx(full.latencies_s, rel=1e-9)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.01)


def test_iterations_without_a_duration(toys: SimpleNamespace) -> None:
    table, soc = toys.table(OPS), toys.soc()
    for path in ("full", "multirate"):
        s = simulate(table, soc, [0, 1, 2, 3], toys.on(0, 1, 2, 2), iterations=37, path=path)
        assert s.inferences == 37
        assert s.duration_s == pytest.approx(37 * s.first_s, rel=1e-9)


def test_ten_minutes_hold_what_a_reader_needs(toys: SimpleNamespace) -> None:
    table = toys.table(OPS, sync_s=30e-6, launch_s=50e-6)
    s = simulate(table, toys.soc(trip_c=45.0, polling_s=0.05), [0, 1, 2, 3], toys.on(0, 1, 2, 2), duration_s=600.0)
    trace = s.trace
    assert s.path == "multirate"
    assert s.duration_s == pytest.approx(600.0)
    assert trace.end_s == pytest.approx(600.0)
    names = {"temperature/case", "frequency/npu", "power/npu", "power/dram", "power/base", "power/total", "bandwidth/dram"}
    assert names | {"utilisation/gpu", "latency/inference"} <= set(trace.counters)
    assert all(len(c.values) <= 2010 for c in trace.counters.values())
    assert all(np.all(np.diff(c.times_s) > 0) for c in trace.counters.values())
    assert max(trace.counters["temperature/npu"].values) == pytest.approx(s.peak_temperatures_c["npu"], rel=1e-12)
    assert min(trace.counters["frequency/npu"].values) == s.throttling.lowest_hz["npu"]
    kinds = {i.kind for i in trace.instants}
    assert kinds == {"fence", "trip", "throttle"}
    assert sum(i.kind in ("trip", "throttle") for i in trace.instants) <= 1001
    iterations = {x.iteration for x in trace.spans}
    assert 0 in iterations
    assert 1 < len(iterations) <= 64
    assert {x.kind for x in trace.spans} >= {"op", "segment", "launch", "wait"}
    assert s.last_s > s.first_s
    assert s.throttling.first_s is not None
    first_trip = next(i for i in trace.instants if i.kind == "trip")
    assert first_trip.time_s <= s.throttling.first_s


def test_spans_of_one_inference_do_not_overlap_on_a_queue(toys: SimpleNamespace) -> None:
    s = run(toys, "multirate", 34.0)
    for queue in s.trace.queues:
        spans = sorted((x.start_s, x.end_s) for x in s.trace.spans if x.queue == queue and x.kind == "segment")
        assert all(b[0] >= a[1] - 1e-9 for a, b in itertools.pairwise(spans))


def test_the_same_input_gives_the_same_run(toys: SimpleNamespace) -> None:
    a, b = run(toys, "multirate", 34.0), run(toys, "multirate", 34.0)
    assert a.latencies_s.tolist() == b.latencies_s.tolist()
    assert a.trace == b.trace
    assert a.energy == b.energy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"duration_s": 0.0}, "a duration of 0 s"),
        ({"iterations": 0}, "0 iterations"),
        ({"period_s": 0.0}, "an arrival period of 0 s"),
        ({"path": "slow"}, "the simulation path 'slow' does not exist"),
        ({"ambient_c": 400.0}, "an ambient temperature of 400 °C"),
        ({"governor": "turbo"}, "the DVFS governor 'turbo' does not exist"),
        ({"duration_s": 1e-6}, "no inference finishes within 1e-06 s"),
    ],
)
def test_arguments_that_make_no_sense(toys: SimpleNamespace, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        simulate(toys.table(OPS), toys.soc(), [0, 1, 2, 3], toys.on(0, 1, 2, 2), **options)


def test_progress_rises_to_one(toys: SimpleNamespace) -> None:
    for path in ("full", "multirate"):
        seen: list[float] = []
        run(toys, path, 60.0, progress=seen.append)
        assert len(seen) > 10
        assert seen == sorted(seen)
        assert seen[-1] == 1.0
