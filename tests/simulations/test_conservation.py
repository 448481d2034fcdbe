"""Time, energy and bytes add up, on random graphs, tables and placements."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetsched.segments import schedule
from hetsched.trace import Counter
from hetsched_simulations import Simulation, latency, simulate
from hetsched_simulations.workload import commands_of

cases = st.tuples(st.integers(0, 10**9), st.integers(1, 14))
fixtures = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def integral(c: Counter) -> float:
    return float(np.diff(c.times_s) @ np.array(c.values[:-1]))


def check_meters(s: Simulation) -> None:
    counters = s.trace.counters
    energy = s.energy
    assert integral(counters["power/total"]) == pytest.approx(energy.total, rel=1e-9)
    for p in ("cpu", "gpu", "npu"):
        assert integral(counters[f"power/{p}"]) == pytest.approx(energy.dynamic[p] + energy.leakage[p], rel=1e-9, abs=1e-12)
    assert integral(counters["power/dram"]) == pytest.approx(energy.dram, rel=1e-9, abs=1e-12)
    assert integral(counters["bandwidth/dram"]) == pytest.approx(s.bytes_moved, rel=1e-9, abs=1e-3)
    assert energy.base == pytest.approx(1.0 * s.duration_s, rel=1e-9)
    assert sum(s.energy_j.values()) == pytest.approx(energy.total, rel=1e-12)


@fixtures
@given(cases)
def test_without_contention_the_simulated_time_is_the_schedule(toys: SimpleNamespace, case: tuple[int, int]) -> None:
    table, order, alternative = toys.random_case(np.random.default_rng(case[0]), case[1])
    planned = schedule(table, order, alternative)
    s = simulate(table, toys.soc(), order, alternative, contention=False)
    assert s.first_s == pytest.approx(planned.latency_s, rel=1e-9)
    spans = {x.segment: x for x in s.trace.spans if x.kind == "segment"}
    assert [spans[i].start_s for i in range(len(spans))] == pytest.approx(planned.start_s, rel=1e-9, abs=1e-15)
    assert [spans[i].end_s for i in range(len(spans))] == pytest.approx(planned.end_s, rel=1e-9)


@fixtures
@given(cases)
def test_a_serial_plan_takes_the_tables_sum_even_with_contention(toys: SimpleNamespace, case: tuple[int, int]) -> None:
    rng = np.random.default_rng(case[0])
    table, order, _ = toys.random_case(rng, case[1])
    queue = int(rng.integers(0, 3))
    alternative = toys.on(*[queue] * case[1])
    assert latency(table, toys.soc(), order, alternative) == pytest.approx(schedule(table, order, alternative).latency_s, rel=1e-9)
    chain = toys.table(
        [{"reads": [i - 1] if i else [], "compute": rng.uniform(0, 1e-3, 3), "bytes": 1e6} for i in range(case[1])], sync_s=1e-5
    )
    alternative = toys.on(*rng.integers(0, 3, case[1]).tolist())
    assert latency(chain, toys.soc(), order, alternative) == pytest.approx(schedule(chain, order, alternative).latency_s, rel=1e-9)


@fixtures
@given(cases, st.integers(1, 3))
def test_energy_and_bytes_are_conserved(toys: SimpleNamespace, case: tuple[int, int], iterations: int) -> None:
    table, order, alternative = toys.random_case(np.random.default_rng(case[0]), case[1])
    s = simulate(table, toys.soc(), order, alternative, iterations=iterations, path="full")
    check_meters(s)
    moved = sum(w.bytes for c in commands_of(table, order, alternative) for w in c.work)
    assert s.bytes_moved == pytest.approx(iterations * moved, rel=1e-9, abs=1e-3)
    assert s.first_s >= schedule(table, order, alternative).latency_s * (1 - 1e-9)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases)
def test_a_long_run_conserves_energy_through_thinning(toys: SimpleNamespace, case: tuple[int, int]) -> None:
    table, order, alternative = toys.random_case(np.random.default_rng(case[0]), case[1])
    s = simulate(table, toys.soc(trip_c=35.0, polling_s=0.02), order, alternative, duration_s=60.0, path="multirate")
    check_meters(s)
    assert all(len(c.values) <= 2010 for c in s.trace.counters.values())


def test_energy_of_one_op_by_hand(toys: SimpleNamespace) -> None:
    """1 ms of computation at 4 W beside 10 MB at 50 pJ/byte, leakage 0.4 W at 25 degrees, the others gated, base 1 W."""
    s = simulate(toys.table([{"compute": 1e-3, "bytes": 10e6}]), toys.soc(), [0], toys.on(0), thermal=False)
    assert s.energy.dynamic == pytest.approx({"cpu": 4e-3, "gpu": 0.0, "npu": 0.0})
    assert s.energy.leakage == pytest.approx({"cpu": 0.4e-3, "gpu": 0.0, "npu": 0.0})
    assert s.energy.dram == pytest.approx(0.5e-3)
    assert s.energy.base == pytest.approx(1e-3)
    half = simulate(toys.table([{"compute": 1e-3}]), toys.soc(), [0], toys.on(0), thermal=False, governor="powersave")
    assert half.first_s == pytest.approx(4e-3)
    assert half.energy.dynamic["cpu"] == pytest.approx(4.0 * 0.25 * 0.6**2 * 4e-3)  # C V^2 f for four times as long
    assert half.energy.leakage["cpu"] == pytest.approx(0.4 * 0.6 * 4e-3)
    hot = simulate(toys.table([{"compute": 1e-3}]), toys.soc(), [0], toys.on(0), thermal=False, initial_c=85.0)
    assert hot.energy.leakage["cpu"] == pytest.approx(0.4e-3 * 4)  # two doublings of 30 K


def test_the_host_pays_for_launches(toys: SimpleNamespace) -> None:
    """1 ms of launch of the NPU draws 2 W on the CPU (4 W dynamic, 0.4 W leakage at work); then the NPU works for 1 ms at 2 W."""
    table = toys.table([{"compute": 1e-3}], launch_s=1e-3)
    table.launch_energy_j[2] = 2e-3
    for path in ("full", "multirate"):
        s = simulate(table, toys.soc(), [0], toys.on(2), thermal=False, path=path)
        assert s.energy.dynamic == pytest.approx({"cpu": 2e-3 / 1.1, "gpu": 0.0, "npu": 2e-3})
        assert s.energy.leakage == pytest.approx({"cpu": 2e-3 / 11, "gpu": 0.0, "npu": 0.2e-3})
    beside = toys.table([{"compute": 3e-3}, {"compute": 1e-3}], launch_s=1e-3)
    beside.launch_energy_j[2] = 2e-3
    s = simulate(beside, toys.soc(), [0, 1], toys.on(0, 2), thermal=False)
    assert s.energy.dynamic["cpu"] == pytest.approx(4.0 * 3e-3 + 2e-3 / 1.1)  # the cpu's own launch is free in this table
    # A launch beside a busy host queue is not lost: another thread does it.
    beside.launch_s[0] = 0.0
    s = simulate(beside, toys.soc(), [0, 1], toys.on(0, 2), thermal=False)
    assert s.energy.dynamic["cpu"] == pytest.approx(4.0 * 3e-3 + 2e-3 / 1.1)
