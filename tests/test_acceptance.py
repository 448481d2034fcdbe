"""Accepted guesses: the tables by hand, and the file that holds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hetsched.acceptance import Acceptance, accepted_share, independent, shortened, tokens_per_step
from hetsched.errors import OptionError
from hetsched.versions import version_header

HASH = "0" * 64


def counted(*steps: tuple[int, ...]) -> Acceptance:
    return Acceptance(model="m", sha256=HASH, guesser="lookup", steps=steps)


@pytest.mark.parametrize(("a", "n"), [(0.0, 3), (0.6, 4), (0.9, 15), (1.0, 2)])
def test_independent_guesses_follow_the_formula(a: float, n: int) -> None:
    shares = independent(a, n)
    assert sum(map(sum, shares)) == pytest.approx(1.0)
    assert tokens_per_step(shares) == pytest.approx(n + 1 if a == 1 else (1 - a ** (n + 1)) / (1 - a))
    assert tokens_per_step(shortened(shares, 2)) == pytest.approx(tokens_per_step(independent(a, min(n, 2))))


def test_a_measured_table_by_hand() -> None:
    """Ten steps: four without a guess, one of one guess (wrong), five of two (two wrong, one half right, two right)."""
    found = counted((4,), (1, 0), (2, 1, 2))
    assert tokens_per_step(found.shares) == pytest.approx((5 * 1 + 2 * 1 + 1 * 2 + 2 * 3) / 10)
    assert accepted_share(found.shares) == pytest.approx(5 / 11)
    (none,), one = shortened(found.shares, 1)
    assert none == pytest.approx(0.4) and one == pytest.approx((0.3, 0.3))
    assert shortened(found.shares, 9) == found.shares and sum(shortened(found.shares, 0)[0]) == pytest.approx(1.0)
    assert accepted_share(counted((3,), (0, 0)).shares) == 0.0


def test_files_are_added_to(tmp_path: Path) -> None:
    path = tmp_path / "acc.json"
    counted((4,), (1, 0)).save(path)
    first = path.read_bytes()
    counted((1,), (0, 2)).save(path)
    assert Acceptance.from_file(path).steps == ((5,), (1, 2))
    path.write_bytes(first)
    said = {"model": "m", "sha256": HASH, "guesser": "lookup", "steps": [[4], [1, 0]]}
    assert json.loads(first) == {"schema_version": 1, **version_header(), **said}
    with pytest.raises(OptionError, match="choose another file with --save-acceptance"):
        counted((4,), (1, 0), (0, 0, 0)).save(path)
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"steps": [[1], [2]]}, "a row of d \\+ 1 counts"),
        ({"steps": [[0], [0, 0]]}, "no step is counted"),
        ({"guesser": "luck"}, "guesser"),
        ({"steps": [[-1], [0, 1]]}, "steps"),
        ({"more": 1}, "more"),
        ({"steps": "none"}, "steps"),
        ({"minimum_runtime": "99.0"}, "needs hetsched 99.0 or newer"),
        ({"operator_set": "other", "more": 1}, "has operator set 'other'"),
        ({"quantization_schema": None}, "has quantization schema None"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    path = tmp_path / "acc.json"
    path.write_text(json.dumps({"model": "m", "sha256": HASH, "guesser": "lookup", "steps": [[4], [1, 0]]} | version_header() | changed))
    with pytest.raises(OptionError, match=said):
        Acceptance.from_file(path)
    for text in ("{", "[1]", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(OptionError, match="is no file of accepted guesses"):
            Acceptance.from_file(path)
    with pytest.raises(OptionError, match="make it with 'hetsched run --save-acceptance"):
        Acceptance.from_file(tmp_path / "none.json")
