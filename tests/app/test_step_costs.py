"""Plans of a prompt and its answer for this machine: priced by a session's steps, on one team of cores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_decoder import SMALL

import hetsched
from hetsched.app.drafting import as_planned, rate_of
from hetsched.app.generating import _of_plan
from hetsched.app.language import PlannedLanguage
from hetsched.app.step_costs import forget_step_times, keep_step_times, teams_of, with_step_times
from hetsched.errors import InfeasibleError, ModelError
from hetsched.plan_language import Language
from hetsched.plans import Deployment
from hetsched.socs import SoC
from hetsched.step_times import StepTimes
from hetsched_cost_models.host.chip import soc_of
from hetsched_cost_models.host.detect import detect
from hetsched_cost_models.host.measurement import VERSION, HostMeasurement, cache_folder

ASKED = Language(prompt=32, generate=16, sampling="greedy")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def chip() -> SoC:
    """A machine of two cores that nobody measured."""
    machine = replace(detect(), cores=(0, 1))
    classes = ("conv1x1", "conv", "grouped", "depthwise", "gemm", "matmul")
    return soc_of(machine, HostMeasurement(
        version=VERSION, fingerprint=machine.fingerprint, model="two cores", cores=(0, 1), read_one_bytes_s=10e9, read_all_bytes_s=20e9,
        peak_f32_ops_s=100e9, peak_i8_ops_s=400e9, rates={f"{c}/{p}": 50e9 for c in classes for p in ("f32", "i8")},
        vector_bytes_s=20e9, vector={"elementwise": 1.0}, op_overhead_s=2e-6, launch_s=8e-6, sync_s=5e-6, sync_estimated=False,
        serial_share=0.1, spread=0.05, others=0.0, probe_s=(1e-3,),
    ))  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    return path


def made_up(team: float = 0.5, products: str = "Gemm f16") -> StepTimes:
    """A millisecond for every operator of a kind; the team takes a share of it, but of its norms twice as long."""
    kinds = ("RMSNorm", products, "RotaryEmbedding", "GroupQueryAttention", "Add", "Silu", "Mul", "around")
    names = [f"{program} {kind}" for program in ("few", "many") for kind in kinds] + [
        "few tail RMSNorm",
        f"few tail {products}",
        "few choice",
    ]
    alone = dict.fromkeys(names, ((1.0, 64.0, 1e-3), (16.0, 64.0, 1e-3)))
    team_s = {n: tuple((r, w, s * (2.0 if "RMSNorm" in n else team)) for r, w, s in points) for n, points in alone.items()}
    return StepTimes(precision="w4a16", few=16, most=512, teams={1: alone, 2: team_s})


def silent(_: str) -> None:
    """Tell nobody."""


def planned(model: Path, chip: SoC, **options: Any) -> PlannedLanguage:
    found = hetsched.plan(model, chip, prompt=32, generate=16, simulated=False, solver="heft", **options)
    assert isinstance(found, PlannedLanguage)
    return found


def test_a_team_of_each_size_is_measured(chip: SoC) -> None:
    assert teams_of(chip) == ((0,), (0, 1))


def test_phones_and_other_precisions_are_left_alone(model: Path, chip: SoC) -> None:
    for soc, precision in ((hetsched.soc("snapdragon-8-gen-3"), "auto"), (chip, "w8a8")):
        assert with_step_times(model, soc, ASKED, precision, silent) == (ASKED, ())


def test_models_that_no_session_computes_are_priced_by_operators(model: Path, chip: SoC) -> None:
    asked, notes = with_step_times(model, chip, ASKED, "auto", silent)
    assert asked.steps is None
    assert "the weights of" in notes[0]
    assert notes[0] in planned(model, chip).prefill.plan.notes  # type: ignore[union-attr]


def test_times_are_measured_once_and_kept(model: Path, chip: SoC, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def measure(path: Path, teams: Any, precision: str, kv: Any, progress: Any) -> StepTimes:
        measured.append((teams, precision, kv))
        return made_up().model_copy(update={"precision": precision, "spread": 0.5})

    monkeypatch.setattr("hetsched.language.step_timing.measure_steps", measure)
    for precision in ("auto", "w4a16", "float"):
        asked, notes = with_step_times(model, chip, ASKED, precision, silent)
        assert asked.steps is not None
        assert asked.steps.precision == "w4a16"
        assert "50 % apart" in notes[0]
    assert measured == [(((0,), (0, 1)), "w4a16", ("fp16", "fp16"))]
    with_step_times(model, chip, ASKED, "w4a8", silent)
    with_step_times(model, chip, ASKED.model_copy(update={"kv": "int8/int4"}), "auto", silent)
    assert [m[1:] for m in measured[1:]] == [("w4a8", ("fp16", "fp16")), ("w4a16", ("int8", "int4"))]
    forget_step_times()
    with_step_times(model, chip, ASKED, "auto", silent)
    assert len(measured) == 4


def test_a_damaged_measurement_is_made_again(model: Path, chip: SoC, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: Any) -> StepTimes:
        raise ModelError("measured again")

    keep_step_times(model, chip, "", made_up())
    assert with_step_times(model, chip, ASKED, "auto", silent)[0].steps == made_up()
    monkeypatch.setattr("hetsched.language.step_timing.measure_steps", measure)
    kept = next(cache_folder().glob("steps-*.json"))
    kept.write_text(kept.read_text()[:40])
    assert "measured again" in with_step_times(model, chip, ASKED, "auto", silent)[1][0]


@pytest.mark.parametrize(("team", "cores"), [(0.5, (0, 1)), (1.5, (0,))])
def test_everything_runs_on_the_faster_team(model: Path, chip: SoC, tmp_path: Path, team: float, cores: tuple[int, ...]) -> None:
    keep_step_times(model, chip, "", made_up(team))
    found = planned(model, chip)
    assert {p.queue for entry in found.deployment.entries for p in entry.plan.placements} == {f"cpu:{'-'.join(map(str, cores))}"}
    opened = _of_plan(found.save(tmp_path / "plan.json"))
    assert opened[1:5] == (cores, "w4a16", "fp16", 48) and opened.guesses is None


def test_what_a_plan_guesses_is_opened(model: Path, chip: SoC, tmp_path: Path) -> None:
    keep_step_times(model, chip, "", made_up())
    for given, expected in (({}, (4, None, None)), ({"draft_layers": 1}, (4, None, 1)), ({"draft": model}, (4, model, None))):
        guessing: dict[str, Any] = {"speculate": 4, "acceptance": 0.8, **given}
        found = planned(model, chip, **guessing)
        opened = _of_plan(found.save(tmp_path / "plan.json"))
        assert opened.guesses is not None
        assert as_planned(opened.guesses, tmp_path) == expected
        rate = found.summary()["speculation"]["decode_tok_s"]
        assert opened.predicted | rate_of(opened.guesses) == {**opened.predicted, "decode_tok_s": rate}


def test_plan_files_keep_the_times(model: Path, chip: SoC, tmp_path: Path) -> None:
    keep_step_times(model, chip, "", made_up())
    found = planned(model, chip)
    path = found.save(tmp_path / "plan.json")
    forget_step_times()
    deployment = Deployment.from_file(path)
    assert deployment.language is not None
    assert deployment.language.steps == made_up()
    assert found.prediction.decode_rate > 0


def test_what_is_forced_apart_cannot_be_generated(model: Path, chip: SoC) -> None:
    keep_step_times(model, chip, "", made_up())
    with pytest.raises(InfeasibleError, match="one queue of this machine"):
        planned(model, chip, forced={"model.norm": "cpu:0", "lm_head": "cpu:1"})


def test_times_that_cannot_be_kept_are_no_error(chip: SoC, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache folder is a file, or the place of the kept times is a folder."""
    keep_step_times(model, chip, "fp16", made_up())
    (kept,) = cache_folder().glob("steps-*.json")
    kept.unlink()
    kept.mkdir()
    keep_step_times(model, chip, "fp16", made_up())
    assert kept.is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_step_times(model, chip, "fp16", made_up())
