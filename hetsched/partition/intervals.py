"""A task graph as a CP-SAT model: an optional interval per task and queue, queues that run one at a time, waits along edges.

Durations and waits are rounded down to whole ticks, so that what the model proves holds for the task graph; its answer is
timed again in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.partition.list_scheduling import FloatArray, Placed, Tasks, placed_in_order
from hetsched.partition.problem import Budget
from hetsched.partition.slots import model_units
from hetsched.partition.task_blocks import INFINITE, edges_of, seconds_of
from hetsched.partition.task_bounds import heads, tails

TICKS = 1 << 22
"""Ticks in the makespan that is to be beaten."""
PORTFOLIO_TASKS = 25
"""From so many tasks on, one worker takes turns between several strategies, large neighbourhoods among them."""


@dataclass(frozen=True)
class Answer:
    """``placed`` or None; ``bound`` in seconds (infinite: no schedule within the limit); whether more time is useless."""

    placed: Placed | None
    bound: float
    proven: bool


class IntervalModel:
    """Schedules of a task graph whose makespan lies between two limits."""

    def __init__(self, tasks: Tasks, known: float, limit: float) -> None:
        """Build the model; ``known`` is a proven bound and ``limit`` the longest makespan looked for, in seconds."""
        from ortools.sat.python import cp_model

        self.tasks, self.tick = tasks, limit / TICKS
        self.model: Any = cp_model.CpModel()
        head, tail = heads(tasks), tails(tasks)
        self.fits = [np.flatnonzero(row <= limit * (1 + 1e-12)).tolist() for row in head + tail]
        self.possible = all(self.fits)
        if not self.possible:
            return
        self.goal = self.model.new_int_var(max(0, self._ticks(known) - 1), TICKS, "")
        self.on = [{q: self.model.new_bool_var("") for q in row} for row in self.fits]
        self._intervals(head, tail)
        self._waits()
        self.model.minimize(self.goal)

    def _ticks(self, seconds: float) -> int:
        return int(seconds / self.tick)

    def _intervals(self, head: FloatArray, tail: FloatArray) -> None:
        """One queue per task, one task at a time per queue, and what the longest ways and the queues' work ask of the goal.

        With starts and durations rounded down, an end may be two ticks early: the longest ways are that much shorter.
        """
        m, cost = self.model, self.tasks.cost
        self.start, self.end = [], []
        rows: list[list[Any]] = [[] for _ in range(cost.shape[1])]
        load: list[list[Any]] = [[] for _ in rows]
        for v, on in enumerate(self.on):
            m.add_exactly_one(on.values())
            earliest = {q: max(0, self._ticks(head[v, q]) - 2) for q in on}
            self.start.append(m.new_int_var(0, TICKS, ""))
            self.end.append(m.new_int_var(min(earliest.values()), TICKS, ""))
            m.add(self.end[v] >= sum(earliest[q] * x for q, x in on.items()))
            m.add(self.goal >= self.end[v] + sum(max(0, self._ticks(tail[v, q]) - 2) * x for q, x in on.items()))
            m.add(self.end[v] == self.start[v] + sum(self._ticks(cost[v, q]) * x for q, x in on.items()))
            for q, x in on.items():
                ticks = self._ticks(cost[v, q])
                rows[q].append(m.new_optional_interval_var(self.start[v], ticks, self.end[v], x, ""))
                load[q].append(ticks * x)
        for row, work in zip(rows, load, strict=True):
            m.add_no_overlap(row)
            m.add(self.goal >= sum(work))

    def _waits(self) -> None:
        """An edge's wait is that of the pair of queues that its two tasks are on."""
        m = self.model
        for u, v, size in zip(*(a.tolist() for a in edges_of(self.tasks)), strict=True):
            seconds = seconds_of(self.tasks, size)
            pair = {(p, q): m.new_bool_var("") for p in self.on[u] for q in self.on[v]}
            for p, x in self.on[u].items():
                m.add(sum(pair[p, q] for q in self.on[v]) == x)
            for q, x in self.on[v].items():
                m.add(sum(pair[p, q] for p in self.on[u]) == x)
            m.add(self.start[v] >= self.end[u] + sum(self._ticks(seconds[p, q]) * z for (p, q), z in pair.items()))

    def hint(self, placed: Placed) -> None:
        """Start from a schedule within the limit."""
        for v, on in enumerate(self.on):
            for q, x in on.items():
                self.model.add_hint(x, int(placed.queue[v] == q))
            self.model.add_hint(self.start[v], self._ticks(placed.begin[v]))
            self.model.add_hint(self.end[v], self._ticks(placed.end[v]))

    def solve(self, budget: Budget, units: float) -> Answer:
        """Search for about ``units`` of the budget, and charge it."""
        from ortools.sat.python import cp_model

        from hetsched.partition.slots import deterministic_solver, solver_units

        if not self.possible:
            return Answer(None, INFINITE, True)
        solver = deterministic_solver(budget, units - model_units(self.model))
        if len(self.on) >= PORTFOLIO_TASKS:
            solver.parameters.interleave_search = True
        else:
            solver.parameters.linearization_level = 0
        status = solver.solve(self.model)
        budget.charge(model_units(self.model) + solver_units(solver))
        if status == cp_model.INFEASIBLE:
            return Answer(None, INFINITE, True)
        bound = max(0.0, solver.best_objective_bound) * self.tick
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Answer(None, bound, False)
        queue = np.array([next(q for q, x in on.items() if solver.boolean_value(x)) for on in self.on], np.int64)
        keys = [(solver.value(s), solver.value(e), v) for v, (s, e) in enumerate(zip(self.start, self.end, strict=True))]
        order = np.array([v for *_, v in sorted(keys)], np.int64)
        return Answer(placed_in_order(self.tasks, order, queue), bound, status == cp_model.OPTIMAL)
