"""A chat beside other models, from plan files: alone it is the chat of one plan, beside a camera everything shares one phone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.app.chatting import SimulatedChat
from hetsched.app.contexts import between, commands_at, straight
from hetsched.app.language import PlannedLanguage
from hetsched.app.sessions import read_plan
from hetsched.app.sharing import simulate_together
from hetsched.app.simulating import Scenario
from hetsched.errors import OptionError

PHONE = "snapdragon-8-gen-3"
SMALL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 2000, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
    "tie_word_embeddings": True, "dtype": "float16",
}  # fmt: skip
Runner = Callable[..., tuple[int, str, str]]
CHAT: dict[str, Any] = {"chat": "prompt=64,generate=100", "think": "300ms"}


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Plans of a model that looks at all of an input at once, and of a chat, with levels; tests only read them."""
    folder = tmp_path_factory.mktemp("beside")
    model = folder / "decoder"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(SMALL))
    camera = hetsched.plan(model, PHONE, dims={"tokens": 512, "past": 0}, time_limit_s=0.5, solver="heft", levels=True)
    asked: dict[str, Any] = {"prompt": 96, "generate": 928, "solver": "heft", "simulated": False, "levels": True, "time_limit_s": 0.5}
    return camera.save(folder / "cam.json"), hetsched.plan(model, PHONE, **asked).save(folder / "llm.json")


@pytest.mark.parametrize("exact", [True, False])
def test_alone_in_the_shared_run_it_is_the_chat_of_one_plan(plans: tuple[Path, Path], exact: bool) -> None:
    at = Scenario.of({"duration": 1.5 if exact else 30, "exact": exact, **CHAT})
    shared, alone = simulate_together([plans[1]], at, rates=()), hetsched.simulate(plans[1], scenario=at)
    assert isinstance(alone, SimulatedChat)
    (m,), s = shared.summary()["models"], alone.summary()
    assert (m["turns"], m["tokens"], m["conversations"]) == (s["turns"], s["tokens"], s["conversations"]) and s["turns"] > 1
    within = 1e-9 if exact else 1e-3
    assert [t["ttft_ms"] for t in m["per_turn"]] == pytest.approx([t["ttft_ms"] for t in s["per_turn"]], rel=within)
    assert [t["tok_s"] for t in m["per_turn"]] == pytest.approx([t["tok_s"] for t in s["per_turn"]], rel=within)
    assert sum(shared.summary()["energy_j"].values()) == pytest.approx(sum(s["energy_j"].values()), rel=1e-9 if exact else 1e-2)


@pytest.mark.parametrize("generate", [1, 20])
def test_short_answers_draw_what_they_do_op_by_op(plans: tuple[Path, Path], generate: int) -> None:
    """A prompt that has to wake the NPU up counts once on every rail; that of the GPU, which tokens wake up, leaks in its sleep."""
    asked = {"duration": 3, "chat": f"prompt=64,generate={generate}", "think": "300ms"}
    exact, fast = (simulate_together([plans[1]], Scenario.of({**asked, "exact": e}), rates=()).summary() for e in (True, False))
    assert fast["models"][0]["turns"] == exact["models"][0]["turns"] > 5
    rails = {"dynamic/cpu", "dynamic/gpu", "dynamic/npu", "leakage/cpu", "leakage/npu", "dram"}
    for rail in sorted(rails):
        assert fast["energy_j"][rail] == pytest.approx(exact["energy_j"][rail], rel=1e-2), rail


def test_under_contention_first_tokens_take_longer(plans: tuple[Path, Path]) -> None:
    at = Scenario.of({"duration": 60, **CHAT})
    run = [simulate_together([*[plans[0]] * n, plans[1]], at, rates=[40.0] * n).summary() for n in range(4)]
    chats = [s["models"][-1] for s in run]
    awake = [c["ttft_ms"]["first"] for c in chats]  # alone, later turns first wake the phone up
    assert awake == sorted(awake) and awake[3] > 1.02 * awake[0]
    rates = [c["decode_tok_s"]["mean"] for c in chats]
    assert rates == sorted(rates, reverse=True)
    assert run[3]["models"][0]["arrived"] == pytest.approx(2400, abs=2)
    assert chats[0]["rate"] is None and chats[3]["priority"] == 3 and chats[3]["missed"] is None


def test_deadlines_and_priorities_may_name_the_chat(plans: tuple[Path, Path]) -> None:
    at = Scenario.of({"duration": 20, **CHAT})
    found = simulate_together(plans, at, rates=[20.0], deadlines_s=[0.04, 1e-3], priorities=[1, 0]).summary()["models"]
    assert (found[0]["priority"], found[1]["priority"]) == (1, 0)
    assert found[1]["late"] == found[1]["turns"] > 0 and found[1]["missed"] == 1.0
    others = simulate_together(plans, at, rates=[20.0], deadlines_s=[0.04], priorities=[5]).summary()["models"]
    assert others[1]["priority"] == 6 and others[1]["late"] is None


def test_a_policy_switches_camera_and_chat_at_once(plans: tuple[Path, Path]) -> None:
    at = Scenario.of({"duration": 30, "battery": 0.05, **CHAT})
    found = simulate_together(plans, at, rates=[20.0], policy="battery-saver").summary()
    assert found["levels"]["first"][0]["before"] == 0 and found["levels"]["seconds"]["0"] < 10.0
    assert found["models"][1]["tokens"] > 0


def test_turns_of_a_file_come_beside_a_camera(plans: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("time,prompt,generate,past\n0,32,20,\n1s,32,20,\n5,,10,0\n")
    found = simulate_together(plans, Scenario.of({"duration": 8, "workload": str(tmp_path / "w.csv")}), rates=[20.0]).summary()
    assert [(t["past"], t["prompt"], t["generate"]) for t in found["models"][1]["per_turn"]] == [(0, 32, 20), (52, 32, 20), (0, 96, 10)]


def test_what_does_not_go_together_is_said(plans: tuple[Path, Path]) -> None:
    for targets, more, message in (
        ([plans[0]] * 2, {"chat": ""}, "none of the plans has a prompt and its answer"),
        ([plans[1]] * 2, {"chat": ""}, "2 of the plans have a prompt and its answer"),
        (plans, {"think": "1s"}, "--think is of a chat beside them"),
        (plans, {"chat": "window=2000"}, "a window of 2000 tokens is more than the plan has room for"),
        (plans, {"chat": "", "period": 1}, "leave --period, --poisson and --queue out"),
    ):
        with pytest.raises(OptionError, match=message):
            simulate_together(targets, Scenario.of({"duration": 5, **more}), rates=[1.0])


def test_the_command_shows_both(plans: tuple[Path, Path], run: Runner, tmp_path: Path) -> None:
    base = ["simulate", *plans, "--rate", "20", "--chat", "prompt=64,generate=100", "--think", "300ms", "--duration", "20s"]
    code, out, _ = run(*base, "--deadline", "40ms", "--deadline", "1s", "--trace", tmp_path / "t.pftrace")
    assert code == 0
    for text in ("20/s", " turns, ", "tok/s while it answers", "first token after", "turns after the deadline", "throttled:", "t.pftrace"):
        assert text in out, text
    page = hetsched.report([tmp_path / "t.pftrace"], tmp_path / "r.html").read_text()
    assert "turn" in page and "tok" in page
    found = json.loads(run(*base, "--json")[1])
    assert found["models"][1]["turns"] > 10 and found["models"][0]["arrived"] == pytest.approx(400, abs=1)


def test_costs_between_two_contexts_are_on_a_straight_line(plans: tuple[Path, Path]) -> None:
    planned = read_plan(plans[1])
    assert isinstance(planned, PlannedLanguage) and straight(planned, 128, 896)
    for phase, tokens, high in (("decode", 1, 1023), ("prefill", 64, 896)):
        ends = [commands_at(planned, phase, tokens, past) for past in (128, high)]
        for past in (384, 640):
            told, real = between(ends[0], ends[1], (past - 128) / (high - 128)), commands_at(planned, phase, tokens, past)
            for name in ("seconds", "bytes"):
                assert _sum(told, name) == pytest.approx(_sum(real, name), rel=1e-3), (phase, past, name)


def _sum(commands: Any, name: str) -> float:
    return float(sum(getattr(w, name) for c in commands for w in c.work))
