"""Power levels: what each one takes away while tokens are generated, and who chooses them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hetsched.app.generating import assistant
from hetsched.cli.commands import app
from hetsched.errors import OptionError
from hetsched.language.generation import Answer
from hetsched.language.power import CRITICAL, LEVELS, NORMAL, WARM, PowerLevel, level_for, level_named, read_power_policy
from hetsched.language.session import LanguageModel

WriteDecoder = Callable[..., Path]
ALIKE = (1.0,) * 8


def test_what_the_levels_take_away() -> None:
    cores = (0, 1, 2, 3)
    found = [(v.window(1024), v.speculated(6), v.cores(cores, ALIKE[:4]), v.precision) for v in LEVELS.values()]
    assert found == [(0, 6, cores, ""), (512, 3, (0, 1), "w4a8"), (256, 0, (0,), "w4a8")]
    assert WARM.cores((7,), (1.0,)) == CRITICAL.cores((7, 9), (1.0, 1.0)) == (7,)
    assert level_named("warm") is WARM
    with pytest.raises(OptionError, match="no power level 'hot': use normal, warm, critical"):
        level_named("hot")


def test_the_slowest_kind_of_cores_comes_first() -> None:
    """A phone with one prime core, three large and four small ones; the fastest ones where a level says so."""
    speeds = (325.0, 325.0, 325.0, 325.0, 870.0, 870.0, 870.0, 1024.0)
    assert WARM.cores(range(8), speeds) == (0, 1, 2, 3) and CRITICAL.cores(range(8), speeds) == (0, 1)
    backwards = tuple(reversed(speeds))
    assert WARM.cores(range(8), backwards) == (4, 5, 6, 7) and CRITICAL.cores(range(8), backwards) == (4, 5)
    assert PowerLevel("warm", threads=0.5).cores(range(8), speeds) == (7, 4, 5, 6)
    assert PowerLevel("warm", threads=0.25).cores(range(8), speeds) == (7, 4)
    assert WARM.cores((0, 5, 7), speeds[:1] + speeds[5:8:2]) == (0,) and NORMAL.cores((0, 5, 7), (325.0, 870.0, 1024.0)) == (7, 5, 0)


def test_heat_and_battery_choose_a_level() -> None:
    assert [level_for(t) for t in range(5)] == ["normal", "warm", "warm", "critical", "critical"]
    assert level_for(0, 0.09) == "critical" and level_for(1, 0.1) == "warm" and level_for(0, 0.5) == "normal"


def test_a_file_changes_what_levels_take(tmp_path: Path) -> None:
    path = tmp_path / "levels.yaml"
    path.write_text("warm: {threads: 1, precision: w4a16}\ncritical:\n  context: 0.5\n  slow_cores: false\n")
    found = read_power_policy(path)
    assert found["normal"] == NORMAL and list(found) == list(LEVELS)
    assert found["warm"] == PowerLevel("warm", 0.5, 0.5, 1, True, "w4a16")
    assert found["critical"] == PowerLevel("critical", 0.5, 0.0, 0.25, False, "w4a8")
    for text, message in (
        ("hot: {}", "no power level 'hot'"), ("- warm", "is no mapping"), ("warm: 3", "holds 3: use context, speculation"),
        ("warm: {heat: 1}", "use context, speculation, threads, slow_cores, precision"), ("warm: {threads: 0}", "is 0: use a share"),
        ("warm: {context: 2}", "is 2: use a share"), ("warm: {precision: w2}", "is 'w2': use w4a8 or w4a16"),
        ("warm: {slow_cores: 1}", "is 1: use true or false"), ("warm: {context: yes}", "is True: use a share"),
        ("warm: {context: .nan}", "is nan: use a share"), ("warm: {context: -.inf}", "is -inf: use a share"), ("warm:", "holds None: use"),
        ("", "is no mapping"), ("warm: {context: 0x" + "f" * 9000 + "}", "has a number of 9002 digits at line 1"),
        ("warm: [" + "1, " * 9000 + "]", r"holds \[1, 1, .*….*: use context"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(OptionError, match=message) as caught:
            read_power_policy(path)
        assert len(str(caught.value)) < 400 + len(str(path))


def test_fewer_threads_compute_the_same(write_decoder: WriteDecoder) -> None:
    """At one precision, whichever cores compute."""
    ids = np.random.default_rng(4).integers(0, 60, 40).tolist()
    path, results = write_decoder("llama", "Q8_0"), []
    for levels in ((NORMAL,) * 4, (NORMAL, WARM, NORMAL, WARM)):
        with LanguageModel(path, cores=(0, 1), context=128, precision="w4a8") as model:
            table, scores, at_work = model.sequence(), [], []
            for n, level in enumerate(levels):
                model.work_at(level)
                scores.append(model.compute(ids[10 * n : 10 * n + 10], table)[0].copy())
                at_work.append(len(model.at_work))
            results.append(np.stack(scores))
    np.testing.assert_array_equal(results[0], results[1])
    assert at_work == [2, 1, 2, 1]


def scores_with(path: Path, ids: list[int], levels: Mapping[int, PowerLevel], precision: str) -> np.ndarray:
    """Scores after each token, where the level changes before some of them."""
    with LanguageModel(path, context=128, precision=precision) as model:
        table, out = model.sequence(), []
        for n, token in enumerate(ids):
            if n in levels:
                model.work_at(levels[n])
            out.append(model.compute([token], table)[0].copy())
        return np.stack(out)


def test_the_precision_changes_between_tokens(write_decoder: WriteDecoder) -> None:
    """What was cached stays: a sequence goes on from it, and is the same whenever levels change at the same tokens."""
    path, ids = write_decoder("llama", "Q4_1"), np.random.default_rng(4).integers(0, 60, 30).tolist()
    coarse = PowerLevel("warm", precision="w4a8")
    fine, few = (scores_with(path, ids, {}, precision) for precision in ("w4a16", "w4a8"))
    mixed, again = (scores_with(path, ids, {10: coarse, 20: NORMAL}, "w4a16") for _ in range(2))
    np.testing.assert_array_equal(mixed, again)
    np.testing.assert_array_equal(mixed[:10], fine[:10])
    assert not (mixed[10:20] == fine[10:20]).all() and not (mixed[10:20] == few[10:20]).all()
    errors = np.abs(mixed - fine).max(1)
    assert 0 < errors[20:].mean() < errors[10:20].mean() < np.abs(fine).max()
    np.testing.assert_array_equal(scores_with(path, ids, {0: coarse}, "w4a16"), few)


def test_levels_change_between_tokens(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    texts = []
    for _ in range(2):
        answer = Answer()
        with assistant(path, context=128, cores=(0, 1), speculate=4, power="warm") as opened:
            model = opened.model
            summary = opened.summary(answer)
            assert model.pool.window == 64 and (summary["power"], summary["precision"], summary["threads"]) == ("warm", "w4a8", 1)
            tokens = opened.complete("the cat the cat the", most=110, answer=answer)
            for _ in range(20):
                next(tokens)
            opened.work_at("critical")
            drafted = answer.drafted
            for _ in range(70):
                next(tokens)
            assert model.pool.window == 32 and answer.drafted == drafted > 0
            pages = model.pool.used_bytes // (model.pool.page_bytes * model.pool.shape.layers)
            opened.work_at("normal")
            assert model.pool.window == 0 and len(list(tokens)) + 90 == len(answer.tokens)
            assert opened.summary(answer)["precision"] == "w4a16" and len(model.at_work) == 2
        texts.append(answer.tokens)
    assert pages == 2  # of 64 tokens each: the first one is not forgotten yet
    assert texts[0] == texts[1]


def test_a_smaller_model_that_guesses_follows(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    with assistant(path, context=128, speculate=4, draft=path) as opened:
        tokens = opened.complete("the cat the", most=40)
        next(tokens)
        opened.work_at("warm")
        for _ in range(10):
            next(tokens)
        assert opened.drafter.model.power is WARM  # type: ignore[union-attr]


def test_a_critical_level_forgets(write_decoder: WriteDecoder) -> None:
    with LanguageModel(write_decoder(), context=128, page=16) as model:
        table = model.sequence()
        model.compute([1] * 60, table)
        model.compute([2] * 40, table)
        before = table.gone
        model.work_at(CRITICAL)
        model.compute([3], table)
        assert (before, table.gone) == (0, 48)
        model.work_at(NORMAL)
        assert np.isfinite(model.compute([3], table)).all() and table.gone == 48


def test_a_line_of_a_chat_changes_the_level(write_decoder: WriteDecoder, tmp_path: Path) -> None:
    path, levels = write_decoder("llama", "Q8_0", vocabulary=True), tmp_path / "levels.yaml"
    levels.write_text("critical: {precision: w4a16}\n")
    asked = ["chat", str(path), "--generate", "3", "--context", "128", "--json", "--power-policy", str(levels)]
    done = CliRunner().invoke(app, asked, input="the\n/power critical\nthe\n/power warm\nthe\n")
    turns = json.loads(done.stdout)["turns"]
    assert [(t["power"], t["precision"]) for t in turns] == [("normal", "w4a16"), ("critical", "w4a16"), ("warm", "w4a8")]
    assert "use normal, warm, critical, auto" in str(CliRunner().invoke(app, asked, input="/power hot\n").exception)
