"""One op elsewhere, timed with most of the plan as super-ops: what the whole plan timed again says."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.partition import Problem, Solution, retiming
from hetsched.partition.limits import Limits
from hetsched.partition.orders import by_priority
from hetsched.partition.timing import Costs, figures, value


@pytest.mark.parametrize("window", [1, 4, 1000])
@pytest.mark.parametrize("objective", ["latency", "energy", "edp", "period"])
def test_what_a_move_adds_is_what_the_whole_plan_says(random_table, monkeypatch, objective, window):
    monkeypatch.setattr(retiming, "WINDOW", window)
    changes = 0
    for seed in range(6):
        r = np.random.default_rng(seed)
        problem = Problem(random_table(seed, 14, 3, density=0.3, shared_domains=seed == 5), objective, limits=Limits(segments=9))
        c = Costs(problem.table)
        order, alternative = by_priority(c, r.random(c.n).tolist()), [int(r.choice(list(row))) for row in c.alts]
        base = value(problem, figures(c, order, alternative))
        plan = retiming.Retiming(problem, c, Solution("random", tuple(order), tuple(alternative), base))
        for op in range(c.n) if base < float("inf") else ():
            for a in c.alts[op]:
                moved = [*alternative[:op], a, *alternative[op + 1 :]]
                change = value(problem, figures(c, order, moved)) - base
                assert plan.added(op, a) == pytest.approx(change, rel=1e-6, abs=1e-15)
                changes += change != 0
    assert changes > 30
