"""Several conversations over one pool: shared prefixes, eviction to disk and back, shrinking under a budget, prefixes in files."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hetsched.cli.commands import app
from hetsched.errors import ExecutionError, InputError, ModelError, OptionError
from hetsched.language.pages import PageTable
from hetsched.language.prefix_file import map_prefix, save_prefix
from hetsched.language.residency import Shrink
from hetsched.language.session import LanguageModel

WriteDecoder = Callable[..., Path]
LLAMA = Path(__file__).parent / "data" / "llama"
SMOLLM2 = Path(__file__).parents[2] / "models" / "smollm2-135m-q4_1.gguf"
PREFIX = np.random.default_rng(7).integers(3, 300, 40).tolist()
TAILS = [np.random.default_rng(n).integers(3, 300, 20).tolist() for n in range(3)]


def greedy(model: LanguageModel, table: PageTable, tokens: list[int], many: int) -> list[int]:
    out: list[int] = []
    for _ in range(many):
        out.append(int(model.compute(tokens, table)[-1].argmax()))
        tokens = out[-1:]
    return out


def alone(path: Path, tails: list[list[int]], many: int, prefix: list[int], **options: int) -> list[list[int]]:
    """Each conversation's tokens in a pool of its own: two turns."""
    out = []
    with LanguageModel(path, context=256, **options) as model:  # type: ignore[arg-type]
        for tail in tails:
            table = model.sequence()
            first = greedy(model, table, [*prefix, *tail], many)
            out.append([*first, *greedy(model, table, tail, many)])
            table.cut(0)
    return out


def distinct(model: LanguageModel) -> int:
    return len({p for t in model.pool.tables() for p in t.pages if p >= 0})


def three_talks(
    path: Path, prefix: list[int], tails: list[list[int]], many: int, pages: int, page: int, kv: tuple[str, str] = ("fp16", "fp16")
) -> tuple[list[list[int]], int]:
    """Three conversations with a shared prefix, two turns each; their tokens, and how many pages left memory and came back."""
    with LanguageModel(path, context=256, page=page, kv=kv) as probe:
        one = probe.pool.page_bytes * probe.pool.shape.layers
    with LanguageModel(path, context=256, page=page, kv=kv, cache_bytes=pages * one, pool_tokens=1024) as model:
        tables = [model.sequence() for _ in tails]
        got: list[list[int]] = [[] for _ in tails]
        for n, (table, tail) in enumerate(zip(tables, tails, strict=True)):
            model.residency.begin_with(table, [*prefix, *tail])
            assert table.length == (len(prefix) if n else 0)
            got[n] += greedy(model, table, [*prefix, *tail][table.length :], many)
            assert model.pool.used_bytes == distinct(model) * one <= pages * one
        for n, (table, tail) in enumerate(zip(tables, tails, strict=True)):
            got[n] += greedy(model, table, tail, many)
            assert model.pool.used_bytes == distinct(model) * one <= pages * one
        assert model.residency.returned_pages <= model.residency.evicted_pages
        return got, model.residency.returned_pages


def test_what_three_conversations_share_and_what_leaves_memory_change_no_token() -> None:
    """8 pages of 16 tokens are too few: each conversation needs 6 or 7, of which two are shared."""
    want = alone(LLAMA, TAILS, 8, PREFIX, page=16)
    assert three_talks(LLAMA, PREFIX, TAILS, 8, 40, 16) == (want, 0)
    got, back = three_talks(LLAMA, PREFIX, TAILS, 8, 8, 16)
    assert got == want and back > 6


@pytest.mark.parametrize("kv", [("int8", "int4"), ("fp8", "int8")])
def test_formats_of_fewer_bits_leave_and_come_back(kv: tuple[str, str]) -> None:
    want, none = three_talks(LLAMA, PREFIX, TAILS, 8, 40, 16, kv)
    got, back = three_talks(LLAMA, PREFIX, TAILS, 8, 8, 16, kv)
    assert got == want and none == 0 and back > 6


def test_pages_are_counted_and_given_back() -> None:
    with LanguageModel(LLAMA, context=128, page=16, pool_tokens=512) as model:
        first = model.sequence()
        model.compute(PREFIX, first)
        others = [first.fork() for _ in range(2)]
        assert distinct(model) == 3
        for n, table in enumerate(others):
            model.compute(TAILS[n], table)
        assert distinct(model) == 3 + 2 * 2  # the third page is copied, a fourth is new
        model.residency.evict(first)
        assert distinct(model) == 6 and len(model.pool.stored) == 1  # its own third page
        model.residency.evict(others[0])
        model.residency.evict(others[1])
        assert distinct(model) == 0 and model.pool.used_bytes == 0 and len(model.pool.stored) == 7
        assert model.pool.stored.disk_bytes == 7 * model.pool.page_bytes * model.pool.shape.layers
        model.residency.use(others[1])
        assert distinct(model) == 4 and first.pages[:2] == others[1].pages[:2]
        del others, table
        gc.collect()
        assert distinct(model) == 2 and len(model.pool.stored) == 1  # what the first one has, too
        first.cut(0)
        assert model.pool.used_bytes == 0 and len(model.pool.stored) == 0


def test_priority_decides_before_time() -> None:
    with LanguageModel(LLAMA, context=64, page=16, pool_tokens=64, cache_bytes=1 << 30) as model:
        important, plain, new = model.sequence(priority=1), model.sequence(), model.sequence()
        for table in (important, plain):
            model.compute(TAILS[0][: 16 * 2 - 12], table)
        model.compute(PREFIX[:20], new)
        assert plain.away and not important.away


def test_memory_that_is_too_small_is_named() -> None:
    with pytest.raises(OptionError, match="two pages of 64 tokens take"):
        LanguageModel(LLAMA, cache_bytes=1000)
    with LanguageModel(LLAMA, context=256, page=16) as probe:
        one = probe.pool.page_bytes * probe.pool.shape.layers
    with LanguageModel(LLAMA, context=256, page=16, cache_bytes=4 * one) as model:
        table = model.sequence()
        with pytest.raises(ExecutionError, match=r"the cache is full: all its 4 pages \(64 tokens\) are in use"):
            model.compute([*PREFIX, *TAILS[0], *TAILS[1]], table)
        assert greedy(model, table, PREFIX, 2)  # the sequence still works


def test_the_window_shrinks_first() -> None:
    """Scores are those of a roomy cache whose window shrinks at the same tokens."""
    ids = [*PREFIX, *TAILS[0], *TAILS[1], *TAILS[2]]
    with LanguageModel(LLAMA, context=128, page=16) as model:
        one, table = model.pool.page_bytes * model.pool.shape.layers, model.sequence()
    windows, got = [], []
    with LanguageModel(LLAMA, context=128, page=16, cache_bytes=5 * one, shrink=Shrink(window=32, integer=True)) as model:
        table = model.sequence()
        for token in ids:
            got.append(model.compute([token], table)[0].copy())
            windows.append(model.pool.window)
        assert sorted(set(windows)) == [0, 32] and windows[79:81] == [0, 32] and model.pool.shape.keys == "fp16"
        assert table.gone == 48 and table.pages[:3] == [-1, -1, -1]
        table.cut(40)
        assert table.length == 0 and model.pool.used_bytes == 0  # its first tokens are forgotten
    with LanguageModel(LLAMA, context=128, page=16) as model:
        table = model.sequence()
        for token, window, want in zip(ids, windows, got, strict=True):
            model.pool.window = window
            np.testing.assert_array_equal(model.compute([token], table)[0], want)
        model.pool.window = 0
        assert table.gone == 48 and np.isfinite(model.compute([1], table)).all()  # what is forgotten stays unseen


def test_a_long_prompt_in_a_small_cache() -> None:
    """240 tokens where 160 fit and 128 are seen."""
    ids = [*PREFIX, *TAILS[0], *TAILS[1], *TAILS[2], *PREFIX, *TAILS[0], *TAILS[1], *TAILS[2], *PREFIX]
    with LanguageModel(LLAMA, context=256, page=16) as model:
        one = model.pool.page_bytes * model.pool.shape.layers
    with LanguageModel(LLAMA, context=256, page=16, cache_bytes=11 * one, shrink=Shrink(window=128)) as model:
        table = model.sequence()
        assert np.isfinite(model.compute(ids, table)).all() and table.length == 240 and table.gone >= 64
        assert model.pool.window == 128 and model.pool.most_bytes <= 11 * one


def test_then_float16_becomes_int8() -> None:
    ids = [*PREFIX, *TAILS[0], *TAILS[1]]
    with LanguageModel(LLAMA, context=128, page=16) as model:
        one = model.pool.page_bytes * model.pool.shape.layers
        want = model.compute(ids, model.sequence())[0].copy()
    with LanguageModel(LLAMA, context=128, page=16, cache_bytes=4 * one, shrink=Shrink(integer=True)) as model:
        table = model.sequence()
        model.compute(ids[:50], table)
        got = model.compute(ids[50:], table)[0]
        assert (model.pool.shape.keys, model.pool.shape.values) == ("int8", "int8") and model.pool.capacity > 5
        assert model.pool.used_bytes <= 4 * one
        assert float((got * want).sum() / np.sqrt((got * got).sum() * (want * want).sum())) > 0.999
        with pytest.raises(ExecutionError, match="the cache is full"):
            model.compute(ids[:45], table)


def test_what_left_as_float16_comes_back_as_int8() -> None:
    with LanguageModel(LLAMA, context=128, page=16) as model:
        first, second = model.sequence(), model.sequence()
        model.compute(PREFIX, first)
        want = model.compute([5], first.fork())[0].copy()
        model.residency.evict(first)
        model.pool.rewrite("int8", "int8")
        model.compute(TAILS[0], second)
        got = model.compute([5], first)[0]
        assert not first.away
        assert float((got * want).sum() / np.sqrt((got * got).sum() * (want * want).sum())) > 0.999
        with pytest.raises(OptionError, match="larger than the present one"):
            model.pool.rewrite("fp16", "fp16")


def test_a_prefix_in_a_file(tmp_path: Path, write_decoder: WriteDecoder) -> None:
    path = tmp_path / "system.prefix"
    with LanguageModel(LLAMA, context=128, page=16) as model:
        table = model.sequence()
        model.compute(PREFIX, table)
        save_prefix(path, model, table)
        want = model.compute(TAILS[0], table)[0].copy()
        with pytest.raises(OptionError, match="has no tokens"):
            save_prefix(path, model, model.sequence())
    with LanguageModel(LLAMA, context=128, page=16) as model:
        mapped = model.residency
        prefix, table = map_prefix(path, model), model.sequence()
        assert model.pool.used_bytes == 0 and prefix.tokens == PREFIX
        mapped.begin_with(table, [*PREFIX, *TAILS[0]])
        assert table.length == len(PREFIX)
        np.testing.assert_array_equal(model.compute(TAILS[0], table)[0], want)
        assert model.pool.stored.disk_bytes == 0
    with LanguageModel(write_decoder(), page=16) as other, pytest.raises(ModelError, match="has a prefix of another model"):
        map_prefix(path, other)
    with LanguageModel(LLAMA, context=32, page=16) as model:
        with pytest.raises(OptionError, match="has 40 tokens, more than the context limit of 32"):
            map_prefix(path, model)
        for damaged in (path.read_bytes()[:-1], b"nothing" * 9, path.read_bytes()[:30]):
            path.write_bytes(damaged)
            with pytest.raises((ModelError, OptionError)):
                map_prefix(path, model)
        with pytest.raises(InputError, match="cannot be read"):
            map_prefix(tmp_path / "absent", model)


def test_the_command_line_limits_the_cache(write_decoder: WriteDecoder) -> None:
    """Four pages of 64 tokens; 300 are generated."""
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    with LanguageModel(path) as model:
        room = 4 * model.pool.page_bytes * model.pool.shape.layers
    asked = ["run", str(path), "--prompt", "the cat the cat the", "--raw", "--generate", "300", "--context", "400", "--json"]
    full = CliRunner().invoke(app, [*asked, "--cache-memory", f"{room}"])
    assert isinstance(full.exception, ExecutionError) and "all its 4 pages (256 tokens) are in use" in str(full.exception)
    shrunk = json.loads(CliRunner().invoke(app, [*asked, "--cache-memory", f"{room}", "--shrink-cache"]).stdout)
    assert shrunk["finish"] == "length" and shrunk["window"] == 200 and shrunk["kv_cache_mb"] <= room / 1e6


@pytest.mark.real_models
@pytest.mark.skipif(not SMOLLM2.is_file(), reason=f"{SMOLLM2.name} is absent: run 'make models'")
def test_three_conversations_with_a_real_model() -> None:
    """9 pages of 32 tokens are too few: each conversation needs 6, of which three are shared."""
    rng = np.random.default_rng(1)
    prefix = rng.integers(1000, 20000, 100).tolist()
    tails = [rng.integers(1000, 20000, 30).tolist() for _ in range(3)]
    want, none = three_talks(SMOLLM2, prefix, tails, 10, 32, 32)
    got, back = three_talks(SMOLLM2, prefix, tails, 10, 9, 32)
    assert got == want and none == 0 and back > 0
