"""What operators draw: by precision, by level of memory, and no more than the SoC file's watts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hetsched.costs import CostTable
from hetsched.graph import DType, Graph
from hetsched.soc_files import list_socs, load_soc
from hetsched.socs import SoC
from hetsched_cost_models import build_table, energy
from hetsched_cost_models.roofline import queue_rates
from hetsched_simulations import simulate


@pytest.fixture
def decoding(graph_of: Callable[..., Graph]) -> Graph:
    """One token through a layer of 64 million weights: bound by memory everywhere."""
    shapes = {"x": (1, 8192), "w": (8192, 8192), "y": (1, 8192)}
    return graph_of([("MatMul", ["x", "w"], ["y"])], shapes, constants=("w",))


@pytest.fixture
def convolution(graph_of: Callable[..., Graph]) -> Graph:
    """Bound by arithmetic everywhere."""
    return graph_of([("Conv", ["x", "w"], ["y"])], {"x": (1, 256, 58, 58), "w": (256, 256, 3, 3), "y": (1, 256, 56, 56)}, constants=("w",))


def on(table: CostTable, place: str) -> int:
    """The first alternative on a queue."""
    return next(a for a, q in enumerate(table.alt_queue.tolist()) if table.queues[q].name == place)


@pytest.mark.parametrize("chip", ["snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro"])
@pytest.mark.parametrize("name", ["decoding", "convolution"])
def test_fewer_bits_draw_less(chip: str, name: str, request: pytest.FixtureRequest) -> None:
    graph, soc = request.getfixturevalue(name), load_soc(chip)
    joules = []
    for precision in ("float", "w8a8"):
        table = build_table(graph, soc, precision=precision)
        joules.append(table.energy_j[on(table, "npu")])
    assert joules[1] < 0.9 * joules[0]


def test_four_bit_weights_draw_less_than_eight_bit_ones(decoding: Graph) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    wide, narrow = (build_table(decoding, soc, precision=p) for p in ("w8a16", "w4a16"))
    assert narrow.energy_j[on(narrow, "npu")] < 0.7 * wide.energy_j[on(wide, "npu")]


@pytest.mark.parametrize("place", ["cpu", "gpu", "npu"])
def test_who_waits_for_memory_draws_less_power(decoding: Graph, convolution: Graph, place: str) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    waiting, working = (build_table(g, soc) for g in (decoding, convolution))
    a, b = on(waiting, place), on(working, place)
    assert waiting.effort[a] < working.effort[b] <= 1.0
    rates = queue_rates(soc, soc.queues[place])
    assert waiting.effort[a] >= rates.family.busy_share


@pytest.mark.parametrize("chip", list_socs())
def test_nothing_draws_more_than_the_files_watts(convolution: Graph, chip: str) -> None:
    soc = load_soc(chip)
    for precision in ("float", "w8a8"):
        table = build_table(convolution, soc, precision=precision)
        active = np.array([queue_rates(soc, target).active_w for target in soc.queues.values()])[table.alt_queue]
        drawn = table.energy_j - table.dram_bytes * soc.memory.energy_j_per_byte.value
        assert np.all(drawn <= active * table.time_s * (1 + 1e-12)) and np.all(drawn > 0)


def test_joules_an_operation_go_with_the_peak(soc: SoC) -> None:
    npu = next(d for d in energy.drawn(soc) if d.queue == "npu")
    assert (npu.busy_w, npu.leakage_w) == (pytest.approx(0.75 * 2.0), 0.0)
    assert npu.op_j == {"f16": pytest.approx(0.25 * 2.0 / 2000e9), "i8": pytest.approx(0.25 * 2.0 / 8000e9)}
    assert npu.byte_j == pytest.approx(0.25 * 2.0 / 100e9)


@pytest.mark.parametrize("chip", list_socs())
def test_at_its_peak_every_precision_draws_all_watts(chip: str) -> None:
    soc = load_soc(chip)
    for d, target in zip(energy.drawn(soc), soc.queues.values(), strict=True):
        rates = queue_rates(soc, target)
        for precision, joules in d.op_j.items():
            assert d.busy_w + d.leakage_w + joules * rates.peak_ops_s[precision] == pytest.approx(rates.active_w)


def test_a_table_without_efforts_draws_everything(graph_of: Callable[..., Graph], soc: SoC) -> None:
    graph = graph_of([("Relu", ["x"], ["y"])], {"x": (1, 64, 64), "y": (1, 64, 64)}, dtypes={"x": DType.F32})
    table = build_table(graph, soc)
    npu = on(table, "npu")
    full = replace(table, effort=np.zeros(0))
    less, more = (simulate(t, soc, [0], [npu], thermal=False).energy.soc for t in (table, full))
    seconds, watts = table.time_s[npu], 2.0
    assert more - less == pytest.approx(watts * seconds * (1 - table.effort[npu]), rel=1e-9)


def test_restricting_a_table_keeps_the_efforts_of_what_stays(convolution: Graph, soc: SoC) -> None:
    table = build_table(convolution, soc)
    keep = np.array([table.queues[q].kind == "npu" for q in table.alt_queue.tolist()])
    assert table.restrict(keep).effort.tolist() == table.effort[keep].tolist()
