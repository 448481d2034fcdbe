"""Levelling work over queues for the period of a pipeline."""

from __future__ import annotations

from hetsched.partition import Budget, Problem, solve
from hetsched.partition.balancing import levelled
from hetsched.partition.single import SingleQueue
from hetsched.partition.timing import Costs, figures


def test_work_is_shared_out(random_table):
    """Wide graphs with cheap crossings: the busiest queue comes near what the area bound allows."""
    gaps = []
    for seed in range(4):
        table = random_table(seed, 40, 3, crossing_us=1, precisions=1, density=0.1, support=1.0)
        c = Costs(table)
        best = min(figures(c, *k).period_s for k in levelled(c, Budget(5.0)))
        answer = solve(Problem(table, "period"), "auto", time_limit_s=0.5)
        assert answer.bound <= answer.objective <= best * (1 + 1e-9)
        assert best < min(SingleQueue(q.name).solve(Problem(table, "period"), Budget()).objective for q in table.queues)
        gaps.append(1 - answer.bound / best)
    assert max(gaps) < 0.1


def test_one_queue_has_nothing_to_level(random_table):
    c = Costs(random_table(1, 6, 1))
    assert len(levelled(c, Budget(1.0))) == 1


def test_the_budget_is_kept(random_table):
    budget = Budget(1e-3)
    assert levelled(Costs(random_table(2, 60, 3)), budget)
    assert budget.spent < 0.05
