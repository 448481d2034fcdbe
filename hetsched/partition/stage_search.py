"""Blocks of which two queues share the work: bounded by :mod:`hetsched.partition.stages`, whose answers also start local search."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.partition.additive_chain import Arc
from hetsched.partition.blocks import Block
from hetsched.partition.chain import INFINITE
from hetsched.partition.offloads import Offloads, Placement
from hetsched.partition.orders import by_stage
from hetsched.partition.phases import PER_STATE
from hetsched.partition.problem import Budget, Problem, Solution
from hetsched.partition.search import as_solution
from hetsched.partition.stage_model import Spot, Staged
from hetsched.partition.stages import staged
from hetsched.partition.tightening import LEAST_GAIN, PER_WINDOW, SERIAL_STATES, STAGED_OPS, Tightened
from hetsched.partition.timing import Costs, figures, value

BEYOND = 1 + 1e-9
"""Bounds are raised so far above what is good enough that rounding does not matter."""
LEAST_UNITS = 0.2
"""With fewer, no model is built."""
SHARES = (0.75, 1.0)
"""Of the units left, for each try at a block."""
DESCENT = 0.05
"""Share of the units that local search may spend on one answer."""
LEAST_EVALUATIONS = 200
OFFLOADED_BLOCKS = 2
"""At most so many blocks have rows of their ops put on other queues,"""
OFFLOADED = 0.1
"""each with this share of the units."""
STARTS = 2
"""How many of these local search goes on from."""
SERIAL = 0.5
"""Share of the units left after a try that the serial cost of the block may take."""


def improve_by_stages(
    problem: Problem, c: Costs, tightened: Sequence[Tightened], best: Solution, tolerance: float, budget: Budget, units: float
) -> tuple[Solution, float]:
    """Bound the loose blocks on the cheapest path of the best chain, and search on from what that gives.

    Args:
        problem: the problem, for the latency.
        c: its costs.
        tightened: chains of the costs; the least times of their blocks are raised.
        best: the best solution so far.
        tolerance: the gap that is good enough.
        budget: is charged.
        units: of it, how much may be spent.

    Returns:
        The best solution and a proven lower bound in seconds.
    """
    end = budget.spent + units
    staging = [_Staging(one, budget) for one in tightened]
    for one in staging:
        one.raise_cheaply(best.objective / (1 + tolerance) * BEYOND)
    one = max(staging, key=lambda one: (one.chain.bound()[0], len(one.chain.relaxed.ops)))
    search, offloaded = Offloads(problem, c, budget), set[int]()
    while True:
        total, path = one.chain.bound()
        target = best.objective / (1 + tolerance)
        loose = [arc for arc in path if one.is_loose(arc)]
        if total >= target or not loose or end - budget.spent < LEAST_UNITS or budget.out_of_time():
            return best, total
        arc = max(loose, key=lambda arc: (-one.tries.get(arc, 0), len(one.chain.blocks[arc[0]].inner), arc))
        block = one.chain.blocks[arc[0]]
        if arc[0] not in offloaded and len(offloaded) < OFFLOADED_BLOCKS:
            offloaded.add(arc[0])
            best = _offloaded(search, best, block, units)
            continue
        answer = one.raise_by_stages(arc, target * BEYOND - total, end - budget.spent)
        better = _descended(search, best, [spliced(c, best, block, placed) for placed in dict.fromkeys(answer.placed)], units)
        if better is not best:
            best, one.tries = better, {}


class _Staging:
    """A chain, what its blocks cost serially, how often each has been tried, and what identical ones gave."""

    def __init__(self, tightened: Tightened, budget: Budget) -> None:
        self.tightened, self.chain, self.budget = tightened, tightened.chain, budget
        self.alone: dict[Arc, float] = {}
        self.unsolved: set[Arc] = set()
        """Those whose serial cost is only bounded, below what was of interest."""
        self.tries: dict[Arc, int] = {}
        self.known: dict[str, float] = {}

    def is_loose(self, arc: Arc) -> bool:
        """Whether a block may be worth a model."""
        few = 1 < len(self.chain.blocks[arc[0]].inner) <= STAGED_OPS
        serial = self.alone.get(arc, INFINITE) > self.chain.values[arc] * (1 + LEAST_GAIN) or arc in self.unsolved
        return few and serial and self.tries.get(arc, 0) < len(SHARES)

    def raise_cheaply(self, target: float) -> None:
        """Raise the arcs of the cheapest path to what they take serially or with fractions of ops."""
        fractions = self.tightened.fractional
        while not self.budget.out_of_time():
            total, path = self.chain.bound()
            new = [arc for arc in path if arc not in self.alone]
            if total >= target or not new or self.budget.left <= 0:
                return
            for arc in new:
                key = self.tightened.alike(arc)
                if key not in fractions:
                    fractions[key] = self.tightened.window(arc).fractional()
                    self.budget.charge(PER_WINDOW)
                self._raise(arc, self.chain.values[arc] + target - total, fractions[key])

    def _raise(self, arc: Arc, limit: float, overlapped: float, units: float = 0.0) -> None:
        """Raise an arc to the lesser of what it takes serially, which is searched for some units, and overlapped."""
        found, used = self.tightened.serially(arc, limit, max(SERIAL_STATES, int(units / PER_STATE)))
        self.budget.charge(used)
        self.alone[arc] = found.cost
        (self.unsolved.discard if found.exact or found.cost >= limit else self.unsolved.add)(arc)
        self.chain.raise_to(arc, min(limit, found.cost, overlapped))

    def raise_by_stages(self, arc: Arc, slack: float, units: float) -> Staged:
        """Raise an arc by at most ``slack``, with a share of the units for each try."""
        share, value, key = SHARES[self.tries.get(arc, 0)], self.chain.values[arc], self.tightened.alike(arc)
        self.tries[arc] = self.tries.get(arc, 0) + 1
        known = self.known.get(key, 0.0)
        if known > value:
            answer = Staged(known, False, (), 0.0)
        else:
            answer = staged(self.tightened.window(arc), value, value + slack, self.budget, share * units)
        self.budget.charge(answer.units)
        self.known[key] = max(known, min(answer.bound, value + slack))
        self._raise(arc, value + slack, answer.bound, SERIAL * (units - answer.units))
        if not answer.open and arc not in self.unsolved:
            self.tries[arc] = len(SHARES)
        return answer


def _offloaded(search: Offloads, best: Solution, block: Block, units: float) -> Solution:
    """The best that local search finds once rows of the block's ops have gone to other queues."""
    limit = int(OFFLOADED * units / search.units)
    return _descended(search, best, search.starts(best.order, best.alternative, block.inner, limit, STARTS), units)


def _descended(search: Offloads, best: Solution, starts: Sequence[Placement], units: float) -> Solution:
    """The best that local search finds from some plans."""
    problem, current = search.problem, value(search.problem, figures(search.c, best.order, best.alternative))
    limit = max(LEAST_EVALUATIONS, int(DESCENT * units / search.units))
    for start in starts:
        order, alternative, got = search.improve(*start, limit)
        if got < current * (1 - 1e-9):
            best, current = as_solution(problem, "ilp", order, alternative), got
    return best


def spliced(c: Costs, plan: Solution, block: Block, placed: Sequence[Spot]) -> tuple[list[int], list[int]]:
    """Order and alternatives of a plan whose ops of one block are placed anew."""
    alternative = list(plan.alternative)
    stage = [float(k) for k in range(c.n)]
    for k, op in enumerate(plan.order):
        stage[op] = float(k)
    first, last = min(stage[op] for op in block.inner), 2.0 * (len(block.inner) + 2)
    for op, spot in zip(block.inner, placed, strict=True):
        there = [a for a in c.alts[op] if c.queue[a] == spot.queue]
        alternative[op] = min(there, key=lambda a: (c.time[a], a))
        stage[op] = first + min(0.5, spot.stage / last)
    return by_stage(c, stage, [c.queue[a] for a in alternative]), alternative
