"""The system cache as a second shared resource: rates, competition for its capacity, conservation, and nothing without it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy import Environment

import hetsched
from hetsched.costs import CostTable
from hetsched.segments import schedule
from hetsched.soc_files import load_soc, overridden
from hetsched.socs import SoC
from hetsched_cost_models import build_table, table_at
from hetsched_simulations import latency, simulate
from hetsched_simulations.background import Background
from hetsched_simulations.bandwidth import Bus, max_min_fair
from hetsched_simulations.engine import Engine, EventLog
from hetsched_simulations.machine import Host, Intervals, Machine
from hetsched_simulations.simulation import Path as RunPath
from hetsched_simulations.workload import commands_of

GB = 1e9
PATHS: tuple[RunPath, ...] = ("full", "multirate")
INF = float("inf")
MODEL = Path(__file__).parents[2] / "models" / "mobilenet_v2_qdq.onnx"


@pytest.mark.parametrize(
    ("demands", "misses", "caps", "total", "cache", "rates"),
    [
        ([40, 40], [0.5, 1], [40, 40], 30, 1000, [20, 20]),  # half of one and all of the other fill the DRAM
        ([60, 60], [0, 0], [1, 1], 1, 80, [40, 40]),  # the cache alone
        ([100, 100], [0, 1], [100, 100], 30, 90, [60, 30]),  # the DRAM stops one, the cache the other
        ([40, 40], [0.5, 1], [10, 40], 100, 1000, [20, 40]),  # a processor's way to the DRAM is full, with twice as much moved
        ([30, 100, 100], [0.5, 0.5, 0.5], [100, 100, 100], 100, 150, [30, 60, 60]),
        ([40, 40], [1, 1], [40, 40], 50, INF, [25, 25]),
    ],
)
def test_hand_solved_rates(
    demands: list[float], misses: list[float], caps: list[float], total: float, cache: float, rates: list[float]
) -> None:
    assert max_min_fair(demands, range(len(demands)), caps, total, misses, cache) == pytest.approx(rates, rel=1e-12)


@given(st.data())
def test_no_limit_is_exceeded_and_everyone_has_a_bottleneck(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    figures = st.floats(0.1, 100.0)
    demands = data.draw(st.lists(figures, min_size=n, max_size=n))
    misses = data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=n, max_size=n))
    groups = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.int64)
    caps, total, through = data.draw(st.lists(figures, min_size=3, max_size=3)), data.draw(figures), data.draw(figures)
    rates, miss = np.array(max_min_fair(demands, groups.tolist(), caps, total, misses, through)), np.array(misses)
    assert (rates <= np.array(demands) * (1 + 1e-9)).all()

    def binds(i: int, flows: np.ndarray[Any, Any], used: float, limit: float) -> bool:
        assert used <= limit * (1 + 1e-9)
        return bool(flows[i] and used >= limit * (1 - 1e-6) and rates[i] >= rates[flows].max() * (1 - 1e-6))

    for i in range(n):
        mates = groups == groups[i]
        full = [
            binds(i, np.ones(n, bool), float(rates.sum()), through),
            binds(i, miss > 0, float(rates @ miss), total),
            binds(i, mates & (miss > 0), float((rates * miss)[mates].sum()), caps[groups[i]]),
        ]
        assert any(full) or rates[i] >= demands[i] * (1 - 1e-9)


def side_by_side(toys: SimpleNamespace) -> CostTable:
    """Two ops that nobody waits for: on the NPU 20 MB from the DRAM and 20 MB that a cache serves, on the GPU 15 MB; 0.5 ms each, alone."""
    table = toys.table([{"bytes": 20e6}, {"bytes": 15e6}])
    served = np.zeros(6)
    served[2] = 20e6
    made: CostTable = replace(table, cache_bytes=served, cache_bytes_s=400 * GB)
    return made


def test_who_moves_most_keeps_most_of_the_capacity(toys: SimpleNamespace) -> None:
    """By hand. The NPU asks for 80 GB/s and the GPU for 30: 8/11 of the capacity, so that the odds of a hit, 1, become (8/11)^4.

    Then 78 % of what the NPU moves comes from the DRAM, in which both get as much as fits into 50 GB/s. The GPU ends first.
    """
    table = side_by_side(toys)
    miss = 1 / (1 + (8 / 11) ** 4)
    each = 50 * GB / (1 + miss)
    gpu_s = 15e6 / each
    npu_s = gpu_s + (40e6 - each * gpu_s) / (80 * GB)
    s = simulate(table, toys.soc(), [0, 1], toys.on(2, 1), thermal=False)
    ends = {x.queue: x.end_s for x in s.trace.spans if x.kind == "op"}
    assert (ends["gpu"], ends["npu"]) == pytest.approx((gpu_s, npu_s), rel=1e-9)
    assert s.bytes_moved == pytest.approx(15e6 + miss * each * gpu_s + (40e6 - each * gpu_s) / 2, rel=1e-9)
    assert simulate(table, toys.soc(), [0, 1], toys.on(2, 1), contention=False).bytes_moved == pytest.approx(35e6, rel=1e-12)


def test_another_app_takes_capacity_too(toys: SimpleNamespace) -> None:
    """10 GB/s of another app beside 80: 8/9 of the capacity stay. What the cache then misses fills the NPU's way to the DRAM, 40 GB/s."""
    table = side_by_side(toys).restrict(np.arange(6) % 3 == 2)
    alone = latency(table, toys.soc(), [0, 1], [0, 1])
    s = simulate(table, toys.soc(), [0, 1], [0, 1], background=Background(dram=10 * GB), thermal=False)
    miss = 1 / (1 + (8 / 9) ** 4)
    assert s.first_s - alone == pytest.approx(40e6 * miss / (40 * GB) - 0.5e-3, rel=1e-6)


def cached(toys: SimpleNamespace, seed: int, ops: int = 12) -> tuple[CostTable, list[int], list[int]]:
    """A random case in which a system cache serves a part of what some ops move."""
    rng = np.random.default_rng(seed)
    table, order, alternative = toys.random_case(rng, ops)
    served = rng.uniform(0, 60e6, 3 * ops) * (rng.random(3 * ops) < 0.6)
    rate = 100 * GB
    compute = np.maximum(table.compute_s, (table.dram_bytes + served) / rate)
    return replace(table, compute_s=compute, cache_bytes=served, cache_bytes_s=rate), order, alternative


def run(toys: SimpleNamespace, seed: int, compiled: bool) -> tuple[list[Any], float, float]:
    """Three inferences at a time; spans, and bytes of the DRAM and of the cache."""
    table, order, alternative = cached(toys, seed)
    bus = Bus.of(toys.soc(), table.queues, table.bandwidth_bytes_s.tolist(), cache_bytes_s=table.cache_bytes_s)
    env, told, log = Environment(), list[Intervals](), EventLog(("cpu", "gpu", "npu"), 3)
    machine = Machine(env, bus, [1.0] * 3, told.append, Host(), compiled)
    engine = Engine(env, machine, commands_of(table, order, alternative), log)
    env.run(until=env.all_of([env.process(engine.inference(k)) for k in range(3)]))
    machine.settle()
    assert all((p.flow_bytes_s >= 0).all() and (p.cached_bytes_s >= 0).all() for p in told)
    dram, served = (sum(float(p.seconds @ getattr(p, name)) for p in told) for name in ("flow_bytes_s", "cached_bytes_s"))
    return [*log.spans], dram, served


@pytest.mark.parametrize("seed", range(6))
def test_dram_and_cache_together_move_every_byte_and_the_cache_no_more_than_alone(toys: SimpleNamespace, seed: int) -> None:
    table, order, alternative = cached(toys, seed)
    every = 3 * sum(w.bytes for c in commands_of(table, order, alternative) for w in c.work)
    alone = 3 * float(table.cache_bytes[alternative].sum())
    spans, dram, served = run(toys, seed, False)
    assert dram + served == pytest.approx(every, rel=1e-9)
    assert 0 < served < alone
    assert run(toys, seed, True) == (spans, dram, served), "compiled and plain are the same to the bit"


@pytest.mark.parametrize("seed", range(6))
def test_alone_a_plan_takes_what_it_says(toys: SimpleNamespace, seed: int) -> None:
    table, order, alternative = cached(toys, seed)
    planned = schedule(table, order, alternative).latency_s
    assert latency(table, toys.soc(), order, alternative, contention=False) == pytest.approx(planned, rel=1e-9)
    assert latency(table, toys.soc(), order, alternative) >= planned * (1 - 1e-9)
    on_npu = toys.on(*[2] * len(order))
    s = simulate(table, toys.soc(), order, on_npu, thermal=False)
    assert s.first_s == pytest.approx(schedule(table, order, on_npu).latency_s, rel=1e-9)
    moved = sum(w.bytes * (1 - w.hits) for c in commands_of(table, order, on_npu) for w in c.work)
    assert s.bytes_moved == pytest.approx(moved, rel=1e-9)


def test_a_cache_that_serves_nothing_changes_nothing(toys: SimpleNamespace) -> None:
    table, order, alternative = toys.random_case(np.random.default_rng(1), 12)
    idle = replace(table, cache_bytes=np.zeros(36), cache_bytes_s=400 * GB)
    assert latency(idle, toys.soc(), order, alternative) == pytest.approx(latency(table, toys.soc(), order, alternative), rel=1e-12)
    without = simulate(table, toys.soc(), order, alternative, thermal=False).trace.counters
    assert not [name for name in without if "cache" in name]


def test_both_paths_count_the_same(toys: SimpleNamespace) -> None:
    table, order, alternative = cached(toys, 4)
    full, quick = (simulate(table, toys.soc(), order, alternative, iterations=20, thermal=False, path=p) for p in PATHS)
    assert full.bytes_moved == pytest.approx(quick.bytes_moved, rel=1e-9)
    for name in ("bandwidth/system_cache", "utilisation/system_cache"):
        a, b = (float(np.diff(c.times_s) @ c.values[:-1]) for c in (s.trace.counters[name] for s in (full, quick)))
        assert 0 < a == pytest.approx(b, rel=1e-6)
        assert max(full.trace.counters[name].values) <= (1 + 1e-9 if name.startswith("util") else 100 * GB)


@cache
def bigger(chip: str) -> tuple[SoC, CostTable]:
    """A chip with 32 MB of system cache in place of its own, and MobileNetV2's costs there."""
    soc = overridden(load_soc(chip), {"memory.system_cache_mb": "32"})
    return soc, build_table(hetsched.load(MODEL), soc)


@pytest.mark.parametrize("chip", ["snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro"])
def test_what_if_hardware_alone_is_the_plan(chip: str) -> None:
    """Time to 1e-9, and energy: of the bytes that the DRAM moves and of those that the cache serves."""
    soc, table = bigger(chip)
    order = list(range(len(table.op_names)))
    for q in range(len(table.queues)):
        alternative = [next((a for a in table.alternatives(i) if table.alt_queue[a] == q), table.alternatives(i)[0]) for i in order]
        planned, s = schedule(table, order, alternative), simulate(table, soc, order, alternative, thermal=False)
        assert s.first_s == pytest.approx(planned.latency_s, rel=1e-9)
        assert s.energy.soc == pytest.approx(planned.energy_j, rel=1e-9)


def test_a_slowed_table_keeps_what_the_cache_serves() -> None:
    soc, table = bigger("snapdragon-8-gen-3")
    slow = table_at(table, soc, {"npu": 0.5})
    assert slow.cache_bytes_s == table.cache_bytes_s and np.array_equal(slow.cache_bytes, table.cache_bytes)
    assert table.cache_bytes.any()
