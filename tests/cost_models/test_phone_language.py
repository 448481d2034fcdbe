"""Configurations of language models against the counts that the fits use, and what the bench of published rates takes and sums up."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench_phone_language import Compared, Published, blind_rows, compared, fitted_rows, precision_of, summary
from phone_language_models import MODELS, folder_of, known_as

import hetsched
from hetsched.graph import Graph
from hetsched.states import kv_bytes_per_token
from hetsched_cost_models.fit.language_data import rates
from hetsched_cost_models.operators import PRODUCTS

_ROW = Published("Llama-3.2-1B", 5.24, "snapdragon-8-gen-3", "cpu", "executorch", 64, 64, 250.0, 50.0, "s", False)


def _weights(graph: Graph) -> tuple[float, float]:
    """Parameters of products with constants, and of the head, which has most."""
    each = [float(graph.tensors[n].elements) for op in graph.ops if op.type in PRODUCTS for n in graph.constants(op)]
    return sum(each), max(each)


@pytest.mark.parametrize("name", MODELS)
def test_configurations_have_the_counts_of_the_rows(name: str, tmp_path: Path) -> None:
    graph = hetsched.load(folder_of(name, tmp_path))
    total, head = _weights(graph)
    found = [r for r in rates() if known_as(r.model) == name]
    assert found, "no configuration without a rate"
    for r in found:
        assert total == pytest.approx(r.params, rel=0.02) and head == pytest.approx(r.head, rel=0.02), r.model
        assert kv_bytes_per_token(graph) == r.kv_bytes, r.model
        assert MODELS[name][1]["num_hidden_layers"] == r.layers
        assert MODELS[name][1]["num_attention_heads"] * MODELS[name][1]["head_dim"] == r.width


def test_what_a_plan_can_have() -> None:
    assert [precision_of(replace(_ROW, bits=b)) for b in (16.0, 5.24, 8.0, 32.0, 2.6)] == ["auto", "w4a8", "w8a8-dynamic", None, None]
    assert precision_of(replace(_ROW, bits=8.0, unit="gpu")) is None
    assert precision_of(replace(_ROW, bits=8.0, unit="npu", engine="qnn")) == "w8a16"
    assert len(set(fitted_rows())) == len(list(fitted_rows()))
    assert all(r.blind and known_as(r.model) for r in blind_rows())
    assert not {(r.model, r.bits, r.chip, r.source) for r in blind_rows()} & {(r.model, r.bits, r.chip, r.source) for r in rates()}


def test_a_plan_of_llama_3_2_stands_beside_its_published_rate(tmp_path: Path) -> None:
    prefill, decode = compared([_ROW], tmp_path)
    assert (prefill.phase, decode.phase) == ("prefill", "decode")
    assert prefill.ratio == pytest.approx(prefill.predicted / 250.0) and decode.interval[0] < decode.predicted < decode.interval[1]
    assert list(compared([replace(_ROW, model="unknown")], tmp_path)) == []


def test_groups_count_alike() -> None:
    found = [Compared(_ROW, "decode", 50.0, p, (40.0, 60.0)) for p in (50.0, 55.0, 60.0)]
    found += [Compared(replace(_ROW, unit="gpu"), "decode", 50.0, 80.0, (60.0, 90.0))]
    assert "4 rows,   2 groups: median error 35.0%, within 25%: 50%, in the interval: 50%" in summary("x", found)
