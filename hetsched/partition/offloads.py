"""Local search for blocks of which queues share the work: rows of ops go to another queue, and what need not wait for them does not.

Where a row of ops leaves its segment, three kinds of ops stay: those that it needs, those that need it, and the others. In the
order that is tried the others come between the two, so that the segment is cut in two and its second part runs beside the row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from hetsched.partition.problem import Budget, Problem
from hetsched.partition.search import LocalSearch, runs_of
from hetsched.partition.timing import Costs

#: Order and alternatives.
Placement: TypeAlias = tuple[list[int], list[int]]
LONGEST = 12
"""Ops of a row that goes at once; further ones may follow one by one."""


class Offloads(LocalSearch):
    """Descent that also lets runs grow by their neighbours, and runs them as early or as late as they can."""

    def __init__(self, problem: Problem, c: Costs, budget: Budget) -> None:
        super().__init__(problem, c, budget)
        self.before, self.after = [0] * c.n, [0] * c.n
        """Bit sets of the ops that each one needs, and that need it."""
        for v in range(c.n):
            for u in c.preds[v]:
                self.before[v] |= self.before[u] | 1 << u
        for v in reversed(range(c.n)):
            for w in c.succs[v]:
                self.after[v] |= self.after[w] | 1 << w

    def starts(self, order: Sequence[int], alternative: Sequence[int], ops: Collection[int], limit: int, most: int) -> list[Placement]:
        """The best plans with a row of the ops, each the only reader of the one before, on another queue, and maybe all after it too.

        Args:
            order: of the plan to change.
            alternative: of each of its ops.
            ops: a row begins with one of them; those that take longest come first.
            limit: how many plans are timed.
            most: how many are kept.
        """
        found: dict[float, Placement] = {}
        stop = self.evaluations + limit
        for v in sorted(ops, key=lambda v: (-self.c.time[alternative[v]], v)):
            for placed in (placed for row in self._rows(v) for placed in self._away(order, alternative, row)):
                if self.evaluations < stop and self.budget.left > 0:
                    found.setdefault(self._value(*placed), placed)
        return [found[x] for x in sorted(found)[:most]]

    def _rows(self, op: int) -> Iterator[list[int]]:
        row = [op]
        yield row
        while len(row) < LONGEST and len(self.c.succs[row[-1]]) == 1:
            row = [*row, self.c.succs[row[-1]][0]]
            if not self._convex(row):
                return
            yield row

    def _away(self, order: Sequence[int], alternative: Sequence[int], row: Sequence[int]) -> Iterator[Placement]:
        needing = self._union(self.after, row)
        behind = [v for v in order if needing >> v & 1 and v not in row]
        waiting = set(behind)
        late = [v for v in self._early(order, row) if v not in waiting] + behind
        for q in range(self.c.queues):
            changed = self._to_queue(alternative, row, q)
            if changed is not None:
                yield late, changed
                for further in (self._to_queue(changed, behind, r) for r in range(self.c.queues) if behind):
                    if further is not None:
                        yield late, further

    def _moves(self, order: list[int], alternative: list[int]) -> Iterator[Placement]:
        yield from super()._moves(order, alternative)
        c = self.c
        for run in runs_of(c, order, alternative):
            yield self._early(order, run), alternative
            yield self._late(order, run), alternative
            near = dict.fromkeys(u for v in run for u in (*c.preds[v], *c.succs[v]))
            for op in (u for u in near if c.queue[alternative[u]] != c.queue[alternative[run[0]]]):
                grown = [v for v in order if v == op or v in run]
                changed = self._to_queue(alternative, [op], c.queue[alternative[run[0]]])
                if changed is not None and self._convex(grown):
                    yield self._early(order, grown), changed
                    yield self._late(order, grown), changed

    def _union(self, sets: Sequence[int], ops: Sequence[int]) -> int:
        out = 0
        for v in ops:
            out |= sets[v]
        return out

    def _convex(self, ops: Sequence[int]) -> bool:
        """Whether no other op comes between some of them."""
        return not self._union(self.before, ops) & self._union(self.after, ops) & ~sum(1 << v for v in ops)

    def _early(self, order: Sequence[int], ops: Sequence[int]) -> list[int]:
        """What the ops need, the ops, the rest."""
        needed, inside = self._union(self.before, ops), set(ops)
        first = [v for v in order if needed >> v & 1 and v not in inside]
        return [*first, *ops, *(v for v in order if not needed >> v & 1 and v not in inside)]

    def _late(self, order: Sequence[int], ops: Sequence[int]) -> list[int]:
        """The rest, the ops, what needs them."""
        needing, inside = self._union(self.after, ops), set(ops)
        last = [v for v in order if needing >> v & 1 and v not in inside]
        return [*(v for v in order if not needing >> v & 1 and v not in inside), *ops, *last]
