"""The forms of decode and prefill, how far repeats lie apart, and which rows are taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched_cost_models.fit.extract_language import _BITS, _bits, _prefill, _sustained
from hetsched_cost_models.fit.language_data import Rate, rates
from hetsched_cost_models.fit.language_fit import K_BITS, Language, fit, parameters, priors, repeat_spread

_ROW = Rate("m", 1e9, 1e5, 16, 4.5, "snapdragon-8-gen-3", "cpu", "llama.cpp", False, 4, 64, 64, 100.0, 10.0, 0.0, "s")


def test_the_spread_of_repeats_is_around_their_median() -> None:
    rows = [replace(_ROW, decode=v) for v in (8.0, 10.0, 12.0)] + [replace(_ROW, bits=8.5, decode=99.0)]
    spread, count = repeat_spread(rows, "decode")
    assert count == 3 and spread == pytest.approx(0.2)


_FLAT = {"reach": 1.0, "lanes": 0.5, "unpack": 3.0} | {f"layer_s/{u}": 1e-4 for u in ("cpu", "gpu", "npu")}


def _seconds(r: Rate, p: dict[str, float]) -> float:
    return float(np.exp(Language([r], "decode").log_predicted(p))[0])


def test_decode_streams_weights_and_cache_once_multiplies_and_pays_each_layer() -> None:
    one = replace(_ROW, unit="gpu")
    s = Language([one], "decode")
    assert s.bytes[0] == pytest.approx(1e9 * 4.5 / 8.0 + 64 * 1e5)
    assert _seconds(one, _FLAT) == pytest.approx(s.bytes[0] / s.bandwidth[0] + 16e-4)
    cpu = Language([_ROW], "decode")
    lanes = 2e9 / (0.5 * cpu.half[0])
    assert _seconds(_ROW, _FLAT) == pytest.approx(cpu.bytes[0] / cpu.bandwidth[0] + lanes + 16e-4)


def test_only_llama_cpp_unpacks_k_quants_and_only_on_cpus() -> None:
    k = replace(_ROW, bits=4.85)
    without = _FLAT | {"unpack": 1.0}
    assert _seconds(k, _FLAT) > _seconds(k, without)
    for other in (replace(k, engine="mnn"), replace(k, bits=4.55), replace(k, unit="gpu")):
        assert _seconds(other, _FLAT) == _seconds(other, without)


def test_k_quants_have_the_bits_that_the_data_give_them() -> None:
    assert {bits for name, bits in _BITS if "_k" in name} == set(K_BITS)
    assert {r.bits for r in rates()} & set(K_BITS)


def test_paces_multiply_and_those_of_phone_apps_only_theirs() -> None:
    paces = {"pace/llama.cpp/cpu": 2.0, "pace/llama.cpp/cpu/snapdragon-8-gen-3": 1.5, "pace/app": 3.0, "pace/app/float": 5.0}
    plain = _seconds(_ROW, _FLAT)
    assert _seconds(_ROW, _FLAT | paces) == pytest.approx(3.0 * plain)
    assert _seconds(replace(_ROW, app=True), _FLAT | paces) == pytest.approx(9.0 * plain)
    coarse = replace(_ROW, bits=16.0)
    assert _seconds(replace(coarse, app=True), _FLAT | paces) == pytest.approx(15.0 * _seconds(coarse, _FLAT | paces))


def test_a_short_prompt_pays_the_start() -> None:
    p = {f"{what}/{u}": v for what, v in (("gemm", 0.2), ("start_s", 0.5)) for u in ("cpu", "gpu", "npu")}
    short, long = (float(np.exp(Language([replace(_ROW, prompt=n)], "prefill").log_predicted(p))[0]) for n in (10, 1000))
    assert short - long == pytest.approx(0.5 / 10 - 0.5 / 1000)


def test_few_groups_have_no_pace_and_one_chip_has_none_beside_the_engines() -> None:
    rows = [replace(_ROW, params=1e9 * i) for i in (1, 2, 3)]
    assert "pace/llama.cpp/cpu" in priors(rows, "decode")
    assert "pace/llama.cpp/cpu/snapdragon-8-gen-3" not in priors(rows, "decode")
    assert "pace/llama.cpp/cpu/snapdragon-8-gen-3" in priors([*rows, replace(_ROW, chip="tensor-g1")], "decode")
    assert not any(n.startswith("pace/") for n in priors(rows[:2], "decode"))


def test_an_engine_that_is_twice_as_slow_is_found_to_be() -> None:
    rows = [replace(_ROW, params=1e9 * i, engine=e, unit="gpu") for i in range(1, 9) for e in ("mnn", "litert")]
    names = priors(rows, "decode")
    made = [replace(r, decode=(0.5 if r.engine == "mnn" else 1.0) / _seconds(r, _FLAT)) for r in rows]
    found = parameters(names, fit(made, "decode", names))
    assert found["pace/mnn/gpu"] / found["pace/litert/gpu"] == pytest.approx(2.0, rel=0.1)


def test_runs_of_minutes_and_prompts_fed_token_by_token_are_told() -> None:
    assert _sustained({"gen_tokens": "12288", "note": "median of 1 run(s)"}) and _sustained({"gen_tokens": "", "note": "runs_ok="})
    assert not _sustained({"gen_tokens": "128", "note": "runs_ok=3/3"})
    assert _prefill({"prefill_tok_s": "33.2", "decode_tok_s": "37.7"}) == ""
    assert (
        _prefill({"prefill_tok_s": "260.5", "decode_tok_s": "50.2"}) == "260.5" == _prefill({"prefill_tok_s": "260.5", "decode_tok_s": ""})
    )


def test_genie_stores_one_scale_a_channel() -> None:
    assert (_bits("w4a16", "qnn"), _bits("w4a16", "mnn"), _bits("w8a8", "qnn"), _bits("Q4_K_M", "llama.cpp")) == (4.0, 4.5, 8.0, 4.85)


def test_runs_of_minutes_keep_their_joules_and_no_rates() -> None:
    spent = [r for r in rates() if r.j_per_token > 0 and r.prefill == 0]
    assert spent
    assert all(r.decode == 0 for r in spent)
