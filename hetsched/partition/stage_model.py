"""A block with a given number of segments of its main queue, as a CP-SAT model; what other queues do is bounded.

Between *E* and *F* (:mod:`hetsched.partition.overlap` says what these are) the segments of the main queue come one by one. Each waits
for whatever feeds it and signals at its end. So a segment of another queue has a *span*: it starts after the last main segment
that it needs anything from, and ends before the first one that needs anything from it. All that a queue does within a span fits
between the two segments, with a launch for every segment. Segments of other queues wait for each other as their ops do, one
op at a time where a queue has several segments with the same span, as wholes where it has one. Neighbours in the order
are on different queues, so there is some segment between two main ones that follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from hetsched.partition.overlap import Window
from hetsched.partition.problem import Budget
from hetsched.partition.slots import deterministic_solver, model_units

INFINITE = float("inf")
TICKS = 1 << 20
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

    @property
    def after(self) -> int:
        """The main segment (E: 0) that a span comes after."""
        return (self.low - 1) // 2

    @property
    def before(self) -> int:
        """The main segment (F: K + 1) that a span comes before."""
        return (self.high + 1) // 2


class Spot(NamedTuple):
    """The queue of an op in an answer, and a number by which segments may be ordered."""

    queue: int
    stage: float


class Staged(NamedTuple):
    """A bound in seconds (infinite: above the limit), whether more work could raise it, the spots of inner ops, the work done."""

    bound: float
    open: bool
    placed: tuple[tuple[Spot, ...], ...]
    units: float


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
        self.inner = range(len(self.place))
        self.entry, self.exit = Role(window.entry, 0, 0), Role(window.exit, 2 * stages + 2, 2 * stages + 2)
        spans = [(2 * i + 1, 2 * j - 1) for i, j in combinations(range(stages + 2), 2)]
        others = [q for q in range(self.c.queues) if q != main]
        self.complete = len(window.relaxed.ops) == self.c.n
        self.roles = [r for r in (self.entry, self.exit) if r.queue >= 0]
        self.roles += [Role(main, 2 * k, 2 * k) for k in range(1, stages + 1)]
        self.roles += [Role(q, *span) for q in others for span in spans]
        self._choose()
        self._precedence()
        self.paid: dict[Role, list[Any]] = {r: [] for r in self.roles}
        if window.relaxed.exclusive:
            self._transfers()
        self._segments()
        self.whole: dict[Role, tuple[Any, Any]] = {}
        self._times(others)
        self._paths(others)
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
        self.y: dict[tuple[int, Role], Any] = {}
        through = self.w.through
        for k in self.inner:
            own = {(k, r): self.model.new_bool_var("") for r in self.roles if through[r.queue, k] <= TICKS * self.tick}
            self.model.add_exactly_one(own.values())
            self.y.update(own)
        self.used = {r: self._any([y for (_, s), y in self.y.items() if s == r]) for r in self.roles}
        if self.exit.queue >= 0:
            self.y[len(self.inner), self.exit] = 1
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
            p, readers = c.producer[t], w.readers(t)
            for q in range(c.queues):
                uses = [k for k in readers if w.domains(q, [k])]
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
        own = [self._ticks(self.w.times[role.queue, k]) * y for (k, r), y in self.y.items() if r == role and k in self.inner]
        return sum(own) + sum(self.paid[role])

    def _segments(self) -> None:
        """``segments[role]``: how many there are; something is between main segments, because neighbours are on different queues."""
        m = self.model
        self.segments = {r: m.new_int_var(0, len(self.inner), "") for r in self.roles if r.spans}
        for r, n in self.segments.items():
            m.add(n >= self.used[r])
            m.add(n <= sum(y for (_, s), y in self.y.items() if s == r))
        if not self.complete:
            return  # what was left out may be between two segments
        gaps = range(int(self.entry.queue != self.main), self.stages + int(self.exit.queue == self.main))
        for first in gaps:
            for last in range(first, gaps.stop):
                reaching = [n for r, n in self.segments.items() if r.low <= 2 * last + 1 and r.high >= 2 * first + 1]
                m.add(sum(reaching) >= last - first + 1)

    def _times(self, others: list[int]) -> None:
        """Starts and ends of E, the main segments and F; what other queues do within a span lies between two of them."""
        m, c, stages = self.model, self.c, range(1, self.stages + 1)
        start = self.start = {k: m.new_int_var(0, TICKS, "") for k in (*stages, self.stages + 1)}
        end = self.end = {k: m.new_int_var(0, TICKS, "") for k in (0, *stages)}
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
                ways = self._ticks(max(0.0, self._into(i, q) + self._out(j, q) - c.launch[q])) * self._any([self.used[r] for r in inside])
                launches = self._ticks(c.launch[q]) * sum(self.segments[r] for r in inside)
                m.add(start[j] >= end[i] + ways + launches + sum(self._work(r) for r in inside))
        m.add(self.goal >= start[self.stages + 1] + self._ticks(self.w.after) + self._work(self.exit))

    def _into(self, stage: int, queue: int) -> float:
        """Least seconds from the end of E (0) or a main segment to the work of a new segment, its launch included."""
        return self.w.into[queue] if stage == 0 else self.w.relaxed.crossing[self.main][queue]

    def _out(self, stage: int, queue: int) -> float:
        """Least seconds from the end of a segment to the start of a main segment or (the last) of F."""
        if stage > self.stages:
            return self.w.out[queue]
        return self.w.relaxed.crossing[queue][self.main] - self.c.launch[self.main]

    def _paths(self, others: list[int]) -> None:
        """When the segment of an op in a span opens and closes, and when the op ends: after all that it needs."""
        m, c, w = self.model, self.c, self.w
        self.done, self.opens, self.closes = ([m.new_int_var(0, TICKS, "") for _ in self.inner] for _ in range(3))
        self.on = dict[tuple[int, int], Any]()
        for k in self.inner:
            m.add(self.closes[k] >= self.done[k])
            for q in (q for q in others if w.through[q, k] <= TICKS * self.tick):
                on = self.on[k, q] = m.new_bool_var("")
                m.add(on == sum(y for (i, r), y in self.y.items() if i == k and r.spans and r.queue == q))
                m.add(self.done[k] >= self.opens[k] + self._ticks(c.launch[q]) + self._ticks(w.times[q, k])).only_enforce_if(on)
        for (k, r), y in self.y.items():
            if r.spans:
                m.add(self.opens[k] >= self.end[r.after] + self._ticks(self._into(r.after, r.queue) - c.launch[r.queue])).only_enforce_if(y)
                m.add(self.start[r.before] >= self.closes[k] + self._ticks(self._out(r.before, r.queue))).only_enforce_if(y)
        for v, k in self.place.items():
            for u, matrix in w.relaxed.preds[v].items():
                if u in self.place:
                    self._path(self.place[u], k, w.waits(u, v, matrix))
        for q in others:
            m.add_no_overlap(self._whole(r) for r in self.segments if r.queue == q)

    def _path(self, j: int, k: int, waits: Mapping[tuple[int, int], float]) -> None:
        """An op ends after one that it needs, with a sync, a launch and transfers between if that is elsewhere.

        What was left out may run between the two in the segment of either, so then the first need not have signalled.
        """
        m, c = self.model, self.c
        for (p, q), wait in waits.items():
            if (j, p) in self.on and (k, q) in self.on:
                both, own = (self.on[j, p], self.on[k, q]), self._ticks(wait) + self._ticks(self.w.times[q, k])
                m.add(self.done[k] >= (self.closes[j] if p != q and self.complete else self.done[j]) + own).only_enforce_if(*both)
                if p != q:
                    m.add(self.opens[k] >= self.closes[j] + self._ticks(self.w.relaxed.crossing[p][q] - c.launch[q])).only_enforce_if(*both)

    def _whole(self, role: Role) -> Any:
        """The only segment of a role, if it has one: it opens after all that its ops need, and all of them end with it."""
        m, single = self.model, self.model.new_bool_var("")
        m.add_implication(single, self.used[role])
        m.add(self.segments[role] == 1).only_enforce_if(single)
        m.add(self.segments[role] >= 2).only_enforce_if(self.used[role], single.negated())
        begin, end, length = (m.new_int_var(0, TICKS, "") for _ in range(3))
        m.add(length >= self._ticks(self.c.launch[role.queue]) + self._work(role)).only_enforce_if(single)
        self.whole[role] = single, begin
        for k in (k for k in self.inner if (k, role) in self.y):
            m.add(begin >= self.opens[k]).only_enforce_if(single, self.y[k, role])
            m.add(self.closes[k] >= end).only_enforce_if(single, self.y[k, role])
        return m.new_optional_interval_var(begin, length, end, single, "")

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
        solver.parameters.max_deterministic_time = max(1e-3, units - model_units(self.model)) * DETERMINISTIC_PER_UNIT
        answers: list[tuple[Spot, ...]] = []

        class Keep(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(callback) -> None:  # noqa: N805
                answers.append(self._placed(callback.value))

        status = solver.solve(self.model, Keep())
        used = model_units(self.model) + float(solver.response_proto.deterministic_time) / DETERMINISTIC_PER_UNIT
        if status == cp_model.INFEASIBLE:
            return Staged(INFINITE, False, (), used)
        bound = max(self.known, float(solver.best_objective_bound) * self.tick)
        return Staged(bound, status != cp_model.OPTIMAL, tuple(answers[-KEPT:]), used)

    def _placed(self, chosen: Callable[[Any], int]) -> tuple[Spot, ...]:
        """Spots of the inner ops: what may come early does, and is ordered by when its segment begins."""
        found: dict[int, Spot] = {}
        for (k, r), y in self.y.items():
            if k in self.inner and chosen(y):
                single, begin = self.whole.get(r, (0, 0))
                opens = 0 if not r.spans else chosen(begin if chosen(single) else self.opens[k])
                found[k] = Spot(r.queue, r.low + opens / (TICKS + 2))
        return tuple(found[k] for k in self.inner)
