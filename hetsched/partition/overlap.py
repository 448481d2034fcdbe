"""The least time of a block in which queues overlap.

Take the segments between two cuts: *E* holds the entry, *F* the exit. Everything in between waits for E's end, and F waits for
everything, so neither overlaps with another segment that holds an inner op. So there are two cases. Either the segments
wait for each other one after another: then the block costs what it costs serially (:mod:`hetsched.partition.phases`). Or
two of them on different queues do not wait for each other: then E ends, each of the two pays its own way from E and to F,
and F, a new segment, is launched at the end. This module bounds the second case: an op is in E (on the entry's queue), in
F (on the exit's), or between them on some queue; only what is between may overlap.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.partition.blocks import Block
from hetsched.partition.problem import Budget
from hetsched.partition.relaxed import Relaxed
from hetsched.partition.slots import deterministic_solver, model_units, solver_units
from hetsched.partition.twins import order_twins

INFINITE = float("inf")
TICKS = 1 << 20
ROUNDS = 40
#: An op in a role: its index and a queue for between, ``ENTRY`` or ``EXIT``.
Role: TypeAlias = tuple[int, int]
ENTRY, EXIT = -1, -2


@dataclass(frozen=True)
class Window:
    """A block between alternatives of its entry and exit (-1: start, end); ``tensors``: whose transfers it pays."""

    relaxed: Relaxed
    block: Block
    a: int
    b: int
    tensors: Collection[int] = ()

    @cached_property
    def entry(self) -> int:
        """Queue of the entry, -1 at the start."""
        return -1 if self.a < 0 else self.relaxed.c.queue[self.a]

    @cached_property
    def exit(self) -> int:
        """Queue of the exit, -1 at the end."""
        return -1 if self.b < 0 else self.relaxed.c.queue[self.b]

    @cached_property
    def times(self) -> npt.NDArray[np.float64]:
        """[q, n] least seconds of the inner ops per queue; infinite where one cannot run."""
        c = self.relaxed.c
        queues = range(c.queues)
        rows = [[min((c.time[x] for x in c.alts[v] if c.queue[x] == q), default=INFINITE) for v in self.block.inner] for q in queues]
        return np.array(rows)

    @cached_property
    def into(self) -> list[float]:
        """Per queue the least seconds from E's end to the work of a new segment, its launch included."""
        c, crossing = self.relaxed.c, self.relaxed.crossing
        return [c.launch[q] if self.entry in (-1, q) else crossing[self.entry][q] for q in range(c.queues)]

    @cached_property
    def out(self) -> list[float]:
        """Per queue the least seconds from a segment's end to F's start; at the end, until the host has seen a result."""
        c, crossing, queues = self.relaxed.c, self.relaxed.crossing, range(self.relaxed.c.queues)
        if self.exit >= 0:
            return [0.0 if q == self.exit else crossing[q][self.exit] - c.launch[self.exit] for q in queues]
        results = set(c.results)
        if not all(c.succs[v] or v in results for v in range(c.n)):
            return [0.0 for _ in queues]  # nobody waits for an op whose results are not read
        return [min(crossing[q][p] + c.sync[p][c.host] for p in queues) for q in queues]

    @cached_property
    def ways(self) -> list[float]:
        """Per queue the least seconds from E's end to F's start besides the work there: ways in and out, the launch."""
        return [x + y for x, y in zip(self.into, self.out, strict=True)]

    @property
    def after(self) -> float:
        """Seconds of F's launch and the exit itself."""
        return 0.0 if self.b < 0 else self.relaxed.c.launch[self.exit] + self.relaxed.c.time[self.b]

    def domains(self, queue: int, ops: Collection[int]) -> set[int]:
        """The domains that inner ops (their positions) may have on a queue."""
        c = self.relaxed.c
        return {c.domain[x] for k in ops for x in c.alts[self.block.inner[k]] if c.queue[x] == queue}

    def held(self, producer: int) -> dict[int, int]:
        """The domains that an op's results may be made in, each with the queue; before the block there is only one (and no queue)."""
        c = self.relaxed.c
        if producer not in self.block.inner:
            return {c.input_domain if producer < 0 else c.domain[self.a]: -1}
        found = {q: self.domains(q, range(len(self.block.inner))) for q in range(c.queues)}
        return {next(iter(d)): q for q, d in found.items() if len(d) == 1}

    def fractional(self, main: int = -1, segments: int = 0) -> float:
        """The bound if every op could be cut to pieces, whatever its predecessors.

        Args:
            main: a queue,
            segments: of which there are at least so many between E and F.
        """
        if len(self.block.inner) < 2:
            return INFINITE
        outside = [self.times[q] for q in (self.entry, self.exit) if q >= 0]
        free = np.min(outside, axis=0) if outside else np.full(len(self.block.inner), INFINITE)
        c = self.relaxed.c
        ways = [x + (c.launch[q] * (segments - 1) if q == main and segments else 0.0) for q, x in enumerate(self.ways)]
        chosen = [q for k in range(2, c.queues + 1) for q in combinations(range(c.queues), k) if not segments or main in q]
        return self.after + min((_shared(self.times[list(q)], np.array([ways[r] for r in q]), free) for q in chosen), default=INFINITE)


def _shared(times: npt.NDArray[np.float64], ways: npt.NDArray[np.float64], free: npt.NDArray[np.float64]) -> float:
    """Least of ``max over queues of (way + work)`` plus the work outside, for fractions of ops.

    Any weights of the queues that add up to one give a bound; they follow the load.
    """
    weight = np.full(len(ways), 1.0 / len(ways))
    best = float(ways.max())
    for _ in range(ROUNDS):
        cost = weight[:, None] * times  # weights stay positive, so that infinite times stay infinite
        queue = cost.argmin(axis=0)
        least = cost.min(axis=0)
        best = max(best, float(np.minimum(least, free).sum() + weight @ ways))
        inside = np.flatnonzero(least < free)
        load = ways + np.bincount(queue[inside], times[queue[inside], inside], len(ways))
        weight = weight * np.exp(0.3 * load / max(float(load.max()), 1e-30))
        weight /= weight.sum()
    return best * (1 - 1e-12)


class RoleModel:
    """CP-SAT over the roles of the inner ops, whole ones, with precedence between E, the middle and F, and transfers."""

    def __init__(self, window: Window, limit: float) -> None:
        """Build the model; times are rounded down to whole ticks of ``limit``, the most that is of interest."""
        from ortools.sat.python import cp_model

        self.w, self.c = window, window.relaxed.c
        self.tick = limit / TICKS
        self.model: Any = cp_model.CpModel()
        self.queues = range(self.c.queues)
        self.y: dict[Role, Any] = {}
        for k in range(len(window.block.inner)):
            roles = [(k, q) for q in self.queues if np.isfinite(window.times[q, k])]
            roles += [(k, r) for r, q in ((ENTRY, window.entry), (EXIT, window.exit)) if q >= 0 and np.isfinite(window.times[q, k])]
            self.y.update((role, self.model.new_bool_var("")) for role in roles)
            self.model.add_exactly_one(self.y[role] for role in roles)
        self._precedence()
        order_twins(self.model, window, self._codes)
        self.paid: dict[int, list[Any]] = {r: [] for r in (*self.queues, ENTRY, EXIT)}
        if window.relaxed.exclusive:
            self._transfers()
        self._goal()

    def _ticks(self, seconds: float) -> int:
        return min(int(seconds / self.tick), TICKS + 1)

    def _queue(self, role: int) -> int:
        return self.w.entry if role == ENTRY else self.w.exit if role == EXIT else role

    def _on(self, k: int, queue: int) -> list[Any]:
        """The roles of an op that are on a queue."""
        return [self.y[k, r] for r in (queue, ENTRY, EXIT) if (k, r) in self.y and self._queue(r) == queue]

    def _codes(self, v: int) -> dict[int, Any]:
        """The roles that an op may have, by number."""
        k = self.w.block.inner.index(v)
        return {r + 2: self.y[k, r] for r in (EXIT, ENTRY, *self.queues) if (k, r) in self.y}

    def _precedence(self) -> None:
        """What an op of E needs is in E; what needs an op of F is in F."""
        place = {v: k for k, v in enumerate(self.w.block.inner)}
        for v, k in place.items():
            for j in (place[u] for u in self.w.relaxed.preds[v] if u in place):
                for role, first, then in ((ENTRY, k, j), (EXIT, j, k)):
                    if (first, role) in self.y:
                        self.model.add_bool_or([self.y[first, role].negated(), *([self.y[then, role]] if (then, role) in self.y else [])])

    def _transfers(self) -> None:
        """Each tensor once per queue that reads it from another, in a role in which it is read."""
        c, block = self.c, self.w.block
        place = {v: k for k, v in enumerate(block.inner)}
        for t in sorted(self.w.tensors):
            readers = [place[v] for v in block.inner if t in c.inputs[v]]
            p = c.producer[t]
            held = {d: self._on(place[p], q) if q >= 0 else [1] for d, q in self.w.held(p).items()}
            for q in self.queues:
                uses = [k for k in readers if np.isfinite(self.w.times[q, k])]
                for d, made in held.items():
                    ticks = self._ticks(min((c.transfer[t][d][e] for e in self.w.domains(q, uses)), default=0.0))
                    if ticks and made:
                        self._charge(q, uses, sum(made), ticks)

    def _charge(self, queue: int, uses: list[int], made: Any, ticks: int) -> None:
        payers = []
        for role in (r for r in self.paid if self._queue(r) == queue):
            here = [self.y[k, role] for k in uses if (k, role) in self.y]
            if here:
                payer = self.model.new_bool_var("")
                self.model.add_bool_or([*here, payer.negated()])
                self.paid[role].append(ticks * payer)
                payers.append(payer)
        for k in uses:
            self.model.add(sum(payers) >= sum(self._on(k, queue)) + made - 1)

    def _goal(self) -> None:
        """What is in E and F one after another, and the longest queue between them; at least two queues are used there."""
        m = self.model
        self.goal, middle = m.new_int_var(0, TICKS, ""), m.new_int_var(0, TICKS, "")
        used, segments = [], self._segments()
        for q in self.queues:
            mine = [y for (_, role), y in self.y.items() if role == q]
            used.append(m.new_bool_var(""))
            m.add_bool_or([*mine, used[-1].negated()])
            for y in mine:
                m.add_implication(y, used[-1])
            more = self._ticks(self.c.launch[q]) * (segments[q] - used[-1]) if segments else 0
            m.add(middle >= self._ticks(self.w.ways[q]) * used[-1] + more + self._work(q))
            if segments:
                m.add(segments[q] >= used[-1])
                m.add(segments[q] <= sum(mine))
        m.add(sum(used) >= 2)
        m.add(self.goal >= self._ticks(self.w.after) + middle + self._work(ENTRY) + self._work(EXIT))
        m.minimize(self.goal)

    def _segments(self) -> list[Any]:
        """Per queue how many segments are between E and F: neighbours in the order are on different queues.

        Empty where ops were left out: such an op may be the segment that separates two others.
        """
        w = self.w
        if len(w.relaxed.ops) < self.c.n:
            return []
        segments = [self.model.new_int_var(0, len(w.block.inner), "") for _ in self.queues]
        ends = [(w.entry == q) + (w.exit == q) for q in self.queues]
        for q, own in enumerate(segments):
            self.model.add(2 * (own + ends[q]) <= sum(segments) + sum(ends) + 1)
        return segments

    def _work(self, role: int) -> Any:
        own = [self._ticks(self.w.times[self._queue(r), k]) * y for (k, r), y in self.y.items() if r == role]
        return sum(own) + sum(self.paid[role])

    def bound(self, budget: Budget, units: float) -> tuple[float, float]:
        """A proven least time in seconds (infinite: more than the limit), and the work done."""
        from ortools.sat.python import cp_model

        solver = deterministic_solver(budget, units - model_units(self.model))
        solver.parameters.linearization_level = 2  # nearly a linear program
        status = solver.solve(self.model)
        used = model_units(self.model) + solver_units(solver)
        return (INFINITE if status == cp_model.INFEASIBLE else max(0.0, float(solver.best_objective_bound)) * self.tick), used
