"""Budgets on graphs that nobody proves in so little work: what is begun fits, and nothing is begun afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hetsched.partition import Budget, Problem, solver_named
from hetsched.partition.limits import Limits
from hetsched.partition.slots import DETERMINISTIC_PER_UNIT

OPS = 60
FLOOR = 0.1
"""Units of the fast solvers and of the general bound, which always run to their end."""


@dataclass
class Recorded(Budget):
    """A budget that remembers what was charged once its units were spent."""

    late: list[float] = field(default_factory=list)

    def charge(self, units: float) -> None:
        """Count work."""
        if self.spent >= self.units:
            self.late.append(units)
        super().charge(units)


@pytest.fixture
def searches(monkeypatch):
    """Deterministic time that CP-SAT may take, one entry a search."""
    from ortools.sat.python import cp_model

    allowed: list[float] = []
    solve = cp_model.CpSolver.solve

    def counted(self, model, *more):
        allowed.append(self.parameters.max_deterministic_time)
        return solve(self, model, *more)

    monkeypatch.setattr(cp_model.CpSolver, "solve", counted)
    return allowed


@pytest.mark.parametrize("objective", ["latency", "energy", "edp", "period"])
@pytest.mark.parametrize("units", [0.001, 0.15, 0.5])
def test_nothing_is_begun_once_the_units_are_spent(random_table, searches, objective, units):
    problem = Problem(random_table(7, OPS, 3, precisions=1, density=0.3, crossing_us=30), objective)
    budget = Recorded(units, wall_limit_s=1e9)
    answer = solver_named("auto").solve(problem, budget)
    assert answer.status == "feasible"
    assert answer.gap > 0.01  # so that there was more to do
    assert sum(budget.late) <= FLOOR
    assert sum(searches) <= 2 * units * DETERMINISTIC_PER_UNIT + 1e-3 * len(searches)
    assert not budget.clock_stopped


@pytest.mark.parametrize("units", [0.2, 1.0])
def test_more_units_mean_more_work_but_not_more_than_they_are(random_table, units):
    problem = Problem(random_table(7, OPS, 3, precisions=1, density=0.3, crossing_us=30), "energy")
    budget = Recorded(units, wall_limit_s=1e9)
    solver_named("auto").solve(problem, budget)
    assert 0.5 * units < budget.spent <= 1.05 * units


def test_prices_of_limits_are_searched_within_the_budget(random_table):
    table = random_table(7, OPS, 3, precisions=1, density=0.3, crossing_us=30)
    free = solver_named("frontier-dp").solve(Problem(table), Budget(1.0))
    problem = Problem(table, limits=Limits(energy_j=0.5 * sum(table.energy_j[list(free.alternative)])))
    budget = Recorded(0.05, wall_limit_s=1e9)
    solver_named("frontier-dp").solve(problem, budget)
    assert budget.spent <= 2 * 0.05
