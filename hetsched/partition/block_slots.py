"""The best plan of one block: the segment rule between two cuts as a CP-SAT model.

Slots are the segments in global order: *E*, which holds the entry, those between, and *F*, which holds the exit
(:mod:`hetsched.partition.overlap` says why there is nothing else); neighbours are on different queues. E ends at 0, so that what
it does for the block is added to the time from there to the start of F. As many slots between as ops would hold every plan;
to keep the model small, whatever comes after the first few may be left to *the rest*: one slot per queue, whose segments
need not wait for each other. A plan without a rest is a plan; the least value with a rest is a bound.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hetsched.partition.overlap import Window
from hetsched.partition.twins import order_twins

TICKS = 1 << 20


class BlockSlots:
    """CP-SAT model of a block between two alternatives."""

    def __init__(
        self, window: Window, between: int, known: float, limit: float, rest: bool, tied: Collection[tuple[int, int]] = ()
    ) -> None:
        """Build the model.

        Args:
            window: the block; its relaxation must hold every op.
            between: number of segments between E and F; they may stay empty.
            known: a proven bound in seconds.
            limit: the most seconds of interest; times are rounded down to whole ticks of it.
            rest: whether there may be more segments, which are then only bounded.
            tied: pairs of ops that go to the same slot (then the bound is not one of all plans).
        """
        from ortools.sat.python import cp_model

        self.w, self.c, self.block = window, window.relaxed.c, window.block
        self.tick, self.known = limit / TICKS, known
        self.model: Any = cp_model.CpModel()
        self.middle = range(1, between + 1)
        self.rest = {between + 1 + q: q for q in range(self.c.queues)} if rest else {}
        self.last = between + 1 + len(self.rest)
        self.inside = [*self.middle, *self.rest]
        self.slots = [*([0] if window.a >= 0 else []), *self.inside, *([self.last] if window.b >= 0 else [])]
        self.ops = [v for v in (self.block.entry, *self.block.inner, self.block.exit) if v >= 0]
        self._queues()
        self._place()
        self._precedence()
        for u, v in tied:
            for k in self.slots:
                self.model.add(self.y[u].get(k, 0) == self.y[v].get(k, 0))
        order_twins(self.model, window, lambda v: self.y[v])
        self._transfers()
        self._durations()
        self._goal()

    def _ticks(self, seconds: float) -> int:
        return min(int(seconds / self.tick), TICKS + 1)

    def _bool(self) -> Any:
        return self.model.new_bool_var("")

    def _queues(self) -> None:
        """``on[k]``: per queue that slot k may have, a literal; neighbours differ, empty slots come last."""
        m, queues = self.model, range(self.c.queues)
        self.on: dict[int, dict[int, Any]] = {k: {q: self._bool() for q in queues} for k in self.middle}
        self.on.update({k: {q: self._bool()} for k, q in self.rest.items()})
        for k, q in ((0, self.w.entry), (self.last, self.w.exit)):
            if k in self.slots:
                self.on[k] = {q: 1}
        self.segments = {k: m.new_int_var(0, len(self.block.inner), "") for k in self.rest}
        for k in self.middle:
            m.add_at_most_one(self.on[k].values())
            before = self.on.get(k - 1, {})
            for q in before:
                m.add(self.on[k][q] + before[q] <= 1)
            if k + 1 in self.middle and self.w.exit >= 0:
                m.add_bool_or([*self.on[k + 1].values(), self.on[k][self.w.exit].negated()])
            used = self._bool()
            m.add(used == sum(self.on[k].values()))
            for y in [y for j in (self.rest if k == self.middle[-1] else [k + 1]) for y in self.on[j].values()]:
                m.add_implication(y, used)
        self._alternate()

    def _alternate(self) -> None:
        """The last slot before the rest, the segments of the rest and F: neighbours are on different queues."""
        m, last, end = self.model, self.on[self.middle[-1]] if self.middle else self.on.get(0, {}), self.w.exit
        for k, q in self.rest.items():
            m.add(self.segments[k] >= self.on[k][q])
        for q in range(self.c.queues):
            mine = sum(n for k, n in self.segments.items() if self.rest[k] == q)
            m.add(2 * mine + last.get(q, 0) + (end == q) <= sum(self.segments.values()) + 1)

    def _place(self) -> None:
        """``z[v, a, k]``: op v with alternative a in slot k; ``y`` and ``x`` add up over alternatives and over slots."""
        m, c, w = self.model, self.c, self.w
        self.z: dict[tuple[int, int, int], Any] = {}
        for v in self.block.inner:
            new = {(v, a, k): self._bool() for k in self.slots for a in c.alts[v] if c.queue[a] in self.on[k]}
            m.add_exactly_one(new.values())
            self.z.update(new)
        for v, a, k in ((self.block.entry, w.a, 0), (self.block.exit, w.b, self.last)):
            if v >= 0:
                self.z[v, a, k] = 1
        self.y: dict[int, dict[int, Any]] = {v: {} for v in self.ops}
        self.x: dict[int, Any] = {}
        for (v, a, k), z in self.z.items():
            self.y[v][k] = self.y[v].get(k, 0) + z
            self.x[a] = self.x.get(a, 0) + z
        for k in self.inside:
            for q, x in self.on[k].items():
                here = [z for (_, a, s), z in self.z.items() if s == k and c.queue[a] == q]
                m.add_bool_or([*here, x.negated()])
                for z in here:
                    m.add_implication(z, x)
                if k in self.rest:
                    m.add(self.segments[k] <= sum(here))

    def _precedence(self) -> None:
        """No op is in an earlier slot than one that it needs; the slots of the rest count as one."""
        ends = [k for k in self.slots if k not in self.rest and k != self.last] + list(self.rest)[-1:]
        for v in self.block.inner:
            for u in self.w.relaxed.preds[v]:
                if u in self.y and u != self.block.entry:
                    for k in ends:
                        upto = sum(e for s, e in self.y[u].items() if s <= k)
                        self.model.add(sum(e for s, e in self.y[v].items() if s <= k) <= upto)

    def _transfers(self) -> None:
        """``paid[k]``: what slot k pays for the tensors that it is the first to read in a domain."""
        c, readers = self.c, dict[tuple[int, int], dict[tuple[int, int], None]]()
        for v, a, _ in self.z:
            for t in c.inputs[v] if v != self.block.entry else ():
                if t in self.w.tensors:
                    readers.setdefault((t, c.domain[a]), {})[v, a] = None
        self.paid: dict[int, list[Any]] = {k: [] for k in self.slots}
        for (t, d), rows in sorted(readers.items()):
            sources = self._sources(t)
            costs = {s: self._ticks(c.transfer[t][s][d]) for s in sources if s != d or c.producer[t] < 0}
            if any(costs.values()):
                for k, first in self._arrivals(list(rows)):
                    if k in self.rest and not self.w.relaxed.exclusive:
                        continue  # another queue's part of the rest could have paid
                    for s, ticks in costs.items():
                        charge = self._bool()
                        self.model.add(charge >= first + sources[s] - 1)
                        self.paid[k].append(ticks * charge)

    def _sources(self, tensor: int) -> dict[int, Any]:
        """The domains in which a tensor may be made, each with an expression that is 1 if it is."""
        c, p = self.c, self.c.producer[tensor]
        if p < 0:
            return {c.input_domain: 1}
        made: dict[int, Any] = {}
        for a in dict.fromkeys(a for v, a, _ in self.z if v == p):
            made[c.domain[a]] = made.get(c.domain[a], 0) + self.x[a]
        return made

    def _arrivals(self, rows: Sequence[tuple[int, int]]) -> list[tuple[int, Any]]:
        """Per slot an expression that is 1 in the first slot where any of the ops uses its alternative."""
        m, out, before = self.model, list[tuple[int, Any]](), 0
        for k in self.slots:
            here = [self.z[v, a, k] for v, a in rows if (v, a, k) in self.z]
            if here:
                upto: Any = self._bool()
                m.add(upto >= before)
                m.add(upto <= before + sum(here))
                for e in here:
                    m.add(upto >= e)
                out.append((k, upto - before))
                before = upto
        return out

    def _durations(self) -> None:
        """Seconds from the end of E to the start and the end of each slot; a queue does one thing at a time."""
        m, c = self.model, self.c
        self.work = {
            k: sum(self._ticks(c.time[a]) * z for (v, a, s), z in self.z.items() if s == k and v != self.block.entry) + sum(self.paid[k])
            for k in self.slots
        }
        self.start = {k: m.new_int_var(0, TICKS, "") for k in self.inside}
        self.end: dict[int, Any] = {k: m.new_int_var(0, TICKS, "") for k in self.inside} | {0: 0}
        for k in self.inside:
            m.add(self.end[k] >= self.start[k] + self._launch(k) + self.work[k])
            for j in (j for j in self.middle if j < k):
                for q, x in self.on[k].items():
                    m.add(self.start[k] >= self.end[j]).only_enforce_if(x, self.on[j][q])
        self._ways()

    def _ways(self) -> None:
        """An op of the rest ends after those that it needs, with a sync, a launch and transfers between if they are elsewhere."""
        m, c = self.model, self.c
        done: dict[int, Any] = {v: m.new_int_var(0, TICKS, "") for v in self.block.inner} | {self.block.entry: 0}
        for (v, a, k), z in self.z.items() if self.rest else ():
            if k in self.middle:
                m.add(done[v] >= self.end[k]).only_enforce_if(z)
            elif k in self.rest:
                m.add(done[v] >= self.start[k] + self._ticks(c.launch[c.queue[a]]) + self._ticks(c.time[a])).only_enforce_if(z)
                m.add(self.end[k] >= done[v]).only_enforce_if(z)
                for u in (u for u in c.preds[v] if u in done):
                    waits = [self._ticks(self._wait_s(u, b, v, a)) * self.x[b] for b in c.alts[u] if b in self.x]
                    m.add(done[v] >= done[u] + sum(waits) + self._ticks(c.time[a])).only_enforce_if(z)

    def _wait_s(self, u: int, b: int, v: int, a: int) -> float:
        """Seconds between the end of an op and the start of another one that reads from it, in a later segment."""
        c = self.c
        moved = [t for t in c.inputs[v] if c.producer[t] == u] if self.w.relaxed.exclusive and c.domain[a] != c.domain[b] else []
        p, q = c.queue[b], c.queue[a]
        return (c.sync[p][q] + c.launch[q] if p != q else 0.0) + sum(c.transfer[t][c.domain[b]][c.domain[a]] for t in moved)

    def _launch(self, k: int) -> Any:
        """Ticks of a slot's launch, of all launches of a queue in the rest."""
        if k in self.rest:
            return self._ticks(self.c.launch[self.rest[k]]) * self.segments[k]
        return sum(self._ticks(self.c.launch[q]) * x for q, x in self.on[k].items())

    def _goal(self) -> None:
        """What E does, the time until F may start (or the host has seen every result), and F."""
        m = self.model
        self.goal, self.ready = m.new_int_var(max(0, self._ticks(self.known) - len(self.z) - 1), TICKS, ""), m.new_int_var(0, TICKS, "")
        for k in (k for k in self.slots if k not in self.rest):
            for j in (j for j in self.slots if j < k and j not in self.rest):
                self._wait(j, k)
        for k in self.inside:
            m.add(self.ready >= self.end[k])
        for k, q in self.rest.items():
            m.add(self.ready >= self.end[k] + self._ticks(self._way_out(q))).only_enforce_if(self.on[k][q])
        if self.w.b < 0:
            self._to_host()
        for q in range(self.c.queues):
            self._area(q)
        after = self._launch(self.last) + self.work[self.last] if self.w.b >= 0 else 0
        m.add(self.goal >= self.work.get(0, 0) + self.ready + after)
        m.minimize(self.goal)

    def _way_out(self, q: int) -> float:
        """Least seconds from the end of a segment on a queue to the start of F."""
        c, exit_ = self.c, self.w.exit
        return 0.0 if exit_ in (-1, q) else self.w.relaxed.crossing[q][exit_] - c.launch[exit_]

    def _wait(self, j: int, k: int) -> None:
        """Slot k waits for slot j if an op of j feeds one of k."""
        m, c = self.model, self.c
        edges = [(u, v) for v in self.ops if k in self.y[v] for u in self.w.relaxed.preds[v] if u in self.y and j in self.y[u]]
        if not edges:
            return
        feeds = self._bool()
        for u, v in edges:
            m.add(feeds >= self.y[u][j] + self.y[v][k] - 1)
        for p, x in self.on[j].items():
            for q, y in self.on[k].items():
                if p != q:
                    wait = m.add((self.ready if k == self.last else self.start[k]) >= self.end[j] + self._ticks(c.sync[p][q]))
                    wait.only_enforce_if(feeds, *(e for e in (x, y) if not isinstance(e, int)))

    def _area(self, q: int) -> None:
        """Implied, but it helps: all that a queue does between E and F, with the least way in and out."""
        c, load = self.c, list[Any]()
        used = self._bool()
        for k in self.inside:
            if q in self.on[k]:
                self.model.add_implication(self.on[k][q], used)
                load.append(self._launch(k) if k in self.rest else self._ticks(c.launch[q]) * self.on[k][q])
                load += [self._ticks(c.time[a]) * z for (_, a, s), z in self.z.items() if s == k and c.queue[a] == q]
        self.model.add(self.ready >= sum(load) + self._ticks(max(0.0, self.w.ways[q] - c.launch[q])) * used)

    def _to_host(self) -> None:
        c = self.c
        for k in (k for k in self.slots if k not in self.rest):
            for v in c.results:
                if v in self.y and k in self.y[v]:
                    for q, x in self.on[k].items():
                        out = self.model.add(self.ready >= self.end[k] + self._ticks(c.sync[q][c.host]) * self.y[v][k])
                        out.only_enforce_if(*([] if isinstance(x, int) else [x]))
