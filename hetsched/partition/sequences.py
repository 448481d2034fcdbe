"""Blocks with identical branches: every sequence of segments that could be faster than what is known, one after another.

The order of the segments' queues between E and F is given, so a model of how many ops of each class are in each segment
(:mod:`hetsched.partition.counted`) follows the segment rule closely: a segment waits for its queue and for every segment that feeds
it. A sequence also stands for all that it contains, because segments may stay empty. Sequences with too many launches are
ruled out by queue first; one queue, whose launches cost least, may have a segment between any two others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import Any

from hetsched.partition.alike import Classes
from hetsched.partition.counted import TICKS, Counted, CountModel, Place, Placed, QueueCounts
from hetsched.partition.overlap import INFINITE, Window
from hetsched.partition.problem import Budget

MOST, MOST_SEQUENCES = 3, 8
"""Segments of each of the other queues, and sequences; blocks that may have more are not bounded."""
FEW = 3
"""Segments in the plans that are looked for first."""


def planned(window: Window, classes: Classes, limit: float, budget: Budget, units: float) -> Counted:
    """Answers with few segments, each better than the one before; the bound is worth nothing.

    Args:
        window: a block of a relaxation that has every op.
        classes: its classes.
        limit: the most seconds of interest.
        budget: for the wall clock; nothing is charged.
        units: how much work may be done.
    """
    placed, spent = list[Placed](), 0.0
    every = product(range(window.relaxed.c.queues), repeat=FEW)
    sequences = [s for s in every if all(p != q for p, q in pairwise((window.entry, *s, window.exit)))]
    for k, sequence in enumerate(sequences):
        found = SequenceModel(window, classes, sequence, 0.0, limit).solve(budget, (units - spent) / (len(sequences) - k))
        spent += found.units
        placed += found.placed
        limit = limit if found.open else min(limit, found.bound)
    return Counted(0.0, False, tuple(placed), spent)


def bounded(window: Window, classes: Classes, known: float, limit: float, budget: Budget, units: float) -> Counted:
    """A bound on every plan of a block, but for the one that is a single segment.

    Args:
        window: a block of a relaxation that has every op.
        classes: its classes.
        known: a proven bound in seconds.
        limit: the most seconds of interest.
        budget: for the wall clock; nothing is charged.
        units: how much work may be done.
    """
    sequences, spent = _sequences(window, classes, known, limit, budget, units)
    placed, bound, more = list[Placed](), limit, False
    for k, sequence in enumerate(sequences):
        if spent >= units or bound <= known * (1 + 1e-9):
            return Counted(known, True, tuple(placed), spent)
        found = SequenceModel(window, classes, sequence, known, bound).solve(budget, (units - spent) / min(2, len(sequences) - k))
        spent += found.units
        placed += found.placed
        bound, more = min(bound, found.bound), more or found.open
    if not sequences:
        return Counted(known, False, (), spent)
    return Counted(INFINITE if bound >= limit else bound, more, tuple(placed), spent)


def _queues(window: Window) -> tuple[int, list[int]]:
    """The queue with the cheapest launches; the others."""
    c = window.relaxed.c
    light = min(range(c.queues), key=lambda q: (c.launch[q], q))
    return light, [q for q in range(c.queues) if q != light]


def _sequences(
    window: Window, classes: Classes, known: float, limit: float, budget: Budget, units: float
) -> tuple[list[tuple[int, ...]], float]:
    """Sequences that hold every other one with a chance below the limit, none if there are too many; the work done."""
    light, others = _queues(window)
    spent = 0.0

    def possible(counts: Sequence[int]) -> bool:
        nonlocal spent
        least = dict(zip(others, counts, strict=True))
        found = QueueCounts(window, classes, known, limit, least, overlap=False).solve(budget, units - spent)
        spent += found.units
        return found.bound < limit

    most = []
    for k in range(len(others)):
        n = 0
        while possible([n + 1 if j == k else 0 for j in range(len(others))]):
            n += 1
            if n > MOST:
                return [], spent
        most.append(n)
    fits = [n for n in product(*(range(m + 1) for m in most)) if sum(map(bool, n)) < 2 or possible(n)]
    found = _held(fits, others, light)
    return found if len(found) <= MOST_SEQUENCES else [], spent


def _held(counts: Sequence[tuple[int, ...]], others: Sequence[int], light: int) -> list[tuple[int, ...]]:
    """Sequences that hold every sequence with such counts of the other queues."""
    largest = [n for n in counts if not any(n != o and all(x <= y for x, y in zip(n, o, strict=True)) for o in counts)]
    return list(dict.fromkeys(s for n in largest for s in _interleaved(dict(zip(others, n, strict=True)), light)))


def _interleaved(counts: dict[int, int], light: int) -> Iterator[tuple[int, ...]]:
    """Every order of so many segments of each queue, with one of the light queue before, between and after them."""
    rows: list[tuple[int, ...]] = [()]
    for q, n in counts.items():
        rows = [merged for row in rows for merged in _merged(row, q, n)]
    for row in rows:
        yield (light, *(x for q in row for x in (q, light)))


def _merged(row: tuple[int, ...], queue: int, count: int) -> Iterator[tuple[int, ...]]:
    for spots in combinations(range(len(row) + count), count):
        rest = iter(row)
        yield tuple(queue if k in spots else next(rest) for k in range(len(row) + count))


class SequenceModel(CountModel):
    """Segments between E and F whose queues are given; each may stay empty."""

    def __init__(self, window: Window, classes: Classes, sequence: Sequence[int], known: float, limit: float) -> None:
        """Build the model.

        Args:
            window: the block.
            classes: its classes.
            sequence: the queues of the segments between E and F.
            known: a bound in seconds from which the least time is sought.
            limit: the most seconds of interest.
        """
        self.feeds: dict[tuple[Place, Place], Any] = {}
        super().__init__(window, classes, [Place(q, k) for k, q in enumerate(sequence, 1)], known, limit)

    def _times(self) -> None:
        m, c, w = self.model, self.c, self.w
        self._alternate()
        for (i, j), (out, into) in self.classes.arcs.items():
            self._flow(i, j, out, into)
        self._ends()
        start = {p: m.new_int_var(0, TICKS, "") for p in (*self.middle, self.exit)}
        end: dict[Place, Any] = {p: m.new_int_var(0, TICKS, "") for p in self.middle} | {self.entry: 0}
        for p in self.middle:
            m.add(end[p] >= start[p] + self._ticks(c.launch[p.queue]) * self.used[p] + self._work(p))
            m.add(start[self.exit] >= end[p])
            for s in (s for s in self.middle if s.at < p.at and s.queue == p.queue):
                m.add(start[p] >= end[s])
        for (s, p), feeds in self.feeds.items():
            if s.queue != p.queue:
                m.add(start[p] >= end[s] + self._ticks(c.sync[s.queue][p.queue])).only_enforce_if(feeds)
        if w.b < 0:
            self._to_host(start[self.exit], end)
        for q in range(c.queues):
            load = [self._ticks(c.launch[q]) * self.used[p] + self._work(p) for p in self.middle if p.queue == q]
            m.add(start[self.exit] >= sum(load))
        m.add(self.goal >= self._work(self.entry) + start[self.exit] + self._ticks(w.after) + self._work(self.exit))

    def _alternate(self) -> None:
        """Between two segments on one queue is one on another."""
        for s, p in combinations([p for p in self.places if p.queue >= 0], 2):
            if s.queue == p.queue:
                between = [self.used[x] for x in self.middle if s.at < x.at < p.at and x.queue != s.queue]
                self.model.add(self.used.get(s, 1) + self.used.get(p, 1) <= 1 + sum(between))

    def _feed(self, s: Place, p: Place) -> Any:
        """Whether a segment feeds a later one."""
        if (s, p) not in self.feeds:
            self.feeds[s, p] = self.model.new_bool_var("")
        return self.feeds[s, p]

    def _flow(self, i: int, j: int, out: int, into: int) -> None:
        """How many arcs between two classes go from which segment to which."""
        m, many = self.model, out * len(self.rows[i])
        makers, readers = ([p for p in self.places if (n, p) in self.x] for n in (i, j))
        flow = self.flows[i, j] = {(s, p): m.new_int_var(0, many, "") for s in makers for p in readers if s.at <= p.at}
        for s in makers:
            m.add(sum(x for (t, _), x in flow.items() if t == s) == out * self.x[i, s])
        for p in readers:
            m.add(sum(x for (_, t), x in flow.items() if t == p) == into * self.x[j, p])
        for brought in self.brought.get((i, j), []):
            for (q, p), n in brought.items():
                m.add(n >= sum(x for (s, t), x in flow.items() if t == p and s.queue == q))
        for (s, p), x in flow.items():
            if s.at < p.at and (s != self.entry or p != self.exit):
                m.add(x <= many * self._feed(s, p))

    def _ends(self) -> None:
        """What reads from the entry waits for E; F waits for what the exit reads."""
        w, preds = self.w, self.w.relaxed.preds
        for i, row in enumerate(self.rows):
            for p in (p for p in self.middle if (i, p) in self.x):
                if w.a >= 0 and w.block.entry in preds[row[0]]:
                    self.model.add(self.x[i, p] <= len(row) * self._feed(self.entry, p))
                if w.b >= 0 and any(v in preds[w.block.exit] for v in row):
                    self.model.add(self.x[i, p] <= len(row) * self._feed(p, self.exit))

    def _to_host(self, ready: Any, end: dict[Place, Any]) -> None:
        c = self.c
        for i, row in enumerate(self.rows):
            for p in (p for p in self.middle if row[0] in c.results and (i, p) in self.x):
                wait = self.model.add(ready >= end[p] + self._ticks(c.sync[p.queue][c.host]))
                wait.only_enforce_if(self._any([(self.x[i, p], len(row))]))
