"""Plans for Apple's Neural Engine, and starts of GPUs, cost what the fits say."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, sqrt

import numpy as np
import pytest

from hetsched.costs import CostTable
from hetsched.graph import Graph
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table
from hetsched_cost_models.fit import processors
from hetsched_cost_models.fit.processor_data import COLUMNS, Row, graphs, published, rows
from hetsched_cost_models.fit.processor_fit import KINDS
from hetsched_cost_models.fit.processor_form import Stack
from hetsched_cost_models.parameters import FITTED, family_of, read_parameters

Build = Callable[..., Graph]
STORED = read_parameters(FITTED / processors.FILE)
LAYERS = 8


def _values(name: str) -> dict[str, float]:
    return {n: float(v["value"]) for n, v in STORED[name].items()}


def _twin(graph_of: Build, model: str) -> Graph:
    """As many multiply-accumulates and weights as the network has, in equal 1x1 convolutions."""
    if model in graphs():
        macs, weights = graphs()[model][:, [COLUMNS.index("macs"), COLUMNS.index("weights")]].sum(axis=0).tolist()
    else:
        macs, weights = published()[model]
    channels, positions = round(sqrt(weights / LAYERS)), max(1, round(macs / weights))
    names = [f"x{i}" for i in range(LAYERS + 1)]
    shapes = dict.fromkeys(names, (1, channels, 1, positions))
    kernels = dict.fromkeys([f"w{i}" for i in range(LAYERS)], (channels, channels, 1, 1))
    ops = [("Conv", [names[i], f"w{i}"], [names[i + 1]]) for i in range(LAYERS)]
    return graph_of(ops, shapes | kernels, constants=tuple(kernels))


def _seconds(table: CostTable, name: str) -> float:
    """All operators on one queue, its launch and its signal; without conversions of inputs and outputs."""
    q = table.queue_index(name)
    mine = table.alt_queue == q
    ops = table.overhead_s + np.maximum(table.compute_s, table.dram_bytes / table.bandwidth_bytes_s[table.alt_queue])
    return float(ops[mine].sum() + table.launch_s[q] + table.sync_s[q, table.host])


def _some() -> list[Row]:
    found = [r for r in rows() if r.unit == "npu"]
    return [r for r in found if r.model == "mobilenet_v2"] + found[4::3]


@pytest.mark.parametrize("row", _some(), ids=lambda r: f"{r.model}-{r.chip}-{r.precision}")
def test_a_plan_for_the_neural_engine_takes_what_its_fit_predicts(graph_of: Build, row: Row) -> None:
    kind = KINDS["npu"]
    fitted = float(np.exp(kind.form(Stack([row]), _values("npu")))[0])
    table = build_table(_twin(graph_of, row.model), load_soc(row.chip), precision={"f16": "float", "i8": "w8a8"}[row.precision])
    assert _seconds(table, "npu") == pytest.approx(fitted, rel=0.01)


def test_its_interval_is_calibrated(graph_of: Build) -> None:
    soc = load_soc("apple-a17-pro")
    width = family_of(soc.by_name["npu"]).half_width["all"]
    assert build_table(_twin(graph_of, "mobilenet_v2"), soc).interval == pytest.approx((exp(-width), exp(width)))


@pytest.mark.parametrize("chip", ["snapdragon-8-gen-3", "dimensity-9300"])
def test_a_graph_on_a_gpu_starts_as_its_fit_says_unless_the_user_sets_it(graph_of: Build, chip: str) -> None:
    """Launch and signal together."""
    for overrides, expected in (({}, _values("gpu")["fixed_s"]), ({"gpu.launch_us": "7"}, None)):
        soc = load_soc(chip, overrides=overrides)
        table = build_table(_twin(graph_of, "mobilenet_v2"), soc)
        gpu = table.queue_index("gpu")
        start, signal = float(table.launch_s[gpu]), float(table.sync_s[gpu, table.host])
        assert start + signal == pytest.approx(expected if expected is not None else 7e-6 + signal, rel=1e-3)
