"""The least additive cost in any order: blocks between cuts, solved where the cheapest chain of them runs.

Exact where nothing was left out and no tensor that is read behind a cut other than its producer is transferred in two
blocks (each tensor is charged in one block); otherwise a lower bound. Identical blocks are searched once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from hetsched.partition.blocks import blocks, bridged, light_ops
from hetsched.partition.frontier import Additive
from hetsched.partition.phases import INFINITE, PER_STATE, Found, PhaseSearch
from hetsched.partition.problem import Budget
from hetsched.partition.relaxed import shortest
from hetsched.partition.timing import Costs

#: Block, alternative of its entry, alternative of its exit (-1: the start, the end).
Arc: TypeAlias = tuple[int, int, int]
STATES = 2_000
"""States of the first search of a block; four times as many each further time."""
TRIES = 4
AFTER = 0.1
"""Units to go on for the optimum itself once the bound is good enough."""
SHARES = (0.003, 0.01, 0.03, 0.1)
"""Shares of the cost left out; the best of the bounds counts."""


def with_inputs(c: Costs, add: Additive) -> tuple[Additive, set[int]]:
    """Graph inputs that one op reads, and costs of ops that hold their transfers: nobody else could pay for them."""
    readers = Counter(t for row in c.inputs for t in dict.fromkeys(row))
    folded = {t for t, n in readers.items() if n == 1 and c.producer[t] < 0}
    op = list(add.op)
    for v, row in enumerate(c.inputs):
        for t in sorted(folded.intersection(row)):
            for a in (a for a in c.alts[v] if c.domain[a] != c.input_domain):
                op[a] += add.transfer[t][c.input_domain][c.domain[a]]
    return add.with_ops(op), folded


@dataclass(frozen=True)
class AdditiveBound:
    """A proven least cost and, where the chain of blocks has been solved throughout, the plan: order and alternatives."""

    cost: float
    placed: tuple[tuple[int, ...], tuple[int, ...]] | None = None


class AdditiveChain:
    """Blocks and a least cost per block and pair of alternatives of its entry and exit."""

    def __init__(self, c: Costs, add: Additive, left_out: Collection[int] = ()) -> None:
        add, folded = with_inputs(c, add)
        self.c, self.add = c, add
        preds = bridged(c.preds, left_out)
        self.constant = sum(min(add.op[a] for a in c.alts[v]) for v in left_out)
        self.blocks = blocks(list(preds), preds)
        q = range(c.queues)
        switch = shortest([[add.switch[p][r] - add.first[r] if p != r else 0.0 for r in q] for p in q], add.first)
        self.charged = self._charged(set(left_out))
        self.searches = [PhaseSearch(c, add, switch, b, preds, t - folded) for b, t in zip(self.blocks, self.charged, strict=True)]
        self.memo: dict[Any, Found] = {}
        self.found: dict[Arc, Found] = {}
        for k, block in enumerate(self.blocks):
            for a in self.ends(block.entry):
                for b in self.ends(block.exit):
                    self.found[k, a, b] = self.search((k, a, b), INFINITE, 0 if block.inner else 1)

    def ends(self, op: int) -> list[int]:
        """Alternatives of an entry or exit."""
        return [-1] if op < 0 else list(self.c.alts[op])

    def _charged(self, left_out: Collection[int]) -> list[set[int]]:
        """Per block the tensors whose transfers it pays: those made in it or by its entry; a graph input where it is read first.

        What a left-out op reads is paid nowhere: that op may pay at another time.
        """
        c = self.c
        elsewhere = {t for v in left_out for t in c.inputs[v]}
        home = {v: k for k, b in enumerate(self.blocks) for v in (*b.inner, *([b.exit] if b.exit >= 0 else []))}
        maker = home | {b.entry: k for k, b in enumerate(self.blocks)}
        out: list[set[int]] = [set() for _ in self.blocks]
        given: set[int] = set()
        for v, k in home.items():
            for t in c.inputs[v]:
                p = c.producer[t]
                if t not in elsewhere and (maker.get(p) == k if p >= 0 else t not in given):
                    out[k].add(t)
            given.update(t for t in c.inputs[v] if c.producer[t] < 0)
        return out

    def search(self, arc: Arc, limit: float, states: int) -> Found:
        """A block between two alternatives, or what an identical one gave."""
        c, (k, a, b) = self.c, arc
        entry = None if a < 0 else (c.queue[a], c.domain[a])
        leaving = None if b < 0 else (c.queue[b], c.domain[b], self.add.op[b])
        key = self.searches[k].key, entry, leaving
        known = self.memo.get(key)
        if known is None or (not known.exact and known.cost < limit and known.states < states):
            known = self.memo[key] = self.searches[k].search(a, b, limit, states)
        else:
            known = replace(known, states=0)
        return known

    def bound(self) -> tuple[float, list[Arc]]:
        """The least total and the arcs that add up to it."""
        cost: dict[int, float] = {-1: 0.0}
        back: list[dict[int, int]] = []
        for k, block in enumerate(self.blocks):
            origin = {b: min(cost, key=lambda a: cost[a] + self.found[k, a, b].cost) for b in self.ends(block.exit)}
            cost = {b: cost[a] + self.found[k, a, b].cost for b, a in origin.items()}
            back.append(origin)
        path: list[Arc] = []
        b = -1
        for k in reversed(range(len(back))):
            path.append((k, back[k][b], b))
            b = back[k][b]
        return (self.constant + cost[-1]) * (1 - 1e-12), path[::-1]

    def raise_to(self, target: float, good: float, budget: Budget, units: float) -> AdditiveBound:
        """Search the blocks of the cheapest chain until it is dear enough, solved throughout, or the units are spent.

        Once it is ``good`` only ``AFTER`` more units are spent.
        """
        tries: dict[Arc, int] = {}
        reached = False
        while True:
            total, path = self.bound()
            if total >= good and not reached:
                reached, units = True, min(units, AFTER)
            open_ = [arc for arc in path if not self.found[arc].exact and tries.get(arc, 0) < TRIES]
            if total >= target or not open_ or units <= 0 or budget.out_of_time():
                return AdditiveBound(total, self._placed(path))
            fewest = min(tries.get(arc, 0) for arc in open_)
            for arc in (arc for arc in open_ if tries.get(arc, 0) == fewest):
                states = min(STATES * 4**fewest, int(units / PER_STATE) + 1)
                limit = self.found[arc].cost + max(0.0, target - total)
                found = self.search(arc, limit, states)
                spent = PER_STATE * (found.states + 1)
                budget.charge(spent)
                units -= spent
                tries[arc] = fewest + 1
                self.found[arc] = found if found.cost > self.found[arc].cost or found.exact else self.found[arc]

    def _placed(self, path: list[Arc]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The plan along a path, if every op is in it and every block of it is solved."""
        c = self.c
        order: list[int] = []
        alternative = [-1] * c.n
        for arc in path:
            block, found = self.blocks[arc[0]], self.found[arc]
            for op, way in found.placed if found.exact else ():
                order.append(block.inner[op])
                alternative[order[-1]] = c.alts[order[-1]].start + way
            if arc[2] >= 0:
                order.append(block.exit)
                alternative[block.exit] = arc[2]
        return (tuple(order), tuple(alternative)) if len(order) == c.n else None


def least_cost(c: Costs, add: Additive, target: float, good: float, budget: Budget, units: float) -> AdditiveBound:
    """The least additive cost in any order.

    Args:
        c: the costs.
        add: what is added up.
        target: a known cost: nothing above is looked for.
        good: a bound that is good enough.
        budget: is charged.
        units: of it, how much may be spent.

    Returns:
        A proven lower bound, and a plan if one was found on the way; the plan's own cost may be above the bound.
    """
    before = budget.spent
    best = AdditiveChain(c, add).raise_to(target, good, budget, units / 2)
    if best.cost >= good or best.placed is not None:
        return best
    own = with_inputs(c, add)[0].op
    light = light_ops(c.preds, [min(own[a] for a in row) for row in c.alts], SHARES[-1])
    for left, share in zip(range(len(SHARES), 0, -1), SHARES, strict=True):
        spare = (units - (budget.spent - before)) / left
        if best.cost >= good or spare <= 0:
            break
        other = AdditiveChain(c, add, [v for v, made_up in light if made_up <= share]).raise_to(target, good, budget, spare)
        best = AdditiveBound(max(best.cost, other.cost), best.placed)
    return best
