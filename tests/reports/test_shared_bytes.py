"""Bytes that two buffers hold at once are in use once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hetsched.plans import Buffer
from hetsched.reports.lifetimes import live_bytes


def buffer(tensor: str, offset: int, nbytes: int) -> Buffer:
    return Buffer(tensor=tensor, offset=offset, nbytes=nbytes, first=0, last=0)


def test_what_is_written_over_in_place_counts_once() -> None:
    plan: Any = SimpleNamespace(
        buffers=(buffer("x", 0, 64), buffer("y", 0, 64), buffer("z", 64, 32), buffer("later", 0, 16), buffer("none", 0, 0))
    )
    held = [(0.0, 2.0), (1.0, 3.0), (1.0, 2.0), (3.0, 4.0), (0.0, 9.0)]
    assert live_bytes(plan, held) == ([0.0, 1.0, 2.0, 3.0, 4.0], [64.0, 96.0, 64.0, 16.0, 0.0])


def test_a_view_ends_before_or_after_what_it_shows() -> None:
    plan: Any = SimpleNamespace(buffers=(buffer("x", 0, 64), buffer("view", 0, 64)))
    for ends in ((2.0, 5.0), (5.0, 2.0)):
        assert live_bytes(plan, [(0.0, ends[0]), (1.0, ends[1])]) == ([0.0, 5.0], [64.0, 0.0])
