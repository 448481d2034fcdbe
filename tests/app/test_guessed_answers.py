"""Guessed tokens in a simulated phone: rates and energies beside those without, both paths, throttle levels, the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_decoder import SMALL

import hetsched
from hetsched.app.guessing import guessing_of
from hetsched.app.language import PlannedLanguage

PHONE = "snapdragon-8-gen-3"
Runner = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guessed") / "decoder"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(SMALL))
    return path


def planned(model: Path, **options: Any) -> PlannedLanguage:
    found = hetsched.plan(model, PHONE, prompt=96, generate=160, solver="heft", simulated=False, **options)
    assert isinstance(found, PlannedLanguage)
    return found


def test_one_answer(model: Path) -> None:
    guessed, plain = planned(model, speculate=3, acceptance=0.7), planned(model)
    s, t = hetsched.simulate(guessed, contention=False).summary(), hetsched.simulate(plain, contention=False).summary()
    assert s["speculation"]["without"] == {"decode_tok_s": t["decode_tok_s"], "energy_per_token_j": t["energy_per_token_j"]}
    assert s["speculation"]["gain"] == pytest.approx(s["decode_tok_s"] / t["decode_tok_s"]) and t["speculation"] is None
    predicted = guessed.summary()["speculation"]
    drawn = s["speculation"]["tokens_per_step"]
    assert s["decode_tok_s"] / drawn == pytest.approx(predicted["decode_tok_s"] / predicted["tokens_per_step"], rel=0.03)
    assert s["predicted_decode_tok_s"] == predicted["decode_tok_s"]
    assert s["energy_j"]["decode"] == pytest.approx(160 * s["energy_per_token_j"])
    assert hetsched.simulate(guessed, contention=False).summary() == s


@pytest.mark.parametrize("drafts", [{}, {"draft_layers": 1}])
def test_a_chat_with_and_without(model: Path, drafts: dict[str, int]) -> None:
    guessed, plain = planned(model, speculate=3, acceptance=0.7, **drafts), planned(model)
    options: dict[str, Any] = {"duration_s": 2.0, "chat": {"prompt": 40, "generate": 80}}
    s, t = hetsched.simulate(guessed, **options).summary(), hetsched.simulate(plain, **options).summary()
    assert s["speculation"]["without"]["decode_tok_s"] == t["decode_tok_s"]["mean"] and t["speculation"] is None
    assert s["speculation"]["without"]["energy_per_token_j"] == t["energy_per_token_j"]
    assert s["speculation"]["tokens_per_step"] == pytest.approx((1 - 0.7**4) / 0.3, rel=0.1)
    assert s["decode_tok_s"]["mean"] == pytest.approx(s["speculation"]["gain"] * t["decode_tok_s"]["mean"])
    assert all(turn["generate"] == 80 for turn in s["per_turn"])
    if drafts:
        lookup = hetsched.simulate(planned(model, speculate=3, acceptance=0.7), **options).summary()
        assert s["decode_tok_s"]["mean"] < lookup["decode_tok_s"]["mean"]
        assert s["energy_per_token_j"] > lookup["energy_per_token_j"]


def test_both_paths_agree(model: Path) -> None:
    guessed = planned(model, speculate=3, acceptance=0.7, draft_layers=1)
    options: dict[str, Any] = {"duration_s": 0.5, "chat": {"prompt": 40, "generate": 60}}
    full, fast = (hetsched.simulate(guessed, exact=exact, **options).summary() for exact in (True, False))
    assert fast["tokens"] == pytest.approx(full["tokens"], abs=4) and fast["turns"] == full["turns"]
    assert fast["decode_tok_s"]["mean"] == pytest.approx(full["decode_tok_s"]["mean"], rel=5e-3)


def test_a_throttled_phone_guesses_less(model: Path) -> None:
    asked = planned(model, speculate=4, acceptance=0.7).asked.speculation
    guessing = guessing_of(asked, 0)
    assert guessing is not None and guessing_of(None, 0) is None
    assert [max(s.guesses for s in guessing.steps(200, level=level)) for level in range(5)] == [4, 2, 2, 0, 0]


def test_the_command_line(model: Path, tmp_path: Path, run: Runner) -> None:
    plan = ["plan", model, "--soc", PHONE, "--prompt", "96", "--generate", "64", "--solver", "heft", "--time-limit", "1s"]
    guessed = [*plan, "--speculate", "3", "--acceptance", "0.7", "--draft-layers", "1"]
    code, out, _ = run(*guessed, "-o", tmp_path / "p.json")
    assert code == 0 and "with 3 guesses at once by the first 1 layer" in out and "times as fast as without" in out
    found = json.loads(run(*guessed, "--json")[1])["speculation"]
    assert found["draft_layers"] == 1 and set(found) == set(
        json.loads(run(*plan, "--speculate", "auto", "--acceptance", "0.7", "--json")[1])["speculation"]
    )
    assert "guessed tokens: " in run("simulate", tmp_path / "p.json")[1]
    assert "guessed tokens: " in run("simulate", tmp_path / "p.json", "--duration", "5s", "--chat", "prompt=20,generate=40")[1]
    code, _, said = run(*plan, "--speculate", "many", "--acceptance", "0.7")
    assert code == 2 and "--speculate many is no number of tokens" in said
    code, _, said = run("explain", tmp_path / "p.json", "--phase", "verify")
    assert code == 0, said
