"""Seconds of tokens and prompts by hand, and which paces they have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched.soc_files import load_soc
from hetsched_cost_models.language_form import Form, Place, Step, others_of, paces, usual_place

_CPU = Place("snapdragon-8-gen-3", "cpu", "cortex", 40e9, 200e9, 800e9)
_GPU = Place("snapdragon-8-gen-3", "gpu", "adreno", 43e9, 4e12, 4e12)
_TOKEN = Step(_CPU, "llama.cpp", 1, 1e9, 0.0, 0.5e9, 0.1e9, 16, 4.0)
_DECODE = {"lanes": 0.5, "unpack": 3.0, "layer_s": 1e-4}
_PREFILL = {"gemm": 0.2}


def _seconds(step: Step, phase: str, p: dict[str, float]) -> float:
    return float(np.exp(Form([step], phase).log_seconds(p))[0])


def test_a_token_waits_for_memory_or_for_the_lanes_and_pays_each_layer() -> None:
    assert _seconds(_TOKEN, "decode", _DECODE) == pytest.approx(2e9 / (0.5 * 200e9) + 16e-4), "lanes"
    wide = replace(_TOKEN, weight_bytes=2e9)
    assert _seconds(wide, "decode", _DECODE) == pytest.approx(2.1e9 / 40e9 + 16e-4), "memory"
    assert _seconds(replace(_TOKEN, place=_GPU), "decode", _DECODE) == pytest.approx(0.6e9 / 43e9 + 16e-4), "a GPU has no such lanes"


def test_k_quants_are_unpacked_in_proportion() -> None:
    half = replace(_TOKEN, unpacked=0.5)
    assert _seconds(half, "decode", _DECODE) == pytest.approx(2.0 * 2e9 / (0.5 * 200e9) + 16e-4)


def test_no_pace_is_faster_than_memory() -> None:
    p = _DECODE | {"pace/llama.cpp/gpu": 0.01}
    assert _seconds(replace(_TOKEN, place=_GPU), "decode", p) == pytest.approx(0.6e9 / 43e9)


def test_a_prompt_takes_a_token_and_its_products() -> None:
    prompt = replace(_TOKEN, tokens=100, products=100e9, attended=2e9, cache_bytes=0.0, token_s=0.03)
    assert _seconds(prompt, "prefill", _PREFILL) == pytest.approx(204e9 / (0.2 * 800e9) + 0.03)
    assert _seconds(replace(prompt, bits=16.0), "prefill", _PREFILL) == pytest.approx(204e9 / (0.2 * 200e9) + 0.03)
    slow = _PREFILL | {"pace/llama.cpp/cortex": 2.0}
    assert _seconds(prompt, "prefill", slow) == pytest.approx(2.0 * _seconds(prompt, "prefill", _PREFILL)), "both parts"
    assert _seconds(replace(prompt, products=1e6, attended=0.0, token_s=0.0), "prefill", _PREFILL) == pytest.approx(0.5e9 / 40e9), "memory"


def test_rows_after_a_past_add_their_products_to_a_token() -> None:
    """Eight rows of 1e9 products at 0.2 of 800e9 operations a second: 0.1 s, of which seven rows are 0.0875 s."""
    rows = replace(_TOKEN, tokens=8, products=8e9, cache_bytes=0.0, token_s=0.03)
    assert others_of(rows, _PREFILL, 0.03) == pytest.approx(0.0875)
    assert others_of(rows, _PREFILL | {"pace/llama.cpp/cortex": 2.0}, 0.03) == pytest.approx(0.175)
    assert others_of(rows, _PREFILL, 0.01) == pytest.approx(0.07), "no longer than one by one"
    assert others_of(replace(rows, tokens=1, products=1e9), _PREFILL, 0.03) == 0.0, "one row is a token"


def test_many_rows_after_a_past_take_what_a_prompt_takes() -> None:
    rows = replace(_TOKEN, tokens=512, products=512e9, attended=2e9, cache_bytes=0.0, token_s=0.03)
    assert 0.03 + others_of(rows, _PREFILL, 0.03) == pytest.approx(_seconds(rows, "prefill", _PREFILL), rel=0.003)


def test_more_work_is_never_faster() -> None:
    for phase, p in (("decode", _DECODE), ("prefill", _PREFILL)):
        for field in ("products", "weight_bytes", "layers"):
            more = replace(_TOKEN, **{field: 2 * getattr(_TOKEN, field)})
            assert _seconds(more, phase, p) >= _seconds(_TOKEN, phase, p), (phase, field)


def test_paces_multiply() -> None:
    assert paces(_TOKEN, "decode") == ("pace/llama.cpp/cpu", "pace/llama.cpp/cpu/snapdragon-8-gen-3")
    assert paces(replace(_TOKEN, bits=16.0), "decode")[2:] == ("pace/float/cpu",)
    assert paces(_TOKEN, "prefill") == ("pace/llama.cpp/cortex",)
    own = dict(zip(paces(replace(_TOKEN, bits=16.0), "decode"), (2.0, 1.5, 3.0), strict=True))
    coarse = replace(_TOKEN, bits=16.0)
    assert _seconds(coarse, "decode", _DECODE | own) == pytest.approx(9.0 * _seconds(coarse, "decode", _DECODE))


def test_an_engine_gets_the_queue_with_most_cores_or_the_fastest_of_them() -> None:
    soc = load_soc("snapdragon-8-gen-3")
    whole, one, two = (usual_place(soc, "cpu", n) for n in (0, 1, 2))
    assert whole.half > two.half and whole.bandwidth >= two.bandwidth > one.bandwidth
    fastest = max(soc.by_name["cpu"].clusters, key=lambda c: c.top.hz)
    assert one.half == pytest.approx(fastest.peak_ops_s["f16"].value / len(fastest.cores))
    assert usual_place(soc, "npu").family == "hexagon"
