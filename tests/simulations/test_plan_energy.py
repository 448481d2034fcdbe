"""The energy of a plan and of its simulation are one formula: the cost table's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.costs import CostTable
from hetsched.graph import Graph
from hetsched.segments import schedule
from hetsched.soc_files import list_socs, load_soc
from hetsched.socs import SoC
from hetsched_cost_models import build_table
from hetsched_cost_models.host.chip import soc_of
from hetsched_cost_models.host.detect import Machine
from hetsched_cost_models.host.measurement import VERSION, HostMeasurement
from hetsched_simulations import simulate

MODEL = Path(__file__).parents[2] / "models" / "mobilenet_v2_qdq.onnx"


@cache
def graph() -> Graph:
    return hetsched.load(MODEL)


def two_queue_host() -> SoC:
    """A host of four equal cores with two queues, as a measurement makes it, round figures."""
    machine = Machine("Test", "x86_64", "Linux", (0, 1, 2, 3), (), 1 << 15, 1 << 20, 32 << 20, 8 << 30, 3e9, "k")
    classes = ("conv1x1", "conv", "grouped", "depthwise", "gemm", "matmul")
    measured = HostMeasurement(
        version=VERSION, fingerprint="0" * 16, model="Test", cores=machine.cores, read_one_bytes_s=10e9, read_all_bytes_s=25e9,
        peak_f32_ops_s=100e9, peak_i8_ops_s=400e9, rates={f"{c}/{p}": 50e9 for c in classes for p in ("f32", "i8")},
        vector_bytes_s=20e9, vector={"elementwise": 1.0}, op_overhead_s=2e-6, launch_s=8e-6, sync_s=5e-6, sync_estimated=False,
        serial_share=0.1, spread=0.0, others=0.0, probe_s=(),
    )  # fmt: skip
    return soc_of(machine, measured)


def placed(table: CostTable, seed: int) -> tuple[list[int], list[int]]:
    """Ops in file order, each on a random queue that changes now and then."""
    rng = np.random.default_rng(seed)
    wanted, alternative = 0, []
    for op in range(len(table.op_names)):
        if rng.random() < 0.2:
            wanted = int(rng.integers(0, len(table.queues)))
        choices = list(table.alternatives(op))
        alternative.append(next((a for a in choices if table.alt_queue[a] == wanted), choices[0]))
    return list(range(len(table.op_names))), alternative


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("precision", ["auto", "float"])
@pytest.mark.parametrize("soc", [*map(load_soc, list_socs()), two_queue_host()], ids=lambda s: s.id)
def test_a_single_inference_draws_what_the_plan_says(soc: SoC, precision: str, seed: int) -> None:
    """Without contention and cool; leakage grows a little while the chip warms by a fraction of a degree."""
    table = build_table(graph(), soc, precision=precision)
    order, alternative = placed(table, seed)
    planned = schedule(table, order, alternative)
    assert len({s.queue for s in planned.segments}) > 1
    cold = simulate(table, soc, order, alternative, contention=False, thermal=False)
    assert cold.energy.soc == pytest.approx(planned.energy_j, rel=1e-9)
    warming = simulate(table, soc, order, alternative, contention=False)
    assert planned.energy_j <= warming.energy.soc <= 1.01 * planned.energy_j
    assert warming.throttling.steps == 0
    many = simulate(table, soc, order, alternative, contention=False, thermal=False, iterations=20, path="multirate")
    assert many.energy.soc == pytest.approx(20 * planned.energy_j, rel=1e-6)


@pytest.mark.parametrize("soc", [*map(load_soc, list_socs()), two_queue_host()], ids=lambda s: s.id)
def test_contention_adds_the_power_of_the_time_that_it_adds(soc: SoC) -> None:
    table = build_table(graph(), soc)
    order, alternative = placed(table, 1)
    alone = simulate(table, soc, order, alternative, contention=False, thermal=False)
    shared = simulate(table, soc, order, alternative, contention=True, thermal=False)
    longer = sum(s.end_s - s.start_s for s in shared.trace.spans if s.kind == "segment")
    longer -= sum(s.end_s - s.start_s for s in alone.trace.spans if s.kind == "segment")
    most = sum(float(c.dynamic_w) + float(c.leakage_w) for p in soc.processors for c in p.clusters)
    assert -1e-12 <= shared.energy.soc - alone.energy.soc <= longer * most + 1e-12
    assert shared.energy.dram == pytest.approx(alone.energy.dram, rel=1e-9)
