"""The best known plan of each block, and plans put together from them: one search serves all layers that are alike.

The bound's path over cuts (:mod:`hetsched.partition.chain`) names an alternative for every cut. Between two cuts a block's plan is
independent of all others, except that a tensor read behind a cut may be transferred in two blocks. So the blocks' plans in a
row, timed again as a whole, are a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from hetsched.partition.additive_chain import Arc
from hetsched.partition.block_search import INFINITE, search
from hetsched.partition.block_slots import BlockSlots
from hetsched.partition.chain import Chain
from hetsched.partition.overlap import Window
from hetsched.partition.phases import Found
from hetsched.partition.problem import Budget
from hetsched.partition.search import runs_of
from hetsched.partition.timing import Costs, figures
from hetsched.partition.twins import twins

#: Seconds of a block's plan; the positions of its inner ops in order, each with the position of its alternative.
Known: TypeAlias = tuple[float, tuple[tuple[int, int], ...]]

BETWEEN = (3, 5)
"""Segments between a block's first and last, in turn."""
SMALL = 30
"""Blocks with more inner ops are searched with the first of these only."""
FIRST = 0.7
"""Share of the units left for each of these searches."""
LOOSE = 4.0
"""Times its bound a plan of a block may take if no serial one is known."""


class BlockPlans:
    """The best known plans of a chain's blocks; no op may be left out of the chain."""

    def __init__(self, chain: Chain, budget: Budget) -> None:
        self.chain, self.budget = chain, budget
        self.known: dict[str, Known] = {}
        self.tried: dict[str, float] = {}
        """Units of the last search of a block, infinite if it was solved."""
        self.improved = 0
        """How often a search has found a better plan than was known."""

    def offer(self, arc: Arc, found: Found) -> None:
        """Note a plan if it is better than what is known."""
        key = self.chain.signature(arc)
        if found.exact and found.cost < self.known.get(key, (INFINITE, ()))[0]:
            self.known[key] = found.cost, found.placed

    def _blocks_of(self, order: Sequence[int], alternative: Sequence[int]) -> Iterator[tuple[Arc, Found]]:
        chain, ended = self.chain, op_ends(self.chain.c, order, alternative)
        latency = figures(chain.c, order, alternative).latency_s
        position = {op: k for k, op in enumerate(order)}
        for k, block in enumerate(chain.blocks):
            a, b = (-1 if op < 0 else alternative[op] for op in (block.entry, block.exit))
            seconds = (latency if b < 0 else ended[block.exit]) - (0.0 if a < 0 else ended[block.entry])
            inner = sorted(range(len(block.inner)), key=lambda i: position[block.inner[i]])
            placed = tuple((i, alternative[block.inner[i]] - chain.c.alts[block.inner[i]].start) for i in inner)
            yield (k, a, b), Found(seconds, True, placed)

    def best(self, arc: Arc, window: Window, units: float) -> tuple[float, float]:
        """Seconds of the best known plan after a search with CP-SAT, and the work done now.

        A search that was cut short is repeated when there are twice as many units for it.
        """
        key, place = self.chain.signature(arc), {v: i for i, v in enumerate(window.block.inner)}
        best, tried = self.known.get(key, (INFINITE, ())), self.tried.get(key, 0.0)
        c, used, more = self.chain.c, 0.0, False
        for between in (BETWEEN if len(place) <= SMALL else BETWEEN[:1]) if len(place) > 1 and units >= 2 * tried else ():
            limit = best[0] if best[0] < INFINITE else LOOSE * max(self.chain.values[arc], 1e-9)
            found = search(BlockSlots(window, between, 0.0, limit, rest=False, tied=ties(window)), self.budget, FIRST * (units - used))
            used += found.units
            more = more or found.open
            if found.value < best[0]:
                best = found.value, tuple((place[v], a - c.alts[v].start) for v, a in found.placed)
                self.improved += 1
        self.known[key] = best
        if used:
            self.tried[key] = units if more else INFINITE
        return best[0], used

    def adopt(self, order: Sequence[int], alternative: Sequence[int]) -> list[Arc]:
        """Note the blocks of a whole plan, whose seconds add up to its latency, and name them, those first that take longest together."""
        seconds: dict[str, float] = {}
        arcs: dict[str, Arc] = {}
        for arc, found in self._blocks_of(order, alternative):
            self.offer(arc, found)
            key = self.chain.signature(arc)
            seconds[key] = seconds.get(key, 0.0) + found.cost
            arcs.setdefault(key, arc)
        return [arcs[key] for key in sorted(arcs, key=lambda key: (-seconds[key], arcs[key]))]

    def composed(self) -> tuple[list[int], list[int]]:
        """Order and alternatives of the cheapest known plans in a row; a whole plan must have been adopted."""
        return self._in_a_row(self._cheapest())

    def _in_a_row(self, path: Sequence[Arc]) -> tuple[list[int], list[int]]:
        order: list[int] = []
        alternative = [-1] * self.chain.c.n
        for arc in path:
            block = self.chain.blocks[arc[0]]
            for op, way in self.known[self.chain.signature(arc)][1]:
                order.append(block.inner[op])
                alternative[order[-1]] = self.chain.c.alts[order[-1]].start + way
            if block.exit >= 0:
                order.append(block.exit)
                alternative[block.exit] = arc[2]
        return order, alternative

    def _cheapest(self) -> list[Arc]:
        """The shortest path over the known plans."""
        chain = self.chain
        cost: dict[int, float] = {-1: 0.0}
        back: list[dict[int, int]] = []
        for k, block in enumerate(chain.blocks):
            rows = {b: [(x + self._seconds((k, a, b)), a) for a, x in cost.items()] for b in chain.exits(block)}
            back.append({b: min(row)[1] for b, row in rows.items()})
            cost = {b: min(row)[0] for b, row in rows.items()}
        path: list[Arc] = []
        b = -1
        for k in reversed(range(len(back))):
            path.append((k, back[k][b], b))
            b = back[k][b]
        return path[::-1]

    def _seconds(self, arc: Arc) -> float:
        if not self.chain.blocks[arc[0]].inner:
            self.known.setdefault(self.chain.signature(arc), (self.chain.values[arc], ()))
        return self.known.get(self.chain.signature(arc), (INFINITE, ()))[0]


def op_ends(c: Costs, order: Sequence[int], alternative: Sequence[int]) -> list[float]:
    """Seconds at which each op ends, if the transfers of its segment come first."""
    owner, ends, ended = [-1] * c.n, list[float](), [0.0] * c.n
    queues, free, held = list[int](), [0.0] * c.queues, set[tuple[int, int]]()
    for k, run in enumerate(runs_of(c, order, alternative)):
        q, now = c.queue[alternative[run[0]]], 0.0
        for op in run:
            owner[op] = k
            now = max([now, *(ends[owner[p]] + c.sync[queues[owner[p]]][q] for p in c.preds[op] if owner[p] != k)])
        now = max(now, free[q]) + c.launch[q]
        for op in run:
            d = c.domain[alternative[op]]
            for t in (t for t in c.inputs[op] if (t, d) not in held):
                held.add((t, d))
                now += c.transfer[t][c.source(t, alternative)][d]
            held.update((t, d) for t in c.outputs[op])
        for op in run:
            now += c.time[alternative[op]]
            ended[op] = now
        ends.append(now)
        queues.append(q)
        free[q] = now
    return ended


def ties(window: Window) -> list[tuple[int, int]]:
    """Pairs of ops that a search may keep together: of several identical branches, all but one stay as whole as they can."""
    succs, branches = window.relaxed.c.succs, twins(window.relaxed, window.block, window.tensors)
    readers = {v: [s for s in succs[v] if s in branch] for group in branches for branch in group[:-1] for v in branch}
    return [(v, row[0]) for v, row in readers.items() if len(row) == 1]
