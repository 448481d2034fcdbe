"""The plan for a nearly empty battery: which two cores, in what precision, and that a plan file holds all of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import hetsched
from hetsched.app.language import PlannedLanguage
from hetsched.app.saver import pairs
from hetsched.app.sessions import read_plan
from hetsched.errors import PlanError, SoCError
from hetsched.soc_files import load_soc
from hetsched.tensors import Quantization

PHONE = "snapdragon-8-gen-3"
SMALL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 300, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
    "tie_word_embeddings": True, "dtype": "float16",
}  # fmt: skip
DIMS = {"width": 16}


@pytest.fixture
def plan_file(two_branch: Path, tmp_path: Path) -> Path:
    return hetsched.plan(two_branch, PHONE, dims=DIMS, time_limit_s=0.5, levels=True).save(tmp_path / "p.json")


def test_pairs_are_of_every_two_clusters_and_of_one() -> None:
    """Clusters of 1, 3 and 2 cores."""
    assert pairs(load_soc(PHONE).by_name["cpu"]) == ("cpu:2,7", "cpu:5,7", "cpu:2,3", "cpu:2,5", "cpu:5,6")
    bare = load_soc(PHONE).by_name["cpu"]
    without = bare.model_copy(update={"clusters": tuple(c.model_copy(update={"cores": ()}) for c in bare.clusters)})
    assert pairs(without) == ()


def test_the_saver_is_on_the_two_cores_with_the_least_energy(plan_file: Path, two_branch: Path) -> None:
    planned = read_plan(plan_file, 4)
    entry = planned.deployment.entries[planned.entry]
    assert {p.queue for p in entry.plan.placements} == {"cpu"} and entry.precision == "w8a8-dynamic"
    assert set(entry.clocks) == {"cpu"} and set(planned.closed) == {"gpu", "npu"}
    assert planned.table.queues[0].cores == tuple(map(int, entry.queues["cpu"].removeprefix("cpu:").split(",")))
    assert any(n.startswith(f"level 4 is on {entry.queues['cpu']}") for n in planned.deployment.entries[0].plan.notes)
    chip = load_soc(PHONE)
    for target in pairs(chip.by_name["cpu"]):
        cores, cpu_only = chip.narrowed({"cpu": target}), {"*": "gpu,npu"}
        other = hetsched.plan(two_branch, cores, dims=DIMS, time_limit_s=0.5, levels=True, forbidden=cpu_only, simulated=False)
        least = next(e for e in other.deployment.entries if e.level == 3)
        assert entry.plan.prediction.energy_j <= least.plan.prediction.energy_j * (1 + 1e-9)


def test_levels_before_it_are_on_the_cores_of_the_soc(plan_file: Path) -> None:
    for level in range(4):
        planned = read_plan(plan_file, level)
        assert not planned.deployment.entries[planned.entry].queues and planned.table.queues[0].cores == (2, 3, 4, 5, 6, 7)


def test_a_plan_file_from_before_has_no_such_cores(plan_file: Path) -> None:
    found = json.loads(plan_file.read_text("utf-8"))
    found["entries"] = [{k: v for k, v in e.items() if k != "queues"} for e in found["entries"][:4]]
    found["switches"] = [s for s in found["switches"] if 4 not in (s["before"][1], s["after"][1])]
    plan_file.write_text(json.dumps(found), "utf-8")
    assert read_plan(plan_file, 3).deployment.entries[3].queues == {}
    saving = hetsched.simulate(plan_file, duration_s=3.0, policy="battery-saver", battery=0.05).summary()
    assert saving["levels"]["first"][0]["after"] == 3  # the deepest


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        ({"cpu": "cpu:5,19"}, "names the core 19"),
        ({"cpu": "npu"}, "has no queue 'cpu' on 'npu'"),
        ({"dsp": "cpu:2"}, "has no queue 'dsp' on 'cpu'"),
        ({"cpu": "cpu:7-2"}, "runs backwards"),
    ],
)
def test_cores_that_the_soc_does_not_have_are_refused(plan_file: Path, queues: dict[str, str], message: str) -> None:
    found = json.loads(plan_file.read_text("utf-8"))
    found["entries"][4]["queues"] = queues
    plan_file.write_text(json.dumps(found), "utf-8")
    with pytest.raises(PlanError, match=f"does not fit its SoC: .*{message}"):
        read_plan(plan_file, 4)
    with pytest.raises(SoCError, match=message):
        load_soc(PHONE).narrowed(queues)


def test_a_soc_without_listed_cores_has_no_saver(two_branch: Path) -> None:
    chip = load_soc(PHONE)
    cpu = chip.by_name["cpu"]
    bare = cpu.model_copy(update={"clusters": tuple(c.model_copy(update={"cores": ()}) for c in cpu.clusters)})
    plain = chip.model_copy(update={"processors": (bare, *chip.processors[1:]), "queues": {"cpu": "cpu", "gpu": "gpu", "npu": "npu"}})
    plain.__dict__.pop("by_name", None)
    planned = hetsched.plan(two_branch, plain, dims=DIMS, time_limit_s=0.5, levels=True)
    assert [e.level for e in planned.deployment.entries] == [0, 1, 2, 3]
    assert any("level 4 has no plan: the file of snapdragon-8-gen-3 does not list two cores of 'cpu'" in n for n in planned.plan.notes)


def test_both_phases_of_a_language_model_are_on_the_same_cores(tmp_path: Path) -> None:
    model = tmp_path / "decoder"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(SMALL), "utf-8")
    planned = hetsched.plan(model, PHONE, prompt=32, generate=32, levels=True, time_limit_s=0.3, solver="heft", simulated=False)
    savers = [e for e in planned.deployment.entries if e.level == 4]
    assert [e.phase for e in savers] == ["prefill", "decode"]
    assert savers[0].queues == savers[1].queues and len(savers[0].queues) == 1
    again = read_plan(planned.save(tmp_path / "p.json"), 4)
    assert isinstance(again, PlannedLanguage) and [p.plan for p in again.phases.values()] == [e.plan for e in savers]
    assert {p.table.queues[0].cores for p in again.phases.values()} == {again.table.queues[0].cores}


def test_weights_in_blocks_stay_in_the_bits_of_the_file(two_branch: Path) -> None:
    """Only a model whose weights are float too is quantized when its activations arrive."""
    graph = hetsched.load(two_branch, DIMS)
    name = next(n for n, t in graph.tensors.items() if t.is_constant and len(t.shape) == 2)
    blocks = Quantization(granularity="group", axis=-1, group=32, scheme="gguf:Q4_0", block_bytes=18)
    inside = replace(graph, tensors={**graph.tensors, name: replace(graph.tensors[name], quantization=blocks)})
    saver = hetsched.plan(inside, PHONE, levels=True, time_limit_s=0.3).deployment.entries[-1]
    assert saver.level == 4 and saver.precision == "" and len(saver.queues) == 1
