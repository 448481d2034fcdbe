"""What grows with the number of layers, and what must not."""

from __future__ import annotations

import numpy as np
import pytest
from large_graphs import LAYER, transformer

from hetsched.partition import Budget, Problem, solve
from hetsched.partition.chain import INFINITE, Chain
from hetsched.partition.heft import first_gap
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.tightening import Patience, Tightened
from hetsched.partition.timing import Costs


@pytest.fixture
def searched(monkeypatch):
    """Arcs that a better bound was looked for, one by one."""
    arcs = []
    raised = Tightened._raised

    def counted(self, way, arc, *more):
        arcs.append(arc)
        return raised(self, way, arc, *more)

    monkeypatch.setattr(Tightened, "_raised", counted)
    return arcs


def test_layers_that_repeat_are_raised_together(searched):
    counts = []
    for layers in (3, 9):
        searched.clear()
        c = Costs(transformer(layers * LAYER, slow=8.0))
        tightened = Tightened(c, Chain(Relaxed(c)), Budget(1e6))
        before = tightened.chain.bound()[0]
        tightened.raise_by("fractions", before * 2, INFINITE, 1e6, Patience(INFINITE))
        assert tightened.chain.bound()[0] > before
        counts.append(len(searched))
    assert 0 < counts[1] <= counts[0] * 1.5


def test_the_first_gap_is_that_of_a_plain_scan():
    r = np.random.default_rng(1)
    gaps = 0
    for _ in range(300):
        ends = np.cumsum(r.integers(0, 4, 12)).tolist()
        busy = list(zip(ends[::2], ends[1::2], strict=True))
        ready, seconds = float(r.integers(0, 20)), float(r.integers(0, 4))
        start = ready
        for begin, end in busy:
            if begin - start >= seconds:
                gaps += 1
                break
            start = max(start, end)
        assert first_gap(busy, ready, seconds) == start
    assert gaps > 50


@pytest.mark.parametrize("precisions", [1, 2])
@pytest.mark.parametrize("objective", ["latency", "energy"])
def test_a_few_layers_are_solved_to_one_percent(objective, precisions):
    problem = Problem(transformer(4 * LAYER, precisions), objective)
    answer = solve(problem)
    assert len(problem.table.op_names) == 4 * LAYER
    assert answer.gap <= 0.01
