"""Plans of language models take the rates that were fitted, on every processor, through every engine, with their interval."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from math import exp
from pathlib import Path

import numpy as np
import pytest

import hetsched
from hetsched.app.language import PlannedLanguage, phase_graph
from hetsched.costs import CostTable
from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph
from hetsched.plan_language import Language
from hetsched.soc_files import load_soc
from hetsched.socs import SoC
from hetsched_cost_models import build_table
from hetsched_cost_models.anchoring import on_kind
from hetsched_cost_models.fit.language_data import Rate, rates
from hetsched_cost_models.fit.language_fit import form_of
from hetsched_cost_models.language_rates import _weights, decoder_of, shipped
from hetsched_cost_models.parameters import engine_of, runtimes_of
from hetsched_cost_models.pricing import storage_of
from hetsched_cost_models.work import work_of

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
    "tie_word_embeddings": True, "dtype": "bfloat16",
}  # fmt: skip
#: Bits on average, and the share of llama.cpp's k-quants, of Llama 3.2 1B with 4-bit weights.
_HEAD = 0.2627e9 / 1.2358e9
_LLAMA_CPP, _EXECUTORCH = (4.5 * (1.0 - _HEAD) + bits * _HEAD for bits in (6.5625, 8.0))
#: What else the rates of Llama 3.2 1B were measured with: those whose precision a plan of a float model has.
CASES = (
    ("snapdragon-8-gen-3", "cpu", "executorch", "auto", 16.0),
    ("snapdragon-8-gen-3", "gpu", "executorch", "auto", 16.0),
    ("snapdragon-8-elite", "npu", "llama.cpp", "auto", 16.0),
    ("snapdragon-8-gen-3", "gpu", "mlc", "auto", 16.0),
    ("snapdragon-8-gen-3", "gpu", "litert", "auto", 16.0),
    ("snapdragon-8-gen-3", "cpu", "llama.cpp", "auto", 16.0),
    ("snapdragon-8-gen-3", "cpu", "mnn", "w8a8", 8.0),
    ("snapdragon-8-elite", "npu", "qnn", "w8a16", 8.0),
    ("apple-a19-pro", "gpu", "mlx", "auto", 16.0),
    ("apple-a19-pro", "npu", "coreml", "auto", 16.0),
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama") / "llama-3.2-1b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


def _graph(model: Path, soc: SoC, tokens: int, past: int) -> Graph:
    return phase_graph(model / "config.json", soc, Language(prompt=512, generate=128, sampling="greedy"), {}, tokens, past)


def _fitted(measured: Rate, phase: str) -> float:
    """Tokens a second that the shipped parameters predict for a row."""
    form, _ = form_of([measured], phase, shipped().parameters["decode"])
    return (measured.prompt if phase == "prefill" else 1) / float(np.exp(form.log_seconds(shipped().parameters[phase]))[0])


@pytest.mark.parametrize(("chip", "unit", "engine", "precision", "bits"), CASES)
def test_a_plan_has_the_rates_of_the_fit(llama: Path, chip: str, unit: str, engine: str, precision: str, bits: float) -> None:
    soc = load_soc(chip)
    known = next(r for r in rates() if r.model == "Llama-3.2-1B")
    row = replace(known, chip=chip, unit=unit, engine=engine, bits=bits, threads=0, context=640, prompt=512, decode=1.0, prefill=1.0)
    token = build_table(_graph(llama, soc, 1, 640), soc, runtime=engine, precision=precision)
    assert 1.0 / on_kind(token, unit) == pytest.approx(_fitted(row, "decode"), rel=0.02)
    prompt = build_table(_graph(llama, soc, 512, 0), soc, runtime=engine, precision=precision)
    assert 512 / on_kind(prompt, unit) == pytest.approx(_fitted(replace(row, context=512), "prefill"), rel=0.02)


@pytest.mark.parametrize(
    ("unit", "engine", "precision", "bits", "k_quants"),
    [
        ("cpu", "executorch", "w4a8", _EXECUTORCH, 0.0), ("cpu", "llama.cpp", "w4a8", _LLAMA_CPP, _HEAD), ("cpu", "mnn", "w4a8", 4.5, 0.0),
        ("gpu", "mlc", "w4a8", 4.5, 0.0), ("gpu", "litert", "w4a16", 4.5, 0.0), ("npu", "qnn", "w4a8", 4.5, 0.0),
    ],
)  # fmt: skip
def test_four_bit_weights_of_a_float_model_have_the_rates_of_the_fit(
    llama: Path, unit: str, engine: str, precision: str, bits: float, k_quants: float
) -> None:
    known, soc = next(r for r in rates() if r.model == "Llama-3.2-1B"), load_soc("snapdragon-8-gen-3")
    row = replace(
        known, unit=unit, engine=engine, bits=bits, k_quants=k_quants, threads=0, context=640, prompt=512, decode=1.0, prefill=1.0
    )
    token, prompt = (build_table(_graph(llama, soc, *n), soc, runtime=engine, precision=precision) for n in ((1, 640), (512, 0)))
    assert 1.0 / on_kind(token, unit) == pytest.approx(_fitted(row, "decode"), rel=0.02)
    assert 512 / on_kind(prompt, unit) == pytest.approx(_fitted(replace(row, context=512), "prefill"), rel=0.02)
    assert not any("no public latency with 4-bit weights" in n for n in token.notes)


def test_four_bit_weights_meet_what_each_processor_has(llama: Path) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    graph = _graph(llama, soc, 1, 64)
    for wanted, cpu in (("w4a8", "w4a8"), ("w4a16", "f32")):
        table = build_table(graph, soc, precision=wanted)
        head = max(i for i, op in enumerate(graph.ops) if op.type == "Gemm")
        found = {table.queues[table.alt_queue[a]].kind: table.alt_precision[a] for a in table.alternatives(head)}
        assert found == {"cpu": cpu, "gpu": "w4a16", "npu": "w4a16"}
        reasons = [r.reason for r in table.refusals[head] if table.queues[r.queue].kind == "cpu"]
        assert [r for r in reasons if "ask for w4a8" in r] == reasons and bool(reasons) == (wanted == "w4a16")
        gpu = [d.dtype for d in table.domains if table.queues[d.queue].kind == "gpu"]
        assert gpu == ["f16"], "activations of a GPU stay floats"


def test_weights_in_blocks_stay_as_they_are_stored(llama: Path) -> None:
    work = work_of(_graph(llama, load_soc("snapdragon-8-gen-3"), 1, 64))
    eight, four = replace(work, weight_packed_bytes=1.0625 * work.weight_packed_elems), storage_of("cpu", "w4a8", False)
    others = float((work.weight_fixed_bytes + 4.5 / 8.0 * work.weight_float_elems).sum())
    assert _weights(eight, four, "cpu", "llama.cpp").sum() == pytest.approx(float(eight.weight_packed_bytes.sum()) + others)
    assert _weights(work, four, "cpu", "llama.cpp").sum() == pytest.approx(4.5 / 8.0 * float(work.weight_packed_elems.sum()) + others)


def test_four_bits_with_eight_bit_activations_are_for_language_models_on_phones(llama: Path) -> None:
    graph = hetsched.load(Path(__file__).parents[2] / "models" / "mobilenet_v2.onnx")
    with pytest.raises(UnsupportedModelError, match="cannot be planned as w4a8 here: that is for language models"):
        build_table(graph, load_soc("snapdragon-8-gen-3"), precision="w4a8")


def test_a_plan_of_a_measured_model_on_a_measured_chip_says_what_the_fit_says(llama: Path, tmp_path: Path) -> None:
    """Llama 3.2 1B in bfloat16 through ExecuTorch on the CPU of the 8 Gen 3, whose rate is public, in plan, JSON and interval."""
    measured = next(r for r in rates() if (r.model, r.chip, r.engine, r.bits, r.app) == CASE)
    found = hetsched.plan(llama, measured.chip, prompt=512, generate=128, runtime="executorch", solver="single:cpu", simulated=False)
    assert isinstance(found, PlannedLanguage)
    p, s = found.prediction, found.summary()
    assert p.decode_rate == pytest.approx(_fitted(replace(measured, context=576), "decode"), rel=0.02)
    assert p.prefill_rate == pytest.approx(_fitted(replace(measured, context=512, prompt=512), "prefill"), rel=0.02)
    for phase, rate, interval in (
        ("decode", p.decode_rate, p.decode_rate_interval), ("prefill", p.prefill_rate, p.prefill_rate_interval),
    ):  # fmt: skip
        width = exp(shipped().half_width[phase]["seen"])
        assert interval == pytest.approx((rate / width, rate * width)), phase
        assert s[f"{phase}_tok_s_interval"] == list(interval)
    page = hetsched.report([found], tmp_path / "r.html").read_text()
    low, high = p.decode_rate_interval
    assert f"{low:.3g}" in page and f"{high:.3g}" in page, "the report has the interval"
    (note,) = (n for n in found.plan.notes if "public rates of engines" in n)
    assert "executorch on the CPU" in note and "executorch on the GPU" in note and "qnn on the NPU" in note


CASE = ("Llama-3.2-1B", "snapdragon-8-gen-3", "executorch", 16.0, False)


def _token(model: Path, chip: str = "snapdragon-8-gen-3", runtime: str = "default", tokens: int = 1, past: int = 512) -> CostTable:
    soc = load_soc(chip)
    return build_table(_graph(model, soc, tokens, past), soc, runtime=runtime)


def test_an_engine_that_no_row_of_the_chip_has_is_said_and_less_sure(llama: Path) -> None:
    sure, unsure = _token(llama), _token(llama, "dimensity-9300")
    assert sure.interval[1] < unsure.interval[1] == pytest.approx(1.0 / unsure.interval[0])
    assert "no public rate on this chip" in unsure.notes[-1] and "no public rate on this chip" not in sure.notes[-1]
    assert not any("slow-path" in n for n in sure.notes), "its interval is the roofline's"


def test_a_few_tokens_take_no_less_than_one_and_no_more_than_one_by_one(llama: Path) -> None:
    for kind in ("cpu", "gpu", "npu"):
        seconds = {n: on_kind(_token(llama, tokens=n), kind) for n in (1, 2, 4, 64, 512)}
        assert all(a <= 1.01 * b for a, b in pairwise(seconds.values())), kind
        assert all(s <= n * seconds[1] * 1.01 for n, s in seconds.items()), kind
    assert on_kind(_token(llama, tokens=4), "gpu") < 2.0 * on_kind(_token(llama), "gpu"), "weights are shared"


def test_rows_after_a_past_are_a_token_and_what_they_multiply(llama: Path) -> None:
    """Each further row takes as long, so that two and three rows show where one lies: no step at the first."""
    soc, asked = load_soc("snapdragon-8-gen-3"), Language(prompt=512, generate=128)
    tables = [build_table(phase_graph(llama / "config.json", soc, asked, {}, n, 512, [], "verify"), soc) for n in (1, 2, 3, 5)]
    many = [_token(llama, tokens=2048, past=past) for past in (1, 0)]
    for kind in ("cpu", "gpu", "npu"):
        seconds = [on_kind(t, kind) for t in tables]
        row = seconds[1] - seconds[0]
        assert 0.0 < row < 0.7 * seconds[0], kind
        assert seconds[2] - seconds[1] == pytest.approx(row, rel=0.02), kind
        assert seconds[3] - seconds[2] == pytest.approx(2.0 * row, rel=0.02), kind
        after, new = (on_kind(t, kind) for t in many)
        assert after == pytest.approx(new, rel=0.05), f"{kind}: of many rows a prompt's time"
    assert [d is not None and d.continues for d in (decoder_of(_graph(llama, soc, 3, past)) for past in (0, 1))] == [False, True]


def test_a_longer_context_is_slower_and_no_engine_beats_the_memory(llama: Path) -> None:
    short, long = (_token(llama, past=n) for n in (512, 32768))
    for kind in ("cpu", "gpu", "npu"):
        assert on_kind(long, kind) > on_kind(short, kind)
        q = next(i for i, queue in enumerate(long.queues) if queue.kind == kind)
        assert on_kind(long, kind) >= 2.0 * 16 * 32768 * 8 * 64 * 2 / long.bandwidth_bytes_s[q]


def test_what_a_user_sets_moves_the_rates(llama: Path) -> None:
    graph = _graph(llama, load_soc("snapdragon-8-gen-3"), 1, 512)
    before, faster, late = (
        on_kind(build_table(graph, load_soc("snapdragon-8-gen-3", overrides=o)), "gpu")
        for o in ({}, {"gpu.bandwidth_gbps": "400"}, {"gpu.launch_us": "90000"})
    )
    assert faster < 0.6 * before and late == pytest.approx(before + 0.09, abs=2e-3)


def test_only_decoders_have_engines(llama: Path) -> None:
    soc = load_soc("snapdragon-8-gen-3")
    found = decoder_of(_graph(llama, soc, 3, 16))
    assert found is not None and (found.rows, found.layers) == (3, 16)
    assert decoder_of(hetsched.load(Path(__file__).parents[2] / "models" / "mobilenet_v2.onnx")) is None


def test_engines_by_runtime() -> None:
    phone, apple = load_soc("snapdragon-8-gen-3"), load_soc("apple-a19-pro")
    assert [engine_of(phone.by_name[p], "mlc") for p in ("cpu", "gpu", "npu")] == ["llama.cpp", "mlc", "qnn"]
    assert {engine_of(p, "default") for p in apple.processors} == {"llama.cpp", "mlx", "coreml"}
    assert "mlc" in runtimes_of(phone) and "mlx" in runtimes_of(apple) and "mlx" not in runtimes_of(phone)
    engines = {r.engine for r in rates()} - {"t-mac"}
    assert engines <= {e for soc in (phone, apple) for p in soc.processors for e in [engine_of(p, r) for r in runtimes_of(soc)]}
