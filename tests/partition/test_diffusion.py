"""Costs of transfers moved into the ops: no plan costs anything else, nothing falls below zero, and the bound grows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.partition.diffusion import Edge, diffused

INFINITE = float("inf")


def drawn(seed: int, n: int, domains: int, chain: bool):
    r = np.random.default_rng(seed)
    cost = r.integers(0, 50, (n, domains)).astype(float)
    cost[:, 1:][r.random((n, domains - 1)) < 0.2] = INFINITE
    edges = []
    for v in range(1, n):
        for u in [v - 1] if chain else [u for u in range(v) if r.random() < 0.5]:
            matrix = r.integers(0, 40, (domains, domains)).astype(float)
            np.fill_diagonal(matrix, 0)
            edges.append(Edge((u, v), matrix.tolist()))
    return cost.tolist(), edges


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 5), st.integers(2, 3), st.booleans())
def test_no_plan_costs_anything_else_and_the_bound_is_one(seed, n, domains, chain):
    cost, edges = drawn(seed, n, domains, chain)
    more = diffused(cost, edges)
    own, left = [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(cost, more, strict=True)], [e.left() for e in edges]
    assert all(x >= 0 for matrix in left for row in matrix for x in row)
    totals = []
    for placed in product(*([d for d in range(domains) if row[d] < INFINITE] for row in cost)):
        before = sum(row[d] for row, d in zip(cost, placed, strict=True))
        before += sum(e.matrix[placed[e.ends[0]]][placed[e.ends[1]]] for e in edges)
        after = sum(row[d] for row, d in zip(own, placed, strict=True))
        after += sum(m[placed[e.ends[0]]][placed[e.ends[1]]] for m, e in zip(left, edges, strict=True))
        assert after == pytest.approx(before, abs=1e-9)
        totals.append(before)
    bound = sum(min(row) for row in own)
    assert sum(min(row) for row in cost) <= bound + 1e-9
    assert bound <= min(totals) + 1e-9
    if chain:
        assert bound == pytest.approx(min(totals), abs=1e-9)
