"""The least time of a block in which queues overlap, with the segments of its main queue one by one.

The *main* queue is the one that is fastest at most of the block's work. Say it has K segments between *E* and *F*
(:mod:`hetsched.partition.overlap` says what these are). Each waits for whatever feeds it and signals at its end. So an op on another
queue, between E and F, has a *span*: it starts after the last main segment that it needs anything from, and ends before the
first one that needs anything from it. All that a queue does within a span fits between the two segments. That is a model with few
variables besides the places of the ops; what it leaves out is when ops of the other queues wait for each other, so its
least value is a bound. More than ``MOST`` segments are bounded with fractions of ops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from hetsched.partition.overlap import Window
from hetsched.partition.problem import Budget
from hetsched.partition.slots import deterministic_solver, model_units

INFINITE = float("inf")
TICKS = 1 << 20
MOST = 3
"""Segments of the main queue that are modelled one by one."""
KEPT = 3
"""Answers of a model that are kept, the best ones."""
DETERMINISTIC_PER_UNIT = 0.5
"""CP-SAT's deterministic time in a second of one core on these models (measured on ten of them on a busy machine: 0.4 to 0.55)."""


class Role(NamedTuple):
    """A queue and a place in the sequence E 0, span 1, first main segment 2, span 3, ..., F 2K + 2.

    Main segments, E and F are one place; a span reaches from ``low`` to ``high``, both odd.
    """

    queue: int
    low: int
    high: int

    @property
    def spans(self) -> bool:
        """Whether it is between main segments instead of in one, in E or in F."""
        return self.low % 2 == 1


@dataclass(frozen=True)
class Staged:
    """A bound in seconds (infinite: above the limit), whether more work could raise it, what was found, the work done.

    ``placed`` are the roles of the block's inner ops in each answer that was kept; ops may be ordered by ``low``.
    """

    bound: float
    open: bool
    placed: tuple[tuple[Role, ...], ...]
    units: float


def main_queue(window: Window) -> int:
    """The queue that is fastest at most of the work."""
    fastest = window.times.argmin(axis=0)
    return int(np.bincount(fastest, window.times.min(axis=0), len(window.times)).argmax())


def staged(window: Window, known: float, limit: float, budget: Budget, units: float) -> Staged:
    """A bound on every plan of a block in which queues overlap.

    Args:
        window: the block.
        known: a proven bound in seconds.
        limit: the most seconds of interest.
        budget: for the wall clock; nothing is charged.
        units: how much work may be done.
    """
    main, bound, left, more = main_queue(window), limit, units, False
    placed: tuple[tuple[Role, ...], ...] = ()
    fractions = [max(known, window.fractional(main, k)) for k in range(MOST + 2)]
    for k, least in enumerate(fractions[:-1]):
        if least >= bound:
            break
        share = left if fractions[k + 1] >= bound else left / 2
        found = StageModel(window, main, k, least, bound).solve(budget, share)
        left -= found.units
        placed += found.placed
        if found.bound < bound:
            bound, more = found.bound, found.open
        if bound <= known * (1 + 1e-9) or left <= 0:
            return Staged(min(bound, known), True, placed, units - left)
    else:
        bound = min(bound, fractions[-1])
    return Staged(INFINITE if bound >= limit else bound, more, placed, units - left)


class StageModel:
    """CP-SAT over the roles of the inner ops, with a given number of segments of the main queue between E and F."""

    def __init__(self, window: Window, main: int, stages: int, known: float, limit: float) -> None:
        """Build the model; ``known`` and ``limit`` are seconds between which the least time is sought, rounded down to ticks."""
        from ortools.sat.python import cp_model

        self.w, self.c, self.main, self.stages = window, window.relaxed.c, main, stages
        self.known, self.tick = known, limit / TICKS
        self.model: Any = cp_model.CpModel()
        self.goal = self.model.new_int_var(self._ticks(known), TICKS, "")
        self.place = {v: k for k, v in enumerate(window.block.inner)}
        self.entry, self.exit = Role(window.entry, 0, 0), Role(window.exit, 2 * stages + 2, 2 * stages + 2)
        spans = [(2 * i + 1, 2 * j - 1) for i, j in combinations(range(stages + 2), 2)]
        others = [q for q in range(self.c.queues) if q != main]
        self.roles = [r for r in (self.entry, self.exit) if r.queue >= 0]
        self.roles += [Role(main, 2 * k, 2 * k) for k in range(1, stages + 1)]
        self.roles += [Role(q, *span) for q in others for span in spans]
        self._choose()
        self._precedence()
        self.paid: dict[Role, list[Any]] = {r: [] for r in self.roles}
        if window.relaxed.exclusive:
            self._transfers()
        self._times(others)
        self._overlap(others)
        self.model.minimize(self.goal)

    def _ticks(self, seconds: float) -> int:
        return min(int(seconds / self.tick), TICKS + 1)

    def _any(self, some: list[Any]) -> Any:
        """A literal that is 1 if any of some literals is."""
        found = self.model.new_bool_var("")
        self.model.add_max_equality(found, [*some, 0])
        return found

    def _choose(self) -> None:
        """``y[k, role]``: the role of each inner op; ``used[role]``: whether any has it."""
        times = self.w.times
        self.y: dict[tuple[int, Role], Any] = {}
        for k in self.place.values():
            own = {(k, r): self.model.new_bool_var("") for r in self.roles if np.isfinite(times[r.queue, k])}
            self.model.add_exactly_one(own.values())
            self.y.update(own)
        self.used = {r: self._any([y for (_, s), y in self.y.items() if s == r]) for r in self.roles}
        for k in range(1, self.stages + 1):
            self.model.add(self.used[Role(self.main, 2 * k, 2 * k)] == 1)

    def _precedence(self) -> None:
        """What an op needs begins no later than the op's own place, and ends no later."""
        for v, k in self.place.items():
            for j in (self.place[u] for u in self.w.relaxed.preds[v] if u in self.place):
                for at in range(1, self.exit.low + 1):
                    self.model.add(sum(self._beyond(j, 1, at)) <= sum(self._beyond(k, 1, at)))
                    self.model.add(sum(self._beyond(j, 2, at)) <= sum(self._beyond(k, 2, at)))

    def _beyond(self, k: int, end: int, at: int) -> list[Any]:
        return [self.y[k, r] for r in self.roles if r[end] >= at and (k, r) in self.y]

    def _transfers(self) -> None:
        """Each tensor once per queue that reads it from another, in a role in which it is read."""
        c, w = self.c, self.w
        for t in sorted(w.tensors):
            p, readers = c.producer[t], [k for v, k in self.place.items() if t in c.inputs[v]]
            for q in range(c.queues):
                uses = [k for k in readers if np.isfinite(w.times[q, k])]
                for d, source in w.held(p).items():
                    made = self._on(self.place[p], source) if source >= 0 else [1]
                    ticks = self._ticks(min((c.transfer[t][d][e] for e in w.domains(q, uses)), default=0.0))
                    if ticks and made:
                        self._charge(q, uses, sum(made), ticks)

    def _on(self, k: int, queue: int) -> list[Any]:
        return [self.y[k, r] for r in self.roles if r.queue == queue and (k, r) in self.y]

    def _charge(self, queue: int, uses: list[int], made: Any, ticks: int) -> None:
        payers = []
        for role in (r for r in self.roles if r.queue == queue):
            here = [self.y[k, role] for k in uses if (k, role) in self.y]
            if here:
                payers.append(self.model.new_bool_var(""))
                self.model.add(sum(here) >= payers[-1])
                self.paid[role].append(ticks * payers[-1])
        for k in uses:
            self.model.add(sum(payers) >= sum(self._on(k, queue)) + made - 1)

    def _work(self, role: Role) -> Any:
        if role not in self.paid:
            return 0
        own = [self._ticks(self.w.times[role.queue, k]) * y for (k, r), y in self.y.items() if r == role]
        return sum(own) + sum(self.paid[role])

    def _times(self, others: list[int]) -> None:
        """Starts and ends of E, the main segments and F; what other queues do within a span lies between two of them."""
        m, c, stages = self.model, self.c, range(1, self.stages + 1)
        start = {k: m.new_int_var(0, TICKS, "") for k in (*stages, self.stages + 1)}
        end = {k: m.new_int_var(0, TICKS, "") for k in (0, *stages)}
        m.add(end[0] >= self._work(self.entry))
        for k in stages:
            into = self._into(0, self.main) if k == 1 else c.launch[self.main]
            m.add(start[k] >= end[k - 1] + self._ticks(into - c.launch[self.main]))
            m.add(end[k] >= start[k] + self._ticks(c.launch[self.main]) + self._work(Role(self.main, 2 * k, 2 * k)))
        last = end[self.stages] + (self._ticks(self._out(self.stages + 1, self.main)) if stages else 0)
        m.add(start[self.stages + 1] >= last)
        for q in others:
            for i, j in combinations((*end, self.stages + 1), 2):
                inside = [r for r in self.roles if r.spans and r.queue == q and 2 * i < r.low and r.high < 2 * j]
                ways = self._ticks(self._into(i, q) + self._out(j, q)) * self._any([self.used[r] for r in inside])
                m.add(start[j] >= end[i] + ways + sum(self._work(r) for r in inside))
        m.add(self.goal >= start[self.stages + 1] + self._ticks(self.w.after) + self._work(self.exit))

    def _into(self, stage: int, queue: int) -> float:
        """Least seconds from the end of E (0) or a main segment to the work of a new segment, its launch included."""
        return self.w.into[queue] if stage == 0 else self.w.relaxed.crossing[self.main][queue]

    def _out(self, stage: int, queue: int) -> float:
        """Least seconds from the end of a segment to the start of a main segment or (the last) of F."""
        if stage > self.stages:
            return self.w.out[queue]
        return self.w.relaxed.crossing[queue][self.main] - self.c.launch[self.main]

    def _overlap(self, others: list[int]) -> None:
        """Two segments on different queues do not wait for each other: one beside a main segment, or both on other queues."""
        beside = [self.used[r] for r in self.roles if r.spans and r.high > r.low]
        several = self.model.new_bool_var("")
        away = [self._any([self.used[r] for r in self.roles if r.spans and r.queue == q]) for q in others]
        self.model.add(sum(away) >= 2 * several)
        self.model.add_bool_or([*beside, several])

    def solve(self, budget: Budget, units: float) -> Staged:
        """Search for about ``units`` of work."""
        from ortools.sat.python import cp_model

        solver = deterministic_solver(budget, 0.0)
        built = model_units(self.model)
        solver.parameters.max_deterministic_time = max(1e-3, units - built) * DETERMINISTIC_PER_UNIT
        answers: list[tuple[Role, ...]] = []

        class Keep(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(callback) -> None:  # noqa: N805
                answers.append(self._placed(callback.boolean_value))

        status = solver.solve(self.model, Keep())
        used = built + float(solver.response_proto.deterministic_time) / DETERMINISTIC_PER_UNIT
        if status == cp_model.INFEASIBLE:
            return Staged(INFINITE, False, (), used)
        bound = max(self.known, float(solver.best_objective_bound) * self.tick)
        return Staged(bound, status != cp_model.OPTIMAL, tuple(answers[-KEPT:]), used)

    def _placed(self, chosen: Callable[[Any], bool]) -> tuple[Role, ...]:
        role = {k: r for (k, r), y in self.y.items() if chosen(y)}
        return tuple(role[k] for k in range(len(role)))
