"""Turns of a chat in a trace: written as a sentence, read back as figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.trace import Instant
from hetsched.trace.turns import Turn, turns

COUNTS = st.integers(0, 1 << 24)
POSITIVE = st.floats(1e-9, 1e9, allow_nan=False)


@given(COUNTS, POSITIVE, COUNTS, COUNTS, COUNTS, POSITIVE, POSITIVE)
def test_a_turn_reads_back(number: int, began: float, past: int, prompt: int, generate: int, first: float, rate: float) -> None:
    (found,) = turns([Turn(number, began, past, prompt, generate, first, rate).instant()])
    assert (found.number, found.began_s, found.past, found.prompt, found.generate) == (number, began, past, prompt, generate)
    assert found.first_s == pytest.approx(first, rel=1e-3) and found.rate == pytest.approx(rate, rel=1e-2)


@pytest.mark.parametrize(
    "other",
    [
        Instant("switch", "turn 3", 1.0, "64 tokens after 0: first token after 12 ms, then 128 at 30 tok/s"),
        Instant("turn", "turn three", 1.0, "64 tokens after 0: first token after 12 ms, then 128 at 30 tok/s"),
        Instant("turn", "turn 3", 1.0, "64 tokens"),
        Instant("turn", "turn 3", 1.0, "64 tokens after 0: first token after e ms, then 128 at . tok/s"),
    ],
)
def test_what_is_no_turn_is_passed_over(other: Instant) -> None:
    assert list(turns([other])) == []
