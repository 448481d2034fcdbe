"""Tiny plans whose every event was computed by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from simpy import Environment

from hetsched_simulations import Simulation, latency, simulate
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.machine import Host, Machine
from hetsched_simulations.workload import Work

MB = 1e6
GB = 1e9


def log_of(s: Simulation) -> list[tuple[float, str]]:
    """Starts and ends of spans and fences, in milliseconds."""
    events = [(round(x.start_s * 1e3, 9), f"{x.queue} {x.kind} {x.name} starts") for x in s.trace.spans]
    events += [(round(x.end_s * 1e3, 9), f"{x.queue} {x.kind} {x.name} ends") for x in s.trace.spans]
    events += [(round(x.time_s * 1e3, 9), f"{x.kind} {x.name}") for x in s.trace.instants]
    return sorted(events)


def test_a_chain_over_two_queues(toys: SimpleNamespace) -> None:
    table = toys.table(
        [{"compute": 1e-3}, {"compute": 2e-3, "reads": [0]}], sync_s=0.1e-3, launch_s=0.2e-3, transfer=(0.04e-3, 0.06e-3, 0.0)
    )
    s = simulate(table, toys.soc(), [0, 1], toys.on(0, 2))
    assert log_of(s) == [
        (0.0, "cpu launch launch cpu starts"),
        (0.0, "cpu segment op0 starts"),
        (0.0, "npu wait op1 starts"),
        (0.2, "cpu launch launch cpu ends"),
        (0.2, "cpu op op0 starts"),
        (1.2, "cpu op op0 ends"),
        (1.2, "cpu segment op0 ends"),
        (1.2, "fence segment 0 op0"),
        (1.3, "npu launch launch npu starts"),
        (1.3, "npu segment op1 starts"),
        (1.3, "npu wait op1 ends"),
        (1.5, "npu launch launch npu ends"),
        (1.5, "npu transfer t0 starts"),
        (1.6, "npu op op1 starts"),
        (1.6, "npu transfer t0 ends"),
        (3.6, "fence segment 1 op1"),
        (3.6, "npu op op1 ends"),
        (3.6, "npu segment op1 ends"),
    ]
    assert s.first_s == pytest.approx(3.7e-3, rel=1e-12)  # the host sees the output one sync later


def test_two_branches_overlap_and_the_join_waits_for_the_slower(toys: SimpleNamespace) -> None:
    ops = [{"compute": 3e-3}, {"compute": 1e-3}, {"compute": 1e-3, "reads": [0, 1]}]
    s = simulate(toys.table(ops, sync_s=0.5e-3), toys.soc(), [0, 1, 2], toys.on(1, 2, 2), op_spans=False)
    assert log_of(s) == [
        (0.0, "gpu segment op0 starts"),
        (0.0, "npu wait op1 … op2 starts"),
        (3.0, "fence segment 0 op0"),
        (3.0, "gpu segment op0 ends"),
        (3.5, "npu segment op1 … op2 starts"),
        (3.5, "npu wait op1 … op2 ends"),
        (5.5, "fence segment 1 op1 … op2"),
        (5.5, "npu segment op1 … op2 ends"),
    ]
    assert s.first_s == pytest.approx(6e-3, rel=1e-12)
    split = simulate(toys.table(ops, sync_s=0.5e-3), toys.soc(), [1, 0, 2], toys.on(1, 2, 2), op_spans=False)
    assert split.first_s == pytest.approx(5e-3, rel=1e-12)  # op1 is now a segment of its own: it runs beside op0


def test_traffic_on_two_queues_shares_the_bus(toys: SimpleNamespace) -> None:
    """20 MB at 20 GB/s beside 40 MB at 40 GB/s on a 50 GB/s bus: 30 GB/s for the second until 1 ms, then 40 for 10 MB."""
    table = toys.table([{"bytes": 20 * MB}, {"bytes": 40 * MB}])
    s = simulate(table, toys.soc(), [0, 1], toys.on(0, 2), op_spans=False)
    assert log_of(s)[2:] == [
        (1.0, "cpu segment op0 ends"),
        (1.0, "fence segment 0 op0"),
        (1.25, "fence segment 1 op1"),
        (1.25, "npu segment op1 ends"),
    ]
    bus = s.trace.counters["bandwidth/dram"]
    assert bus.times_s == pytest.approx([0, 1e-3, 1.25e-3])
    assert bus.values[:2] == pytest.approx([50 * GB, 40 * GB])
    assert s.bytes_moved == pytest.approx(60 * MB, rel=1e-12)
    measured = toys.soc(together={"cpu+npu": 30 * GB})
    assert latency(table, measured, [0, 1], toys.on(0, 2)) == pytest.approx((20 / 15 + 20 / 40) * 1e-3, rel=1e-12)
    assert latency(table, toys.soc(), [0, 1], toys.on(0, 2), contention=False) == pytest.approx(1e-3, rel=1e-12)


def test_computation_hides_what_contention_costs(toys: SimpleNamespace) -> None:
    table = toys.table([{"bytes": 20 * MB}, {"bytes": 40 * MB, "compute": 2e-3}])
    assert latency(table, toys.soc(), [0, 1], toys.on(0, 2)) == pytest.approx(2e-3, rel=1e-12)


@pytest.mark.parametrize(("megabytes", "transfer_ms", "gpu_ms"), [(10, 1.0, 2.0), (30, 1.5, 2.5)])
def test_a_transfer_slows_only_when_it_gets_too_little(toys: SimpleNamespace, megabytes: float, transfer_ms: float, gpu_ms: float) -> None:
    """A transfer of 1 ms on the NPU beside 60 MB on the GPU at 30 GB/s, on a bus of 40 GB/s.

    10 MB need 10 GB/s: both get what they want. 30 MB need 30 GB/s: both get 20 until the transfer ends at 1.5 ms, when the
    GPU has 30 MB left, for which it takes 1 ms.
    """
    table = toys.table([{"compute": 0.5e-3}, {"bytes": 60 * MB}], transfer=(0.6e-3, 0.4e-3, megabytes * MB))
    table.transfer_bytes[:, 0, 1] = table.conversion_s[:, 0, 1] = table.maintenance_s[:, 0, 1] = 0.0
    s = simulate(table, toys.soc(reachable=40 * GB), [0, 1], toys.on(2, 1))
    ends = {x.kind if x.kind == "transfer" else x.name: x.end_s * 1e3 for x in s.trace.spans}
    assert ends["transfer"] == pytest.approx(transfer_ms)
    assert ends["op0"] == pytest.approx(transfer_ms + 0.5)
    assert ends["op1"] == pytest.approx(gpu_ms)
    assert s.bytes_moved == pytest.approx((60 + megabytes) * MB, rel=1e-12)


def test_a_clock_change_acts_on_work_in_flight(toys: SimpleNamespace) -> None:
    env, log = Environment(), []
    bus = Bus.of(toys.soc(), toys.table([{}]).queues, [GB] * 3)
    machine = Machine(env, bus, [1.0, 1.0, 1.0], lambda passed: None, Host())

    def queue(q: int, work: Work) -> Any:
        yield machine.run(q, [work])
        log.append((round(env.now, 9), work.name))

    def clock() -> Any:
        yield env.timeout(0.4)
        machine.set_rates([0.5, 1.0, 0.5])

    env.process(queue(0, Work("op", "computes", 0.0, 1.0)))
    env.process(queue(1, Work("op", "elsewhere", 0.0, 1.1)))
    env.process(queue(2, Work("op", "starts late", 0.5, 0.2)))
    env.process(clock())
    env.run()
    # 0.4 done, 0.6 left at half the rate; the fixed 0.5 s is not slowed, the 0.2 s after it are
    assert log == [(0.9, "starts late"), (1.1, "elsewhere"), (1.6, "computes")]


def test_memory_bound_work_follows_the_clock_of_its_processor(toys: SimpleNamespace) -> None:
    ops = [{"bytes": 20 * MB, "compute": 0.1e-3}]
    for governor, expected in (("performance", 1e-3), ("powersave", 4e-3)):
        s = simulate(toys.table(ops), toys.soc(), [0], toys.on(0), governor=governor)
        assert s.first_s == pytest.approx(expected, rel=1e-12)
    slow = simulate(toys.table([{"compute": 1e-3}]), toys.soc(), [0], toys.on(0), governor="powersave")
    assert slow.first_s == pytest.approx(4e-3, rel=1e-12)  # 0.5 of 2 GHz


def test_arrivals_on_a_period(toys: SimpleNamespace) -> None:
    table = toys.table([{"compute": 3e-3}])
    s = simulate(table, toys.soc(), [0], toys.on(0), iterations=3, period_s=2e-3, path="full")
    starts = [x.start_s for x in s.trace.spans if x.kind == "segment"]
    assert starts == pytest.approx([0, 4e-3, 8e-3])  # the arrivals at 2, 6 and 10 ms find the device busy
    assert s.latencies_s == pytest.approx([3e-3] * 3)


def test_a_clock_that_changes_just_when_something_ends_loses_nothing(toys: SimpleNamespace) -> None:
    env, log = Environment(), []
    bus = Bus.of(toys.soc(), toys.table([{}]).queues, [GB] * 3)
    machine = Machine(env, bus, [1.0, 1.0, 1.0], lambda passed: None, Host())

    def clock() -> Any:
        yield env.timeout(1.0)
        machine.set_rates([0.5, 1.0, 1.0])

    def queue() -> Any:
        for name in ("first", "second"):
            ends = yield machine.run(0, [Work("op", name, 0.0, 0.5), Work("op", name, 0.0, 0.5)])
            log.append((env.now, name, list(ends)))

    env.process(clock())  # before the queue: it acts first at 1.0
    env.process(queue())
    env.run()
    assert log == [(1.0, "first", [0.5, 1.0]), (3.0, "second", [2.0, 3.0])]
