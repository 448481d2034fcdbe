"""Tighter latency bounds: a CP-SAT relaxation of each block that the simple bound leaves loose.

Ops become intervals on their queue, which runs one at a time; an edge between queues waits for the sync, the launch
and the transfer; a queue that is entered pays at least one launch. Segments signal when the op ends (in truth: when
the segment ends) and later launches may be left out, so that the relaxation is never slower than the real rule.
"""

from __future__ import annotations

from typing import Any

from hetsched.partition.chain import INFINITE, Chain, chains
from hetsched.partition.problem import Budget
from hetsched.partition.relaxed import Block, Matrix, Relaxed
from hetsched.partition.slots import deterministic_solver
from hetsched.partition.timing import Costs

TICKS = 1 << 20
LARGEST = 250
"""Blocks with more inner ops than this keep their simple bound."""


class BlockModel:
    """CP-SAT model of one block between fixed alternatives of its entry and its exit (-1: start, end)."""

    def __init__(self, relaxed: Relaxed, block: Block, a: int, b: int, known: float, limit: float) -> None:
        """Build the model; ``known`` and ``limit`` are seconds between which the block's least time is sought."""
        from ortools.sat.python import cp_model

        self.c, self.relaxed, self.block, self.a, self.b = relaxed.c, relaxed, block, a, b
        self.model: Any = cp_model.CpModel()
        self.tick = limit / TICKS
        self.goal = self.model.new_int_var(self._ticks(known), TICKS, "")
        self.ops = [*block.inner, *([block.exit] if block.exit >= 0 else [])]
        forward, backward = relaxed.forward(block, a), relaxed.backward(block, b)
        self.forward = {x: forward[v][i] for v in self.ops for i, x in enumerate(self.c.alts[v])}
        self.rest = {x: backward[v][i] for v in self.ops for i, x in enumerate(self.c.alts[v])}
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

    def _place(self) -> None:
        m, c = self.model, self.c
        intervals: list[list[Any]] = [[] for _ in range(c.queues)]
        load: list[list[Any]] = [[] for _ in range(c.queues)]
        for v in self.ops:
            self.end[v] = m.new_int_var(0, TICKS, "")
            fits = [a for a in self._alternatives(v) if self.forward[a] + self.rest[a] <= TICKS * self.tick]
            for a in fits:
                x = self.x[a] = m.new_bool_var("")
                q, own = c.queue[a], self._ticks(c.time[a])
                head = self.head[a] = m.new_bool_var("")
                m.add_implication(head, x)
                start = m.new_int_var(0, TICKS, "")
                length = own + self._ticks(c.launch[q]) * head
                intervals[q].append(m.new_optional_interval_var(start, length, self.end[v], x, ""))
                load[q] += [own * x, self._ticks(c.launch[q]) * head]
                m.add(self.end[v] >= self._ticks(self.forward[a])).only_enforce_if(x)
                m.add(self.goal >= self.end[v] + self._ticks(self.rest[a])).only_enforce_if(x)
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
        """Waits along arcs; a queue that is entered from another pays a launch."""
        for v in self.ops:
            targets = {b: self.x[b] for b in self._alternatives(v) if b in self.x}
            for u, matrix in self.relaxed.preds[v].items():
                if u == self.block.entry:
                    self._arc(v, {self.a: 1}, targets, 0, matrix, u)
                elif u in self.end:
                    self._arc(v, {a: self.x[a] for a in self.c.alts[u] if a in self.x}, targets, self.end[u], matrix, u)

    def _arc(self, v: int, sources: dict[int, Any], targets: dict[int, Any], before: Any, matrix: Matrix, u: int) -> None:
        m, c = self.model, self.c
        pairs = {(a, b): m.new_bool_var("") for a in sources for b in targets}
        for a, x in sources.items():
            m.add(sum(pairs[a, b] for b in targets) == x)
        for b, x in targets.items():
            m.add(sum(pairs[a, b] for a in sources) == x)
        delay = []
        for (a, b), z in pairs.items():
            wait = matrix[a - c.alts[u].start][b - c.alts[v].start]
            delay.append((self._ticks(wait) + self._ticks(c.time[b])) * z)
        m.add(self.end[v] >= before + sum(delay))
        for q in range(c.queues):
            entered = [z for (a, b), z in pairs.items() if c.queue[b] == q and c.queue[a] != q]
            if entered:
                m.add(sum(h for a, h in self.head.items() if c.queue[a] == q) >= sum(entered))

    def bound(self, budget: Budget, units: float) -> float:
        """A proven lower bound in seconds; infinite if the block cannot be done within the limit."""
        from ortools.sat.python import cp_model

        solver = deterministic_solver(budget, units)
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return INFINITE
        return max(0.0, float(solver.best_objective_bound)) * self.tick


def tighten(c: Costs, incumbent: float, target: float, budget: Budget, units: float) -> float:
    """A latency bound from the best chain, its loose blocks replaced by what CP-SAT proves.

    Args:
        c: the costs.
        incumbent: a known latency in seconds.
        target: a bound that is good enough.
        budget: for the wall clock.
        units: deterministic time to spend.

    Returns:
        A proven lower bound in seconds.
    """
    best = 0.0
    for chain in chains(c)[:2]:
        best = max(best, _tighten_chain(chain, incumbent, target, budget, units / 2))
        if best >= target:
            break
    return best


def _tighten_chain(chain: Chain, incumbent: float, target: float, budget: Budget, units: float) -> float:
    """Solve the blocks on the chain's cheapest path until the path is dear enough or nothing more can be proven."""
    asked: dict[tuple[int, int, int], int] = {}
    while True:
        total, path = chain.bound()
        open_ = [key for key in path if _worth_it(chain, key, asked.get(key, 0))]
        if total >= target or not open_ or units <= 0 or budget.out_of_time():
            return total
        key = min(open_, key=lambda k: (asked.get(k, 0), len(chain.blocks[k[0]].inner), k))
        share = min(units, (0.1, 0.5, 2.0)[asked.get(key, 0)])
        units -= share
        asked[key] = asked.get(key, 0) + 1
        known = chain.values[key]
        limit = known + max(incumbent - total, known * 1e-6)
        model = BlockModel(chain.relaxed, chain.blocks[key[0]], key[1], key[2], known, limit)
        chain.values[key] = max(known, min(limit, model.bound(budget, share)))


def _worth_it(chain: Chain, key: tuple[int, int, int], tries: int) -> bool:
    return tries < 3 and 2 <= len(chain.blocks[key[0]].inner) <= LARGEST
