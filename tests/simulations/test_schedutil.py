"""The schedutil governor: its arithmetic by hand, then plans that leave processors idle, in both paths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetsched_simulations import Simulation, simulate
from hetsched_simulations.schedutil import Schedutil


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
