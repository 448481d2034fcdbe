"""Spans from time stamps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from hetsched.runtime.timeline import Timeline
from hetsched.runtime.worker import Job
from hetsched.trace import Trace


@dataclass
class _Compiled:
    stamped: tuple[str, ...]
    spared: frozenset[int] = frozenset()


def _spans(compiled: _Compiled, predicted: dict[str, float]) -> tuple[Trace, dict[str, float]]:
    trace = Trace("measured", "m", "host", ("cpu:0",))
    job: Any = Job(0, None, compiled, ())  # type: ignore[arg-type]
    # Before and after the wait; after a (nothing was done), b and c; after the signal.
    Timeline(trace, 0, predicted, frozenset()).add_queue("cpu:0", (job,), (0, 100, 100, 500, 600, 700), 0)
    ops = [s for s in trace.spans if s.kind == "op"]
    assert [s.name for s in ops] == ["a", "b", "c"]
    assert all(x.end_s == y.start_s for x, y in pairwise(ops))
    return trace, {s.name: (s.end_s - s.start_s) * 1e9 for s in ops}


def test_a_span_ends_where_the_next_one_begins() -> None:
    trace, took = _spans(_Compiled(("a", "b", "c")), {})
    assert took == pytest.approx({"a": 0.0, "b": 400.0, "c": 100.0})
    assert not trace.notes


@pytest.mark.parametrize(("predicted", "own"), [({"a": 3e-6, "b": 1e-6}, 300.0), ({}, 200.0)])
def test_ops_that_are_computed_in_one_pass_share_its_time(predicted: dict[str, float], own: float) -> None:
    trace, took = _spans(_Compiled(("a", "b", "c"), frozenset({0})), predicted)
    assert took == pytest.approx({"a": own, "b": 400.0 - own, "c": 100.0})
    assert len(trace.notes) == 1
