"""What lies between a prompt and its answer: two copies of the weights, caches that move, tokens in a pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hetsched
from hetsched.app.between_phases import Between
from hetsched.app.language import PlannedLanguage
from hetsched.app.sessions import read_plan
from hetsched.partition.limits import Limits

PHONE = "snapdragon-8-gen-3"
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 300, "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "tie_word_embeddings": True,
    "dtype": "float16",
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def planned(model: Path, **options: object) -> PlannedLanguage:
    found = hetsched.plan(model, PHONE, prompt=64, generate=16, time_limit_s=0.3, simulated=False, **options)
    assert isinstance(found, PlannedLanguage)
    return found


def test_phases_in_one_place_hold_one_copy(model: Path, tmp_path: Path) -> None:
    one = planned(model, forbidden={"*": "npu,gpu"})
    found = one.between
    assert found.second_copy_bytes == found.pack_bytes == found.state_bytes == 0
    assert any("both phases use the same" in n for n in one.phases["prefill"].plan.notes)
    again = read_plan(one.save(tmp_path / "p.json"))
    assert isinstance(again, PlannedLanguage) and again.between == found
    assert one.summary()["between_phases"] == found.as_dict()


def test_a_second_copy_and_what_moves_are_said() -> None:
    said = list(Between(366_000_000, 269_000_000, 97_000_000, 0.0131, 2_950_000, 174e-6).sentences())
    assert "366 MB together where one alone holds 269 MB" in said[0] and "packing 97 MB, about 13.1 ms" in said[0]
    assert said[1] == "from prompt to answer 2.95 MB of caches move to another processor, about 0.174 ms"


def test_figures_between_phases_are_those_of_the_switch(model: Path) -> None:
    found = planned(model)
    switch = next(s for s in found.deployment.switches if (s.before, s.after) == (("prefill", 0), ("decode", 0)))
    b = found.between
    assert (b.pack_bytes, b.pack_s, b.state_bytes, b.handover_s) == (
        switch.weight_bytes,
        switch.pack_s,
        switch.state_bytes,
        switch.handover_s,
    )
    arenas = max(p.plan.arena_bytes + p.plan.prediction.workspace_bytes for p in found.phases.values())
    assert b.weight_bytes + arenas == found.prediction.peak_memory_bytes


def test_limits_say_for_what_they_hold(model: Path) -> None:
    found = planned(model, limits=Limits(latency_s=1.0))
    assert all(
        any(n.startswith("the limits hold for the prefill and for one decode step") for n in p.plan.notes) for p in found.phases.values()
    )
    assert not any("limits hold" in n for p in planned(model).phases.values() for n in p.plan.notes)


def test_a_pipeline_of_tokens_needs_several_answers(model: Path) -> None:
    found = planned(model, objective="period")
    note = next(n for n in found.phases["prefill"].plan.notes if n.startswith("tokens of one answer wait for each other"))
    assert f"{1 / found.decode.period_s:.3g} tok/s" in note
    assert found.prediction.decode_rate <= 1.001 / found.decode.period_s


def test_notes_on_levels_name_the_phase(model: Path) -> None:
    found = planned(model, levels=True)
    notes = [n for p in found.phases.values() for n in p.plan.notes if "level 3" in n]
    assert {n.partition(",")[0] for n in notes} == {"prefill", "decode"} and not any("calibrate-ranges" in n for n in notes)
