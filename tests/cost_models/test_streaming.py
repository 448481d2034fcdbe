"""Weights that stream beside compute, in a table that adds operators up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.graph import Graph
from hetsched.soc_files import load_soc
from hetsched_cost_models import build_table
from hetsched_cost_models.streaming import spread

Sizes = st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e7), st.floats(1e-7, 1e-3)), min_size=1, max_size=12)


@given(Sizes, st.floats(1e9, 1e11))
def test_the_sum_over_operators_is_the_graphs_time(ops: list[tuple[float, float, float]], bandwidth: float) -> None:
    """Compute and streamed weights overlap as wholes, on top of what every operator waits for."""
    waited, ahead, compute = (np.array(c) for c in zip(*ops, strict=True))
    wait = waited / bandwidth
    dram = spread(waited, ahead, compute, np.arange(len(ops)))
    assert dram.sum() == pytest.approx(waited.sum() + ahead.sum(), rel=1e-9), "bytes are kept"
    seconds = np.maximum(compute + wait, dram / bandwidth).sum()
    assert seconds == pytest.approx(wait.sum() + max(compute.sum(), ahead.sum() / bandwidth), rel=1e-9)


def test_a_graph_that_only_streams_keeps_its_bytes() -> None:
    assert spread(np.zeros(2), np.array([1.0, 2.0]), np.zeros(2), np.arange(2)).tolist() == [1.0, 2.0]


def _layers(graph_of: Callable[..., Graph], n: int, width: int, rows: int) -> Graph:
    shapes = {f"x{i}": (rows, width) for i in range(n + 1)} | {f"w{i}": (width, width) for i in range(n)}
    ops = [("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(n)]
    return graph_of(ops, shapes, constants=tuple(f"w{i}" for i in range(n)))


@pytest.mark.parametrize(("width", "rows"), [(256, 64), (1024, 1), (4096, 1)])
def test_weights_are_counted_where_they_are_and_streamed_once(graph_of: Callable[..., Graph], width: int, rows: int) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    t = build_table(_layers(graph_of, 4, width, rows), soc)
    mine = np.flatnonzero(t.alt_queue == t.queue_index("npu"))
    assert t.weight_bytes[mine].tolist() == pytest.approx([2 * width * width] * 4)
    assert t.dram_bytes[mine].sum() == pytest.approx(t.weight_bytes[mine].sum(), rel=0.05)
    assert t.time_s[mine].sum() >= t.weight_bytes[mine].sum() / t.bandwidth_bytes_s[t.queue_index("npu")], "DRAM is the limit"


def test_a_decoder_never_beats_the_memory_bus(graph_of: Callable[..., Graph]) -> None:
    """A token of a large model reads every weight: nothing is assumed to stay on the chip."""
    soc = load_soc("snapdragon-8-gen-3")
    t = build_table(_layers(graph_of, 12, 4096, 1), soc)
    mine = np.flatnonzero(t.alt_queue == t.queue_index("npu"))
    assert t.time_s[mine].sum() >= 12 * 2 * 4096**2 / soc.memory.reachable_bytes_s.value
