"""Every pass on real models: what it changes computes the same, and inputs and outputs keep their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.frontends import load
from hetsched.graph import Graph
from hetsched.passes import STANDARD, for_soc, unfuse
from hetsched.reference import run
from hetsched.soc_files import list_socs, load_soc

MODELS: dict[str, dict[str, int]] = {
    "magika": {}, "minilm-l3-onnx": {"sequence_length": 12}, "mobilenet_v2_qdq": {}, "pp-ocrv4-det": {"x.2": 32, "x.3": 64},
}  # fmt: skip


def feeds_of(graph: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(11)
    feeds: dict[str, Any] = {}
    for name in graph.inputs:
        t = graph.tensors[name]
        value = rng.standard_normal(t.shape) if t.dtype.is_float else rng.integers(0, 2, t.shape)
        feeds[name] = value.astype(t.dtype.numpy)
    return feeds


def agree(got: dict[str, Any], want: dict[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in names:
        scale = max(float(np.abs(want[name]).max()), 1e-3)
        assert float(np.abs(got[name].astype(np.float64) - want[name]).max()) <= 1e-4 * scale, f"{where} changed {name}"


@pytest.mark.real_models
@pytest.mark.parametrize("name", MODELS)
def test_every_pass_and_every_target(real_model: Callable[[str], Path], name: str) -> None:
    graph = load(real_model(name), MODELS[name])
    first, feeds = graph, feeds_of(graph)
    want = run(graph, feeds)
    for rewrite in STANDARD:
        before, graph = graph, rewrite(graph)
        assert (graph.inputs, graph.outputs) == (first.inputs, first.outputs)
        if before.ops != graph.ops:
            agree(run(graph, feeds), want, graph.outputs, rewrite.name)
    agree(run(unfuse(graph), feeds), want, graph.outputs, "unfuse")
    for soc in list_socs():
        made = for_soc(graph, load_soc(soc))
        assert (made.inputs, made.outputs) == (first.inputs, first.outputs)
        if made.ops != graph.ops:
            agree(run(made, feeds), want, graph.outputs, soc)
