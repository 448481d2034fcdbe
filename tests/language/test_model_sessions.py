"""Steps of small decoders against the reference executor, however a prompt is cut; formats of the cache; stored weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched.errors import ModelError, OptionError, UnsupportedModelError
from hetsched.frontends import load
from hetsched.language.precision import precision_of
from hetsched.language.session import LanguageModel
from hetsched.reference import run

WriteDecoder = Callable[..., Path]
IDS = np.random.default_rng(4).integers(0, 60, 40).tolist()


def reference_scores(path: Path, ids: list[int]) -> Any:
    graph = load(path, {"tokens": len(ids), "past": 0, "logits": len(ids)})
    feeds = {"input_ids": np.array([ids]), "position_ids": np.arange(len(ids))[None]}
    return run(graph, feeds)["logits"][0]


def correlation(a: Any, b: Any) -> float:
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


FAMILIES = (
    "llama", "llama3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi2", "phi3", "mixtral", "mixtral-apart", "qwen3moe", "mamba",
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_computes_what_the_graph_says(write_decoder: WriteDecoder, family: str) -> None:
    path = write_decoder(family)
    want = reference_scores(path, IDS)
    scale = float(np.abs(want).max())
    with LanguageModel(path, context=48) as model:
        table = model.sequence()
        few = model.compute(IDS, table, scored=len(IDS))
        np.testing.assert_allclose(few, want, atol=4e-3 * scale)
        table.cut(0)
        at_once = model.compute(IDS, table)
        np.testing.assert_allclose(at_once[0], want[-1], atol=4e-3 * scale)
        table.cut(33)
        assert table.length == (0 if family == "mamba" else 33)
        again = model.compute(IDS[table.length :], table, scored=2)
        np.testing.assert_allclose(again, want[-2:], atol=4e-3 * scale)


@pytest.mark.parametrize("blocks", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize(("precision", "least"), [("w4a8", 0.997), ("w4a16", 0.99999)])
def test_weights_are_computed_on_as_they_are_stored(write_decoder: WriteDecoder, blocks: str, precision: str, least: float) -> None:
    path = write_decoder("llama", blocks)
    want = reference_scores(path, IDS)
    with LanguageModel(path, context=48, precision=precision) as model:
        table = model.sequence()
        got = model.compute(IDS, table, scored=len(IDS))
        assert correlation(got, want) >= least
        table.cut(0)
        assert correlation(model.compute(IDS, table)[0], want[-1]) >= least
        assert model.weight_bytes > 0
    with LanguageModel(path, context=48, precision=precision) as mapped:  # the file of packed weights is there now
        np.testing.assert_array_equal(mapped.compute(IDS, mapped.sequence(), scored=len(IDS)), got)


def test_sensitive_weights_meet_16_bits(write_decoder: WriteDecoder) -> None:
    """By default the head and the down projections at both ends; a list instead of it; all of them are the other precision."""
    path = write_decoder("llama", "Q8_0")
    want, errors = reference_scores(path, IDS), {}
    for protect in (None, (), ("*ffn_down*",), ("*",)):
        with LanguageModel(path, context=48, protect=protect) as model:
            got = model.compute(IDS, model.sequence(), scored=len(IDS)).copy()
        errors[protect] = 1 - correlation(got, want)
    assert errors["*",] < 1e-5 < errors[None] <= errors[()] and errors["*ffn_down*",] <= errors[()]
    names = [*(f"blk.{i}.{role}.weight" for i in range(6) for role in ("ffn_up", "ffn_down")), "output.weight"]
    default = precision_of("w4a8", names, None)
    assert [n for n in names if default.of(n) == "int16"] == [*(f"blk.{i}.ffn_down.weight" for i in (0, 1, 4, 5)), "output.weight"]
    assert {precision_of("w4a16", names, ()).of(n) for n in names} == {"int16"}
    with pytest.raises(OptionError, match=r"the protected weights 'down' are none of the model's"):
        LanguageModel(path, protect=("down",))


@pytest.mark.parametrize("kv", [("fp16", "fp16"), ("int8", "int8"), ("int8", "int4"), ("fp8", "fp8")])
@pytest.mark.parametrize("page", [16, 64])
def test_formats_of_the_cache(write_decoder: WriteDecoder, kv: tuple[str, str], page: int) -> None:
    path = write_decoder("qwen3")
    want = reference_scores(path, IDS)
    with LanguageModel(path, context=48, kv=kv, page=page) as model:
        got = model.compute(IDS, model.sequence(), scored=len(IDS))
    assert correlation(got, want) >= (0.9999 if kv == ("fp16", "fp16") else 0.999 if kv == ("int8", "int8") else 0.98)


def test_the_newest_tokens_are_float16_too(write_decoder: WriteDecoder) -> None:
    """A token sees its own page in float16 beside a cache of few bits: one by one, several at once, cut, forked, in turn with another."""
    path = write_decoder("qwen3")
    with LanguageModel(path, context=48) as model:
        plain = model.compute(IDS[:16], model.sequence(), scored=16).copy()
    with LanguageModel(path, context=48, kv=("int8", "int4"), page=16, pool_tokens=240) as model:
        a, b = model.sequence(), model.sequence()
        apart = []
        for n, token in enumerate(IDS):
            apart.append(model.compute([token], a)[0].copy())
            if n % 5 == 0:
                model.compute([7, n], b)
        np.testing.assert_array_equal(apart[:16], plain)
        together = model.sequence()
        for first in range(0, len(IDS), 10):
            got = model.compute(IDS[first : first + 10], together, scored=10)
            np.testing.assert_allclose(got, apart[first : first + 10], rtol=1e-4, atol=1e-5)
        shared = together.fork()
        for table in (together, shared):
            table.cut(37)
            np.testing.assert_allclose(model.compute(IDS[37:], table, scored=3), apart[37:], rtol=1e-4, atol=1e-5)
        assert correlation(apart[17], reference_scores(path, IDS)[17]) < 0.999999


def test_two_sequences_do_not_see_each_other(write_decoder: WriteDecoder) -> None:
    path = write_decoder()
    with LanguageModel(path, context=48, pool_tokens=200) as model:
        a, b = model.sequence(), model.sequence()
        first = model.compute(IDS[:20], a).copy()
        model.compute(IDS[20:], b)
        shared = a.fork()
        one = model.compute([5], a).copy()
        np.testing.assert_array_equal(model.compute([5], shared), one)
        a.cut(0)
        np.testing.assert_array_equal(model.compute(IDS[:20], a), first)


def test_states_belong_to_their_sequence(write_decoder: WriteDecoder) -> None:
    """A state of a fixed size goes with a fork, and cannot go back: a sequence that is cut begins anew."""
    with LanguageModel(write_decoder("mamba"), context=48) as model:
        a, b = model.sequence(), model.sequence()
        first = model.compute(IDS[:20], a).copy()
        model.compute(IDS[20:], b)
        shared = a.fork()
        one = model.compute([5], a).copy()
        np.testing.assert_array_equal(model.compute([5], shared), one)
        shared.cut(20)
        assert shared.length == 0 and not shared.states.any() and a.states.any()
        np.testing.assert_array_equal(model.compute(IDS[:20], shared), first)
        shared.adopt(b, 7)
        assert shared.length == 0
        model.residency.begin_with(shared, [*IDS[:20], 5, 9])
        assert shared.length in (0, 21)
        got = model.compute([*IDS[:20], 5, 9][shared.length :], shared)
        np.testing.assert_allclose(got, model.compute([9], a), atol=1e-5 * np.abs(got).max())


def test_several_threads_compute_the_same(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0")
    results = []
    for cores in ((0,), (0, 1)):
        with LanguageModel(path, cores=cores, context=48) as model:
            table = model.sequence()
            results.append((model.compute(IDS, table).copy(), model.compute([7], table).copy()))
    for x, y in zip(*results, strict=True):
        np.testing.assert_array_equal(x, y)


def test_prompts_longer_than_a_step(write_decoder: WriteDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_decoder()
    want = reference_scores(path, IDS)
    monkeypatch.setattr("hetsched.language.session.PROMPT_TOKENS", 17)
    with LanguageModel(path, context=48) as model:
        table = model.sequence()
        np.testing.assert_allclose(model.compute(IDS, table)[0], want[-1], atol=4e-3 * np.abs(want).max())
        assert table.length == len(IDS)


def test_what_is_refused(write_decoder: WriteDecoder, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="no decoder with an embedding and caches"):
        LanguageModel(write_decoder("llama", without=("token_embd.weight", "output.weight")))
    path = write_decoder()
    with pytest.raises(OptionError, match="the precision 'w2' is not one that text is generated with"):
        LanguageModel(path, precision="w2")
    with pytest.raises(OptionError, match="--context 0 is out of range"):
        LanguageModel(path, context=0)
    with LanguageModel(path, context=16) as model:
        with pytest.raises(OptionError, match="17 tokens exceed the context limit of 16"):
            model.compute([1] * 17, model.sequence())
        with pytest.raises(OptionError, match="scores of the last 2 of 1 tokens"):
            model.compute([1], model.sequence(), scored=2)
    short = tmp_path / "short.gguf"
    short.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(ModelError, match=r"the weights of short\.gguf are absent"):
        LanguageModel(short)
