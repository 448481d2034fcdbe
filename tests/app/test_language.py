"""Language models as workloads: two phases, priced as the context grows, saved, read back, simulated and shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_decoder import SMALL

import hetsched
from hetsched.app.explaining import explain_plan
from hetsched.app.language import PlannedLanguage, contexts_of, phase_graph, step
from hetsched.app.language_simulating import SimulatedLanguage
from hetsched.app.sessions import read_plan
from hetsched.errors import InfeasibleError, OptionError, PlanError
from hetsched.graph import Role
from hetsched.partition.switching import Placed, switch_cost
from hetsched.plan_language import Language
from hetsched.plan_rules import check_memory
from hetsched.segments import schedule
from hetsched.states import cache_bytes, kv_bytes_per_token

PHONE = "snapdragon-8-gen-3"
PER_TOKEN = 2 * 2 * 2 * 32 * 2  # 2 · layers · kv_heads · head_dim · bytes
EMBEDDING = 300 * 64 * 2
Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    def write(**changes: Any) -> Path:
        path = tmp_path / "decoder"
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps({**SMALL, **changes}))
        return path

    return write


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> PlannedLanguage:
    """The small model with a prompt of 96 tokens and an answer of 32; tests only read it."""
    path = tmp_path_factory.mktemp("usual") / "decoder"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(SMALL))
    return planned(path)


def planned(model: Path, prompt: int = 96, generate: int = 32, **options: Any) -> PlannedLanguage:
    found = hetsched.plan(model, PHONE, prompt=prompt, generate=generate, **{"solver": "heft", "simulated": False, **options})
    assert isinstance(found, PlannedLanguage)
    return found


def test_summary_has_the_keys_of_a_plan_and_of_a_language_model(usual: PlannedLanguage) -> None:
    s = usual.summary()
    for key in ("latency_ms", "peak_memory_mb", "gap", "ttft_ms", "prefill_tok_s", "decode_tok_s", "energy_per_token_j", "kv_cache_mb"):
        assert s[key] >= 0, key
    assert s["prefill_tok_s"] == pytest.approx(96 / s["ttft_ms"] * 1e3)
    assert s["kv_cache_mb"] == pytest.approx(PER_TOKEN * 128 / 1e6)
    assert (s["kv_bytes_per_token"], s["prompt"], s["generate"], s["kv"]) == (PER_TOKEN, 96, 32, "f16")
    low, high = s["decode_tok_s_interval"]
    assert low < s["decode_tok_s"] < high and s["ttft_ms_interval"][0] < s["ttft_ms"] < s["ttft_ms_interval"][1]
    assert list(s["phases"]) == ["prefill", "decode"] and s["phases"]["prefill"]["latency_ms"] == s["ttft_ms"]
    json.dumps(s, allow_nan=False)


def test_the_phases_are_those_of_the_prompt_and_of_the_last_token(usual: PlannedLanguage) -> None:
    found = usual
    first, last = found.phases["prefill"], found.phases["decode"]
    assert (first.graph.dims["tokens"], first.graph.dims["past"], first.graph.dims["logits"]) == (96, 0, 1)
    assert (last.graph.dims["tokens"], last.graph.dims["past"]) == (1, 127)
    assert [e.phase for e in found.deployment.entries] == ["prefill", "decode"]
    for phase in (first, last):
        op = next(op for op in phase.graph.ops if op.type == "Sample")
        assert phase.graph.tensors[op.outputs[0]].shape == (1, 1) and "next_token" in phase.graph.outputs
        assert next(p for p in phase.plan.placements if p.op == op.name).queue == "cpu"
        assert any("next token" in r for p in phase.plan.placements if p.op == op.name for r in p.refusals)


def test_decode_is_averaged_over_the_growing_context(folder: Folder) -> None:
    found = planned(folder(), prompt=5, generate=3)
    assert contexts_of(found.asked) == [5, 6, 7]
    costs = [schedule(at.table, *at.placement) for at in (step(found, past) for past in (5, 6, 7))]
    mean_s, mean_j = np.mean([c.latency_s for c in costs]), np.mean([c.energy_j for c in costs])
    assert found.prediction.decode_rate == pytest.approx(1 / mean_s)
    assert found.prediction.energy_per_token_j == pytest.approx(mean_j)
    assert costs[2].latency_s == pytest.approx(found.plan.prediction.latency_s)


def test_a_longer_prompt_decodes_more_slowly(folder: Folder) -> None:
    short, long = (planned(folder(), prompt=n, solver="single:cpu").prediction for n in (128, 60000))
    assert long.decode_rate < short.decode_rate and long.kv_cache_bytes > 100 * short.kv_cache_bytes


def test_peak_memory_is_weights_and_caches_and_little_else(folder: Folder) -> None:
    found = planned(folder(), prompt=8000, generate=100, solver="single:cpu", precision="float")
    decode = found.phases["decode"]
    stored = sum(t.nbytes for t in decode.graph.tensors.values() if t.is_constant)
    caches = PER_TOKEN * 8100
    arena = decode.plan.arena_bytes
    assert caches <= arena < caches + 64 * 1024
    p = decode.plan.prediction
    assert p.peak_memory_bytes == p.weight_bytes + arena + p.workspace_bytes
    assert found.prediction.kv_cache_bytes == caches
    assert decode.plan.prediction.weight_bytes <= 2 * stored


def test_past_and_present_are_one_place(usual: PlannedLanguage) -> None:
    decode = usual.phases["decode"]
    place = {b.tensor: b for b in decode.plan.buffers}
    assert len(decode.graph.states) == 4
    check_memory(decode.plan, decode.graph)
    for present, past in decode.graph.states.items():
        assert place[present].offset == place[past].offset
        assert place[present].nbytes == PER_TOKEN // 4 * 128 and place[past].nbytes == PER_TOKEN // 4 * 127


def test_caches_never_move_between_processors(usual: PlannedLanguage) -> None:
    decode = usual.phases["decode"]
    states = {n for n in (*decode.graph.inputs, *decode.graph.outputs) if decode.graph.tensors[n].role is Role.STATE}
    assert len(states) == 8
    for t, name in enumerate(decode.table.tensor_names):
        if name in states:
            assert not decode.table.transfer_s[t].any() and not decode.table.transfer_bytes[t].any()
            assert (decode.table.tensor_bytes[t] == decode.graph.tensors[name].nbytes).all()


def test_a_tied_embedding_is_held_once(folder: Folder) -> None:
    tied, apart = (planned(folder(tie_word_embeddings=t), solver="single:cpu") for t in (True, False))
    difference = apart.plan.prediction.weight_bytes - tied.plan.prediction.weight_bytes
    assert difference == EMBEDDING
    assert apart.prediction.peak_memory_bytes - tied.prediction.peak_memory_bytes == EMBEDDING


def test_memory_of_both_phases_together_is_limited(usual: PlannedLanguage, folder: Folder) -> None:
    model = folder()
    need = usual.prediction.peak_memory_bytes
    assert planned(model, memory_limit_bytes=need).prediction.peak_memory_bytes <= need
    with pytest.raises(InfeasibleError):
        planned(model, memory_limit_bytes=need // 2)


def test_the_figure_of_a_seven_billion_model(tmp_path: Path) -> None:
    path = tmp_path / "seven"
    path.mkdir()
    config = {**SMALL, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 32, "head_dim": 128, "vocab_size": 32000}  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    found = planned(path, prompt=512, generate=1, solver="single:cpu")
    assert found.prediction.kv_bytes_per_token == 524_288
    assert found.prediction.kv_cache_bytes == 524_288 * 513
    assert found.prediction.peak_memory_bytes > 6.4e9 * 2


@pytest.mark.parametrize(
    ("kv", "key", "value"),
    [("fp16", 64, 64), ("int8", 34, 34), ("fp8", 32, 32), ("int8/int4", 34, 18), ("fp16/int4:16", 64, 20), ("fp8/int8:8", 32, 40)],
)
def test_bytes_of_a_cache_include_its_scales(usual: PlannedLanguage, folder: Folder, kv: str, key: int, value: int) -> None:
    found = planned(folder(), kv=kv, solver="single:cpu")
    heads = 2 * 2  # layers · kv_heads
    assert found.prediction.kv_bytes_per_token == heads * (key + value)
    assert found.prediction.kv_cache_bytes == heads * (key + value) * 128 == cache_bytes(found.graph)
    arena = found.phases["decode"].plan.arena_bytes
    assert arena < usual.phases["decode"].plan.arena_bytes or kv == "fp16"


def test_smaller_caches_are_read_faster(folder: Folder) -> None:
    model = folder()
    seconds = [planned(model, prompt=60000, kv=kv, solver="single:cpu").plan.prediction.latency_s for kv in ("fp16", "int8", "int8/int4")]
    assert seconds[0] > seconds[1] > seconds[2]


@pytest.mark.parametrize("kv", ["int8/int4:64", "int3", "int4", "int8/int8/int8", "int8:16/int8", "fp16/int4:7", ""])
def test_impossible_precisions_are_refused(folder: Folder, kv: str) -> None:
    with pytest.raises(OptionError, match=r"group|precision|keys cannot be int4"):
        planned(folder(), kv=kv)


def test_a_window_bounds_the_cache(folder: Folder) -> None:
    model = folder(model_type="mistral", sliding_window=64)
    a, b = (planned(model, prompt=n).prediction for n in (500, 1000))
    assert a.kv_cache_bytes == b.kv_cache_bytes == PER_TOKEN * 63
    assert a.decode_rate == pytest.approx(b.decode_rate)


def test_a_state_space_does_not_grow(folder: Folder) -> None:
    mamba = {"model_type": "mamba", "state_size": 8, "conv_kernel": 4, "intermediate_size": 128, "time_step_rank": 4, "hidden_act": "silu"}
    model = folder(**mamba)
    a, b = (planned(model, prompt=n, solver="single:cpu") for n in (200, 2000))
    assert a.prediction.kv_cache_bytes == b.prediction.kv_cache_bytes == 2 * (128 * 3 + 128 * 8) * 4
    assert a.prediction.kv_bytes_per_token == 0
    assert a.prediction.decode_rate == pytest.approx(b.prediction.decode_rate)
    assert a.phases["decode"].plan.arena_bytes == b.phases["decode"].plan.arena_bytes
    with pytest.raises(OptionError, match="no key-value cache"):
        planned(model, kv="int8")


MIXTURE = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


def test_only_expected_experts_are_read(folder: Folder, tmp_path: Path) -> None:
    profile = tmp_path / "experts.yaml"
    profile.write_text("experts: [1.0, 0.5, 0.5, 0.0]\n")
    found = planned(folder(**MIXTURE), experts=profile)
    assert found.deployment.language is not None and found.deployment.language.experts == ((1.0, 0.5, 0.5, 0.0),)
    expert = 3 * 64 * 96 * 2
    for name, tokens in (("prefill", 96), ("decode", 1)):
        op = next(op for op in found.phases[name].graph.ops if op.type == "MoE")
        active = 1.0 + 2 * (1 - 0.5**tokens)
        assert op.attr_float("active_experts", 0) == pytest.approx(active)
        assert op.attr_int("active_weight_bytes", 0) == round(expert * active)
    uniform = planned(folder(**MIXTURE), experts="uniform")
    assert [op.attrs["active_experts"] for op in uniform.graph.ops if op.type == "MoE"] == [pytest.approx(2.0)] * 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("[0.5, 0.5]", "2 experts"), ("[1, 1, 1, 1]", "adds up to 4"), ("[2.0, 0, 0, 0]", "probability 2"), ("{a: 1}", "no list"),
     ("[[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]", "3 layers"), ("[x, 1, 1, 0]", "'x'"), ("]", "not valid YAML"), ("[]", "no list")],
)  # fmt: skip
def test_a_bad_profile_is_refused(folder: Folder, tmp_path: Path, text: str, sentence: str) -> None:
    profile = tmp_path / "experts.json"
    profile.write_text(text)
    with pytest.raises(OptionError, match=sentence):
        planned(folder(**MIXTURE), experts=profile)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"generate": None}, "belong together"), ({"prompt": 0}, "out of range"), ({"dims": {"past": 3}}, "leave one out"),
     ({"experts": "uniform"}, "no mixture"), ({"experts": "absent.json"}, "no profile"), ({"sampling": "beam"}, "beam")],
)  # fmt: skip
def test_bad_options_are_refused(folder: Folder, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        planned(folder(), **options)


def test_a_batch_shares_the_weights(folder: Folder) -> None:
    one, four = (planned(folder(), dims={"batch": n}, solver="single:cpu").prediction for n in (1, 4))
    assert four.kv_cache_bytes == 4 * one.kv_cache_bytes and four.kv_bytes_per_token == one.kv_bytes_per_token
    assert four.decode_rate > one.decode_rate


def test_one_phase_takes_a_precision_too(folder: Folder, tmp_path: Path) -> None:
    found = hetsched.plan(folder(), PHONE, dims={"past": 100}, kv="int8", solver="heft", simulated=False)
    assert not isinstance(found, PlannedLanguage) and kv_bytes_per_token(found.graph) == 2 * 2 * (34 + 34)
    again = read_plan(found.save(tmp_path / "p.json"))
    assert again.plan == found.plan and again.placement == found.placement


def test_a_saved_plan_reads_back_and_simulates_the_same(folder: Folder, tmp_path: Path) -> None:
    found = planned(folder(), kv="int8/int4:32")
    path = found.save(tmp_path / "p.json")
    again = read_plan(path)
    assert isinstance(again, PlannedLanguage)
    assert again.prediction == found.prediction and again.placement == found.placement
    assert again.phases["prefill"].placement == found.phases["prefill"].placement
    for name in ("prefill", "decode"):
        a, b = found.phases[name].table, again.phases[name].table
        assert (a.time_s == b.time_s).all() and (a.tensor_bytes == b.tensor_bytes).all()
    simulated = hetsched.simulate(path)
    assert isinstance(simulated, SimulatedLanguage)
    assert simulated.summary() == hetsched.simulate(found).summary()


def test_simulation_has_first_token_and_steps(folder: Folder, tmp_path: Path) -> None:
    found = planned(folder(), solver="single:cpu", forbidden=None)
    simulated = hetsched.simulate(found)
    s = simulated.summary()
    assert s["ttft_ms"] == pytest.approx(found.phases["prefill"].plan.prediction.serial_s * 1e3)
    assert s["decode_tok_s"] == pytest.approx(found.prediction.decode_rate, rel=1e-6)
    assert s["decode_ms"]["first"] <= s["decode_ms"]["mean"] <= s["decode_ms"]["last"]
    assert s["duration_s"] == pytest.approx((s["ttft_ms"] + 32 * s["decode_ms"]["mean"]) / 1e3)
    spans = simulated.trace.spans
    assert {x.iteration for x in spans} == {0, 1} and sum(x.name == "sample" for x in spans) == 2
    with pytest.raises(OptionError, match="say with --duration for how long"):
        hetsched.simulate(found, chat={"turns": 2})
    with pytest.raises(OptionError, match="say with --duration for how long"):
        hetsched.simulate(found, battery=0.05)
    with pytest.raises(OptionError, match="run one for host with --prompt TEXT"):
        hetsched.run(found, delegate="null")


def test_a_report_shows_both_phases(usual: PlannedLanguage, tmp_path: Path) -> None:
    found = usual
    path = found.save(tmp_path / "p.json")
    page = hetsched.report([path, hetsched.simulate(found)], tmp_path / "r.html").read_text()
    for text in ("(prefill)", "(decode)", "First token", "KV cache", "Energy per token", "decoder"):
        assert text in page, text


def test_explain_and_diff_of_two_phases(usual: PlannedLanguage, folder: Folder, tmp_path: Path) -> None:
    found = usual
    path = found.save(tmp_path / "p.json")
    attention = next(op.name for op in found.graph.ops if op.type == "GroupQueryAttention")
    decode, prefill = hetsched.explain(path, attention), hetsched.explain(path, attention, phase="prefill")
    assert decode.plan_latency_s == found.plan.prediction.latency_s
    assert prefill.plan_latency_s == found.prediction.ttft_s
    with pytest.raises(OptionError, match="prefill, decode"):
        hetsched.explain(path, attention, phase="encode")
    whole = [explain_plan(path, phase).plan for phase in ("prefill", None)]
    assert whole == [phase.plan for phase in found.phases.values()]
    other = planned(folder(), solver="single:cpu")
    assert hetsched.diff(path, path).same
    assert hetsched.diff(found.deployment, other.deployment, phase="prefill").latency_s[0] == found.prediction.ttft_s
    alone = hetsched.plan(folder(), PHONE, solver="heft", simulated=False)
    with pytest.raises(OptionError, match="decode"):
        hetsched.diff(found.deployment, alone.deployment)


def test_same_bytes_whatever_the_hash_seed(folder: Folder, tmp_path: Path) -> None:
    found = []
    for seed in ("0", "4711"):
        out = tmp_path / f"p.{seed}.json"
        command = [sys.executable, "-m", "hetsched", "plan", str(folder(**MIXTURE)), "--soc", PHONE, "--solver",
            "heft",
            "--prompt", "32", "--generate", "8",
                   "--kv", "int8", "--experts", "uniform", "-o", str(out)]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": seed})
        assert "prefill of 32" in done.stdout and "tok/s" in done.stdout
        found.append(out.read_bytes())
    assert found[0] == found[1] and str(tmp_path) not in found[0].decode()


def test_a_tampered_plan_is_refused(folder: Folder, tmp_path: Path) -> None:
    path = planned(folder(), kv="int8").save(tmp_path / "p.json")
    text = json.loads(path.read_text())
    for change in ({"kv": "int3/int3"}, {"experts": [[0.5]]}, {"sampling": "top_k", "kv": "int8/int8:5"}):
        path.write_text(json.dumps({**text, "language": {**text["language"], **change}}))
        with pytest.raises(PlanError):
            read_plan(path)
    path.write_text(json.dumps({**text, "entries": text["entries"][::-1]}))
    with pytest.raises(PlanError, match="phases"):
        read_plan(path)


def test_phase_graph_is_what_one_phase_is(usual: PlannedLanguage, folder: Folder) -> None:
    found = usual
    alone = hetsched.plan(folder(), PHONE, dims={"tokens": 96}, solver="heft", simulated=False)
    same = phase_graph(folder() / "config.json", found.soc, found.asked.model_copy(update={"sampling": ""}), {}, 96, 0)
    assert [op.name for op in same.ops] == [op.name for op in alone.graph.ops]


def test_phases_share_processors_where_two_copies_of_the_weights_do_not_fit(folder: Folder) -> None:
    """On the X Elite the prompt goes to the accelerators and the answer to the CPU, each with weights of its own."""
    model = folder(hidden_size=512, intermediate_size=1024, num_attention_heads=8, head_dim=64, vocab_size=4000)
    options: dict[str, Any] = {"prompt": 512, "generate": 32, "time_limit_s": 0.5}
    free = hetsched.plan(model, "snapdragon-x-elite", **options)
    one = max(phase.plan.prediction.peak_memory_bytes for phase in free.phases.values())
    assert free.prediction.peak_memory_bytes > 1.4 * one
    held = hetsched.plan(model, "snapdragon-x-elite", **options, memory_limit_bytes=int(1.2 * one))
    assert held.prediction.peak_memory_bytes <= 1.2 * one
    assert held.prediction.ttft_s + 32 / held.prediction.decode_rate >= free.prediction.ttft_s + 32 / free.prediction.decode_rate
    with pytest.raises(InfeasibleError, match=r"on the same processors|fits into"):
        hetsched.plan(model, "snapdragon-x-elite", **options, memory_limit_bytes=int(0.9 * one))


def test_phases_that_share_processors_keep_off_those_that_the_user_forbids(folder: Folder) -> None:
    model = folder(hidden_size=512, intermediate_size=1024, num_attention_heads=8, head_dim=64, vocab_size=4000)
    options: dict[str, Any] = {"prompt": 512, "generate": 32, "time_limit_s": 0.5, "forbidden": {"*": "npu"}, "simulated": False}
    free = hetsched.plan(model, "snapdragon-x-elite", **options)
    one = max(phase.plan.prediction.peak_memory_bytes for phase in free.phases.values())
    assert free.prediction.peak_memory_bytes > 1.4 * one
    held = hetsched.plan(model, "snapdragon-x-elite", **options, memory_limit_bytes=int(1.2 * one))
    assert held.prediction.peak_memory_bytes <= 1.2 * one
    assert all(p.queue != "npu" for phase in held.phases.values() for p in phase.plan.placements)


def test_the_switch_from_prompt_to_answer_is_in_the_plan(usual: PlannedLanguage) -> None:
    (switch,) = [s for s in usual.deployment.switches if s.before == ("prefill", 0)]
    first, second = ({p.queue for p in phase.plan.placements} for phase in usual.phases.values())
    assert switch.after == ("decode", 0)
    if first == second and len(first) == 1:
        assert (switch.weight_bytes, switch.state_bytes) == (0, 0)


def test_caches_that_change_processor_are_handed_over(folder: Folder) -> None:
    model = folder()
    prefill = hetsched.plan(phase_graph_of(model, 96, 0), PHONE, solver="single:npu")
    decode = hetsched.plan(phase_graph_of(model, 1, 127), PHONE, solver="single:cpu")
    cost = switch_cost(*(Placed(p.graph, p.table, p.placement[1]) for p in (prefill, decode)))
    assert cost.state_bytes == 96 * PER_TOKEN
    assert cost.weight_bytes == decode.plan.prediction.weight_bytes
    assert cost.handover_s > 0


def phase_graph_of(model: Path, tokens: int, past: int) -> Any:
    return phase_graph(model, hetsched.soc(PHONE), Language(prompt=96, generate=32), {}, tokens, past)


def test_a_decoder_has_levels_in_both_phases(folder: Folder, tmp_path: Path) -> None:
    made = planned(folder(), levels=True, time_limit_s=0.5)
    stages = [(e.phase, e.level) for e in made.deployment.entries]
    assert stages[:2] == [("prefill", 0), ("decode", 0)] and len(stages) % 2 == 0 and len(stages) > 2
    path = made.save(tmp_path / "levels.plan.json")
    top = stages[-1][1]
    again = read_plan(path, top)
    assert isinstance(again, PlannedLanguage)
    assert again.plan == made.deployment.entries[-1].plan
    first, last = (schedule(at.table, *at.placement).latency_s for at in (step(again, past) for past in (96, 127)))
    assert first < 1 / again.prediction.decode_rate < last
