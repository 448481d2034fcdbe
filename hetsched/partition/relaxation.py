"""Tighter latency bounds: a CP-SAT relaxation of each block that the simple bound leaves loose.

Ops become intervals on their queue, which runs one at a time; an edge between queues waits for the sync, the launch
and the transfer; a queue that is entered pays at least one launch. Segments signal when the op ends (in truth: when
the segment ends) and later launches may be left out, so that the relaxation is never slower than the real rule.
"""

from __future__ import annotations

from typing import Any

from hetsched.partition.bounds import INFINITE, Block, Paths, blocks_of
from hetsched.partition.problem import Budget
from hetsched.partition.slots import deterministic_solver
from hetsched.partition.timing import Costs

TICKS = 1 << 20
LARGEST = 250
"""Blocks with more inner ops than this keep their simple bound."""


class BlockModel:
    """CP-SAT model of one block between fixed alternatives of its entry and its exit (-1: start, end)."""

    def __init__(self, c: Costs, paths: Paths, block: Block, a: int, b: int, known: float, limit: float) -> None:
        """Build the model; ``known`` and ``limit`` are seconds between which the block's least time is sought."""
        from ortools.sat.python import cp_model

        self.c, self.paths, self.block, self.a, self.b = c, paths, block, a, b
        self.model: Any = cp_model.CpModel()
        self.tick = limit / TICKS
        self.goal = self.model.new_int_var(self._ticks(known), TICKS, "")
        self.ops = [*block.inner, *([block.exit] if block.exit >= 0 else [])]
        self.forward, self.backward = paths.forward(block, a), paths.backward(block, b)
        self.x: dict[int, Any] = {}
        self.end: dict[int, Any] = {}
        self.head: dict[int, Any] = {}
        self._place()
        self._edges()
        self.model.minimize(self.goal)

    def _ticks(self, seconds: float) -> int:
        return min(int(seconds / self.tick), TICKS + 1)

    def _alternatives(self, v: int) -> list[int]:
        return [self.b] if v == self.block.exit else list(self.c.alts[v])

    def _rest(self, v: int, a: int) -> float:
        return 0.0 if v == self.block.exit else self.backward[v][a]

    def _place(self) -> None:
        m, c = self.model, self.c
        intervals: list[list[Any]] = [[] for _ in range(c.queues)]
        load: list[list[Any]] = [[] for _ in range(c.queues)]
        for v in self.ops:
            self.end[v] = m.new_int_var(0, TICKS, "")
            fits = [a for a in self._alternatives(v) if self.forward[v][a] + self._rest(v, a) <= TICKS * self.tick]
            for a in fits:
                x = self.x[a] = m.new_bool_var("")
                q, own = c.queue[a], self._ticks(c.time[a])
                head = self.head[a] = m.new_bool_var("")
                m.add_implication(head, x)
                start = m.new_int_var(0, TICKS, "")
                length = own + self._ticks(c.launch[q]) * head
                intervals[q].append(m.new_optional_interval_var(start, length, self.end[v], x, ""))
                load[q] += [own * x, self._ticks(c.launch[q]) * head]
                m.add(self.end[v] >= self._ticks(self.forward[v][a])).only_enforce_if(x)
                m.add(self.goal >= self.end[v] + self._ticks(self._rest(v, a))).only_enforce_if(x)
            m.add_exactly_one(self.x[a] for a in fits)
        entry = c.queue[self.a] if self.a >= 0 else -1
        for q in range(c.queues):
            m.add_no_overlap(intervals[q])
            m.add(self.goal >= sum(load[q]))
            if q != entry:
                heads = [h for a, h in self.head.items() if c.queue[a] == q]
                for a, x in self.x.items():
                    if c.queue[a] == q:
                        m.add_bool_or([*heads, x.negated()])

    def _edges(self) -> None:
        """Waits along edges; a queue that is entered from another pays a launch."""
        m, c = self.model, self.c
        for v in self.ops:
            for u in c.preds[v]:
                if u == self.block.entry:
                    sources = {self.a: 1}
                elif u in self.end:
                    sources = {a: self.x[a] for a in c.alts[u] if a in self.x}
                else:
                    continue
                targets = {b: self.x[b] for b in self._alternatives(v) if b in self.x}
                before = 0 if u == self.block.entry else self.end[u]
                pairs: dict[tuple[int, int], Any] = {}
                for a in sources:
                    for b in targets:
                        pairs[a, b] = m.new_bool_var("")
                for a, x in sources.items():
                    m.add(sum(pairs[a, b] for b in targets) == x)
                for b, x in targets.items():
                    m.add(sum(pairs[a, b] for a in sources) == x)
                delay = [(self._ticks(self.paths.edge(u, a, v, b)) + self._ticks(c.time[b])) * z for (a, b), z in pairs.items()]
                m.add(self.end[v] >= before + sum(delay))
                for q in range(c.queues):
                    entered = [z for (a, b), z in pairs.items() if c.queue[b] == q and c.queue[a] != q]
                    if entered:
                        m.add(sum(h for a, h in self.head.items() if c.queue[a] == q) >= sum(entered))

    def bound(self, budget: Budget, units: float) -> float:
        """A proven lower bound in seconds; infinite if the block cannot be done within the limit."""
        from ortools.sat.python import cp_model

        solver = deterministic_solver(budget, units)
        import os
        if os.environ.get("LOG"): solver.parameters.log_search_progress=True
        if os.environ.get("W"): solver.parameters.num_workers=int(os.environ["W"]); solver.parameters.interleave_search=True
        if os.environ.get("LIN"): solver.parameters.linearization_level=int(os.environ["LIN"])
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return INFINITE
        return max(0.0, solver.best_objective_bound) * self.tick


def tighten(c: Costs, incumbent: float, budget: Budget, units: float) -> float:
    return 0.0
