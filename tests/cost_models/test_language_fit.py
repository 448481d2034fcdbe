"""The fits of decode and prefill, their intervals, how far repeats lie apart, and which rows are taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched_cost_models.fit.extract_language import _bits, _context, _kin, _left_out, _prefill, _prompt, _stated_bits, _sustained
from hetsched_cost_models.fit.language_data import Rate, rates
from hetsched_cost_models.fit.language_fit import (
    NEAR_ONE,
    LanguageFit,
    _decoding,
    coverage,
    file_text,
    fit,
    form_of,
    half_widths,
    needed,
    parameters,
    priors,
    repeat_spread,
    seen,
    step_of,
)
from hetsched_cost_models.language_rates import FILE, shipped
from hetsched_cost_models.parameters import FITTED

_ROW = Rate("m", 1e9, 1e5, 16, 0.2e9, 2048, 4.5, 0.0, "snapdragon-8-gen-3", "cpu", "llama.cpp", False, 4, 64, 64, 100.0, 10.0, 0.0, "s")
_FLAT = {"lanes": 0.5, "unpack": 3.0, "layer_s": 1e-4}


def _seconds(r: Rate, p: dict[str, float]) -> float:
    return float(np.exp(form_of([r], "decode")[0].log_seconds(p))[0])


def test_the_spread_of_repeats_is_around_their_median() -> None:
    rows = [replace(_ROW, decode=v) for v in (8.0, 10.0, 12.0)] + [replace(_ROW, bits=8.5, decode=99.0)]
    spread, count = repeat_spread(rows, "decode")
    assert count == 3 and spread == pytest.approx(0.2)


def test_a_row_is_a_token_or_a_prompt() -> None:
    token, prompt = step_of(_ROW, "decode"), step_of(_ROW, "prefill")
    assert (token.products, token.cache_bytes) == (1e9, 64 * 1e5) and token.weight_bytes == pytest.approx(1e9 * 4.5 / 8)
    assert prompt.products == pytest.approx(0.8e9 * 64 + 0.2e9), "scores of the last token only"
    assert prompt.attended == pytest.approx(2 * 16 * 2048 * 64 * 65 / 2)
    assert step_of(replace(_ROW, context=1280), "prefill").attended == 2 * 16 * 2048 * 64 * 1280, "a cache made for more is read whole"
    assert step_of(replace(_ROW, prompt=0), "prefill").tokens == 512


def test_a_prompt_begins_with_a_token_that_has_no_cache() -> None:
    assert step_of(_ROW, "prefill").token_s == 0.0, "none is known without parameters"
    long = replace(_ROW, context=4096)
    assert step_of(long, "prefill", _FLAT).token_s == pytest.approx(_seconds(replace(_ROW, context=0), _FLAT))
    assert _seconds(long, _FLAT) > _seconds(replace(_ROW, context=0), _FLAT)


def test_prompts_are_fitted_without_the_tokens_of_what_is_left_out() -> None:
    rows = [replace(_ROW, params=1e9 * i, unit="gpu", engine="litert", prefill=0.0, decode=40.0 / i) for i in range(1, 5)]
    rows += [replace(_ROW, params=9e9, unit="gpu", engine="litert", prefill=100.0, decode=0.5)]
    blind, told = (_decoding(rows, "prefill", without) for without in ({rows[-1].group}, set()))
    assert blind is not None and told is not None and blind != told
    assert _decoding(rows, "decode", set()) is None


def test_only_llama_cpp_unpacks_k_quants() -> None:
    assert step_of(replace(_ROW, k_quants=0.3), "decode").unpacked == 0.3
    assert {r.engine for r in rates() if r.k_quants} == {"llama.cpp"}


def test_few_groups_have_no_pace_and_one_chip_has_none_beside_the_engines() -> None:
    rows = [replace(_ROW, params=1e9 * i) for i in (1, 2)]
    assert "pace/llama.cpp/cpu" in priors(rows, "decode")
    assert "pace/llama.cpp/cpu/snapdragon-8-gen-3" not in priors(rows, "decode")
    assert "pace/llama.cpp/cpu/snapdragon-8-gen-3" in priors([*rows, replace(_ROW, chip="tensor-g1")], "decode")
    assert not any(n.startswith("pace/") for n in priors(rows[:1], "decode"))


def test_an_engine_that_is_twice_as_slow_is_found_to_be() -> None:
    rows = [replace(_ROW, params=1e9 * i, engine=e, unit="gpu") for i in range(1, 9) for e in ("mnn", "litert")]
    names = priors(rows, "decode")
    made = [replace(r, decode=(0.5 if r.engine == "mnn" else 1.0) / _seconds(r, _FLAT)) for r in rows]
    found = parameters(names, fit(made, "decode", names))
    assert found["pace/mnn/gpu"] / found["pace/litert/gpu"] == pytest.approx(2.0, rel=0.1)


def test_paces_near_1_are_no_parameters() -> None:
    """Of two engines with rates as the memory allows them and twice as slow, only the slow one keeps a pace."""
    rows = [replace(_ROW, params=1e9 * i, engine=e, unit="gpu") for i in range(1, 9) for e in ("mnn", "litert")]
    made = [replace(r, decode=(0.5 if r.engine == "mnn" else 1.0) / _seconds(r, _FLAT)) for r in rows]
    names = priors(made, "decode")
    found = needed(made, "decode", names)
    assert {"pace/mnn/gpu", "pace/litert/gpu"} <= set(names)
    assert [n for n in found if n.startswith("pace/")] == ["pace/mnn/gpu"]
    assert found["pace/mnn/gpu"] == pytest.approx(2.0, rel=0.1)


def test_groups_are_left_out_whole() -> None:
    assert replace(_ROW, bits=9.0).group == _ROW.group != replace(_ROW, chip="apple-m1").group


def _fit(apart: list[float]) -> LanguageFit:
    """Nine models on one chip and one model on another, which no other row of its engine is of."""
    rows = [replace(_ROW, params=1e9 * i) for i in range(1, len(apart))] + [replace(_ROW, chip="tensor-g1")]
    return LanguageFit("decode", tuple(rows), {"lanes": 0.5}, np.array(apart))


def test_intervals_hold_most_models_and_are_wider_where_nothing_was_measured() -> None:
    found = half_widths(_fit([0.1, -0.2, 0.3, -0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.5]))
    assert found == {"seen": pytest.approx(0.8), "unseen": pytest.approx(1.5)}, "0.8 * 10 / 9 of nine models, the one that stands alone"
    assert half_widths(_fit([2.0] * 9 + [0.1]))["unseen"] == pytest.approx(2.0), "what is less known is never surer"


def test_an_interval_is_judged_by_the_width_that_other_chips_give() -> None:
    rows = [replace(_ROW, params=1e9 * i, chip=chip) for chip in ("snapdragon-8-gen-3", "snapdragon-8-elite") for i in range(1, 6)]
    alone = [replace(_ROW, chip=chip, engine="mnn") for chip in ("tensor-g1", "apple-m1")]
    apart = [0.1, 0.1, 0.1, 0.1, 0.1, 0.5, 0.5, 0.5, 0.5, 0.05, 0.6, 0.6]
    found = LanguageFit("decode", (*rows, *alone), {}, np.array(apart))
    assert coverage(found) == pytest.approx((5 + 1 + 2) / 12), "of the second chip, whose errors are five times the first's, one row"


def test_the_stored_file_is_of_these_rows_and_reads_back() -> None:
    text = (FITTED / FILE).read_text("utf-8")
    for phase in ("decode", "prefill"):
        found = [r for r in rates() if getattr(r, phase) > 0]
        stored, possible = shipped().parameters[phase], priors(found, phase)
        assert all(n.startswith("pace/") for n in possible.keys() - stored.keys())
        assert all(abs(np.log(v)) >= NEAR_ONE for n, v in stored.items() if n.startswith("pace/"))
        names = {n: possible[n] for n in stored}
        again = parameters(names, fit(found, phase, names, shipped().parameters["decode"]))
        assert again == pytest.approx(stored, rel=0.01), "the same rows give it again"
        assert shipped().seen[phase] == seen(found).keys()
        widths = shipped().half_width[phase]
        assert 0.0 < widths["seen"] <= widths["unseen"]
        assert f"# {len(found)} rows of {len({r.group for r in found})} model x chip" in text
    made = file_text({"decode": _fit([0.1] * 10)})
    assert "lanes: {value: 0.5," in made and "decode: [llama.cpp/cpu/snapdragon-8-gen-3, llama.cpp/cpu/tensor-g1]" in made


def _measured(**fields: str) -> dict[str, str]:
    names = ("model", "quant", "device", "engine", "processor", "prompt_tokens", "gen_tokens", "context", "prefill_tok_s", "decode_tok_s")
    return dict.fromkeys((*names, "ttft_ms", "j_per_token", "note", "source"), "") | fields


def test_runs_of_minutes_are_told() -> None:
    assert _sustained(_measured(gen_tokens="12288", note="median of 1 run(s)")) and _sustained(_measured(note="runs_ok="))
    assert not _sustained(_measured(gen_tokens="128", note="runs_ok=3/3"))


def test_prompts_that_are_fed_or_cached_are_no_prefill() -> None:
    def rate(prefill: str, decode: str, prompt: str = "") -> str:
        return _prefill(_measured(prefill_tok_s=prefill, decode_tok_s=decode, prompt_tokens=prompt), 1e9, "apple-a19-pro")

    assert rate("33.2", "37.7") == "" and rate("260.5", "50.2") == rate("260.5", "") == "260.5"
    assert rate("2503.9", "39.1", "11") == "", "4.4 ms for 1 GB"
    assert rate("2503.9", "39.1", "110") == "2503.9"


def test_the_prefill_of_ai_hub_is_its_time_to_the_first_token() -> None:
    row = _measured(source="qai_hub_models/models/m/perf.yaml @1", ttft_ms="88.195", decode_tok_s="23.5")
    assert float(_prefill(row, 1e9, "snapdragon-8-elite")) == pytest.approx(128 / 0.088195, rel=1e-4)


def test_float_activations_and_clocks_held_down_are_left_out() -> None:
    assert _left_out(_measured(quant="w4"), "qnn") and _left_out(_measured(), "qnn") and not _left_out(_measured(quant="w4a16"), "qnn")
    assert not _left_out(_measured(quant="w4"), "mnn")
    assert _left_out(_measured(processor="CPU 1.8/2.55 GHz"), "litert") and not _left_out(_measured(processor="CPU max clocks"), "litert")


def test_the_depth_of_a_cache_and_bits_that_the_source_says_elsewhere() -> None:
    assert _context(_measured(engine="llama.cpp Q4_0 depth 4096", prompt_tokens="1024")) == 5120
    assert _context(_measured(context="4096", prompt_tokens="128 (min)")) == 4096
    said, unsaid = (_measured(model="m", device="d", engine="litert", source=f"repo@1:{n}", quant=q) for n, q in (("a", "int8"), ("b", "")))
    assert _stated_bits([unsaid, said])[_kin(unsaid)] == "int8"


def test_a_prompt_that_is_not_stated_is_what_its_time_and_rate_say() -> None:
    assert _prompt(_measured(prefill_tok_s="57", ttft_ms="332")) == "19" and _prompt(_measured(prefill_tok_s="57")) == "0"
    assert _prompt(_measured(prompt_tokens="64", prefill_tok_s="57", ttft_ms="332")) == "64"
    assert _context(_measured(prefill_tok_s="57", ttft_ms="332")) == 19


def test_genie_stores_one_scale_a_channel() -> None:
    cases = (("w4a16", "qnn"), ("w4a16", "mnn"), ("w8a8", "qnn"))
    assert [_bits(quant, engine, 0.2) for quant, engine in cases] == [(4.0, 0.0), (4.5, 0.0), (8.0, 0.0)]


def test_executorch_keeps_the_head_in_8_bits() -> None:
    assert _bits("SpinQuant 4w8a", "executorch", 0.2) == pytest.approx((0.8 * 4.5 + 0.2 * 8.0, 0.0))


def test_llama_cpp_keeps_the_head_in_a_k_quant() -> None:
    assert _bits("Q4_0", "llama.cpp", 0.2) == pytest.approx((0.8 * 4.5 + 0.2 * 6.5625, 0.2), abs=0.01)
    assert _bits("Q4_K_M", "llama.cpp", 0.0) == (4.81, 1.0) and _bits("Q6_K", "llama.cpp", 0.2)[1] == 1.0
    assert _bits("Q8_0", "llama.cpp", 0.2) == (8.5, 0.0) and _bits("Q4_0", "mnn", 0.2) == (4.5, 0.0)


def test_runs_of_minutes_keep_their_joules_and_no_rates() -> None:
    spent = [r for r in rates() if r.j_per_token > 0 and r.prefill == 0]
    assert spent
    assert all(r.decode == 0 for r in spent)
