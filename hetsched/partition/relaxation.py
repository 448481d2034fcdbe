"""A tighter latency bound for one block: a CP-SAT relaxation.

Ops become intervals on their queue, which runs one at a time; an arc between queues waits for the sync, the launch and
the transfer; a queue that is entered pays at least one launch. The rule that a whole segment waits for whatever feeds
any of its ops is added only for ops that break it in the relaxation's own answer.
"""

from __future__ import annotations

from typing import Any

from hetsched.partition.blocks import Block
from hetsched.partition.chain import INFINITE
from hetsched.partition.problem import Budget
from hetsched.partition.relaxed import Matrix, Relaxed
from hetsched.partition.slots import deterministic_solver, model_units, solver_units

PRECISION = 12
"""Bits of a tick per op: so many that rounding matters little, so few that propagation, tick by tick, ends soon."""
ROUNDS = 6
"""Most times that broken segment rules are added to a block."""


class BlockModel:
    """CP-SAT model of one block between fixed alternatives of its entry and its exit (-1: start, end)."""

    def __init__(self, relaxed: Relaxed, block: Block, a: int, b: int, known: float, limit: float) -> None:
        """Build the model; ``known`` and ``limit`` are seconds between which the block's least time is sought."""
        from ortools.sat.python import cp_model

        self.c, self.relaxed, self.block, self.a, self.b = relaxed.c, relaxed, block, a, b
        self.model: Any = cp_model.CpModel()
        self.ticks = 1 << PRECISION + len(block.inner).bit_length()
        self.tick = limit / self.ticks
        self.goal = self.model.new_int_var(self._ticks(known), self.ticks, "")
        self.ops = [*block.inner, *([block.exit] if block.exit >= 0 else [])]
        forward, backward = relaxed.forward(block, a), relaxed.backward(block, b)
        self.forward = {x: forward[v][i] for v in self.ops for i, x in enumerate(self.c.alts[v])}
        self.rest = {x: backward[v][i] for v in self.ops for i, x in enumerate(self.c.alts[v])}
        self.fits = {v: [x for x in self._alternatives(v) if self.forward[x] + self.rest[x] <= limit] for v in self.ops}
        self.x = {x: self.model.new_bool_var("") for v in self.ops for x in self.fits[v]}
        self.head = {x: self.model.new_bool_var("") for x in self.x}
        self.start = {v: self.model.new_int_var(0, self.ticks, "") for v in self.ops}
        self.end = {v: self.model.new_int_var(0, self.ticks, "") for v in self.ops}
        self.crossings: dict[int, list[tuple[int, int, int, Any]]] = {v: [] for v in self.ops}
        self.ruled: list[int] = []
        moved = self._arcs()
        self._queues(moved, self._shared_transfers())
        self.model.minimize(self.goal)

    def _ticks(self, seconds: float) -> int:
        return min(int(seconds / self.tick), self.ticks + 1)

    def _alternatives(self, v: int) -> list[int]:
        return [self.b] if v == self.block.exit else list(self.c.alts[v])

    def _arcs(self) -> dict[int, list[Any]]:
        """Waits along arcs; what transfers add to an op's own time, where nobody else could pay for them."""
        moved: dict[int, list[Any]] = {v: [] for v in self.ops}
        for v in self.ops:
            for u, matrix in self.relaxed.preds[v].items():
                if u == self.block.entry:
                    moved[v] += self._arc(u, v, {self.a: 1}, 0, matrix)
                elif u in self.end:
                    moved[v] += self._arc(u, v, {a: self.x[a] for a in self.fits[u]}, self.end[u], matrix)
        return moved

    def _arc(self, u: int, v: int, sources: dict[int, Any], before: Any, matrix: Matrix) -> list[Any]:
        m, c = self.model, self.c
        pairs = {(a, b): m.new_bool_var("") for a in sources for b in self.fits[v]}
        for a, x in sources.items():
            m.add(sum(pairs[a, b] for b in self.fits[v]) == x)
        for b in self.fits[v]:
            m.add(sum(pairs[a, b] for a in sources) == self.x[b])
        delay, moved = [], []
        direct = u in c.preds[v]
        own = [t for t in c.inputs[v] if c.producer[t] == u and self._only_reader(t)] if direct and self.relaxed.exclusive else []
        for (a, b), z in pairs.items():
            wait = matrix[a - c.alts[u].start][b - c.alts[v].start]
            delay.append((self._ticks(wait) + self._ticks(c.time[b])) * z)
            if c.domain[a] != c.domain[b]:
                moved += [self._ticks(c.transfer[t][c.domain[a]][c.domain[b]]) * z for t in own]
            if direct and c.queue[a] != c.queue[b]:
                self.crossings[v].append((u, a, b, z))
        m.add(self.end[v] >= before + sum(delay))
        for q in range(c.queues):
            entered = [z for (a, b), z in pairs.items() if c.queue[b] == q and c.queue[a] != q]
            if entered:
                m.add(sum(h for a, h in self.head.items() if c.queue[a] == q) >= sum(entered))
        return moved

    def _only_reader(self, tensor: int) -> bool:
        return sum(tensor in self.c.inputs[s] for s in self.c.succs[self.c.producer[tensor]]) == 1

    def _shared_transfers(self) -> list[tuple[int, int, Any, Any]]:
        """Transfers of tensors with several readers, and of graph inputs: ``(queue, ticks, present, interval)``.

        One per source and target domain, on the reading queue, after the tensor has arrived and before its readers.
        """
        c, out = self.c, list[tuple[int, int, Any, Any]]()
        readers: dict[int, list[int]] = {}
        for v in self.ops:
            for t in c.inputs[v]:
                readers.setdefault(t, []).append(v)
        for t, ops in sorted(readers.items()) if self.relaxed.exclusive else ():
            u = c.producer[t]
            if u < 0 and self.block.entry < 0:
                sources: dict[int, list[Any]] = {c.input_domain: [1]}
            elif u == self.block.entry and u >= 0 and not self._only_reader(t):
                sources = {c.domain[self.a]: [1]}
            elif u in self.end and not self._only_reader(t):
                sources = {}
                for a in self.fits[u]:
                    sources.setdefault(c.domain[a], []).append(self.x[a])
            else:
                continue
            for s, held in sources.items():
                out += self._shared_transfer(t, s, sum(held), ops)
        return out

    def _shared_transfer(self, t: int, source: int, held: Any, readers: list[int]) -> list[tuple[int, int, Any, Any]]:
        m, c, u = self.model, self.c, self.c.producer[t]
        out: list[tuple[int, int, Any, Any]] = []
        for d in sorted({c.domain[b] for v in readers for b in self.fits[v]} - {source}):
            uses = [(v, b) for v in readers for b in self.fits[v] if c.domain[b] == d]
            ticks, queue = self._ticks(c.transfer[t][source][d]), c.queue[uses[0][1]]
            if ticks == 0:
                continue
            present = m.new_bool_var("")
            start, end = m.new_int_var(0, self.ticks, ""), m.new_int_var(0, self.ticks, "")
            interval = m.new_optional_interval_var(start, ticks, end, present, "")
            for v, b in uses:
                m.add(present >= self.x[b] + held - 1)
                m.add(self.start[v] >= end).only_enforce_if(present, self.x[b])
            if u in self.end:
                m.add(start >= self.end[u]).only_enforce_if(present)
            out.append((queue, ticks, present, interval))
        return out

    def _queues(self, moved: dict[int, list[Any]], transfers: list[tuple[int, int, Any, Any]]) -> None:
        """One op or transfer at a time per queue, launches included; all of a queue's work within the goal."""
        m, c = self.model, self.c
        intervals: list[list[Any]] = [[] for _ in range(c.queues)]
        load: list[list[Any]] = [[] for _ in range(c.queues)]
        for queue, ticks, present, interval in transfers:
            intervals[queue].append(interval)
            load[queue].append(ticks * present)
        for v in self.ops:
            m.add_exactly_one(self.x[a] for a in self.fits[v])
            for a in self.fits[v]:
                x, head, q = self.x[a], self.head[a], c.queue[a]
                m.add_implication(head, x)
                parts = [self._ticks(c.time[a]) * x, self._ticks(c.launch[q]) * head]
                length = m.new_int_var(0, self.ticks, "")
                m.add(length >= sum(parts) + sum(moved[v])).only_enforce_if(x)
                m.add(length >= sum(parts))
                intervals[q].append(m.new_optional_interval_var(self.start[v], length, self.end[v], x, ""))
                load[q].append(length)
                m.add(self.end[v] >= self._ticks(self.forward[a])).only_enforce_if(x)
                m.add(self.goal >= self.end[v] + self._ticks(self.rest[a])).only_enforce_if(x)
        entry = c.queue[self.a] if self.a >= 0 else -1
        for q in range(c.queues):
            m.add_no_overlap(intervals[q])
            m.add(self.goal >= sum(load[q]))
            heads = [h for a, h in self.head.items() if c.queue[a] == q]
            if q != entry:
                for a, x in self.x.items():
                    if c.queue[a] == q:
                        m.add_bool_or([*heads, x.negated()])

    def _add_rule(self, v: int) -> None:
        """The launch of v's segment, at v itself or at an earlier op of its queue, waits for whatever feeds v."""
        m, c = self.model, self.c
        launched = m.new_int_var(0, self.ticks, "")
        ways: list[Any] = []
        for a in self.fits[v]:
            m.add(launched <= self.start[v]).only_enforce_if(self.head[a])
            ways.append(self.head[a])
            for f in self.ops:
                if f == v or v in self.relaxed.ancestors(f):
                    continue
                for g in self.fits[f]:
                    if c.queue[g] == c.queue[a]:
                        way = m.new_bool_var("")
                        m.add_implication(way, self.head[g])
                        m.add_implication(way, self.x[a])
                        m.add(launched <= self.start[f]).only_enforce_if(way)
                        m.add(self.start[v] >= self.end[f]).only_enforce_if(way)
                        ways.append(way)
            if self.a >= 0 and c.queue[a] == c.queue[self.a]:
                way = m.new_bool_var("")
                m.add_implication(way, self.x[a])
                for *_, z in self.crossings[v]:
                    m.add_implication(way, z.negated())
                ways.append(way)
        m.add_exactly_one(ways)
        for u, a, b, z in self.crossings[v]:
            arrived = 0 if u == self.block.entry else self.end[u]
            m.add(launched >= arrived + self._ticks(c.sync[c.queue[a]][c.queue[b]])).only_enforce_if(z)

    def _broken(self, solver: Any) -> list[int]:
        """Ops whose segment, in the answer, was launched before something that feeds them had arrived."""
        c, opened = self.c, dict[int, int]()
        chosen = {v: next(a for a in self.fits[v] if solver.boolean_value(self.x[a])) for v in self.ops}
        out: list[int] = []
        for v in sorted(self.ops, key=lambda v: (solver.value(self.start[v]), solver.value(self.end[v]), v)):
            q = c.queue[chosen[v]]
            if solver.boolean_value(self.head[chosen[v]]) or q not in opened:
                opened[q] = solver.value(self.start[v])
            for u, a, b, z in self.crossings[v]:
                if solver.boolean_value(z):
                    arrived = 0 if u == self.block.entry else solver.value(self.end[u])
                    if arrived + self._ticks(c.sync[c.queue[a]][c.queue[b]]) > opened[q] and v not in self.ruled:
                        out.append(v)
                        break
        return out

    def bound(self, budget: Budget, units: float) -> tuple[float, bool, float]:
        """A proven lower bound in seconds (infinite if nothing fits the limit); whether more time could help; time used."""
        from ortools.sat.python import cp_model

        best, given = 0.0, units
        for _ in range(ROUNDS):
            solver = deterministic_solver(budget, units - model_units(self.model))
            status = solver.solve(self.model)
            units -= model_units(self.model) + solver_units(solver)
            if status == cp_model.INFEASIBLE:
                return INFINITE, False, given - units
            best = max(best, float(solver.best_objective_bound) * self.tick)
            if status != cp_model.OPTIMAL or units <= 0:
                return best, True, given - units
            broken = self._broken(solver)
            if not broken:
                return best, False, given - units
            for v in broken:
                self.ruled.append(v)
                self._add_rule(v)
        return best, True, given - units
