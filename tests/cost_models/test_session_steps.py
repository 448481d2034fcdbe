"""Phases of language models on this machine, priced by times of a session's steps that are made up here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from hetsched.app.language import phase_graph
from hetsched.graph import Graph
from hetsched.plan_language import Language
from hetsched.soc_files import load_soc
from hetsched.socs import SoC
from hetsched.step_times import Points, StepTimes
from hetsched_cost_models import build_table
from hetsched_cost_models.session_steps import AROUND, Operator, key_of, operators_of, phase_seconds, pieces, seconds_of

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 300, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
    "tie_word_embeddings": True, "dtype": "float16",
}  # fmt: skip
FEW, MOST = 16, 512


@pytest.fixture
def chip() -> SoC:
    return load_soc("snapdragon-8-gen-3")


@pytest.fixture
def phase(tmp_path: Path, chip: SoC) -> Any:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))

    def of(tokens: int, past: int) -> Graph:
        return phase_graph(path, chip, Language(prompt=32, generate=32, sampling="greedy"), {}, tokens, past)

    return of


def linear(graph: Graph) -> StepTimes:
    """Times that grow linearly with rows and work, for all kinds of operators in ``graph``; two threads take half."""
    points: dict[str, set[tuple[float, float, float]]] = {}
    for operator in operators_of(graph, ()):
        for few, rows in ((True, (1, FEW)), (False, (32, MOST))) if operator.kind else ():
            key = key_of(operator, few)
            settings = [(n, p) for n in ((1, FEW) if key.startswith("few") else rows) for p in (0, 512)]
            points.setdefault(key, set()).update((float(n), operator.work(n, p), taken(operator, n, p)) for n, p in settings)
    alone = {key: tuple(sorted(found)) for key, found in points.items()}
    both = {key: tuple((n, w, s / 2) for n, w, s in found) for key, found in alone.items()}
    return StepTimes(precision="w4a16", few=FEW, most=MOST, teams={1: alone, 2: both})


def taken(operator: Operator, rows: int, position: int) -> float:
    """Seconds that are made up: so much an operator and a piece of work, of attention; so much a row, of others."""
    fixed, work = 1e-6, 1e-9 * rows * operator.work(rows, position)
    return fixed + work if operator.window >= 0 else fixed * rows + work


def test_prompts_are_computed_in_pieces() -> None:
    assert list(pieces(10, 5, FEW, MOST)) == [(10, 5, True)]
    assert list(pieces(1030, 0, FEW, MOST)) == [(512, 0, False), (512, 512, False), (6, 1024, True)]


def test_every_operator_is_one_of_a_step(phase: Any) -> None:
    graph = phase(32, 0)
    operators = operators_of(graph, ())
    by_name = dict(zip((op.name for op in graph.ops), operators, strict=True))
    assert by_name["model.embed_tokens"].kind == AROUND
    assert {op.type for op, o in zip(graph.ops, operators, strict=True) if not o.kind} <= {"Reshape", "Cast", "Mul", "Cos", "Sin", "Gather"}
    products = [o for o in operators if "Gemm" in o.kind]
    assert len(products) == 7 * 3 + 1
    assert [o.kind for o in products if o.tail] == ["tail Gemm f16"]
    assert sum(o.size for o in products) == 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 300 * 64
    assert [o.kind for o in operators if o.window >= 0] == ["GroupQueryAttention"] * 3


def test_work_of_attention_is_what_a_row_sees() -> None:
    attention = Operator("GroupQueryAttention", 10.0, 0)
    assert attention.work(1, 7) == 80.0
    assert attention.work(4, 0) == 10.0 * (1 + 2 + 3 + 4) / 4
    assert replace(attention, window=3).work(1, 100) == 30.0


@pytest.mark.parametrize(("tokens", "past"), [(1, 0), (1, 300), (1, 5000), (9, 40), (64, 0), (512, 0), (700, 0), (1500, 0)])
def test_linear_times_are_met_between_and_beyond_what_was_measured(phase: Any, tokens: int, past: int) -> None:
    graph = phase(tokens, past)
    operators, total = operators_of(graph, ()), 0.0
    steps = list(pieces(tokens, past, FEW, MOST))
    for rows, at, _ in steps:
        for o in operators:
            if not o.kind or (o.kind == "choice" and at + rows < past + tokens):
                continue
            total += taken(o, 1 if o.tail else rows, at)
    found = phase_seconds(graph, linear(graph), 1)
    assert found.sum() == pytest.approx(total, rel=1e-6)
    np.testing.assert_allclose(phase_seconds(graph, linear(graph), 2), found / 2)
    np.testing.assert_allclose(phase_seconds(graph, linear(graph), 4), found / 2, err_msg="the largest team that was measured")


def test_kinds_that_were_not_measured_are_not_invented(phase: Any) -> None:
    graph = phase(1, 10)
    known = linear(graph)
    times = {k: v for k, v in known.teams[1].items() if "GroupQueryAttention" not in k}
    found = phase_seconds(graph, known.model_copy(update={"teams": {1: times}}), 1)
    assert [op.type for op, s in zip(graph.ops, found, strict=True) if np.isnan(s)] == ["GroupQueryAttention"] * 3


def test_sizes_below_what_was_measured_cost_no_less_than_their_share() -> None:
    points: dict[str, Points] = {"few Gemm f16": ((1.0, 100.0, 1.0), (1.0, 200.0, 3.0))}
    assert seconds_of(Operator("Gemm f16", 50.0), points, True, 1, 0) == 0.5
    assert seconds_of(Operator("Gemm f16", 150.0), points, True, 1, 0) == 2.0
    assert seconds_of(Operator("Gemm f16", 300.0), points, True, 1, 0) == 5.0


def test_table_takes_the_times_over(phase: Any, chip: SoC) -> None:
    graph = phase(1, 100)
    steps = linear(graph)
    plain, table = build_table(graph, chip), build_table(graph, chip, steps=steps)
    cpu = next(i for i, q in enumerate(table.queues) if q.kind == "cpu")
    expected = phase_seconds(graph, steps, max(1, len(table.queues[cpu].cores)))
    owner = np.repeat(np.arange(len(graph.ops)), np.diff(table.alt_start))
    mine = table.alt_queue == cpu
    np.testing.assert_allclose(table.time_s[mine], expected[owner[mine]])
    assert (table.energy_j[mine] >= 0).all()
    assert table.time_s[mine].sum() != pytest.approx(plain.time_s[plain.alt_queue == cpu].sum())


def test_times_of_a_plan_file_are_checked() -> None:
    good = {"precision": "w4a16", "few": 16, "most": 512, "teams": {"1": {"few Gemm f16": [[1, 2, 3]]}}}
    assert StepTimes.model_validate_json(json.dumps(good)).of(8) == {"few Gemm f16": ((1.0, 2.0, 3.0),)}
    wrong: tuple[dict[str, Any], ...] = (
        {},
        {"1": {"x": []}},
        {"1": {"x": [[1, 2, -3]]}},
        {"1": {"x": [[1, 2]]}},
        {"one": {"x": [[1, 2, 3]]}},
    )
    for teams in wrong:
        with pytest.raises(ValidationError):
            StepTimes.model_validate_json(json.dumps(good | {"teams": teams}))
