"""The schedutil governor: its arithmetic by hand, then plans that leave processors idle, in both paths."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetsched.socs import SoC
from hetsched_simulations import Simulation, simulate
from hetsched_simulations.background import Background
from hetsched_simulations.conditions import Conditions
from hetsched_simulations.device import Device
from hetsched_simulations.jobs import Jobs, Part
from hetsched_simulations.schedutil import Schedutil
from hetsched_simulations.scripts import Conversation, Loop
from hetsched_simulations.shared_run import simulate_streams
from hetsched_simulations.streams import Stream
from hetsched_simulations.workload import commands_of


def governor(toys: SimpleNamespace) -> Schedutil:
    """Three clusters at 0.5, 1, 1.5 and 2 GHz."""
    return Schedutil([p.clusters[0] for p in toys.soc().processors])


def test_utilisation_forgets_half_in_32_ms(toys: SimpleNamespace) -> None:
    g = governor(toys)
    g.advance(0.032, np.array([1.0, 0.5, 3.0]), np.array([2e9, 2e9, 1e9]))
    assert g.utilisation == pytest.approx([0.5, 0.25, 0.25])  # at half the clock, all the time is half the work
    g.advance(0.064, np.array([0.0, 0.5, 1.0]), np.array([2e9, 2e9, 2e9]))
    assert g.utilisation == pytest.approx([0.125, 0.25 * 0.25 + 0.75 * 0.5, 0.25 * 0.25 + 0.75])


def test_utilisation_does_not_depend_on_the_steps(toys: SimpleNamespace) -> None:
    one, many = governor(toys), governor(toys)
    one.advance(0.05, np.ones(3), np.full(3, 1.5e9))
    for _ in range(50):
        many.advance(0.001, np.ones(3), np.full(3, 1.5e9))
    assert many.utilisation == pytest.approx(one.utilisation, rel=1e-12)


@pytest.mark.parametrize(("utilisation", "point"), [(0.0, 0), (0.2, 0), (0.201, 1), (0.4, 1), (0.41, 2), (0.6, 2), (0.61, 3), (1.0, 3)])
def test_the_lowest_clock_with_a_quarter_to_spare(toys: SimpleNamespace, utilisation: float, point: int) -> None:
    g = governor(toys)
    g.utilisation = np.full(3, utilisation)
    assert g.points() == (point, point, point)


def test_a_cluster_is_as_busy_as_its_busiest_core(toys: SimpleNamespace) -> None:
    """A queue of two of a CPU's four cores: half of the cluster at work is all of these cores, also beside another app."""
    table = toys.table([{"compute": 1e-3}])
    half = replace(table, queues=(replace(table.queues[0], cores=(0, 1)), *table.queues[1:]))
    device = Device(toys.soc(), half, Conditions(governor="schedutil"))
    assert device.busiest(np.array([0.5, 0.5, 0.0])) == pytest.approx([1.0, 0.5, 0.0])
    assert device.busiest(np.array([0.2, 1.0, 0.0])) == pytest.approx([0.4, 1.0, 0.0])
    beside = Device(toys.soc(), half, Conditions(background=Background(shares={"cpu": 0.4})))
    worked, _ = beside.loaded(np.array([0.5, 0.0, 0.0]), np.zeros(3))
    assert beside.busiest(worked) == pytest.approx([0.5 * 0.6 + 0.4, 0.0, 0.0])


OPS = [{"compute": 4e-3, "bytes": 1e6}, {"compute": 6e-3, "bytes": 1e6, "reads": [0]}]


def run(toys: SimpleNamespace, path: str, queues: tuple[int, int], governor: str = "schedutil", **options: Any) -> Simulation:
    soc = toys.soc(trip_c=options.pop("trip_c", 200.0), polling_s=0.02, scale=0.02, skin=True)
    settings = {"duration_s": 3.0, **options}
    return simulate(toys.table(OPS), soc, [0, 1], toys.on(*queues), path=path, governor=governor, **settings)


def test_a_slow_clock_does_when_there_is_time(toys: SimpleNamespace) -> None:
    """10 ms of work every 50 ms on the CPU: a fifth of the top clock, so a quarter of it is asked for, the lowest there is."""
    idle, busy = run(toys, "full", (0, 0), period_s=0.05), run(toys, "full", (0, 0), "performance", period_s=0.05)
    assert idle.inferences == busy.inferences == 60
    assert 0.5e9 <= idle.throttling.mean_hz["cpu"] < 0.8e9
    assert idle.throttling.mean_hz["npu"] == pytest.approx(0.5e9)  # nothing to do
    assert idle.median_s > 0.02
    assert idle.energy.dynamic["cpu"] < 0.6 * busy.energy.dynamic["cpu"]
    assert not idle.throttling.happened
    assert idle.throttling.seconds == 0.0


def test_back_to_back_on_one_processor_it_goes_to_the_top(toys: SimpleNamespace) -> None:
    s, top = run(toys, "full", (0, 0)), run(toys, "full", (0, 0), "performance")
    assert s.first_s > 1.5 * top.first_s  # it starts at the bottom
    assert s.last_s == pytest.approx(top.last_s, rel=1e-6)
    assert s.throttling.mean_hz["cpu"] > 1.9e9


def test_taking_turns_halves_the_load_and_slows_both(toys: SimpleNamespace) -> None:
    """A plan that alternates between processors loads neither fully: the known weakness of the governor."""
    s, top = run(toys, "full", (0, 1)), run(toys, "full", (0, 1), "performance")
    assert s.last_s > 1.2 * top.last_s


@pytest.mark.parametrize(
    ("queues", "period_s", "trip_c"),
    [
        ((0, 0), 0.05, 200.0), ((0, 1), 0.033, 200.0), ((0, 0), 0.016, 200.0),
        ((0, 1), None, 200.0), ((0, 0), None, 31.0), ((0, 1), 0.03, 29.0),
    ],
)  # fmt: skip
def test_both_paths_agree(toys: SimpleNamespace, queues: tuple[int, int], period_s: float | None, trip_c: float) -> None:
    full = run(toys, "full", queues, period_s=period_s, trip_c=trip_c)
    fast = run(toys, "multirate", queues, period_s=period_s, trip_c=trip_c)
    assert fast.inferences == pytest.approx(full.inferences, rel=0.04)
    assert fast.latencies_s.mean() == pytest.approx(full.latencies_s.mean(), rel=0.04)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.03)
    for name, hz in full.throttling.mean_hz.items():
        assert fast.throttling.mean_hz[name] == pytest.approx(hz, rel=0.05)
    for node, c in full.final_temperatures_c.items():
        assert fast.final_temperatures_c[node] == pytest.approx(c, abs=1.0)
    assert fast.throttling.happened == full.throttling.happened
    total = fast.trace.counters["power/total"]
    assert float(np.diff(total.times_s) @ np.array(total.values[:-1])) == pytest.approx(fast.energy.total, rel=1e-9)


@pytest.mark.parametrize(("queues", "period_s"), [((0, 1), None), ((0, 0), 0.003), ((0, 2), 0.0025)])
def test_inferences_shorter_than_the_governors_period_are_a_flow(
    toys: SimpleNamespace, queues: tuple[int, int], period_s: float | None
) -> None:
    short = toys.table([{"compute": 0.4e-3, "bytes": 1e5}, {"compute": 0.6e-3, "bytes": 1e5, "reads": [0]}])
    full, fast = (
        simulate(short, toys.soc(), [0, 1], toys.on(*queues), duration_s=2.0, period_s=period_s, path=path, governor="schedutil")
        for path in ("full", "multirate")
    )
    assert fast.inferences == pytest.approx(full.inferences, rel=0.02)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.02)
    for name, hz in full.throttling.mean_hz.items():
        assert fast.throttling.mean_hz[name] == pytest.approx(hz, rel=0.03)


def test_spans_of_a_settled_state_start_with_their_inference(toys: SimpleNamespace) -> None:
    s = run(toys, "multirate", (0, 0), period_s=0.05)
    shown = [x for x in s.trace.spans if x.kind == "segment"]
    assert len(shown) == 1
    assert shown[0].start_s == pytest.approx(0.0, abs=1e-9)
    assert shown[0].end_s == pytest.approx(s.first_s, rel=0.2)


def test_when_other_clocks_will_be_asked_for(toys: SimpleNamespace) -> None:
    """From 0 at 0.5 GHz and full load utilisation goes to a quarter; at 0.2 the next point begins."""
    g = governor(toys)
    asked = 0.032 * np.log2(0.25 / 0.05)  # 74.3 ms
    assert g.next_change_s((0, 0, 0), np.array([1.0, 0.0, 0.0]), np.full(3, 0.5e9), 0.0) == pytest.approx(np.ceil(asked * 100) / 100)
    assert g.next_change_s((0, 0, 0), np.array([0.7, 0.0, 0.0]), np.full(3, 0.5e9), 0.0) == np.inf
    g.utilisation = np.array([0.5, 0.0, 0.0])
    assert g.next_change_s((2, 0, 0), np.zeros(3), np.full(3, 1.5e9), 0.003) == pytest.approx(0.02)  # down to 0.4 after 10.3 ms
    assert g.next_change_s((0, 0, 0), np.zeros(3), np.full(3, 1.5e9), 0.01) == pytest.approx(0.02)  # it is due already
    for _ in range(40):  # the clocks do change then, and not before
        points, now = g.points(), 0.0
        due = g.next_change_s(points, np.array([1.0, 0.3, 0.0]), np.full(3, 2e9), now)
        if due == np.inf:
            break
        g.advance(due - 0.01, np.array([1.0, 0.3, 0.0]), np.full(3, 2e9))
        assert g.points() == points
        g.advance(0.01, np.array([1.0, 0.3, 0.0]), np.full(3, 2e9))
        assert g.points() != points
    assert g.points() == (3, 1, 0)


def jobs(toys: SimpleNamespace, script: Any, path: str, **options: Any) -> Simulation:
    """Prompts of 60 ms on the NPU, tokens and inferences of 10 ms on the CPU, which naps after 20 ms and then takes 2 ms."""
    nap = {"name": "nap", "after_s": {"value": 20e-3, "estimated": "test"}, "exit_s": {"value": 2e-3, "estimated": "test"}}
    raw = toys.soc().model_dump()
    raw["processors"][0]["idle_states"] = [nap]

    def parts(level: int, part: Part) -> Any:
        prompt = part.phase == "prefill"
        return commands_of(toys.table([{"compute": 60e-3 if prompt else 10e-3}]), [0], toys.on(2 if prompt else 0))

    work = Jobs(script, parts)
    settings = {"duration_s": 3.0, **options}
    return simulate(
        toys.table([{"compute": 10e-3}]), SoC.model_validate(raw), [0], toys.on(0), jobs=work, path=path, governor="schedutil", **settings
    )


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_after_a_pause_it_is_at_the_lowest_clock_and_asleep(toys: SimpleNamespace, path: str) -> None:
    """10 ms at the top are 40 ms at a quarter, and 2 ms to wake up; at work for 42 ms of 92 it stays there."""
    s = jobs(toys, Loop(0.05), path)
    assert s.latencies_s == pytest.approx([0.04, *[0.042] * (len(s.latencies_s) - 1)])
    assert s.throttling.mean_hz["cpu"] == pytest.approx(0.5e9)


@pytest.mark.parametrize("script", [Conversation(256, 40, 60, 1.5), Conversation(256, 40, 30, 0.1), Loop(0.01)])
def test_jobs_on_both_paths(toys: SimpleNamespace, script: Any) -> None:
    full, fast = (jobs(toys, copy.copy(script), path, duration_s=10.0) for path in ("full", "multirate"))
    assert full.jobs is not None and fast.jobs is not None
    assert len(fast.jobs.done) == pytest.approx(len(full.jobs.done), rel=0.05)
    assert fast.jobs.tokens == pytest.approx(full.jobs.tokens, rel=0.01)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.03)
    for name, hz in full.throttling.mean_hz.items():
        assert fast.throttling.mean_hz[name] == pytest.approx(hz, rel=0.05)


def test_several_plans_on_both_paths(toys: SimpleNamespace) -> None:
    table = toys.table([{"compute": 4e-3, "bytes": 1e6}, {"compute": 6e-3, "reads": [0]}])
    streams = [Stream(str(q), commands_of(table, [0, 1], toys.on(q, 1)), period, period, q) for q, period in ((0, 0.05), (2, 0.1))]
    full, fast = (
        simulate_streams(table, toys.soc(), streams, Conditions(governor="schedutil"), duration_s=5.0, path=path)
        for path in ("full", "multirate")
    )
    assert [len(o.latencies_s) for o in fast.streams] == [len(o.latencies_s) for o in full.streams]
    assert fast.device.energy.total == pytest.approx(full.device.energy.total, rel=0.01)
    for a, b in zip(fast.streams, full.streams, strict=True):
        assert np.mean(a.latencies_s) == pytest.approx(np.mean(b.latencies_s), rel=0.15)
