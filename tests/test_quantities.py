"""Quantities and lists of them, as people write them."""

from __future__ import annotations

import pytest

from hetsched.quantities import SECONDS, number_and_unit, pairs


@pytest.mark.parametrize(("text", "said"), [("a=1,a=2", "'a' is given twice: 1 and 2"), ("=3", "'=3' has no name"), ("a=1,=", "no name")])
def test_pairs_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pairs(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("33ms", (33.0, "ms")), (" 1.5 GB/s ", (1.5, "gb/s")), ("5e-3s", (0.005, "s")), (".5h", (0.5, "h")), ("60", (60.0, "")),
        ("s", None), ("1 2s", None), ("-3s", None), ("", None),
    ],
)  # fmt: skip
def test_numbers_and_units(text: str, found: tuple[float, str] | None) -> None:
    assert number_and_unit(text) == found


def test_units_of_time_agree() -> None:
    assert SECONDS["min"] == SECONDS["m"] == 60 * SECONDS["s"] == 60000 * SECONDS["ms"] and SECONDS["h"] == 60 * SECONDS["min"]


@pytest.mark.parametrize(
    ("value", "found"),
    [("prompt=64, generate=128,", {"prompt": "64", "generate": "128"}), ("", {}), ("on", {"on": ""}), ({"a": 1}, {"a": 1}), (3, 3)],
)
def test_pairs(value: object, found: object) -> None:
    assert pairs(value) == found
