"""Guessed tokens in plans: the verify step and the drafts, by hand; files, options, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_decoder import SMALL

import hetsched
from hetsched.acceptance import Acceptance
from hetsched.app.contexts import at_context
from hetsched.app.language import PlannedLanguage
from hetsched.app.sessions import read_plan
from hetsched.app.speculating import Cost, step_cost
from hetsched.errors import OptionError, PlanError
from hetsched.segments import schedule

PHONE = "snapdragon-8-gen-3"
Write = Callable[..., Path]


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    def made(name: str = "decoder", **changes: Any) -> Path:
        path = tmp_path_factory.mktemp("models") / name
        path.mkdir()
        (path / "config.json").write_text(json.dumps({**SMALL, **changes}))
        return path

    return made


@pytest.fixture(scope="module")
def model(write: Write) -> Path:
    return write()


def planned(model: Path, **options: Any) -> PlannedLanguage:
    found = hetsched.plan(model, PHONE, prompt=96, generate=32, **{"solver": "heft", "simulated": False, **options})
    assert isinstance(found, PlannedLanguage)
    return found


def mean(found: PlannedLanguage, phase: str, rows: int) -> float:
    tables = [at_context(found, phase, rows, past) for past in (96, 128 - rows)]
    return sum(schedule(t.table, *t.placement).latency_s for t in tables) / 2


def test_a_step_by_hand() -> None:
    """A quarter of the steps without guesses, half with one, a quarter with two; times, then energies."""
    shares = ((0.25,), (0.3, 0.2), (0.1, 0.1, 0.05))
    cost = step_cost(shares, Cost(4.0, 1.0), {2: Cost(5.0, 2.0), 3: Cost(6.0, 3.0)}, Cost(1.0, 0.5))
    assert cost == pytest.approx((0.25 * 4 + 0.5 * (5 + 1) + 0.25 * (6 + 2), 0.25 * 1 + 0.5 * 2.5 + 0.25 * 4))


def test_lookup_verifies_where_the_decode_step_is(model: Path) -> None:
    found = planned(model, speculate=4, acceptance=0.6)
    assert list(found.phases) == ["prefill", "decode", "verify"]
    verify, said = found.phases["verify"], found.summary()["speculation"]
    assert (verify.graph.dims["tokens"], verify.graph.dims["logits"], verify.graph.dims["past"]) == (5, 5, 123)
    assert {p.queue for p in verify.plan.placements} <= {p.queue for p in found.plan.placements}
    assert said["tokens_per_step"] == pytest.approx((1 - 0.6**5) / 0.4)
    assert said["verify_ms"] == pytest.approx(mean(found, "verify", 5) * 1e3) == pytest.approx(said["step_ms"])
    assert said["decode_tok_s"] == pytest.approx(said["tokens_per_step"] / said["step_ms"] * 1e3)
    assert said["gain"] == pytest.approx(said["decode_tok_s"] / found.summary()["decode_tok_s"])
    assert (said["drafter"], said["draft_ms"], said["measured"]) == ("lookup", 0.0, False)
    low, high = said["decode_tok_s_interval"]
    assert low < said["decode_tok_s"] < high


def test_early_layers_take_their_share(model: Path) -> None:
    found = planned(model, speculate=3, acceptance=0.8, draft_layers=1)
    said = found.summary()["speculation"]
    assert list(found.phases) == ["prefill", "decode", "verify", "draft"] and said["draft_layers"] == 1
    draft = found.phases["draft"]
    assert sum(op.type == "GroupQueryAttention" for op in draft.graph.ops) == 1
    assert said["draft_ms"] == pytest.approx(3 * mean(found, "draft", 1) * 1e3)
    assert said["step_ms"] == pytest.approx(said["verify_ms"] + said["draft_ms"])
    assert found.prediction.peak_memory_bytes == planned(model, speculate=3, acceptance=0.8).prediction.peak_memory_bytes


def test_a_smaller_model_has_weights_and_caches_of_its_own(model: Path, write: Write) -> None:
    small = write("small", num_hidden_layers=1)
    found, alone = planned(model, speculate=3, acceptance=0.8, draft=small), planned(model, speculate=3, acceptance=0.8)
    assert found.phases["draft"].graph.name != found.graph.name
    assert found.prediction.peak_memory_bytes > alone.prediction.peak_memory_bytes
    assert found.summary()["speculation"]["draft"] == str(small / "config.json")
    with pytest.raises(OptionError, match="knows 200 tokens and the model 300"):
        planned(model, speculate=3, acceptance=0.8, draft=write("other", vocab_size=200))


def test_a_measured_file(model: Path, tmp_path: Path) -> None:
    """Three steps without a guess, four with one (half right), three with two (all right)."""
    file, sha256 = tmp_path / "acc.json", planned(model).graph.sha256
    Acceptance(model="m", sha256=sha256, guesser="lookup", steps=((3,), (2, 2), (0, 0, 3))).save(file)
    found = planned(model, speculate=2, acceptance=file)
    said = found.summary()["speculation"]
    assert said["measured"] and said["acceptance"] == pytest.approx(8 / 10) and said["tokens_per_step"] == pytest.approx(1.8)
    plain = 1.0 / found.prediction.decode_rate
    assert said["step_ms"] == pytest.approx(1e3 * (0.3 * plain + 0.4 * mean(found, "verify", 2) + 0.3 * mean(found, "verify", 3)))
    assert planned(model, speculate=1, acceptance=file).summary()["speculation"]["tokens_per_step"] == pytest.approx(1.5)
    for options, text in (
        ({"speculate": 3}, "has counted 2 guesses at once, not 3"),
        ({"speculate": 2, "draft_layers": 1}, "is of guesses by lookup, and the plan has layers:1"),
    ):
        with pytest.raises(OptionError, match=text):
            planned(model, acceptance=file, **options)
    Acceptance(model="other", sha256="0" * 64, guesser="lookup", steps=((3,), (2, 2))).save(tmp_path / "other.json")
    with pytest.raises(OptionError, match="is of the model 'other', another file than"):
        planned(model, speculate=1, acceptance=tmp_path / "other.json")


def test_the_best_length_is_chosen(model: Path) -> None:
    found = planned(model, speculate="auto", acceptance=0.5)
    said = found.summary()["speculation"]
    rates = said["decode_tok_s_by_length"]
    assert len(rates) == 15 and rates[said["length"] - 1] == max(rates)
    assert said["decode_tok_s"] == pytest.approx(max(rates), rel=1e-3)
    assert found.phases["verify"].graph.dims["tokens"] == said["length"] + 1
    never = planned(model, speculate="auto", acceptance=0.0, solver="auto").summary()["speculation"]
    assert never["length"] == 1 and never["gain"] <= 1.0


@pytest.mark.parametrize("drafts", ["layers", "model", "lookup"])
def test_plan_files_keep_it(model: Path, write: Write, tmp_path: Path, drafts: str) -> None:
    given: dict[str, dict[str, Any]] = {"layers": {"draft_layers": 1}, "model": {"draft": write("small", num_hidden_layers=1)}}
    options = given.get(drafts, {})
    found = planned(model, speculate=3, acceptance=0.7, kv="int8", **options)
    path = found.save(tmp_path / "p.json")
    again = read_plan(path)
    assert isinstance(again, PlannedLanguage) and list(again.phases) == list(found.phases)
    for name, phase in found.phases.items():
        assert again.phases[name].graph.dims == phase.graph.dims
        assert again.phases[name].plan == phase.plan and again.phases[name].placement == phase.placement
    said, read = (p.summary()["speculation"] for p in (found, again))
    assert {k: v for k, v in read.items() if k != "draft"} == {k: v for k, v in said.items() if k != "draft"}
    assert planned(model, speculate=3, acceptance=0.7, kv="int8", **options).save(tmp_path / "q.json").read_bytes() == path.read_bytes()
    damaged = json.loads(path.read_text())
    damaged["language"]["speculation"]["shares"][0][0] = 0.5
    path.write_text(json.dumps(damaged))
    with pytest.raises(PlanError, match="all together 1"):
        read_plan(path)


def test_a_plan_without_guesses_says_nothing_of_them(model: Path, tmp_path: Path) -> None:
    found = planned(model)
    assert found.summary()["speculation"] is None
    assert "speculation" not in json.loads(found.save(tmp_path / "p.json").read_text())["language"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"speculate": 2}, "--speculate needs --acceptance"),
        ({"acceptance": 0.5}, "--acceptance 0.5 is of guessed tokens"),
        ({"draft_layers": 1}, "--draft-layers 1 is of guessed tokens"),
        ({"speculate": 99, "acceptance": 0.5}, "--speculate 99 is out of range: use 1 to 15"),
        ({"speculate": 2, "acceptance": 1.5}, "--acceptance 1.5 is out of range"),
        ({"speculate": 2, "acceptance": "nowhere.json"}, "there is no file of accepted guesses at nowhere.json"),
        ({"speculate": 2, "acceptance": 0.5, "draft_layers": 2}, "has 2 layers of attention: use 1 to 1"),
        ({"speculate": 2, "acceptance": 0.5, "draft_layers": 1, "draft": "x"}, "both guess: leave one out"),
        ({"speculate": 2, "acceptance": 0.5, "dims": {"batch": 2}}, "sequences accept different guesses"),
    ],
)
def test_what_is_refused(model: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        planned(model, **options)


def test_levels_have_every_phase(model: Path, tmp_path: Path) -> None:
    found = planned(model, speculate=3, acceptance=0.7, draft_layers=1, levels=True, time_limit_s=0.5)
    stages = [(e.level, e.phase) for e in found.deployment.entries]
    levels = sorted({level for level, _ in stages})
    assert len(levels) > 2 and stages == [(n, p) for n in levels for p in ("prefill", "decode", "verify", "draft")]
    path = found.save(tmp_path / "p.json")
    deep = read_plan(path, levels[-1])
    assert isinstance(deep, PlannedLanguage) and deep.summary()["speculation"]["step_ms"] > 0
    assert deep.summary()["speculation"]["step_ms"] != found.summary()["speculation"]["step_ms"]
