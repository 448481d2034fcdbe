"""What people read of simulated runs: nothing that means nothing, the same words everywhere, and which plan it is about."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetsched
from hetsched.cli import options, show_simulation
from hetsched.errors import OptionError

PHONE = "snapdragon-8-gen-3"
Runner = Callable[..., tuple[int, str, str]]
DECODER: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 300, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
    "tie_word_embeddings": True, "dtype": "float16",
}  # fmt: skip


@pytest.fixture
def plan_file(two_branch: Path) -> Path:
    found = hetsched.plan(two_branch, PHONE, dims={"width": 16}, solver="heft", simulated=False, time_limit_s=0.5)
    return found.save(two_branch.with_name("p.json"))


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of a prompt and its answer; tests only read it."""
    model = tmp_path_factory.mktemp("decoder") / "decoder"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(DECODER))
    found = hetsched.plan(model, PHONE, prompt=32, generate=32, solver="heft", simulated=False, time_limit_s=0.5)
    return found.save(model.with_name("p.json"))


def test_one_inference_has_one_latency_and_no_heat(plan_file: Path, run: Runner) -> None:
    code, out, _ = run("simulate", plan_file, "--battery", "40")
    assert code == 0 and "1 inference in" in out and "too short to warm the phone" in out
    assert "predicted without contention" in out and "median" not in out and "peak" not in out
    assert "battery: 40 % of 17.5 Wh, which this run is too short to move" in out and "empty in" not in out


def test_a_longer_run_has_both(plan_file: Path, run: Runner) -> None:
    code, out, _ = run("simulate", plan_file, "--duration", "2s")
    assert code == 0 and "inferences in 2 s" in out and "(peak" in out and "throttled: never" in out


def test_several_plans_say_what_the_base_load_takes(plan_file: Path, run: Runner) -> None:
    code, out, _ = run("simulate", plan_file, plan_file, "--rate", "20", "--rate", "5", "--duration", "2s")
    assert code == 0 and "of it is the phone's base load" in out and "Snapdragon 8 Gen 3" in out and PHONE not in out


def test_a_policy_given_twice(plan_file: Path, run: Runner) -> None:
    code, _, err = run("simulate", plan_file, "--duration", "2s", "--policy", "static", "--policy", "static")
    assert code == 2 and "--policy static is given twice" in err


def test_a_prompt_and_its_answer_say_how_the_phone_lies(spoken: Path, run: Runner) -> None:
    code, out, _ = run("simulate", spoken, "--case", "pocket")
    assert code == 0 and "(pocket: as at 31.4 °C" in out


def test_explain_says_of_which_plan_it_speaks(plan_file: Path, spoken: Path, run: Runner) -> None:
    assert "on Snapdragon 8 Gen 3: " in run("explain", plan_file)[1].splitlines()[0]
    first, second, *_ = run("explain", spoken)[1].splitlines()
    assert (
        first.startswith("decoder on Snapdragon 8 Gen 3, decode: ") and second == "(this is the decode; the prefill with --phase prefill)"
    )
    first, second, *_ = run("explain", spoken, "--phase", "prefill")[1].splitlines()
    assert ", prefill: " in first and "the decode with --phase decode" in second
    code, out, _ = run("explain", spoken, "--json")
    assert code == 0 and "decode" in json.loads(out)["about"][0]


def test_a_report_says_which_runs_are_of_no_plan_in_it(plan_file: Path, spoken: Path, run: Runner, tmp_path: Path) -> None:
    assert run("simulate", spoken, "--duration", "2s", "--trace", tmp_path / "t.pftrace")[0] == 0
    page = tmp_path / "r.html"
    code, out, _ = run("report", plan_file, tmp_path / "t.pftrace", "-o", page)
    assert code == 0 and "note: simulated: t is a run of decoder on snapdragon-8-gen-3, of which there is no plan here" in out
    assert "Turn by turn" in page.read_text() and "nothing is compared with it" in page.read_text()
    code, out, _ = run("report", spoken, tmp_path / "t.pftrace", "-o", page, "--json")
    assert code == 0 and json.loads(out)["notes"] == []


@pytest.mark.parametrize(
    ("percent", "said"), [(0.4, "write 40 for 40 %"), (0.001, "write 0.1 for 0.1 %"), (float("nan"), "out of range"), (101, "out of range")]
)
def test_shares_that_could_be_percent(percent: float, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        options.share(percent, "--battery")


@pytest.mark.parametrize(("percent", "share"), [(None, None), (0.0, 0.0), (1.0, 0.01), (100.0, 1.0)])
def test_percent_as_a_share(percent: float | None, share: float | None) -> None:
    assert options.share(percent, "--battery") == share


def test_a_battery_that_moves() -> None:
    found = {
        "start_percent": 50.0, "end_percent": 49.6, "used_percent": 0.4, "capacity_wh": 17.5, "empty_s": None, "input_j": 0.0,
        "time_to_empty_s": 600.0,
    }  # fmt: skip
    assert show_simulation.battery(found) == "50.0 -> 49.6 % of 17.5 Wh, empty in 10 min at this power"
    assert show_simulation.battery(found | {"empty_s": 90.0, "end_percent": 0.0}).endswith("empty after 90 s, and the run with it")
