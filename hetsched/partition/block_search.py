"""Searching a model of a block: a plan, and a bound on all plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hetsched.partition.block_slots import BlockSlots
from hetsched.partition.problem import Budget
from hetsched.partition.slots import deterministic_solver, model_units, solver_units

INFINITE = float("inf")
SPEED = 2.7
"""Deterministic time per unit without linear programs, as a multiple of that of other models."""
SOON = 0.3
"""Share of the units for the first of two searches for a bound."""


@dataclass(frozen=True)
class BlockPlan:
    """Seconds of the plan found (infinite: none) and a bound on every plan; inner ops in order with alternatives; work done.

    ``open``: whether more work could raise the bound.
    """

    value: float
    bound: float
    placed: tuple[tuple[int, int], ...]
    units: float
    open: bool = False


def search(slots: BlockSlots, budget: Budget, units: float) -> BlockPlan:
    """Search for about ``units`` of work; nothing is charged.

    Most blocks are solved soon by conflicts alone. A bound that is still open then is raised from below.
    """
    from ortools.sat.python import cp_model

    used, bound, status = model_units(slots.model), 0.0, cp_model.UNKNOWN
    solver: Any = None
    for share, from_below in ((1.0, False),) if not slots.rest else ((SOON, False), (1.0, True)):
        if status in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
            break
        solver = deterministic_solver(budget, share * (units - used) * SPEED)
        solver.parameters.linearization_level = 0
        solver.parameters.cp_model_probing_level = 0
        solver.parameters.use_objective_lb_search = from_below
        status = solver.solve(slots.model)
        used += solver_units(solver) / SPEED
        bound = max(bound, float(solver.best_objective_bound) * slots.tick)
    if status == cp_model.INFEASIBLE:
        return BlockPlan(INFINITE, INFINITE, (), used)
    more = status != cp_model.OPTIMAL
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return BlockPlan(INFINITE, bound, (), used, more)
    chosen = sorted((k, v, a) for (v, a, k), z in slots.z.items() if not isinstance(z, int) and solver.boolean_value(z))
    value = INFINITE if any(k in slots.rest for k, _, _ in chosen) else solver.value(slots.goal) * slots.tick
    return BlockPlan(value, bound, tuple((v, a) for _, v, a in chosen), used, more)
