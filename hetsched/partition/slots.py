"""The slot model: the segment rule itself as a CP-SAT model.

Slots are the segments in global order. Every op goes to one slot with one alternative; neighbouring slots are on
different queues, so slots are exactly the maximal runs of some order, and the order inside a slot does not matter.
Durations are rounded down to whole ticks, so that a bound of the model is a bound of the problem. With as many slots
as ops the model holds every placement and every order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hetsched.partition.limits import UNLIMITED, Limits
from hetsched.partition.problem import Budget
from hetsched.partition.timing import Costs

TICKS = 1 << 22
"""Ticks in the incumbent's objective. With 2^30, CP-SAT 9.15's presolve overflows and calls wrong answers optimal."""


DETERMINISTIC_PER_UNIT = 0.13
"""CP-SAT's deterministic time in a second of one core on these models, once the two charges below are taken off."""
PER_MODEL = 0.015
PER_CONSTRAINT = 3e-5
"""Units to build and presolve a model. All three are fitted to 339 solves of real and random graphs (39 s in all)."""


@dataclass(frozen=True)
class Neighbourhood:
    """Per op the slots and the alternatives that it may take."""

    windows: Sequence[Sequence[int]]
    alts: Sequence[Sequence[int]]


@dataclass(frozen=True)
class SlotAnswer:
    """``placed`` is (order, alternative) or None; ``bound`` is for this model, in the objective's unit."""

    placed: tuple[list[int], list[int]] | None
    bound: float
    proven: bool


class SlotModel:
    """CP-SAT model of a problem with a given number of slots."""

    def __init__(
        self, c: Costs, objective: str, slots: int, incumbent: float, part: Neighbourhood | None = None, limits: Limits = UNLIMITED
    ) -> None:
        """Build the model.

        Args:
            c: the costs.
            objective: latency, energy or period.
            slots: number of slots.
            incumbent: a known objective; the model looks for one that is no worse.
            part: which slots and alternatives each op may take (None: all). Then slots may also stay empty, so that a
                plan may have equal neighbours and must be timed again.
            limits: on latency, energy and loss, rounded so that no plan within them is lost; a limit on power is left out.
        """
        from ortools.sat.python import cp_model

        self.c, self.objective, self.slots = c, objective, slots
        self.model: Any = cp_model.CpModel()
        self.limit = TICKS + 4 * c.n + 8
        self.windows = part.windows if part else [range(slots)] * c.n
        self.alts = part.alts if part else c.alts
        self.contiguous = part is None
        self.used = 0.0
        self._place()
        self._transfers()
        for figure, most in (("latency", limits.latency_s), ("energy", limits.energy_j)):
            if most is not None:
                self.tick = most / TICKS
                self.model.add(self._measure(figure) <= TICKS)
        if limits.loss is not None and c.loss:
            self.tick = max(limits.loss, 1e-12) / TICKS
            self.model.add(sum(self._ticks(c.loss[a]) * z for (_, a, _), z in self.z.items()) <= TICKS)
        self.tick = incumbent / TICKS
        self.goal = self._measure(objective)
        self.model.minimize(self.goal)

    def _measure(self, figure: str) -> Any:
        """A variable that is at least the latency, the energy or the period, in ticks."""
        if figure == "energy":
            return self._energy()
        self._durations()
        return self._period() if figure == "period" else self._latency()

    def _ticks(self, value: float) -> int:
        return min(int(value / self.tick), self.limit + 1)

    def _bool(self) -> Any:
        return self.model.new_bool_var("")

    def _place(self) -> None:
        """Ops to slots and alternatives; slots to queues; precedence."""
        m, c, K = self.model, self.c, range(self.slots)
        self.queue = [[self._bool() for _ in range(c.queues)] for _ in K]
        self.z = {(i, a, k): self._bool() for i in range(c.n) for a in self.alts[i] for k in self.windows[i]}
        self.y: list[dict[int, Any]] = []
        self.x: dict[int, Any] = {}
        for i in range(c.n):
            m.add_exactly_one(self.z[i, a, k] for a in self.alts[i] for k in self.windows[i])
            self.y.append({k: sum(self.z[i, a, k] for a in self.alts[i]) for k in self.windows[i]})
            for a in self.alts[i]:
                self.x[a] = sum(self.z[i, a, k] for k in self.windows[i])
        for (_, a, k), z in self.z.items():
            m.add_implication(z, self.queue[k][c.queue[a]])
        for k in K:
            m.add_at_most_one(self.queue[k])
            for q in range(c.queues):
                inside = [z for (_, a, s), z in self.z.items() if s == k and c.queue[a] == q]
                m.add_bool_or([*inside, self.queue[k][q].negated()])
                if k:
                    m.add_at_most_one([self.queue[k][q], self.queue[k - 1][q]])
            if k and self.contiguous:
                m.add(sum(self.queue[k]) <= sum(self.queue[k - 1]))
        for v in range(c.n):
            for u in c.preds[v]:
                for k in range(min(self.windows[v]), max(self.windows[u])):
                    before_u = sum(e for s, e in self.y[u].items() if s <= k)
                    m.add(sum(e for s, e in self.y[v].items() if s <= k) <= before_u)

    def _transfers(self) -> None:
        """``first[t, s, d]``: per slot, whether it is the first to read tensor t, held in domain s, in domain d."""
        m, c = self.model, self.c
        readers: dict[tuple[int, int], list[tuple[int, list[int]]]] = {}
        for i, row in enumerate(c.inputs):
            for d in sorted({c.domain[a] for a in self.alts[i]}):
                for t in row:
                    readers.setdefault((t, d), []).append((i, [a for a in self.alts[i] if c.domain[a] == d]))
        self.first: dict[tuple[int, int, int], list[Any]] = {}
        for (t, d), rows in readers.items():
            p = c.producer[t]
            sources = [c.input_domain] if p < 0 else sorted({c.domain[a] for a in self.alts[p]})
            paid = [s for s in sources if c.transfer[t][s][d] > 0 and (p < 0 or s != d)]
            if not paid:
                continue
            arrives = self._arrivals(rows)
            for s in paid:
                held = 1 if p < 0 else sum(self.x[a] for a in self.alts[p] if c.domain[a] == s)
                charge = []
                for e in arrives:
                    g = self._bool()
                    m.add(g >= e + held - 1)
                    charge.append(g)
                self.first[t, s, d] = charge

    def _arrivals(self, rows: list[tuple[int, list[int]]]) -> list[Any]:
        """Per slot an expression that is 1 in the first slot where any of the ops uses any of its alternatives."""
        m, out, before = self.model, [], 0
        for k in range(self.slots):
            here = [sum(self.z[i, a, k] for a in alts) for i, alts in rows if k in self.y[i]]
            upto = self._bool()
            m.add(upto >= before)
            m.add(upto <= before + sum(here))
            for e in here:
                m.add(upto >= e)
            out.append(upto - before)
            before = upto
        return out

    def _durations(self) -> None:
        m, c = self.model, self.c
        self.start = [m.new_int_var(0, self.limit, "") for _ in range(self.slots)]
        self.end = [m.new_int_var(0, self.limit, "") for _ in range(self.slots)]
        self.length: list[Any] = []
        for k in range(self.slots):
            terms = [self._ticks(c.launch[q]) * self.queue[k][q] for q in range(c.queues)]
            terms += [self._ticks(c.time[a]) * z for (_, a, s), z in self.z.items() if s == k]
            terms += [self._ticks(c.transfer[t][s][d]) * row[k] for (t, s, d), row in self.first.items()]
            self.length.append(sum(terms))
            m.add(self.end[k] >= self.start[k] + self.length[k])

    def _latency(self) -> Any:
        """Slots wait for their queue and for the slots that feed them; the host sees the outputs."""
        m, c, K = self.model, self.c, range(self.slots)
        edges = [(u, v) for v in range(c.n) for u in c.preds[v]]
        goal = m.new_int_var(0, self.limit, "")
        for k in K:
            for j in range(k):
                between = [(u, v) for u, v in edges if j in self.y[u] and k in self.y[v]]
                feeds = self._bool()
                for u, v in between:
                    m.add(feeds >= self.y[u][j] + self.y[v][k] - 1)
                for q in range(c.queues):
                    m.add(self.start[k] >= self.end[j]).only_enforce_if(self.queue[j][q], self.queue[k][q])
                    for r in range(c.queues):
                        if q != r and between:
                            wait = m.add(self.start[k] >= self.end[j] + self._ticks(c.sync[q][r]))
                            wait.only_enforce_if(feeds, self.queue[j][q], self.queue[k][r])
            m.add(goal >= self.end[k])
            result = self._bool()
            for i in c.results:
                if k in self.y[i]:
                    m.add(result >= self.y[i][k])
            for q in range(c.queues):
                m.add(goal >= self.end[k] + self._ticks(c.sync[q][c.host])).only_enforce_if(result, self.queue[k][q])
        return goal

    def _period(self) -> Any:
        m, c = self.model, self.c
        goal = m.new_int_var(0, self.limit, "")
        for q in range(c.queues):
            busy = [m.new_int_var(0, self.limit, "") for _ in range(self.slots)]
            for k in range(self.slots):
                m.add(busy[k] >= self.length[k]).only_enforce_if(self.queue[k][q])
            m.add(goal >= sum(busy))
        return goal

    def _energy(self) -> Any:
        m, c, K = self.model, self.c, range(self.slots)
        terms = [self._ticks(c.energy[a]) * z for (_, a, _), z in self.z.items()]
        terms += [self._ticks(c.transfer_j[t][s][d]) * g for (t, s, d), row in self.first.items() for g in row]
        for k in K:
            for q in range(c.queues):
                terms.append(self._ticks(c.launch_j[q]) * self.queue[k][q])
                followers = self.queue[k + 1] if k + 1 < self.slots else []
                ends = [*((r, c.sync_j[q][r], b) for r, b in enumerate(followers) if r != q), (-1, c.sync_j[q][c.host], None)]
                for _, joules, b in ends:
                    g = self._bool()
                    if b is None:
                        m.add(g >= self.queue[k][q] - sum(followers))
                    else:
                        m.add(g >= self.queue[k][q] + b - 1)
                    terms.append(self._ticks(joules) * g)
        goal = m.new_int_var(0, self.limit, "")
        m.add(goal >= sum(terms))
        return goal

    def hint(self, order: Sequence[int], alternative: Sequence[int]) -> None:
        """Start from a placement whose segments fit the slots."""
        slot, previous = -1, -1
        where: dict[int, int] = {}
        for op in order:
            q = self.c.queue[alternative[op]]
            slot, previous = slot + (q != previous), q
            where[op] = slot
        for (i, a, k), z in self.z.items():
            self.model.add_hint(z, int(where[i] == k and alternative[i] == a))

    def solve(self, budget: Budget, units: float) -> SlotAnswer:
        """Search for about ``units`` of work, building the model included; ``used`` says how much it was."""
        from ortools.sat.python import cp_model

        solver = deterministic_solver(budget, units - model_units(self.model))
        status = solver.solve(self.model)
        self.used = model_units(self.model) + solver_units(solver)
        budget.charge(self.used)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return SlotAnswer(None, self.limit * self.tick if status == cp_model.INFEASIBLE else 0.0, status == cp_model.INFEASIBLE)
        chosen = {i: (k, a) for (i, a, k), z in self.z.items() if solver.boolean_value(z)}
        order = sorted(range(self.c.n), key=lambda i: (chosen[i][0], i))
        alternative = [chosen[i][1] for i in range(self.c.n)]
        return SlotAnswer((order, alternative), max(0.0, solver.best_objective_bound) * self.tick, status == cp_model.OPTIMAL)


def deterministic_solver(budget: Budget, units: float) -> Any:
    """CP-SAT that gives the same answer on every run, unless the wall clock stops it."""
    from ortools.sat.python import cp_model

    solver: Any = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = max(1e-3, units) * DETERMINISTIC_PER_UNIT
    solver.parameters.max_time_in_seconds = max(0.01, budget.left_s())
    return solver


def model_units(model: Any) -> float:
    """What building and presolving a model costs, in units of the budget."""
    return PER_MODEL + PER_CONSTRAINT * len(model.proto.constraints)


def solver_units(solver: Any) -> float:
    """What a finished search has cost, in units of the budget."""
    return float(solver.response_proto.deterministic_time) / DETERMINISTIC_PER_UNIT
