from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.cli import options
from hetsched.errors import OptionError

DURATIONS = [("10min", 600.0), ("90s", 90.0), ("250ms", 0.25), ("2h", 7200.0), ("1e-3 s", 1e-3)]


@pytest.mark.parametrize(("text", "value"), DURATIONS)
def test_durations(text: str, value: float) -> None:
    assert options.seconds(text, "--duration") == pytest.approx(value)


@pytest.mark.parametrize(("text", "value"), [("300MB", 300_000_000), ("2GiB", 2 << 30), ("17", 17)])
def test_sizes(text: str, value: int) -> None:
    assert options.nbytes(text, "--memory-limit") == value


@pytest.mark.parametrize("text", ["5", "1.5", "0"])
def test_a_time_has_a_unit(text: str) -> None:
    with pytest.raises(OptionError, match=f"--target '{text}' has no unit: write for example 33ms"):
        options.seconds(text, "--target")


@pytest.mark.parametrize("text", ["", "ten", "10 parsecs", "-5s", "5s5s", "nan", "inf"])
def test_nonsense_durations_are_refused_with_the_option_and_the_value(text: str) -> None:
    with pytest.raises(OptionError, match="--duration"):
        options.seconds(text, "--duration")


@given(st.dictionaries(st.text(st.characters(exclude_characters="="), min_size=1), st.integers(1, 1 << 31), max_size=4))
def test_dims_round_trip(dims: dict[str, int]) -> None:
    assert options.dims([f"{k}={v}" for k, v in dims.items()]) == dims


@pytest.mark.parametrize("item", ["x", "=3", "x=", "x=0", "x=-1", "x=1.5", "x=two", "x=99999999999"])
def test_bad_dims_are_refused(item: str) -> None:
    with pytest.raises(OptionError, match="--dim"):
        options.dims([item])


def test_contradicting_pairs_are_refused() -> None:
    with pytest.raises(OptionError, match="twice"):
        options.pairs(["a=cpu", "a=gpu"], "--force")
