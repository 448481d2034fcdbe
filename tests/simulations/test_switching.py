"""Plans that take turns: event logs worked out by hand, the price of a switch, both paths, conservation, determinism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetsched.errors import OptionError
from hetsched.plans import Switch
from hetsched.policies import Observation, Policy
from hetsched.policies.battery_saver import BatterySaver
from hetsched.policies.predictive import Predictive
from hetsched.policies.reactive import Reactive
from hetsched_simulations import LevelPlan, Levels, Simulation, simulate, thermal_loop
from hetsched_simulations.simulation import Path

PACKED = 40e6
"""Weights that a switch packs: read and written at the CPU's 20 GB/s in 4 ms."""


@dataclass(frozen=True)
class At:
    """Wants ``level`` from ``time_s`` to ``until_s``, else 0; remembers what it saw."""

    time_s: float
    level: int = 1
    until_s: float = float("inf")
    period_s: float = 1e-3
    seen: list[Observation] = field(default_factory=list)

    def wanted(self, seen: Observation) -> int:
        self.seen.append(seen)
        return self.level if self.time_s - 1e-9 <= seen.time_s < self.until_s - 1e-9 else 0


def price(first: int, second: int, weight_bytes: int = int(PACKED)) -> Switch:
    seconds = 2 * weight_bytes / 20e9
    return Switch(
        before=("inference", first), after=("inference", second), weight_bytes=weight_bytes, pack_s=seconds, state_bytes=0, handover_s=0.0
    )


def free(first: int, second: int) -> Switch:
    return price(first, second, 0)


def run(toys: SimpleNamespace, policy: Policy, path: Path = "full", switch: Any = price, **options: Any) -> Simulation:
    """One op of 10 ms on the CPU; at level 1 on the NPU in 20 ms."""
    table = toys.table([{"compute": [10e-3, 10e-3, 20e-3]}])
    levels = Levels(policy, {1: LevelPlan(table, [0], toys.on(2))}, switch, battery=options.pop("battery", 1.0))
    settings: dict[str, Any] = {"duration_s": 0.1, "thermal": False, **options}
    return simulate(table, toys.soc(), [0], toys.on(0), levels=levels, path=path, **settings)


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_a_switch_at_a_fixed_time_by_hand(toys: SimpleNamespace, path: Path) -> None:
    """Inferences end at 10, 20, 30 ms; at 30 it switches until 34; then each takes 20 ms: 54, 74, 94, and one is cut off."""
    s = run(toys, At(0.025), path)
    assert s.path == path
    assert s.latencies_s * 1e3 == pytest.approx([10, 10, 10, 20, 20, 20])
    if path == "full":
        assert s.trace.counters["latency/inference"].times_s == pytest.approx([0.01, 0.02, 0.03, 0.054, 0.074, 0.094])
    assert s.levels is not None
    (switch,) = s.levels.switches
    assert (switch.before, switch.after) == (0, 1)
    assert (switch.time_s, switch.seconds) == pytest.approx((0.03, 0.004))
    assert s.levels.seconds == pytest.approx({0: 0.03, 1: 0.066})
    assert s.levels.switching_s == pytest.approx(0.004)
    (instant,) = (i for i in s.trace.instants if i.kind == "switch")
    assert (instant.name, instant.detail) == ("level 0 -> 1", "4 ms")
    assert instant.time_s == pytest.approx(0.03)
    level = s.trace.counters["level/plan"]
    assert (level.unit, level.values) == ("level", [0.0, 1.0, 1.0])
    assert level.times_s == pytest.approx([0.0, 0.034, 0.1])


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_there_and_back(toys: SimpleNamespace, path: Path) -> None:
    """To level 1 at 20 ms (until 24), 44, 64: back (until 68), 78, 88, 98."""
    s = run(toys, At(0.02, until_s=0.06), path)
    assert s.latencies_s * 1e3 == pytest.approx([10, 10, 20, 20, 10, 10, 10])
    assert s.levels is not None
    assert [(x.before, x.after, round(x.time_s, 6)) for x in s.levels.switches] == [(0, 1, 0.02), (1, 0, 0.064)]


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_arrivals_wait_for_the_switch_and_keep_their_grid(toys: SimpleNamespace, path: Path) -> None:
    """Every 25 ms: [0, 10], switch to 14, [25, 45], [50, 70], [75, 95]. A switch of 20 ms hides 25: [50, 70], [75, 95]."""
    s = run(toys, At(0.0), path, period_s=0.025)
    assert s.latencies_s * 1e3 == pytest.approx([10, 20, 20, 20])
    slow = run(toys, At(0.0), path, period_s=0.025, switch=lambda a, b: price(a, b, int(200e6)))
    assert slow.latencies_s * 1e3 == pytest.approx([10, 20, 20])
    assert slow.levels is not None
    assert slow.levels.switching_s == pytest.approx(0.02)


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_the_switch_is_paid_in_time_power_and_bytes(toys: SimpleNamespace, path: Path) -> None:
    """4 W and 0.4 W of leakage of the CPU for 4 ms, 80 MB, and the base load, more than a switch that costs nothing."""
    paid, gratis = (run(toys, At(0.025), path, switch=x, duration_s=None, iterations=6) for x in (price, free))
    assert paid.latencies_s == pytest.approx(gratis.latencies_s)
    assert paid.duration_s - gratis.duration_s == pytest.approx(4e-3)
    assert paid.bytes_moved - gratis.bytes_moved == pytest.approx(2 * PACKED)
    assert paid.energy.dynamic["cpu"] - gratis.energy.dynamic["cpu"] == pytest.approx(4.0 * 4e-3)
    assert paid.energy.leakage["cpu"] - gratis.energy.leakage["cpu"] == pytest.approx(0.4 * 4e-3)
    assert paid.energy.dram - gratis.energy.dram == pytest.approx(2 * PACKED * 50e-12)
    assert paid.energy.base - gratis.energy.base == pytest.approx(1.0 * 4e-3)


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_energy_is_the_integral_of_power_across_switches(toys: SimpleNamespace, path: Path) -> None:
    s = run(toys, At(0.02, until_s=0.06), path, thermal=True)
    power = s.trace.counters["power/total"]
    assert float(np.diff(power.times_s) @ np.array(power.values[:-1])) == pytest.approx(s.energy.total, rel=1e-9)
    assert sum(s.energy_j.values()) == pytest.approx(s.energy.total, rel=1e-12)


def test_a_policy_is_asked_at_the_end_of_an_inference_and_not_too_often(toys: SimpleNamespace) -> None:
    for path in ("full", "multirate"):
        policy = At(1.0, period_s=0.025)
        run(toys, policy, path)
        assert [o.time_s for o in policy.seen] == pytest.approx([0.03, 0.05, 0.08, 0.1][: len(policy.seen)])
        assert len(policy.seen) >= 3
        assert [o.level for o in policy.seen] == [0] * len(policy.seen)


def test_what_a_policy_sees(toys: SimpleNamespace) -> None:
    policy = At(0.025, period_s=0.01)
    run(toys, policy, thermal=True, battery=0.4)
    first, last = policy.seen[0], policy.seen[-1]
    assert first.nodes == ("cpu", "gpu", "npu", "package", "case")
    assert [v.number for v in first.levels] == [0, 1]
    assert [v.latency_s for v in first.levels] == pytest.approx([0.01, 0.02])
    cool, hot = (np.array(v.heat_w) for v in reversed(first.levels))
    assert hot[0] == pytest.approx(4.4, rel=0.01) and cool[0] == 0.0 and cool[2] == pytest.approx(2.2, rel=0.01)
    assert first.loads[0].heat_w == pytest.approx(hot, rel=1e-2)
    assert first.temperatures_c[0] > 25.0 and first.skin_c == first.temperatures_c[4]
    assert first.after(first.loads[0].heat_w, 1.0)[0] > first.temperatures_c[0]
    assert [(t.node, t.temperature_c) for t in first.trips] == [(0, 60.0), (1, 60.0), (2, 60.0)]
    assert first.clock == 1.0 and first.battery == 0.4
    assert last.level == 1 and last.since_s == pytest.approx(last.time_s - 0.034)
    assert [v.level for v in last.loads if v.end_s > 0.035] == [1] * sum(v.end_s > 0.035 for v in last.loads)


@pytest.mark.parametrize(("cpu_s", "counts"), [(0.1e-3, False), (10e-3, True)])
def test_only_the_clocks_of_what_works_count_as_throttled(toys: SimpleNamespace, cpu_s: float, counts: bool) -> None:
    """The CPU begins above its trip and is slowed; that matters to a plan in which it works."""
    table = toys.table([{"compute": cpu_s}, {"compute": 20e-3, "reads": [0]}])
    policy = At(1.0, period_s=0.02)
    levels = Levels(policy, {1: LevelPlan(table, [0, 1], toys.on(2, 2))}, price)
    s = simulate(table, toys.soc(polling_s=0.01), [0, 1], toys.on(0, 2), levels=levels, duration_s=0.2, initial_c={"cpu": 70.0})
    assert s.throttling.happened
    assert any(o.throttled for o in policy.seen) == counts


def test_levels_that_are_not_there(toys: SimpleNamespace) -> None:
    assert run(toys, At(0.025, level=3)).levels == run(toys, At(0.025)).levels
    assert run(toys, At(0.0, level=-1)).levels.switches == ()  # type: ignore[union-attr]
    with pytest.raises(OptionError, match=r"the policy At wants the level 0\.5"):
        run(toys, At(0.0, level=0.5))  # type: ignore[arg-type]
    other = toys.table([{"compute": 1e-3}])
    object.__setattr__(other, "queues", other.queues[:2])
    with pytest.raises(OptionError, match="for different queues"):
        simulate(
            toys.table([{"compute": 1e-3}]), toys.soc(), [0], toys.on(0), levels=Levels(At(0.0), {1: LevelPlan(other, [0], [0])}, price)
        )


def test_battery_saver_goes_to_the_deepest_level_there_is(toys: SimpleNamespace) -> None:
    low, full = (run(toys, BatterySaver(period_s=0.01), battery=b).levels for b in (0.08, 1.0))
    assert low is not None and full is not None
    assert [(x.before, x.after) for x in low.switches] == [(0, 1)]
    assert full.switches == ()


def hot_run(toys: SimpleNamespace, policy: Policy | None, path: Path = "multirate", npu_s: float = 10e-3, **options: Any) -> Simulation:
    """Back to back on a light phone whose CPU reaches its trip within seconds; level 1 takes as long on the NPU at half its clock."""
    table = toys.table([{"compute": [10e-3, 10e-3, npu_s], "bytes": 1e6}])
    soc = toys.soc(trip_c=50.0, polling_s=0.05, scale=options.pop("scale", 0.1))
    levels = None if policy is None else Levels(policy, {1: LevelPlan(table, [0], toys.on(2), {"npu": 0.5})}, price)
    return simulate(table, soc, [0], toys.on(0), levels=levels, path=path, **{"duration_s": 60.0, **options})


def test_predictive_moves_before_the_throttle_and_reactive_after(toys: SimpleNamespace) -> None:
    static, reactive, predictive = (hot_run(toys, p) for p in (None, Reactive(), Predictive()))
    first = static.throttling.first_s
    assert first is not None and first < 10
    assert reactive.throttling.first_s == pytest.approx(first)
    assert reactive.throttling.seconds < 0.1 * static.throttling.seconds
    assert predictive.throttling.seconds == 0.0
    assert predictive.levels is not None and predictive.levels.switches[0].time_s < first
    assert predictive.peak_temperatures_c["cpu"] < 50.0 <= static.peak_temperatures_c["cpu"]


@pytest.mark.parametrize("policy", [Reactive(), Predictive()])
def test_a_cooler_level_that_delivers_less_is_left_alone(toys: SimpleNamespace, policy: Policy) -> None:
    """Throttled, the CPU takes 15 ms; the NPU at half its clock takes 20. At 20 a second both keep up: then the cooler one runs."""
    static, hot = hot_run(toys, None), hot_run(toys, policy, npu_s=20e-3)
    assert hot.levels is not None and hot.levels.switches == ()
    assert hot.inferences == static.inferences
    busy = {"npu_s": 20e-3, "period_s": 0.05, "scale": 0.02, "duration_s": 120.0}
    paced = hot_run(toys, policy, **busy)
    assert paced.inferences == hot_run(toys, None, **busy).inferences
    assert paced.levels is not None and (paced.levels.seconds[1] > 0) == hot_run(toys, None, **busy).throttling.happened


@pytest.mark.parametrize("policy", [Reactive(hold_s=5.0, settle_s=1.0), Predictive(hold_s=5.0)])
def test_hysteresis_does_not_flap(toys: SimpleNamespace, policy: Any) -> None:
    """A level is kept for ``hold_s`` before going back, so there are at most two switches in that time."""
    s = hot_run(toys, policy)
    assert s.levels is not None
    back = [x.time_s for x in s.levels.switches if x.after < x.before]
    there = [x.time_s for x in s.levels.switches if x.after > x.before]
    assert all(min(b - t for t in there if t < b) >= policy.hold_s for b in back)
    assert 1 <= len(s.levels.switches) <= 2 * 60.0 / policy.hold_s


@pytest.mark.parametrize("policy", [Reactive(), Predictive()])
def test_both_paths_agree(toys: SimpleNamespace, policy: Policy) -> None:
    full, fast = (hot_run(toys, policy, path, duration_s=40.0, scale=0.05) for path in ("full", "multirate"))
    assert full.levels is not None and fast.levels is not None
    assert [(x.before, x.after) for x in fast.levels.switches] == [(x.before, x.after) for x in full.levels.switches]
    assert [x.time_s for x in fast.levels.switches] == pytest.approx([x.time_s for x in full.levels.switches], abs=1.1)
    assert fast.inferences == pytest.approx(full.inferences, rel=0.01)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.01)
    for node, c in full.peak_temperatures_c.items():
        assert fast.peak_temperatures_c[node] == pytest.approx(c, abs=0.5)


def test_long_steps_agree_with_short_ones(toys: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    long = hot_run(toys, Reactive())
    monkeypatch.setattr(thermal_loop, "EVEN_K", 0.0)
    short = hot_run(toys, Reactive())
    assert len(long.trace.counters["temperature/case"].times_s) < len(short.trace.counters["temperature/case"].times_s)
    assert long.levels is not None and short.levels is not None
    assert [x.time_s for x in long.levels.switches] == pytest.approx([x.time_s for x in short.levels.switches])
    assert long.energy.total == pytest.approx(short.energy.total, rel=1e-3)
    for node, c in short.final_temperatures_c.items():
        assert long.final_temperatures_c[node] == pytest.approx(c, abs=0.01)


def test_the_same_input_gives_the_same_run(toys: SimpleNamespace) -> None:
    a, b = (hot_run(toys, Predictive(hold_s=5.0)) for _ in range(2))
    assert a.levels == b.levels
    assert a.trace == b.trace
    assert a.energy == b.energy


def clocks_run(toys: SimpleNamespace, clocks: Mapping[str, float], path: Path = "full", **options: Any) -> Simulation:
    """The op on the CPU, in a table for half the clock."""
    table = toys.table([{"compute": 20e-3}])
    return simulate(table, toys.soc(), [0], toys.on(0), clocks=clocks, path=path, **{"thermal": False, "iterations": 3, **options})


@pytest.mark.parametrize("path", ["full", "multirate"])
def test_lower_clocks_take_what_the_table_says_and_draw_less(toys: SimpleNamespace, path: Path) -> None:
    """At half the clock the CPU's supply is 0.7 of 1 V: 4 W become 4 · 0.5 · 0.49, the leakage of 0.4 W 0.28."""
    s, top = clocks_run(toys, {"cpu": 0.5}, path), clocks_run(toys, {}, path)
    assert s.latencies_s == pytest.approx(top.latencies_s)
    assert s.energy.dynamic["cpu"] == pytest.approx(4.0 * 0.5 * 0.49 * 0.06)
    assert s.energy.leakage["cpu"] == pytest.approx(0.4 * 0.7 * 0.06)
    assert not s.throttling.happened and s.throttling.seconds == 0.0
    assert s.throttling.lowest_hz["cpu"] == pytest.approx(1e9)


def test_a_clock_between_operating_points_has_an_interpolated_voltage(toys: SimpleNamespace) -> None:
    """0.625 of 2 GHz lies halfway between 1 GHz at 0.7 V and 1.5 GHz at 0.8 V."""
    s = clocks_run(toys, {"cpu": 0.625})
    assert s.energy.dynamic["cpu"] == pytest.approx(4.0 * 0.625 * 0.75**2 * 0.06)
