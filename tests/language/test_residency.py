"""Several conversations over one pool: shared prefixes, eviction to disk and back, shrinking under a budget."""

from __future__ import annotations

import gc
import io
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hetsched.cli.commands import app
from hetsched.errors import ExecutionError, OptionError
from hetsched.language.pages import PageTable
from hetsched.language.power import CRITICAL, NORMAL, WARM, PowerLevel
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


def in_use(model: LanguageModel) -> int:
    """Distinct pages, and the newest tokens in float16: those of the sequence at work, and the copies of others."""
    pool = model.pool
    recent = pool.recent.memory.nbytes * (1 + sum(t.recent is not None for t in pool.tables()))
    return distinct(model) * pool.page_bytes * pool.shape.layers + recent


def three_talks(
    path: Path, prefix: list[int], tails: list[list[int]], many: int, pages: int, page: int, kv: tuple[str, str] = ("fp16", "fp16")
) -> tuple[list[list[int]], int]:
    """Three conversations with a shared prefix, two turns each; their tokens, and how many pages left memory and came back."""
    with LanguageModel(path, context=256, page=page, kv=kv) as probe:
        room = pages * probe.pool.page_bytes * probe.pool.shape.layers + probe.pool.recent.memory.nbytes
    with LanguageModel(path, context=256, page=page, kv=kv, cache_bytes=room, pool_tokens=1024) as model:
        tables = [model.sequence() for _ in tails]
        got: list[list[int]] = [[] for _ in tails]
        for n, (table, tail) in enumerate(zip(tables, tails, strict=True)):
            model.residency.begin_with(table, [*prefix, *tail])
            assert table.length == (len(prefix) if n else 0)
            got[n] += greedy(model, table, [*prefix, *tail][table.length :], many)
            assert model.pool.used_bytes == in_use(model) <= model.pool.most_bytes <= room
        for n, (table, tail) in enumerate(zip(tables, tails, strict=True)):
            got[n] += greedy(model, table, tail, many)
            assert model.pool.used_bytes == in_use(model) <= model.pool.most_bytes <= room
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


def test_the_newest_tokens_in_float16_count_and_leave_memory() -> None:
    """Three sequences in turn, where one copy beside that of the sequence at work fits: the others' go to disk, and no token changes."""
    with LanguageModel(LLAMA, context=64, page=16, kv=("int8", "int4")) as probe:
        one, recent = probe.pool.page_bytes * probe.pool.shape.layers, probe.pool.recent.memory.nbytes
        want = [greedy(probe, probe.sequence(), tail, 12) for tail in TAILS]
    for copies in (3, 1):
        room = 6 * one + copies * recent
        with LanguageModel(LLAMA, context=64, page=16, kv=("int8", "int4"), cache_bytes=room, pool_tokens=96) as model:
            tables, disk = [model.sequence() for _ in TAILS], 0
            got: list[list[int]] = [[] for _ in TAILS]
            for turn in range(12):
                for n, (table, tail) in enumerate(zip(tables, TAILS, strict=True)):
                    got[n] += greedy(model, table, tail if turn == 0 else got[n][-1:], 1)
                    disk += sum(bool(t.recent_stored) for t in tables)
                    assert model.pool.used_bytes == in_use(model) <= room
            assert got == want and (disk > 0) == (copies == 1)
            for table in tables:
                table.cut(0)
            assert model.pool.used_bytes == recent and len(model.pool.stored) == 0
    with pytest.raises(OptionError, match="with the newest tokens in float16"):
        LanguageModel(LLAMA, context=64, page=16, kv=("int8", "int4"), cache_bytes=2 * one)


def test_a_sequence_at_work_takes_over_anothers_newest_tokens() -> None:
    with LanguageModel(LLAMA, context=128, page=16, kv=("int8", "int4"), pool_tokens=400) as model:
        a, b = model.sequence(), model.sequence()
        model.compute(PREFIX, a)
        model.compute(TAILS[1], b)
        b.adopt(a, len(PREFIX))
        np.testing.assert_array_equal(model.compute(TAILS[0], b), model.compute(TAILS[0], a))


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


@pytest.mark.parametrize("pages", [2, 3, 4])
@pytest.mark.parametrize("window", [16, 32, 64])
def test_a_prefix_that_is_larger_than_the_cache(tmp_path: Path, pages: int, window: int) -> None:
    """It shrinks while its pages come in, which may forget the very page that is on its way; or it is refused."""
    path, ids = tmp_path / "long.prefix", [*PREFIX, *TAILS[0], *TAILS[1], *TAILS[2], *PREFIX[:27]]
    with LanguageModel(LLAMA, context=128, page=16) as model:
        table, one = model.sequence(), model.pool.page_bytes * model.pool.shape.layers
        model.compute(ids, table)
        save_prefix(path, model, table)
    with LanguageModel(LLAMA, context=128, page=16, cache_bytes=pages * one, shrink=Shrink(window=window)) as model:
        table = map_prefix(path, model)
        try:
            assert np.isfinite(model.compute([1], table)).all() and table.gone
        except ExecutionError as e:
            assert "the cache is full" in str(e)
        table.cut(0)
        assert model.pool.free == model.pool.capacity and len(model.pool.stored) == 0


@pytest.mark.parametrize("takes", [0, 1000])
def test_a_full_disk_is_named_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch, takes: int) -> None:
    """Pages leave for a disk that takes a part, then none; with room again the text goes on as if nothing had been."""
    want, room = alone(LLAMA, TAILS[:2], 8, PREFIX, page=16), [0]

    class Disk(io.FileIO):
        def write(self, data: Any) -> int:
            if not room[0]:
                raise OSError(28, "No space left on device")
            count = min(len(data), room[0])
            room[0] -= count
            return super().write(bytes(data[:count])) or 0

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Disk(tempfile.mkstemp()[0], "r+"))
    with LanguageModel(LLAMA, context=256, page=16) as probe:
        one = probe.pool.page_bytes * probe.pool.shape.layers
    with LanguageModel(LLAMA, context=256, page=16, cache_bytes=7 * one, pool_tokens=512) as model:
        first, second = model.sequence(), model.sequence()
        got = greedy(model, first, [*PREFIX, *TAILS[0]], 8)
        room[0] = takes
        with pytest.raises(ExecutionError, match=r"cannot leave memory for a temporary file .*free some disk space"):
            model.compute([*PREFIX, *TAILS[1]], second)
        room[0] = 1 << 30
        assert greedy(model, second, [*PREFIX, *TAILS[1]], 8) == want[1][:8]
        assert [*got, *greedy(model, first, TAILS[0], 8)] == want[0]
        first.cut(0)
        second.cut(0)
        assert model.pool.free == model.pool.capacity and len(model.pool.stored) == 0


def replayed(model: LanguageModel, log: list[tuple[Any, ...]]) -> tuple[np.ndarray, PageTable]:
    """What a sequence of its own has after the same tokens, levels and cuts; the scores of its last token."""
    table, scores = model.sequence(), np.zeros(0)
    for what, value, level in log:
        if what == "cut":
            table.cut(value)
        else:
            model.work_at(level)
            scores = model.compute(value, table)[0].copy()
    return scores, table


def check_counts(model: LanguageModel) -> None:
    """Every page has as many users as sequences hold it, in memory and outside; the others are free."""
    pool, tables = model.pool, model.pool.tables()
    held = Counter(p for t in tables for p in (*t.pages, *t.recent_stored))
    inside = {p: n for p, n in held.items() if p >= 0}
    assert {p: int(pool.users[p]) for p in inside} == inside and pool.free == pool.capacity - len(inside)
    assert {p: pool.stored.users(p) for p in held if p < -1} == {p: n for p, n in held.items() if p < -1}
    assert len(pool.stored) == sum(p < -1 for p in held)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_to_a_cache_changes_no_text(tmp_path: Path, write_decoder: WriteDecoder, seed: int) -> None:
    """Sequences that grow, are cut, forked, taken over, dropped, saved and mapped at changing levels in a cache that is too small,
    against the same tokens in a cache of its own."""
    rng = random.Random(seed)
    kv = rng.choice([("fp16", "fp16"), ("int8", "int4"), ("fp8", "int8")])
    path = write_decoder(rng.choice(["llama", "gemma3", "mamba", "qwen3"]), "Q8_0")
    levels = (NORMAL, NORMAL, WARM, CRITICAL, PowerLevel("few", precision="w4a8"))
    base, said = [rng.randrange(60) for _ in range(60)], 0
    with LanguageModel(path, context=128, page=16, kv=kv, precision="w4a16", pool_tokens=9999) as plain:
        room = rng.choice([9, 12, 20]) * plain.pool.page_bytes * plain.pool.shape.layers + plain.pool.recent.memory.nbytes
        with LanguageModel(path, context=128, page=16, kv=kv, precision="w4a16", pool_tokens=999, cache_bytes=room or None) as model:
            talks: list[tuple[PageTable, list[tuple[Any, ...]]]] = [(model.sequence(), [])]
            for step in range(25):
                (table, log), what = rng.choice(talks), rng.choice("cccckfffbbdmm" if len(talks) < 5 else "ccckd")
                model.work_at(rng.choice(levels))
                if what == "c":
                    new = rng.choice([base[table.length :], [rng.randrange(60) for _ in range(30)]])[: rng.choice([1, 3, 16, 17, 30])] or [
                        1
                    ]
                    if table.length + len(new) > 128:
                        table.cut(0)
                        log.append(("cut", 0, None))
                    level = model.power
                    try:
                        got = model.compute(new, table)[0]
                    except ExecutionError as e:
                        assert "the cache is full" in str(e)
                        continue
                    log.append(("compute", new, level))
                    want, other = replayed(plain, log)
                    assert float((got * want).sum() / np.sqrt((got * got).sum() * (want * want).sum())) > 0.9995
                    assert (other.length, other.gone, other.exact, other.fresh) == (table.length, table.gone, table.exact, table.fresh)
                    said += 1
                elif what == "k":
                    length = rng.randrange(table.length + 1)
                    table.cut(length)
                    log.append(("cut", length, None))
                elif what == "f":
                    talks.append((table.fork(), list(log)))
                elif what == "b":  # whichever begins with most of these tokens is the first sequence with all of them
                    new_table = model.sequence(rng.choice([0, 1]))
                    wanted = [*table.tokens, 1]
                    holders = [t for t in talks if not t[0].gone and t[0].exact]
                    model.residency.begin_with(new_table, wanted)
                    best = max(holders, key=lambda t: t[0].begins_with(wanted[:-1]), default=None)
                    talks.append((new_table, [*best[1], ("cut", new_table.length, None)] if best is not None and new_table.length else []))
                elif what == "d" and len(talks) > 1:
                    talks.pop(next(i for i, t in enumerate(talks) if t[0] is table))
                elif what == "m" and table.length and table.exact and not table.gone:
                    save_prefix(tmp_path / f"{step}.prefix", model, table)
                    talks.append((map_prefix(tmp_path / f"{step}.prefix", model), list(log)))
                check_counts(model)
            assert said > 3
            for table in model.pool.tables():
                table.cut(0)
            assert model.pool.free == model.pool.capacity and len(model.pool.stored) == 0


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
    one = 32 * 30 * 2 * 3 * 64 * 2
    with LanguageModel(SMOLLM2, context=256, page=32, cache_bytes=4 * one) as model:
        table = model.sequence()
        first = greedy(model, table, prefix, 10)
        with pytest.raises(ExecutionError, match=r"the cache is full: all its 4 pages \(128 tokens\) are in use"):
            model.compute(tails[0], table)
        assert model.pool.used_bytes == 4 * one
    with LanguageModel(SMOLLM2, context=256, page=32, cache_bytes=4 * one, shrink=Shrink(window=64, integer=True)) as model:
        table = model.sequence()
        assert greedy(model, table, prefix, 10) == first
        assert len(greedy(model, table, tails[0], 60)) == 60 and model.pool.window == 64 and table.gone and model.pool.most_bytes <= 4 * one
