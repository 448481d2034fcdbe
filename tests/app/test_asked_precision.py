"""A plan that was asked for in integers and got none says so, first of its notes."""

from __future__ import annotations

from pathlib import Path

import pytest

import hetsched

PHONE = "snapdragon-8-gen-3"


def notes(model: Path, **options: str) -> tuple[str, ...]:
    return hetsched.plan(model, options.pop("soc", PHONE), dims={"width": 16}, simulated=False, public_anchors=False, **options).plan.notes


@pytest.mark.parametrize("precision", ["w8a16", "w4a16"])
def test_a_queue_without_the_precision(two_branch: Path, precision: str) -> None:
    said = notes(two_branch, solver="single:cpu", precision=precision)
    assert said[0].startswith(f"nothing of this plan runs as {precision}: all ") and " operators run in f32 on cpu; " in said[0]


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "w8a16", "solver": "single:npu"}, {"precision": "w8a8", "solver": "single:cpu"},
        {"precision": "float", "solver": "single:cpu"}, {"precision": "auto", "solver": "single:cpu"},
    ],
    ids=str,
)  # fmt: skip
def test_plans_that_do_what_was_asked_say_nothing(two_branch: Path, options: dict[str, str]) -> None:
    assert not any("nothing of this plan runs" in n for n in notes(two_branch, **options))
