"""The least time of a block in which queues overlap, by how many ops of each class are where.

The variables are numbers of ops of a class (:mod:`hetsched.partition.alike`) in a *place*, so that heads of an attention, which any
plan may exchange, make a model no larger than one head does. All rules are sums of rules that hold of single ops, so the least
value is a bound. Here the places are E, F (:mod:`hetsched.partition.overlap` says what these are) and one between them for each queue;
:mod:`hetsched.partition.sequences` has segments one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from hetsched.partition.alike import Classes, Moved
from hetsched.partition.overlap import INFINITE, Window
from hetsched.partition.problem import Budget
from hetsched.partition.slots import deterministic_solver, model_units

TICKS = 1 << 20
DETERMINISTIC_PER_UNIT = 0.35
"""CP-SAT's deterministic time in a second of one core on these models (measured on 20 of them on a busy machine: 0.25 to 0.45)."""


class Place(NamedTuple):
    """A queue and a number that grows in the order of the segments; E is 0, F the last."""

    queue: int
    at: int


#: Per pair of classes how many arcs go from which place to which.
Flows: TypeAlias = Mapping[tuple[int, int], Mapping[tuple[Place, Place], int]]


@dataclass(frozen=True)
class Placed:
    """Per class how many ops are in which place; arcs between places, as far as the model has them."""

    counts: tuple[Mapping[Place, int], ...]
    flows: Flows


@dataclass(frozen=True)
class Counted:
    """A bound in seconds (infinite: above the limit), whether more work could raise it, answers found, the work done."""

    bound: float
    open: bool
    placed: tuple[Placed, ...]
    units: float


class CountModel(ABC):
    """CP-SAT over how many ops of each class are in each place."""

    def __init__(self, window: Window, classes: Classes, middle: Sequence[Place], known: float, limit: float) -> None:
        """Build the model.

        Args:
            window: the block.
            classes: its classes.
            middle: the places between E and F.
            known: a bound in seconds from which the least time is sought.
            limit: the most seconds of interest; times are rounded down to its ticks.
        """
        from ortools.sat.python import cp_model

        self.w, self.c, self.classes, self.rows = window, window.relaxed.c, classes, classes.rows
        self.known, self.tick = known, limit / TICKS
        self.model: Any = cp_model.CpModel()
        self.goal = self.model.new_int_var(min(TICKS, self._ticks(known)), TICKS, "")
        self.entry, self.exit = Place(window.entry, 0), Place(window.exit, max((p.at for p in middle), default=0) + 1)
        self.middle = list(middle)
        self.flows: dict[tuple[int, int], dict[tuple[Place, Place], Any]] = {}
        self.brought: dict[tuple[int, int], list[dict[tuple[int, Place], Any]]] = {}
        """Per pair of classes, if every arc between them is the only reader of a tensor: per queue and place how many are brought."""
        self.places = [p for p in (self.entry, *middle, self.exit) if p.queue >= 0]
        self._choose()
        self._precedence()
        self.paid: dict[Place, list[Any]] = {p: [] for p in self.places}
        if window.relaxed.exclusive:
            for moved in classes.moved:
                self._transfers(moved)
        self._times()
        self.model.minimize(self.goal)

    @abstractmethod
    def _times(self) -> None:
        """The goal is at least the seconds from the entry's end to the exit's."""

    def _ticks(self, seconds: float) -> int:
        return min(int(seconds / self.tick), TICKS + 1)

    def _any(self, some: Sequence[tuple[Any, int]]) -> Any:
        """A literal that is 1 if any of some numbers, each with its maximum, is above 0, and only then."""
        found = self.model.new_bool_var("")
        for x, most in some:
            self.model.add(x <= most * found)
        self.model.add(sum(x for x, _ in some) >= found)
        return found

    def _choose(self) -> None:
        """``x[i, place]``: how many ops of class i are there; ``used[place]``: whether any op is."""
        self.seconds = [[float(t) for t in self.w.times[:, self.classes.position[row[0]]]] for row in self.rows]
        self.x: dict[tuple[int, Place], Any] = {}
        for i, row in enumerate(self.rows):
            own = {(i, p): self.model.new_int_var(0, len(row), "") for p in self.places if self.seconds[i][p.queue] < INFINITE}
            self.model.add(sum(own.values()) == len(row))
            self.x.update(own)
        self.used = {p: self._any([(x, len(self.rows[i])) for (i, s), x in self.x.items() if s == p]) for p in self.middle}

    def _precedence(self) -> None:
        """Along an arc, places come no earlier."""
        for (i, j), (out, into) in self.classes.arcs.items():
            for at in range(1, self.exit.at + 1):
                first, then = (sum(x for (k, p), x in self.x.items() if k == n and p.at >= at) for n in (i, j))
                self.model.add(out * first <= into * then)

    def _transfers(self, moved: Moved) -> None:
        """What is read on a queue where it was not made is brought there once, in a place in which it is read."""
        for q in range(self.c.queues):
            read = [(i, n, p) for i, n in moved.readers for p in self.places if p.queue == q and (i, p) in self.x]
            leaving = sum(n for i, n in moved.readers if i < 0) if q == self.w.exit else 0
            costs = self._costs(moved, q, {i for i, _, _ in read} | ({-1} if leaving else set()))
            if any(costs.values()):
                self._charge(moved, q, read, leaving, costs)

    def _costs(self, moved: Moved, q: int, readers: set[int]) -> dict[int, int]:
        """Ticks to bring a tensor to a queue, per queue that it may have been made on (-1: outside)."""
        c, matrix = self.c, self.c.transfer[moved.tensor]
        if not readers:
            return {}
        held = {c.domain[a] for i in readers for a in ([self.w.b] if i < 0 else c.alts[self.rows[i][0]]) if c.queue[a] == q}
        if moved.maker < 0:
            given = c.producer[moved.tensor] < 0
            source = c.input_domain if given else c.domain[self.w.a]
            return {-1: self._ticks(min((0.0 if d == source and not given else matrix[source][d] for d in held), default=0.0))}
        made = [a for a in c.alts[self.rows[moved.maker][0]] if c.queue[a] != q]
        queues = dict.fromkeys(c.queue[a] for a in made)
        return {p: self._ticks(min(matrix[c.domain[a]][d] for a in made if c.queue[a] == p for d in held)) for p in queues}

    def _charge(self, moved: Moved, q: int, read: list[tuple[int, int, Place]], leaving: int, costs: Mapping[int, int]) -> None:
        m = self.model
        places = list(dict.fromkeys([p for _, _, p in read] + ([self.exit] if leaving else [])))
        brought = {(s, p): m.new_int_var(0, moved.many, "") for s in costs for p in places}
        for (s, p), n in brought.items():
            self.paid[p].append(costs[s] * n)
        arc = moved.maker, moved.readers[0][0]
        if moved.readers == ((arc[1], moved.many),) and self.classes.arcs.get(arc, (0, 0))[0] * len(self.rows[arc[0]]) == moved.many:
            self.brought.setdefault(arc, []).append(brought)
        for s in (s for s in costs if s >= 0):
            made = sum(x for (i, p), x in self.x.items() if i == moved.maker and p.queue == s)
            m.add(sum(n for (t, _), n in brought.items() if t == s) <= made)
        for p in places:
            own = sum(n // len(self.rows[i]) * self.x[i, s] for i, n, s in read if s == p)
            m.add(sum(brought[s, p] for s in costs) <= own + (leaving if p == self.exit else 0))
        here = sum(x for (i, p), x in self.x.items() if i == moved.maker and p.queue == q)
        for i, arcs in moved.readers:
            reading = sum(arcs // len(self.rows[i]) * self.x[j, p] for j, _, p in read if j == i) if i >= 0 else leaving
            each = arcs // moved.many
            m.add(each * sum(brought.values()) >= reading - each * here)

    def _work(self, place: Place) -> Any:
        if place not in self.paid:
            return 0
        own = [self._ticks(self.seconds[i][place.queue]) * x for (i, p), x in self.x.items() if p == place]
        return sum(own) + sum(self.paid[place])

    def solve(self, budget: Budget, units: float) -> Counted:
        """Search for about ``units`` of work."""
        from ortools.sat.python import cp_model

        solver = deterministic_solver(budget, 0.0)
        built = model_units(self.model)
        solver.parameters.max_deterministic_time = max(1e-3, units - built) * DETERMINISTIC_PER_UNIT
        solver.parameters.linearization_level = 2
        status = solver.solve(self.model)
        used = built + float(solver.response_proto.deterministic_time) / DETERMINISTIC_PER_UNIT
        if status == cp_model.INFEASIBLE:
            return Counted(INFINITE, False, (), used)
        bound = max(self.known, float(solver.best_objective_bound) * self.tick)
        placed = (self._placed(solver),) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else ()
        return Counted(bound, status != cp_model.OPTIMAL, placed, used)

    def _placed(self, solver: Any) -> Placed:
        counts = tuple({p: solver.value(x) for (i, p), x in self.x.items() if i == k} for k in range(len(self.rows)))
        return Placed(counts, {arc: {ends: solver.value(x) for ends, x in flow.items()} for arc, flow in self.flows.items()})


class QueueCounts(CountModel):
    """One place for each queue between E and F; its segments need not wait for each other, but their launches count."""

    def __init__(
        self, window: Window, classes: Classes, known: float, limit: float, least: Mapping[int, int] | None = None, overlap: bool = True
    ) -> None:
        """Build the model.

        Args:
            window: the block.
            classes: its classes.
            known: a bound in seconds from which the least time is sought.
            limit: the most seconds of interest.
            least: per queue how many segments it has at least between E and F.
            overlap: whether two queues must be used there; without overlap a block takes what it takes serially.
        """
        self.least, self.overlap = least or {}, overlap
        super().__init__(window, classes, [Place(q, 1) for q in range(window.relaxed.c.queues)], known, limit)

    def _times(self) -> None:
        m, w, c = self.model, self.w, self.c
        ready = m.new_int_var(0, TICKS, "")
        segments = self._segments()
        for p in self.middle:
            ways = self._ticks(max(0.0, w.ways[p.queue] - c.launch[p.queue])) * self.used[p]
            m.add(ready >= ways + self._ticks(c.launch[p.queue]) * segments[p.queue] + self._work(p))
        if self.overlap:
            m.add(sum(self.used.values()) >= 2)
        m.add(self.goal >= self._ticks(w.after) + ready + self._work(self.entry) + self._work(self.exit))

    def _segments(self) -> list[Any]:
        """Per queue how many segments are between E and F. Neighbours in the order are on different queues, if no op is left out."""
        m, w = self.model, self.w
        own = [m.new_int_var(self.least.get(q, 0), len(w.block.inner), "") for q in range(self.c.queues)]
        for p in self.middle:
            m.add(own[p.queue] >= self.used[p])
            m.add(own[p.queue] <= sum(x for (_, s), x in self.x.items() if s == p))
        ends = [(w.entry == q) + (w.exit == q) for q in range(self.c.queues)]
        for q in range(self.c.queues) if len(w.relaxed.ops) == self.c.n else ():
            m.add(2 * (own[q] + ends[q]) <= sum(own) + sum(ends) + 1)
        return own
