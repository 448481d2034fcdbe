"""Plans of a block from numbers of ops per class, and local search in the block alone.

A block between two alternatives is a small problem of its own: the entry takes no time, the exit is its last op, and only the
tensors that the block pays for are transferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from itertools import permutations

from hetsched.partition.alike import Classes
from hetsched.partition.counted import Place, Placed
from hetsched.partition.orders import by_stage
from hetsched.partition.overlap import Window
from hetsched.partition.phases import Found
from hetsched.partition.problem import Budget
from hetsched.partition.search import Descent
from hetsched.partition.timing import Costs, figures

EVALUATIONS = 400
"""Most that local search may spend on a block."""


class BlockDescent(Descent):
    """Local search over the plans of a block between two alternatives; no op may be left out of its relaxation."""

    def __init__(self, window: Window, budget: Budget) -> None:
        self.window = window
        ops = [v for v in (window.block.entry, *window.block.inner, window.block.exit) if v >= 0]
        self.place = {v: k for k, v in enumerate(ops)}
        super().__init__(self._costs(ops), budget)

    def _costs(self, ops: Sequence[int]) -> Costs:
        whole, w, place = self.window.relaxed.c, self.window, self.place
        fixed = {w.block.entry: [w.a], w.block.exit: [w.b]}
        rows = [fixed.get(v, list(whole.alts[v])) for v in ops]
        kept = [a for row in rows for a in row]
        c = copy(whole)
        starts = [sum(map(len, rows[:k])) for k in range(len(rows))]
        c.n, c.alts = len(ops), [range(start, start + len(row)) for start, row in zip(starts, rows, strict=True)]
        c.queue, c.domain = ([of[a] for a in kept] for of in (whole.queue, whole.domain))
        c.energy = [whole.energy[a] for a in kept]
        c.time = [0.0 if a == w.a else whole.time[a] for a in kept]
        c.loss = []
        c.inputs = [[] if v == w.block.entry else [t for t in whole.inputs[v] if t in w.tensors] for v in ops]
        c.outputs = [whole.outputs[v] for v in ops]
        c.preds = [[place[u] for u in whole.preds[v] if u in place] for v in ops]
        c.succs = [[place[u] for u in whole.succs[v] if u in place] for v in ops]
        c.producer = [place.get(p, -1) for p in whole.producer]
        c.results = [place[v] for v in whole.results if v in place] if w.b < 0 else []
        return c

    def measured(self, order: Sequence[int], alternative: Sequence[int]) -> float:
        """Seconds from the entry's end to the exit's."""
        return figures(self.c, order, alternative).latency_s - (self.c.launch[self.window.entry] if self.window.a >= 0 else 0.0)

    def found(self, classes: Classes, answers: Sequence[Placed], limit: int = EVALUATIONS) -> Found:
        """The best plan that answers lead to, its ops by their positions in the block."""
        starts = [plan for placed in answers for plan in self._plans(classes, placed)]
        best = min(starts, key=lambda plan: self.measured(*plan))
        order, alternative, seconds = self.improve(*best, limit)
        c, inner = self.c, int(self.window.a >= 0)
        last = len(self.window.block.inner) + inner
        return Found(seconds, True, tuple((v - inner, alternative[v] - c.alts[v].start) for v in order if inner <= v < last))

    def _plans(self, classes: Classes, placed: Placed) -> list[tuple[list[int], list[int]]]:
        """Plans with each class's roles shared out among its ops, with queues in several orders at one place."""
        c, place = self.c, self._shared_out(classes, placed)
        queue = [c.queue[row.start] for row in c.alts]
        alternative = [row.start for row in c.alts]
        for v, p in place.items():
            queue[v] = p.queue
            alternative[v] = min((a for a in c.alts[v] if c.queue[a] == p.queue), key=lambda a: (c.time[a], a))
        plans = []
        for ranks in permutations(range(c.queues)):
            stage = [float(c.queues * place[v].at + ranks[queue[v]]) if v in place else -1.0 for v in range(c.n)]
            plans.append((by_stage(c, stage, queue), alternative))
        return plans

    def _shared_out(self, classes: Classes, placed: Placed) -> dict[int, Place]:
        """A place per op. Those that a placed op needs are placed next, along the arcs that were found, so that branches stay together."""
        left = [Counter(row) for row in placed.counts]
        flows = {arc: Counter(flow) for arc, flow in placed.flows.items()}
        place: dict[int, Place] = {}
        for start in reversed(self.window.block.inner):
            ready = [start]
            while ready:
                v = ready.pop()
                j = classes.of[v]
                if self.place[v] not in place:
                    place[self.place[v]] = self._taken(left[j], None, None)
                to = place[self.place[v]]
                for u in (u for u in self.window.relaxed.preds[v] if u in classes.of and self.place[u] not in place):
                    place[self.place[u]] = self._taken(left[classes.of[u]], to, flows.get((classes.of[u], j)))
                    ready.append(u)
        return place

    def _taken(self, left: Counter[Place], to: Place | None, flow: Counter[tuple[Place, Place]] | None) -> Place:
        """One of the places that are left for a class, if possible one from which an arc goes to ``to``."""
        free = [p for p, n in left.items() if n > 0]

        def rank(p: Place) -> tuple[bool, bool, bool, Place]:
            arc = flow is not None and to is not None and flow[p, to] > 0
            return not arc, to is not None and p.at > to.at, to is not None and p.queue != to.queue, p

        best = min(free, key=rank)
        left[best] -= 1
        if flow is not None and to is not None:
            flow[best, to] -= 1
        return best
