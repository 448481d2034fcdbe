"""Chats with a planned language model: turns, contexts, both paths, policies, the command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_decoder import SMALL

import hetsched
from hetsched.app.chatting import SimulatedChat
from hetsched.app.contexts import at_context
from hetsched.app.language import PlannedLanguage, step
from hetsched.app.sessions import read_plan
from hetsched.app.simulating import Scenario, simulate_policies
from hetsched.errors import OptionError
from hetsched.segments import schedule

PHONE = "snapdragon-8-gen-3"
Runner = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small decoder with room for 512 tokens and plans for every level; tests only read it."""
    folder = tmp_path_factory.mktemp("chat")
    model = folder / "decoder"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(SMALL))
    found = hetsched.plan(model, PHONE, prompt=96, generate=416, solver="heft", simulated=False, levels=True, time_limit_s=0.5)
    return found.save(folder / "p.json")


def chat(plan_file: Path, **options: Any) -> SimulatedChat:
    found = hetsched.simulate(plan_file, **options)
    assert isinstance(found, SimulatedChat)
    return found


def test_turns_grow_until_the_window_is_full(plan_file: Path) -> None:
    s = chat(plan_file, duration_s=2.0, chat="prompt=40,generate=60,window=300", think_s=0.1).summary()
    json.dumps(s, allow_nan=False)
    assert [t["past"] for t in s["per_turn"][:4]] == [0, 100, 200, 0]
    assert s["tokens"] >= 60 * s["turns"] and s["prompt_tokens"] == 40 * s["turns"]
    starts = [t["start_s"] for t in s["per_turn"]]
    turn = s["per_turn"][1]
    assert starts[2] - starts[1] == pytest.approx(turn["ttft_ms"] / 1e3 + 60 / turn["tok_s"] + 0.1)
    assert s["ttft_ms"]["first"] == s["per_turn"][0]["ttft_ms"]
    assert s["decode_tok_s"]["first_minute"] == pytest.approx(s["decode_tok_s"]["mean"])
    assert s["energy_per_token_j"] < s["energy_per_token_with_base_j"]


def test_without_a_chat_prompt_and_answer_repeat(plan_file: Path) -> None:
    s = chat(plan_file, duration_s=3.0).summary()
    assert {(t["past"], t["prompt"], t["generate"]) for t in s["per_turn"]} == {(0, 96, 416)}
    assert s["turns"] == s["conversations"] >= 2
    assert s["decode_tok_s"]["mean"] == pytest.approx(s["predicted_decode_tok_s"], rel=0.05)


def test_parts_cost_what_their_contexts_do(plan_file: Path) -> None:
    planned = read_plan(plan_file)
    assert isinstance(planned, PlannedLanguage)
    for past in (96, 300):
        a, b = at_context(planned, "decode", 1, past), step(planned, past)
        assert schedule(a.table, *a.placement).latency_s == schedule(b.table, *b.placement).latency_s
    first, later = (at_context(planned, "prefill", 96, past) for past in (0, 256))
    assert schedule(first.table, *first.placement).latency_s == planned.phases["prefill"].plan.prediction.latency_s
    assert later.graph.dims != first.graph.dims and later.placement[0] == first.placement[0]


def test_both_paths_agree_on_a_short_chat(plan_file: Path) -> None:
    """Of phases on the same processors: the fast path has no processor wake up between a prompt and its answer."""
    asked: dict[str, Any] = {"prompt": 96, "generate": 416, "solver": "heft", "simulated": False, "forbidden": {"*": "gpu"}}
    planned = hetsched.plan(plan_file.parent / "decoder", PHONE, **asked).save(plan_file.parent / "without_gpu.json")
    options: dict[str, Any] = {"duration_s": 1.0, "chat": {"prompt": 40, "generate": 30}, "think_s": 0.2, "ambient_c": 35.0}
    full, fast = chat(planned, exact=True, **options).summary(), chat(planned, **options).summary()
    assert fast["tokens"] == full["tokens"] and fast["turns"] == full["turns"]
    assert sum(fast["energy_j"].values()) == pytest.approx(sum(full["energy_j"].values()), rel=5e-3)
    for node, hottest in full["peak_temperatures_c"].items():
        assert fast["peak_temperatures_c"][node] == pytest.approx(hottest, rel=5e-3)
    for a, b in zip(fast["per_turn"], full["per_turn"], strict=True):
        assert a["ttft_ms"] == pytest.approx(b["ttft_ms"], rel=5e-3) and a["tok_s"] == pytest.approx(b["tok_s"], rel=5e-3)


def test_policies_switch_between_the_plans_of_both_phases(plan_file: Path) -> None:
    at = Scenario.of({"duration": 30, "chat": "prompt=40,generate=60", "battery": 0.05})
    runs = simulate_policies(plan_file, ("static", "battery-saver"), at)
    static, saver = (r.summary() for r in runs.values())
    assert static["levels"] is None
    assert (saver["levels"]["first"][0]["before"], saver["levels"]["first"][0]["after"]) == (0, 4)
    assert saver["per_turn"][-1]["level"] == 4
    alone = chat(plan_file, duration_s=5.0, chat="prompt=40,generate=60", level=4).summary()
    assert saver["decode_tok_s"]["last_minute"] == pytest.approx(alone["decode_tok_s"]["mean"], rel=0.35)


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ("prompt=40,generate=60", None),
        ("prompt=96,generate=200,turns=1", None),
        ("prompt=96,generate=200", "the plan has room for 512 tokens, and two turns of 296 need 592 .*or plan with --generate 496 or more"),
        ("prompt=40,generate=60,window=150", "the window has 150 tokens, and two turns of 100 need 200 .*or a larger window"),
    ],
)
def test_turns_that_each_begin_a_conversation_are_told(plan_file: Path, said: str, note: str | None) -> None:
    found = chat(plan_file, duration_s=3.0, chat=said).summary()
    assert found["note"] is None if note is None else re.search(note, found["note"])
    if note is not None:
        assert found["conversations"] == found["turns"]


def test_turns_from_a_file(plan_file: Path, tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("time,prompt,generate,past\n0,32,20,\n500ms,32,20,\n2,,10,0\n")
    s = chat(plan_file, duration_s=4.0, workload=str(tmp_path / "w.csv"), deadline_s=10.0).summary()
    assert [(t["past"], t["prompt"], t["generate"]) for t in s["per_turn"]] == [(0, 32, 20), (52, 32, 20), (0, 96, 10)]
    assert s["per_turn"][2]["start_s"] == pytest.approx(2.0)
    assert s["missed"] == 0
    (tmp_path / "w.yaml").write_text("arrivals:\n  - {time: 0, prompt: 32, generate: 20}\n  - {time: 0.5, prompt: 32}\n")
    assert len(chat(plan_file, duration_s=20.0, workload=str(tmp_path / "w.yaml")).summary()["per_turn"]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chat": "window=600"}, "a window of 600 tokens is more than the plan has room for"),
        ({"chat": "prompt=400,generate=300"}, "a turn of 400 \\+ 300 tokens does not fit into a window of 512"),
        ({"chat": "", "duration_s": None}, "say with --duration for how long"),
        ({"workload": "no.csv"}, "the workload no.csv cannot be read: No such file"),
        ({"policy": "cold"}, "no policy is called 'cold'"),
    ],
)
def test_what_does_not_fit_is_said(plan_file: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        hetsched.simulate(plan_file, **{"duration_s": 5.0, **options})


def test_the_command_shows_turns_and_policies(plan_file: Path, run: Runner, tmp_path: Path) -> None:
    base = ["simulate", plan_file, "--duration", "3s", "--chat", "prompt=40,generate=60", "--think", "200ms"]
    code, out, _ = run(*base, "--trace", tmp_path / "t.pftrace")
    assert code == 0
    for text in ("tok/s while it answers", "first token after", "turn", "context", "a token takes", "throttled:", "t.pftrace"):
        assert text in out, text
    page = hetsched.report([plan_file, tmp_path / "t.pftrace"], tmp_path / "r.html").read_text()
    assert "Answers (tok/s)" in page and "Turn by turn" in page and "turns" in page
    code, out, _ = run(*base, "--policy", "static", "--policy", "reactive")
    assert code == 0 and "reactive: at level 0 for" in out
    code, out, _ = run(*base, "--json")
    assert json.loads(out)["turns"] > 1
    code, _, err = run(*base, "--rate", "1", "--rate", "2")
    assert code == 2 and "--rate is given 2 times for one plan" in err
