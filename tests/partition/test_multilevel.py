"""Plans improved from coarse to fine: never worse, and better than one op at a time can."""

from __future__ import annotations

import numpy as np
import pytest
from large_graphs import LAYER, transformer

from hetsched.partition import Budget, Problem
from hetsched.partition.heft import Heft
from hetsched.partition.multilevel import COARSEST, _coarser, improve_by_levels
from hetsched.partition.orders import by_priority
from hetsched.partition.search import LocalSearch
from hetsched.partition.timing import Costs, figures, value


@pytest.mark.parametrize("objective", ["latency", "energy", "period", "edp"])
def test_no_plan_gets_worse_and_what_is_told_is_so(random_table, objective):
    better = 0
    for seed in range(8):
        r = np.random.default_rng(seed)
        problem = Problem(random_table(seed, COARSEST + 30, 3, density=0.3), objective)
        c = Costs(problem.table)
        order, alternative = by_priority(c, r.random(c.n).tolist()), [int(r.choice(list(row))) for row in c.alts]
        before = value(problem, figures(c, order, alternative))
        found = improve_by_levels(problem, c, order, alternative, Budget(1e9, wall_limit_s=1e9), 0.05, 0.0)
        assert sorted(found[0]) == list(range(c.n))
        assert found[2] == value(problem, figures(c, found[0], found[1]))
        assert found[2] <= before * (1 + 1e-12)
        better += found[2] < before
    assert better > 5


@pytest.mark.parametrize("slow", [1.0, 8.0])
def test_a_plan_is_a_plan_of_the_coarser_level(slow):
    problem = Problem(transformer(3 * LAYER, slow=slow), "latency")
    c, budget = Costs(problem.table), Budget(1e9, wall_limit_s=1e9)
    plan = Heft().solve(problem, budget)
    found = _coarser(problem, c, plan.order, plan.alternative)
    assert found is not None
    level, order, alternative = found
    d = Costs(level.problem.table)
    assert d.n < 0.75 * c.n
    assert figures(d, order, alternative).latency_s == pytest.approx(plan.objective)
    assert figures(c, *level.expanded(order, alternative)).latency_s == pytest.approx(plan.objective)


def test_coarse_moves_find_what_single_ops_do_not():
    problem = Problem(transformer(4 * LAYER, slow=8.0), "latency")
    c = Costs(problem.table)
    plan = Heft().solve(problem, Budget())
    by_levels = improve_by_levels(problem, c, plan.order, plan.alternative, Budget(1e9, wall_limit_s=1e9), 0.1, 0.0)
    budget = Budget(1e9, wall_limit_s=1e9)
    search = LocalSearch(problem, c, budget)
    flat = search.improve(plan.order, plan.alternative, int(0.3 / search.units))
    assert by_levels[2] < flat[2]
