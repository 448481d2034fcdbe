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
from hetsched.graph import Graph
from hetsched.plan_language import Language
from hetsched.soc_files import load_soc
from hetsched.socs import SoC
from hetsched_cost_models import build_table
from hetsched_cost_models.anchoring import on_kind
from hetsched_cost_models.fit.language_data import Rate, rates
from hetsched_cost_models.fit.language_fit import form_of
from hetsched_cost_models.language_rates import decoder_of, shipped
from hetsched_cost_models.parameters import engine_of, runtimes_of

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
    "tie_word_embeddings": True, "dtype": "bfloat16",
}  # fmt: skip
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
    form, _ = form_of([measured], phase)
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
