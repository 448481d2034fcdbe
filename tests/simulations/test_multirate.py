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


@pytest.mark.parametrize(("trip_c", "skin"), [(31.0, True), (34.0, True), (30.0, False), (33.0, False), (34.0, False), (38.0, False)])
def test_the_fast_path_agrees_with_the_full_one(toys: SimpleNamespace, trip_c: float, skin: bool) -> None:
    """The same temperatures at the same polls, ripple within an inference included, so the governors do the same."""
    full, fast = run(toys, "full", trip_c, skin), run(toys, "multirate", trip_c, skin)
    assert (full.path, fast.path) == ("full", "multirate")
    assert full.throttling.happened
    assert fast.throttling.first_s == pytest.approx(full.throttling.first_s, abs=0.01 + 1e-9)
    assert fast.first_s == pytest.approx(full.first_s, rel=1e-9)
    check_agreement(fast, full)
    for name, hz in full.throttling.mean_hz.items():
        assert fast.throttling.mean_hz[name] == pytest.approx(hz, rel=0.005)


def check_agreement(fast: Simulation, full: Simulation) -> None:
    assert fast.inferences == pytest.approx(full.inferences, rel=0.005, abs=1)
    assert fast.latencies_s.mean() == pytest.approx(full.latencies_s.mean(), rel=0.005)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.005)
    assert fast.bytes_moved == pytest.approx(full.bytes_moved, rel=0.005)
    for node, c in full.peak_temperatures_c.items():
        assert fast.peak_temperatures_c[node] == pytest.approx(c, rel=0.005)
        assert fast.final_temperatures_c[node] == pytest.approx(full.final_temperatures_c[node], abs=0.3)


def test_clocks_that_change_many_times_within_an_inference(toys: SimpleNamespace) -> None:
    """Inferences of 50 ms and more, a governor that acts every 10 ms, frames that leave the phone idle in between."""
    long = [{k: 10 * v if k in ("compute", "bytes") else v for k, v in op.items()} for op in OPS]
    table = toys.table(long, sync_s=30e-6, launch_s=50e-6, transfer=(20e-6, 10e-6, 1e6))
    soc = toys.soc(trip_c=40.0, polling_s=0.01, scale=0.05)
    settings: dict[str, Any] = {"duration_s": 8.0, "period_s": 0.1}
    full, fast = (simulate(table, soc, [0, 1, 2, 3], toys.on(0, 1, 2, 2), path=path, **settings) for path in ("full", "multirate"))
    assert full.throttling.steps > 50
    assert fast.throttling.first_s == pytest.approx(full.throttling.first_s, abs=0.01 + 1e-9)
    assert fast.inferences == pytest.approx(full.inferences, rel=0.01, abs=1)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.005)
    for node, c in full.peak_temperatures_c.items():
        assert fast.peak_temperatures_c[node] == pytest.approx(c, rel=0.005)


def test_the_hottest_moment_is_that_within_an_inference(toys: SimpleNamespace) -> None:
    """Every step ends at some point of the ripple; peaks are the ripple's, and the trace has them at their time."""
    full, fast = run(toys, "full", 200.0), run(toys, "multirate", 200.0)
    for node, c in full.peak_temperatures_c.items():
        assert fast.peak_temperatures_c[node] == pytest.approx(c, abs=0.06)
    counter = fast.trace.counters["temperature/gpu"]
    assert max(counter.values) == fast.peak_temperatures_c["gpu"]
    assert all(np.diff(counter.times_s) > 0)


def test_without_throttling_both_paths_are_the_same(toys: SimpleNamespace) -> None:
    full, fast = run(toys, "full", 120.0), run(toys, "multirate", 120.0)
    assert not full.throttling.happened
    assert fast.states == 1
    assert fast.latencies_s == pytest.approx(full.latencies_s, rel=1e-9)
    check_agreement(fast, full)


def test_a_period_leaves_the_device_idle_in_both_paths(toys: SimpleNamespace) -> None:
    full, fast = run(toys, "full", 120.0, period_s=0.02), run(toys, "multirate", 120.0, period_s=0.02)
    assert full.inferences == fast.inferences == 100
    assert fast.latencies_s == pytest.approx(full.latencies_s, rel=1e-9)
    check_agreement(fast, full)


def test_iterations_without_a_duration(toys: SimpleNamespace) -> None:
    table, soc = toys.table(OPS), toys.soc()
    for path in ("full", "multirate"):
        s = simulate(table, soc, [0, 1, 2, 3], toys.on(0, 1, 2, 2), iterations=37, path=path)
        assert s.inferences == 37
        assert s.duration_s == pytest.approx(37 * s.first_s, rel=1e-9)


def test_ten_minutes_hold_what_a_reader_needs(toys: SimpleNamespace) -> None:
    table = toys.table(OPS, sync_s=30e-6, launch_s=50e-6)
    s = simulate(table, toys.soc(trip_c=45.0, polling_s=0.25), [0, 1, 2, 3], toys.on(0, 1, 2, 2), duration_s=600.0)
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
