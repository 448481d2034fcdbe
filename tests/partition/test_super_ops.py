"""Super-ops: whatever plan of them, put back op by op it has the same segments and figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.partition import Problem
from hetsched.partition.orders import by_priority
from hetsched.partition.super_ops import grouped
from hetsched.partition.timing import Costs, figures
from hetsched.segments import schedule


def in_pieces(c, r):
    """Runs of a random order, and for each the alternatives that all its ops have in one place."""
    order = by_priority(c, r.random(c.n).tolist())
    groups, ways = [[order[0]]], []
    for op in order[1:]:
        both = places(c, [*groups[-1], op])
        if both and r.random() < 0.6:
            groups[-1].append(op)
        else:
            groups.append([op])
    for group in groups:
        ways.append([[min(a for a in c.alts[op] if (c.queue[a], c.domain[a]) == place) for op in group] for place in places(c, group)])
    return groups, ways


def places(c, ops):
    return sorted(set.intersection(*({(c.queue[a], c.domain[a]) for a in c.alts[op]} for op in ops)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 14), st.booleans())
def test_figures_are_those_of_the_plan_put_back(random_table, seed, n, shared):
    r = np.random.default_rng(seed)
    table = random_table(seed, n, 3, density=0.3, shared_domains=shared)
    c = Costs(table)
    made = grouped(Problem(table), c, *in_pieces(c, r))
    d = Costs(made.problem.table)
    assert sum(map(len, made.groups)) == n
    for _ in range(4):
        order, alternative = by_priority(d, r.random(d.n).tolist()), [int(r.choice(list(row))) for row in d.alts]
        placed = made.expanded(order, alternative)
        assert figures(d, order, alternative) == pytest.approx(figures(c, *placed), rel=1e-12)
        fine, coarse = schedule(table, *placed), schedule(made.problem.table, order, alternative)
        assert coarse.end_s == pytest.approx(fine.end_s)
        assert [tuple(op for v in s.ops for op in made.groups[v]) for s in coarse.segments] == [s.ops for s in fine.segments]
        assert [len(s.transfers) for s in coarse.segments] == [len(s.transfers) for s in fine.segments]


def test_tensors_within_a_super_op_are_dropped_and_outputs_stay(random_table):
    table = random_table(3, 8, 1, chain=True, precisions=1)
    c = Costs(table)
    made = grouped(Problem(table), c, [range(c.n)], [[[row[0] for row in c.alts]]]).problem.table
    kept = {table.tensor_names[t] for t in table.graph_outputs.tolist()} | {
        n for n, p in zip(table.tensor_names, c.producer, strict=True) if p < 0
    }
    assert set(made.tensor_names) <= kept
    assert [made.tensor_names[t] for t in made.graph_outputs.tolist()] == [table.tensor_names[t] for t in table.graph_outputs.tolist()]
    assert made.predecessors.row(0).tolist() == []
