"""A DMA engine that copies tensors where there is no shared handle: events by hand, the plan's own time and energy, both paths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import hetsched
from hetsched.costs import CostTable, Dma
from hetsched.partition.accounting import accounts_of
from hetsched.partition.timing import Costs, figures
from hetsched.plans import Deployment
from hetsched.segments import schedule
from hetsched.soc_files import load_soc, overridden
from hetsched.socs import SoC
from hetsched_cost_models import build_table
from hetsched_simulations import Simulation, latency, simulate
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.battery import battery_of
from hetsched_simulations.streams import Stream, run_streams
from hetsched_simulations.workload import commands_of

MB, GB = 1e6, 1e9
MODEL = Path(__file__).parents[2] / "models" / "mobilenet_v2_qdq.onnx"


def copying(table: CostTable, nbytes: float = 20 * MB, launch_s: float = 0.1e-3, watts: float = 0.5) -> CostTable:
    """The table with copies of ``nbytes`` at 20 GB/s between any two queues, but of the graph's input, which is everywhere."""
    copied = np.broadcast_to(nbytes * (1.0 - np.eye(3)), table.transfer_bytes.shape).copy()
    copied[0] = 0.0
    return replace(table, dma=Dma(20 * GB, launch_s, watts), copy_bytes=copied)


def spans(s: Simulation) -> list[Any]:
    """Queue, name, start and end in milliseconds of copies and ops."""
    found = [(x.queue, x.name, x.start_s * 1e3, x.end_s * 1e3) for x in s.trace.spans if x.kind in ("op", "transfer", "wait")]
    return [(q, name, pytest.approx(start), pytest.approx(end)) for q, name, start, end in sorted(found)]


def test_a_copy_between_two_ops(toys: SimpleNamespace) -> None:
    table = copying(toys.table([{"compute": 1e-3}, {"compute": 2e-3, "reads": [0]}], sync_s=0.1e-3))
    s = simulate(table, toys.soc(), [0, 1], toys.on(0, 2))
    assert spans(s) == [
        ("cpu", "op0", 0.0, 1.0),
        ("dma", "copy t0", 0.0, 1.0),  # it waits
        ("dma", "copy t0", 1.0, 2.1),
        ("npu", "op1", 0.0, 2.2),  # it waits, and is told a sync later
        ("npu", "op1", 2.2, 4.2),
    ]
    assert s.trace.queues == ("cpu", "gpu", "npu", "dma")
    assert s.first_s == pytest.approx(4.3e-3)
    assert s.bytes_moved == pytest.approx(20 * MB)
    assert s.energy.dma == s.energy_j["dma"] == pytest.approx(1.1e-3 * 0.5)
    assert [(i.name, pytest.approx(i.time_s * 1e3)) for i in s.trace.instants] == [
        ("segment 0 op0", 1.0), ("segment 1 copy t0", 2.1), ("segment 1 op1", 4.2)
    ]  # fmt: skip


def test_both_processors_work_while_it_copies(toys: SimpleNamespace) -> None:
    """The NPU has 4 ms to do, the CPU goes on with something else: neither notices the copy, unless the NPU makes it itself."""
    ops = [{"compute": 1e-3}, {"compute": 4e-3}, {"compute": 1e-3, "reads": [0, 1]}, {"compute": 2e-3}]
    table = copying(toys.table(ops, sync_s=0.1e-3))
    order, alternative = [1, 0, 2, 3], toys.on(0, 2, 2, 0)
    s = simulate(table, toys.soc(), order, alternative)
    assert {x.name: (x.start_s, x.end_s) for x in s.trace.spans if x.kind in ("op", "transfer")} == {
        "op1": pytest.approx((0.0, 4e-3)), "op0": pytest.approx((0.0, 1e-3)), "copy t0": pytest.approx((1e-3, 2.1e-3)),
        "op3": pytest.approx((1e-3, 3e-3)), "op2": pytest.approx((4e-3, 5e-3)),
    }  # fmt: skip
    assert latency(table, toys.soc(), order, alternative) == pytest.approx(5.1e-3)
    assert latency(table.copying_on_queues(), toys.soc(), order, alternative) == pytest.approx(6.2e-3)


def test_one_copy_at_a_time_in_the_order_of_submission(toys: SimpleNamespace) -> None:
    ops = [{"compute": 1e-3}, {"compute": 0.5e-3}, {"compute": 1e-3, "reads": [0, 1]}]
    s = simulate(copying(toys.table(ops)), toys.soc(), [0, 1, 2], toys.on(0, 1, 2))
    assert [(x.name, x.start_s, x.end_s) for x in s.trace.spans if x.kind == "transfer"] == [
        ("copy t0", pytest.approx(1e-3), pytest.approx(2.1e-3)),
        ("copy t1", pytest.approx(2.1e-3), pytest.approx(3.2e-3)),  # it was there at 0.5 ms, and waits for the one before
    ]
    assert s.first_s == pytest.approx(4.2e-3)


def test_it_shares_the_bus(toys: SimpleNamespace) -> None:
    """From 1 ms on 20 MB of a copy (20 GB/s) beside 60 MB on the GPU (30 GB/s) on a bus of 30 GB/s: each gets half."""
    table = copying(toys.table([{"compute": 0.9e-3}, {"overhead": 1e-3, "bytes": 60 * MB}, {"reads": [0]}]))
    s = simulate(table, toys.soc(reachable=30 * GB), [0, 1, 2], toys.on(0, 1, 2))
    ends = {x.name: x.end_s for x in s.trace.spans if x.kind in ("op", "transfer")}
    assert ends["copy t0"] == pytest.approx(1e-3 + 20 / 15e3)
    assert ends["op1"] == pytest.approx(1e-3 + 20 / 15e3 + 40 / 30e3)
    assert s.bytes_moved == pytest.approx(80 * MB)


@pytest.mark.parametrize("seed", range(12))
def test_without_contention_it_takes_what_the_plan_says(toys: SimpleNamespace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, order, alternative = toys.random_case(rng, 14)
    table = copying(table, rng.uniform(1, 30) * MB, rng.choice([0.0, 0.1e-3]))
    table.copy_bytes[0] = table.copy_bytes[1]
    timed = schedule(table, order, alternative)
    assert len(timed.copies) == sum(t.copy_s > 0 for s in timed.segments for t in s.transfers) > 0
    assert latency(table, toys.soc(), order, alternative, contention=False) == pytest.approx(timed.latency_s, rel=1e-9)
    assert latency(table, toys.soc(), order, alternative) >= timed.latency_s * (1 - 1e-9)
    found = figures(Costs(table), order, alternative)
    assert found[:3] == pytest.approx((timed.latency_s, timed.serial_s, timed.energy_j), rel=1e-9)
    spent = accounts_of(table, timed)
    assert spent.work_s + spent.launch_s + spent.sync_s + spent.transfer_s == pytest.approx(timed.latency_s, rel=1e-9)


def unshared(**more: str) -> SoC:
    """The 8 Gen 3, if it had no zero-copy handles and an engine that copies."""
    handles = {f"links.{pair}.handle": "null" for pair in ("cpu-gpu", "cpu-npu", "gpu-npu")}
    return overridden(load_soc("snapdragon-8-gen-3"), {**handles, "memory.dma_gbps": "20", **more})


@pytest.mark.parametrize("seed", range(3))
def test_the_plan_and_the_simulation_have_one_energy(seed: int) -> None:
    table = build_table(hetsched.load(MODEL), unshared())
    rng, wanted, alternative = np.random.default_rng(seed), 0, []
    for op in range(len(table.op_names)):
        wanted = int(rng.integers(0, 3)) if rng.random() < 0.2 else wanted
        choices = list(table.alternatives(op))
        alternative.append(next((a for a in choices if table.alt_queue[a] == wanted), choices[0]))
    order = list(range(len(table.op_names)))
    timed = schedule(table, order, alternative)
    assert timed.copies
    s = simulate(table, unshared(), order, alternative, contention=False, thermal=False)
    assert s.first_s == pytest.approx(timed.latency_s, rel=1e-9)
    assert s.energy.soc == pytest.approx(timed.energy_j, rel=1e-9)
    total = s.trace.counters["power/total"]
    assert float(np.diff(total.times_s) @ np.array(total.values[:-1])) == pytest.approx(s.energy.total, rel=1e-9)


def run(toys: SimpleNamespace, path: str, **options: Any) -> Simulation:
    ops = [{"compute": 2e-3, "bytes": 10 * MB}, {"compute": 3e-3}, {"compute": 1e-3, "bytes": 20 * MB, "reads": [0, 1]}]
    soc = toys.soc(trip_c=38.0, polling_s=0.01, scale=0.02)
    return simulate(copying(toys.table(ops), watts=2.0), soc, [0, 1, 2], toys.on(0, 1, 2), path=path, **options)


def test_both_paths_agree_while_it_throttles(toys: SimpleNamespace) -> None:
    full, fast = (run(toys, path, duration_s=3.0) for path in ("full", "multirate"))
    assert full.throttling.happened
    assert fast.inferences == pytest.approx(full.inferences, rel=0.005)
    assert fast.energy.total == pytest.approx(full.energy.total, rel=0.005)
    assert fast.energy.dma == pytest.approx(full.energy.dma, rel=0.005)
    for node, c in full.peak_temperatures_c.items():
        assert fast.peak_temperatures_c[node] == pytest.approx(c, rel=0.005)


def test_both_paths_agree_at_constant_clocks(toys: SimpleNamespace) -> None:
    full, fast = (run(toys, path, iterations=30, thermal=False, period_s=20e-3) for path in ("full", "multirate"))
    assert fast.latencies_s == pytest.approx(full.latencies_s, rel=1e-9)
    assert fast.energy_j == pytest.approx(full.energy_j, rel=1e-9)
    power = fast.trace.counters["power/dma"]
    assert float(np.diff(power.times_s) @ np.array(power.values[:-1])) == pytest.approx(fast.energy.dma, rel=1e-9)
    assert "utilisation/dma" in fast.trace.counters


def test_its_power_heats_the_package_and_drains_the_battery(toys: SimpleNamespace) -> None:
    cell = battery_of(load_soc("snapdragon-8-gen-3"))
    assert cell is not None
    soc = toys.soc().model_copy(update={"battery": cell.model_copy(update={"hot": None})})

    def package_c(watts: float, path: str) -> float:
        ops = [{"compute": 1e-3}, {"compute": 1e-3, "reads": [0]}]
        s = simulate(copying(toys.table(ops), watts=watts), soc, [0, 1], toys.on(0, 2), duration_s=5.0, battery=0.5, path=path)
        assert s.battery is not None
        assert s.battery.store_j == pytest.approx(s.energy.total + s.battery.loss_j, rel=1e-9)
        return s.final_temperatures_c["package"]

    for path in ("full", "multirate"):
        assert package_c(3.0, path) > package_c(0.0, path) + 0.5


def test_streams_share_it(toys: SimpleNamespace) -> None:
    """Two models whose tensors are ready at once: the second's copy waits for the first's."""
    table = copying(toys.table([{"compute": 1e-3}, {"compute": 1e-3, "reads": [0]}]))
    streams = [Stream(str(q), commands_of(table, [0, 1], toys.on(q, 2)), 1.0, 1.0, q) for q in (0, 1)]
    shared = run_streams(Bus.of_table(toys.soc(), table), [q.name for q in table.lanes], streams, 0.5)
    assert [o.latencies_s for o in shared.streams] == [[pytest.approx(3.1e-3)], [pytest.approx(4.2e-3)]]


def test_a_plan_its_file_and_its_report_show_copies(tmp_path: Path) -> None:
    """The picture goes to the NPU through the engine before anything runs."""
    planned = hetsched.plan(MODEL, unshared(), solver="single:npu", simulated=False)
    made = planned.plan.copies
    assert [(c.segment, c.start_s) for c in made] == [(0, 0.0)]
    assert planned.plan.segments[0].start_s > made[0].end_s
    assert planned.plan.accounts is not None and planned.plan.accounts.transfer_s > made[0].end_s
    again = Deployment.model_validate_json(planned.deployment.to_json())
    assert again.entries[0].plan.copies == made
    assert f"copy of {made[0].tensor} for segment 0" in hetsched.report(planned, tmp_path / "r.html").read_text("utf-8")
    plain = hetsched.plan(MODEL, "snapdragon-8-gen-3", solver="single:npu", simulated=False)
    assert '"copies"' not in plain.deployment.to_json()


def test_without_something_to_copy_there_is_no_engine() -> None:
    graph = hetsched.load(MODEL)
    plain, idle = build_table(graph, load_soc("snapdragon-8-gen-3")), overridden(load_soc("snapdragon-8-gen-3"), {"memory.dma_gbps": "20"})
    assert build_table(graph, idle).dma is None
    assert build_table(graph, unshared()).dma == Dma(20e9, 2e-6, pytest.approx(0.12))
    own = build_table(graph, unshared(**{"memory.dma_launch_us": "5", "memory.dma_w": "0.3", "memory.dma_gbps": "500"}))
    assert own.dma == Dma(61.9e9, 5e-6, 0.3)  # no faster than all together
    assert plain.lanes == plain.queues


def test_nothing_else_has_its_name() -> None:
    raw = unshared().model_dump()
    raw["queues"]["dma"] = raw["queues"].pop("gpu")
    with pytest.raises(ValidationError, match="a processor or a queue is called 'dma', as the engine"):
        SoC.model_validate(raw)
