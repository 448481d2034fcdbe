"""Sizes in words: one formatter, and nobody writes gigabytes as thousands of megabytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hetsched
from hetsched.cli.show import arena
from hetsched.plans import Prediction
from hetsched.reports.units import quantity
from hetsched.sizes import size


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (7.08e6, "7.08 MB"), (9.999e8, "1e+03 MB"), (1e9, "1 GB"), (2.5e12, "2.5 TB")],
)
def test_the_unit_suits_the_size(nbytes: float, text: str) -> None:
    assert size(nbytes) == (text if "e+" not in text else "1 GB")


@pytest.mark.parametrize("nbytes", [1.0, 512.0, 15.2e3, 7.08e6, 1.25e9])
def test_pages_say_the_same(nbytes: float) -> None:
    value, unit = size(nbytes).split()
    assert quantity(nbytes, "B").split()[1] == unit and float(quantity(nbytes, "B").split()[0]) == pytest.approx(float(value), rel=5e-3)


def test_a_plan_of_gigabytes_says_so() -> None:
    said = arena(
        Prediction(
            latency_s=1.0, latency_interval_s=(0.9, 1.1), serial_s=1.0, energy_j=1.0, peak_memory_bytes=5_000_000_000,
            weight_bytes=4_000_000_000, arena_bytes=1_000_000_000, arena_bound_bytes=900_000_000, unshared_bytes=2_000_000_000,
        )
    )  # fmt: skip
    assert "weights 4 GB, arena 1 GB" in said and "at least 900 MB" in said


def test_nobody_else_divides_bytes_into_megabytes_for_people() -> None:
    root = Path(hetsched.__file__).parent
    found = [
        f"{path.name}: {line.strip()}"
        for folder in ("app", "cli", "partition")
        for path in sorted((root / folder).rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"/ ?1e[69][^}]*\} ?[GM]B", line)
    ]
    assert not found
