"""Sampling: the tokens come as often as they should, and depend on the seed alone."""

from typing import Any

import numpy as np
import pytest

from hetsched_kernels.comparison_sampling import kept_shares
from hetsched_kernels.sampling import sample_f32
from hetsched_kernels.sampling_scratch import sample_scratch

NONE = np.zeros(0, np.int64)


def tokens(logits: Any, count: int, seed: int, *options: Any, recent: Any = NONE) -> Any:
    state, out = np.array([seed], np.uint64), np.zeros(1, np.int64)
    scratch, drawn = np.empty(sample_scratch(len(logits)), np.float32), []
    for _ in range(count):
        sample_f32(logits, recent, out, state, scratch, 1, len(logits), *options)
        drawn.append(int(out[0]))
    return np.array(drawn)


@pytest.mark.parametrize("options", [(1.0, 0, 1.0, 1.0), (0.7, 5, 1.0, 1.0), (1.3, 0, 0.8, 1.0), (1.0, 9, 0.6, 2.0)])
def test_tokens_come_as_often_as_their_probability(options: Any) -> None:
    logits = np.random.default_rng(3).standard_normal(12).astype(np.float32) * 1.5
    recent = np.array([2, 7, 2])
    shares = kept_shares(logits, recent, *options)
    drawn = np.bincount(tokens(logits, 20_000, 5, *options, recent=recent), minlength=12)
    assert (drawn[shares == 0] == 0).all()
    spread = np.sqrt(shares * (1 - shares) * 20_000)
    assert (np.abs(drawn - 20_000 * shares) <= 5 * spread + 1).all()


def test_the_same_seed_gives_the_same_tokens() -> None:
    logits = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    first, again, other = (tokens(logits, 50, seed, 1.0, 40, 0.95, 1.0) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_temperature_zero_takes_the_first_best_and_draws_nothing() -> None:
    state, out = np.array([9], np.uint64), np.zeros(2, np.int64)
    logits = np.array([1, 3, 3, 0, -1, -1, -2, -1], np.float32)
    sample_f32(logits, NONE, out, np.repeat(state, 2), np.empty(12, np.float32), 2, 4, 0.0, 0, 1.0, 1.0)
    assert out.tolist() == [1, 0]
    assert state[0] == 9


def test_equal_scores_are_kept_by_position() -> None:
    drawn = tokens(np.zeros(300, np.float32), 200, 4, 1.0, 3, 1.0, 1.0)
    assert set(drawn.tolist()) == {0, 1, 2}
