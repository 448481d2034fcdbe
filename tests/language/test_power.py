"""Power levels: what each one takes away, while tokens are generated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hetsched.app.generating import assistant
from hetsched.cli.commands import app
from hetsched.errors import OptionError
from hetsched.language.generation import Answer
from hetsched.language.power import CRITICAL, LEVELS, NORMAL, WARM, level_for, level_named
from hetsched.language.session import LanguageModel

WriteDecoder = Callable[..., Path]


def test_what_the_levels_take_away() -> None:
    assert [(v.window(1024), v.speculated(6), v.threads(4)) for v in LEVELS.values()] == [(0, 6, 4), (512, 3, 2), (256, 0, 1)]
    assert WARM.threads(1) == CRITICAL.threads(2) == 1
    assert level_named("warm") is WARM
    with pytest.raises(OptionError, match="no power level 'hot': use normal, warm, critical"):
        level_named("hot")


def test_heat_and_battery_choose_a_level() -> None:
    assert [level_for(t) for t in range(4)] == [NORMAL, WARM, WARM, CRITICAL]
    assert level_for(0, 0.09) is CRITICAL and level_for(1, 0.1) is WARM and level_for(0, 0.5) is NORMAL


def test_fewer_threads_compute_the_same(write_decoder: WriteDecoder) -> None:
    ids = np.random.default_rng(4).integers(0, 60, 40).tolist()
    path, results = write_decoder("llama", "Q8_0"), []
    for levels in ((NORMAL,) * 4, (NORMAL, WARM, NORMAL, WARM)):
        with LanguageModel(path, cores=(0, 1), context=128) as model:
            table, scores = model.sequence(), []
            for n, level in enumerate(levels):
                model.work_at(level)
                scores.append(model.compute(ids[10 * n : 10 * n + 10], table)[0].copy())
            results.append(np.stack(scores))
    np.testing.assert_array_equal(results[0], results[1])


def test_levels_change_between_tokens(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    answer = Answer()
    with assistant(path, context=128, cores=(0, 1), speculate=4, power="warm") as opened:
        model = opened.model
        assert model.pool.window == 64 and opened.summary(answer)["power"] == "warm"
        tokens = opened.complete("the cat the cat the", most=110, answer=answer)
        for _ in range(20):
            next(tokens)
        model.work_at(CRITICAL)
        drafted = answer.drafted
        for _ in range(70):
            next(tokens)
        assert model.pool.window == 32 and answer.drafted == drafted > 0
        pages = model.pool.used_bytes // (model.pool.page_bytes * model.pool.shape.layers)
        model.work_at(NORMAL)
        assert model.pool.window == 0 and len(list(tokens)) + 90 == len(answer.tokens)
    assert pages == 2  # of 64 tokens each: the first one is not forgotten yet


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


def test_a_line_of_a_chat_changes_the_level(write_decoder: WriteDecoder) -> None:
    path = write_decoder("llama", "Q8_0", vocabulary=True)
    asked = ["chat", str(path), "--generate", "3", "--context", "128", "--json"]
    done = CliRunner().invoke(app, asked, input="the\n/power critical\nthe\n")
    assert done.exit_code == 0 and [t["power"] for t in json.loads(done.stdout)["turns"]] == ["normal", "critical"]
    assert isinstance(CliRunner().invoke(app, asked, input="/power hot\n").exception, OptionError)
