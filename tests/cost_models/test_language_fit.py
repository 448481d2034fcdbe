"""What rows of other models anchor, and how far repeats lie apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched_cost_models.fit.language_data import Rate
from hetsched_cost_models.fit.language_fit import _anchors, repeat_spread

_ROW = Rate("m", 1e9, 1e5, 16, 4.5, "snapdragon-8-gen-3", "cpu", "llama.cpp", False, 4, 64, 64, 100.0, 10.0, 0.0, "s")


def test_an_anchor_is_shrunk_by_the_number_of_models() -> None:
    rows = [replace(_ROW, params=1e9 * i) for i in (1, 2, 3)]
    # An engine whose three models are all off by 0.4: 0.3 of it at once, and 0.075 of the rest for the chip.
    found = _anchors(rows, np.full(3, 0.4), [replace(_ROW, params=9e9)])
    assert found == pytest.approx([0.3 + 0.075])


def test_another_chip_takes_the_engine_alone_and_another_engine_nothing() -> None:
    found = _anchors([_ROW], np.array([0.4]), [replace(_ROW, chip="tensor-g1"), replace(_ROW, engine="mnn")])
    assert found == pytest.approx([0.2, 0.0])


def test_many_rows_of_one_model_weigh_as_one() -> None:
    rows = [_ROW] * 9 + [replace(_ROW, params=2e9)]
    found = _anchors(rows, np.array([0.9] * 9 + [0.0]), [replace(_ROW, chip="tensor-g1")])
    assert found == pytest.approx([0.3])


def test_the_spread_of_repeats_is_around_their_median() -> None:
    rows = [replace(_ROW, decode=v) for v in (8.0, 10.0, 12.0)] + [replace(_ROW, bits=8.5, decode=99.0)]
    spread, count = repeat_spread(rows, "decode")
    assert count == 3 and spread == pytest.approx(0.2)
