"""What-if hardware in the cost model: a larger system cache, arithmetic in memory, skipped zeros and 8-bit floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hetsched.costs import CostTable
from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph
from hetsched.segments import schedule
from hetsched.soc_files import load_soc, overridden
from hetsched.socs import SoC
from hetsched_cost_models import build_table, energy
from hetsched_cost_models.roofline import queue_rates
from hetsched_simulations import simulate

CHIPS = ("snapdragon-8-gen-3", "dimensity-9300", "apple-a17-pro")


@pytest.fixture
def decoding(graph_of: Callable[..., Graph]) -> Graph:
    """One token through two layers of 16 million weights."""
    shapes = {"x": (1, 4096), "v": (4096, 4096), "w": (4096, 4096), "h": (1, 4096), "y": (1, 4096)}
    return graph_of([("MatMul", ["x", "v"], ["h"]), ("MatMul", ["h", "w"], ["y"])], shapes, constants=("v", "w"))


@pytest.fixture
def convolutions(graph_of: Callable[..., Graph]) -> Graph:
    """Two convolutions with large images between them."""
    shapes = {"x": (1, 64, 258, 258), "v": (64, 64, 3, 3), "h": (1, 64, 256, 256), "w": (64, 64, 1, 1), "y": (1, 64, 256, 256)}
    return graph_of([("Conv", ["x", "v"], ["h"]), ("Conv", ["h", "w"], ["y"])], shapes, constants=("v", "w"))


@pytest.fixture
def attention(graph_of: Callable[..., Graph]) -> Graph:
    """A product of two activations: nothing is constant, so nothing is pruned."""
    return graph_of([("MatMul", ["x", "k"], ["y"])], {"x": (1, 8, 256, 512), "k": (1, 8, 512, 256), "y": (1, 8, 256, 256)})


def on(table: CostTable, kind: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([table.queues[q].kind == kind for q in table.alt_queue.tolist()])


def total(table: CostTable, kind: str) -> tuple[float, float, float]:
    """Seconds, joules and DRAM bytes of the alternatives on a kind of processor."""
    here = on(table, kind)
    return float(table.time_s[here].sum()), float(table.energy_j[here].sum()), float(table.dram_bytes[here].sum())


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["cpu", "gpu", "npu"])
@pytest.mark.parametrize("name", ["decoding", "convolutions"])
def test_a_larger_system_cache_takes_traffic_off_the_bus(chip: str, kind: str, name: str, request: pytest.FixtureRequest) -> None:
    graph, soc = request.getfixturevalue(name), load_soc(chip)
    before = total(build_table(graph, soc), kind)
    more = [total(build_table(graph, overridden(soc, {"memory.system_cache_mb": mb})), kind) for mb in ("40", "100", "400")]
    for a, b in zip([before, *more], more, strict=False):
        assert b[0] <= a[0] * (1 + 1e-12) and b[1] <= a[1] * (1 + 1e-12) and b[2] <= a[2]
    if before[2] > 1e6:
        assert more[-1][2] < 0.1 * before[2] and more[-1][1] < before[1]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["cpu", "gpu", "npu"])
@pytest.mark.parametrize("name", ["decoding", "convolutions"])
def test_what_no_longer_crosses_the_bus_is_what_the_cache_serves(chip: str, kind: str, name: str, request: pytest.FixtureRequest) -> None:
    graph, soc = request.getfixturevalue(name), load_soc(chip)
    plain, cached = build_table(graph, soc), build_table(graph, overridden(soc, {"memory.system_cache_mb": "64"}))
    assert not plain.cache_bytes.any() and plain.cache_bytes_s == float("inf")
    here = on(cached, kind)
    assert (cached.cache_bytes >= 0).all()
    assert (cached.dram_bytes + cached.cache_bytes)[here].sum() == pytest.approx(plain.dram_bytes[here].sum(), rel=1e-9)
    assert cached.cache_bytes_s == pytest.approx(2.3 * soc.memory.peak_bytes_s.value)
    given = overridden(soc, {"memory.system_cache_mb": "64", "memory.system_cache_gbps": "300"})
    assert build_table(graph, given).cache_bytes_s == 300e9


def test_what_it_serves_is_smaller_than_what_was_added(soc: SoC, decoding: Graph) -> None:
    """Weights of 67 MB in float16 against a cache of 1 MB more: all of them stream."""
    before, after = (total(build_table(decoding, s), "npu") for s in (soc, overridden(soc, {"memory.system_cache_mb": "2"})))
    assert after == pytest.approx(before, rel=1e-6)


def test_the_rate_of_the_cache_counts(decoding: Graph) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    slow, fast = (
        total(build_table(decoding, overridden(soc, {"memory.system_cache_mb": "500", "memory.system_cache_gbps": r})), "npu")
        for r in ("100", "400")
    )
    assert fast[0] < 0.5 * slow[0]


@pytest.mark.parametrize("chip", CHIPS)
def test_weights_used_in_memory_do_not_cross_the_bus(chip: str, decoding: Graph) -> None:
    soc = load_soc(chip)
    plain, inside = build_table(decoding, soc), build_table(decoding, overridden(soc, {"memory.pim_gbps": "800"}))
    for kind, width in (("cpu", 4), ("npu", 2)):
        a, b = total(plain, kind), total(inside, kind)
        assert b[2] < 1e-3 * a[2] and b[0] < 0.5 * a[0]
        assert b[0] >= 2 * width * 4096 * 4096 / 800e9 * (1 - 1e-9)


def test_prompts_are_not_computed_in_memory(graph_of: Callable[..., Graph]) -> None:
    graph = graph_of([("MatMul", ["x", "w"], ["y"])], {"x": (64, 2048), "w": (2048, 2048), "y": (64, 2048)}, constants=("w",))
    soc = load_soc("snapdragon-8-gen-3")
    plain, inside = build_table(graph, soc), build_table(graph, overridden(soc, {"memory.pim_gbps": "800"}))
    assert inside.time_s.tolist() == plain.time_s.tolist() and inside.energy_j.tolist() == plain.energy_j.tolist()


@pytest.mark.parametrize("chip", CHIPS)
def test_sparsity_speeds_constant_weights_up_and_nothing_else(chip: str, convolutions: Graph, attention: Graph) -> None:
    soc = load_soc(chip)
    sparse = overridden(soc, {"npu.sparsity": "2"})
    plain, pruned = (build_table(convolutions, s) for s in (soc, sparse))
    assert np.all(pruned.compute_s[on(pruned, "npu")] < plain.compute_s[on(plain, "npu")])
    assert np.all(pruned.energy_j[on(pruned, "npu")] < plain.energy_j[on(plain, "npu")])
    assert pruned.time_s[on(pruned, "cpu")].tolist() == plain.time_s[on(plain, "cpu")].tolist()
    same, before = (build_table(attention, s) for s in (sparse, soc))
    assert same.time_s.tolist() == before.time_s.tolist() and same.energy_j.tolist() == before.energy_j.tolist()


def test_sparse_weights_are_read_with_their_indices(soc: SoC, decoding: Graph) -> None:
    """Half of the values of 16 bits, each with 2 bits: 9/16."""
    plain, pruned = (build_table(decoding, s) for s in (soc, overridden(soc, {"npu.sparsity": "2"})))
    assert pruned.weight_bytes[on(pruned, "npu")] == pytest.approx(9 / 16 * plain.weight_bytes[on(plain, "npu")])


@pytest.mark.parametrize("chip", CHIPS)
def test_8_bit_floats_halve_the_bytes_and_run_at_their_own_rate(chip: str, convolutions: Graph, decoding: Graph) -> None:
    soc = load_soc(chip)
    rate = sum(c.peak_ops_s["f16"].value for c in soc.by_name["npu"].clusters) / 1e12
    fast = overridden(soc, {"npu.fp8_tops": f"{2 * rate}"})
    for graph in (convolutions, decoding):
        half, eighth = build_table(graph, soc, precision="float"), build_table(graph, fast, precision="fp8")
        assert {eighth.alt_precision[a] for a in np.flatnonzero(on(eighth, "npu")).tolist()} == {"f8"}
        a, b = total(half, "npu"), total(eighth, "npu")
        assert b[0] < a[0] and b[1] < a[1]
        assert b[2] <= 0.5 * a[2] * (1 + 1e-9)
        assert total(eighth, "cpu") == total(half, "cpu")


def test_8_bit_floats_need_a_rate(convolutions: Graph) -> None:
    with pytest.raises(UnsupportedModelError, match="no accelerator of it has an FP8 rate"):
        build_table(convolutions, load_soc("snapdragon-8-gen-3"), precision="fp8")


def test_what_is_priced_by_engines_changes_in_proportion(decoding: Graph) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    chip = overridden(soc, {"memory.pim_gbps": "400"})
    plain, added = build_table(decoding, soc), build_table(decoding, chip)
    rates = [queue_rates(chip, target) for target in chip.queues.values()]
    assert energy.in_proportion(plain, plain, plain, rates, chip).energy_j == pytest.approx(plain.energy_j)
    slower = replace(
        plain, compute_s=3 * plain.compute_s, overhead_s=3 * plain.overhead_s, dram_bytes=3 * plain.dram_bytes, energy_j=3 * plain.energy_j
    )
    made = energy.in_proportion(slower, added, plain, rates, chip)
    assert made.time_s == pytest.approx(3 * added.time_s)
    assert made.energy_j == pytest.approx(3 * added.energy_j, rel=1e-6)
    npu = [next(a for a in made.alternatives(op) if made.queues[int(made.alt_queue[a])].kind == "npu") for op in range(2)]
    simulated = simulate(made, chip, [0, 1], npu, contention=False, thermal=False)
    assert simulated.energy.soc == pytest.approx(schedule(made, [0, 1], npu).energy_j, rel=1e-9)


@pytest.mark.parametrize(
    "fields", [{"memory.system_cache_mb": "64"}, {"memory.pim_gbps": "500"}, {"npu.sparsity": "2"}, {"npu.fp8_tops": "90"}]
)
def test_the_simulator_draws_what_the_plan_says(fields: dict[str, str], decoding: Graph) -> None:
    soc = overridden(load_soc("snapdragon-8-gen-3"), fields)
    table = build_table(decoding, soc, precision="fp8" if "npu.fp8_tops" in fields else "float")
    npu = [next(a for a in table.alternatives(op) if table.queues[int(table.alt_queue[a])].kind == "npu") for op in range(2)]
    simulated = simulate(table, soc, [0, 1], npu, contention=False, thermal=False)
    assert simulated.energy.soc == pytest.approx(schedule(table, [0, 1], npu).energy_j, rel=1e-9)
