"""Timing the steps of small decoders: every operator has a time, and together they take what the whole step took."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hetsched.language import step_timing
from hetsched.language.decode_graph import first_layers
from hetsched.language.step_timing import FEW, MANY, StepTiming, _merged, _Setting, _shared, _Timed
from hetsched.passes.early_layers import EarlyLayers
from hetsched_cost_models.session_steps import AROUND, Operator, key_of, operators_of, phase_seconds

WriteDecoder = Callable[..., Path]


@pytest.fixture
def model(write_decoder: WriteDecoder) -> _Timed:
    return _Timed(write_decoder("llama", "Q4_1"), context=step_timing.CONTEXT, precision="w4a16")


def test_times_of_a_step_are_shared_out_by_size(model: _Timed) -> None:
    graph = model.graph
    operators = operators_of(graph, ())
    spans = {"blk.0.attn_q": 6.0, **{f"blk.{n}.attention": 5.0 + n for n in range(3)}, "output": 2.0}
    shared = dict(zip((op.name for op in graph.ops), _shared(graph, operators, spans), strict=True))
    sizes = {n: graph.tensors[f"blk.0.attn_{n}.weight"].elements for n in "qkv"}
    assert shared["blk.0.attn_q"] == pytest.approx(6.0 * sizes["q"] / sum(sizes.values()))
    assert shared["blk.0.attn_q"] + shared["blk.0.attn_k"] + shared["blk.0.attn_v"] == pytest.approx(6.0)
    assert (shared["blk.0.attention"], shared["output"]) == (5.0, 2.0)
    assert sum(shared.values()) == pytest.approx(6.0 + 5.0 + 6.0 + 7.0 + 2.0)


@pytest.mark.parametrize(("rows", "position", "layers"), [(1, 40, 0), (16, 40, 2)])
def test_parts_add_up_to_the_whole_step(model: _Timed, rows: int, position: int, layers: int) -> None:
    setting = _Setting(model, rows, position, layers)
    setting.turn()
    assert setting.parts
    assert all(seconds > 0 for seconds in setting.parts.values())
    whole = 2.0 * sum(setting.parts.values())
    setting.whole_s = [whole]
    points = _merged(setting.points(()))
    assert points[key_of(Operator(AROUND), True)][0][2] > 0
    operators = [o for o in operators_of(first_layers(model.graph, layers), ()) if o.kind]
    parts = (next(s for n, w, s in points[key_of(o, True)] if (n, w) == (rows, o.work(rows, position))) for o in operators)
    assert sum(parts) == pytest.approx(whole)


def test_every_operator_of_both_phases_has_a_time(write_decoder: WriteDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_timing, "_ENOUGH_BYTES", 2048)
    with StepTiming(write_decoder("llama", "Q4_1"), [(0,)], "w4a8") as timing:
        timing.turn()
        times = timing.times()
        graph = timing._models[0].graph
    assert times.precision == "w4a8"
    assert any("ffn_down" in name for name in times.wide)
    found = phase_seconds(graph, times, 1)
    assert np.isfinite(found).all()
    assert found.sum() > 0
    rows = {n for n, _, _ in times.teams[1]["few GroupQueryAttention"]} | {n for n, _, _ in times.teams[1]["many GroupQueryAttention"]}
    assert rows >= {n for n, _ in (*FEW, *MANY)}


def test_first_layers_stand_for_all_where_there_are_enough(model: _Timed) -> None:
    weights = sum(t.nbytes for t in model.graph.tensors.values() if t.is_constant and len(t.shape) == 2)
    assert model.layers(weights) == 0, "all of them"
    assert model.layers(1) == 2
    assert len(first_layers(model.graph, 2).ops) == len(EarlyLayers(2)(model.graph).ops) < len(model.graph.ops)
