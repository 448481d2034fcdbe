"""Tighter latency bounds: the blocks on a chain's cheapest path are bounded better and better, while it pays.

Three ways, the cheap ones first: serial or overlapping (:mod:`hetsched.partition.overlap`) with fractions of ops, the same with
whole ops (CP-SAT), and CP-SAT over starts and ends (:mod:`hetsched.partition.relaxation`). Identical blocks are bounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hetsched.partition.additive_chain import AdditiveChain, Arc
from hetsched.partition.chain import INFINITE, Chain
from hetsched.partition.frontier import Additive
from hetsched.partition.overlap import RoleModel, Window
from hetsched.partition.phases import PER_STATE
from hetsched.partition.problem import Budget
from hetsched.partition.relaxation import BlockModel
from hetsched.partition.timing import Costs

LARGEST = 250
"""Blocks with more inner ops than this are not given to CP-SAT with starts and ends."""
STALL = 0.35
"""The search for a better bound ends when this share of its units has raised no block by ``LEAST_GAIN``."""
LEAST_GAIN = 1e-3
SERIAL_STATES = 5_000
"""Most states of the search for the serial cost of a block."""
PER_WINDOW = 0.002
"""Units of a bound with fractions of ops."""

#: An arc, its known value and the most that is of interest -> the value, whether more units could help, the units used.
Way: TypeAlias = Callable[[Arc, float, float, float], tuple[float, bool, float]]


@dataclass
class Patience:
    """How much work in a row may bring nothing before the search for a better bound is given up."""

    allowed: float
    idle: float = 0.0

    def after(self, units: float, moved: bool) -> None:
        """Note some work and whether it brought anything."""
        self.idle = 0.0 if moved else self.idle + units

    @property
    def lost(self) -> bool:
        """Whether it is time to give up."""
        return self.idle >= self.allowed


def tighten(c: Costs, found: Sequence[Chain], incumbent: float, target: float, budget: Budget, units: float) -> float:
    """A latency bound from chains with fewer and with more ops, loose blocks replaced by better bounds.

    Args:
        c: the costs.
        found: their chains; the least times of their blocks are raised.
        incumbent: a known latency in seconds.
        target: a bound that is good enough.
        budget: is charged.
        units: of it, how much may be spent; a share of ``STALL`` without any progress ends the search.

    Returns:
        A proven lower bound in seconds.
    """
    patience = Patience(STALL * units)
    tightened = [Tightened(c, chain, budget) for chain in found]
    before = budget.spent
    for way in ("fractions", "roles", "starts"):
        ranked = sorted(tightened, key=Tightened.largest if way == "starts" else Tightened.left_out)
        for left, one in zip(range(len(ranked), 0, -1), ranked, strict=True):
            spare = units - (budget.spent - before)
            if max(t.chain.bound()[0] for t in tightened) >= target or spare <= 0 or patience.lost:
                break
            one.raise_by(way, incumbent, target, spare / (2 if way == "roles" else left), patience)
    return max(t.chain.bound()[0] for t in tightened)


class Tightened:
    """A chain, what its blocks cost serially, and what identical blocks gave."""

    def __init__(self, c: Costs, chain: Chain, budget: Budget) -> None:
        self.c, self.chain, self.budget = c, chain, budget
        self.serial: AdditiveChain | None = None
        self.charged: list[set[int]] = []
        self.serial_cost: dict[Arc, float] = {}
        self.fractional: dict[str, float] = {}
        self.known: dict[Any, float] = {}
        self.ways: dict[str, Way] = {"fractions": self._fractions, "roles": self._roles, "starts": self._starts}

    def largest(self) -> int:
        """Inner ops of its largest block."""
        return max(len(b.inner) for b in self.chain.blocks)

    def left_out(self) -> int:
        """How many ops are not in it: the more, the less serial work is left to count."""
        return self.c.n - len(self.chain.relaxed.ops)

    def raise_by(self, way: str, incumbent: float, target: float, units: float, patience: Patience) -> None:
        """Raise the arcs of the cheapest path until the chain is dear enough, one way has no more to give, or the units are spent."""
        chain, tries, closed = self.chain, dict[Arc, int](), set[Arc]()
        while True:
            total, path = chain.bound()
            sizes = {arc: len(chain.blocks[arc[0]].inner) for arc in path}
            least, most = (0, INFINITE) if way == "fractions" else (2, LARGEST if way == "starts" else INFINITE)
            loose = [arc for arc in path if arc not in closed and least <= sizes[arc] <= most]
            if total >= target or not loose or units <= 0 or patience.lost or self.budget.out_of_time():
                return
            arc = min(loose, key=lambda arc: (tries.get(arc, 0), sizes[arc], arc))
            value, more, used = self._raised(way, arc, incumbent - total, units if way == "roles" or tries.get(arc) else units / 4)
            units -= used
            self.budget.charge(used)
            patience.after(used, value > chain.values[arc] * (1 + LEAST_GAIN))
            tries[arc] = tries.get(arc, 0) + 1
            if not more or tries[arc] > 1:
                closed.add(arc)
            chain.raise_to(arc, value)

    def _raised(self, way: str, arc: Arc, slack: float, units: float) -> tuple[float, bool, float]:
        """A better value of an arc, at most ``slack`` above the one that it has."""
        value = self.chain.values[arc]
        limit = value + max(slack, value * 1e-6)
        key = way, self.chain.signature(arc)
        if self.known.get(key, 0.0) > value:
            return min(limit, self.known[key]), False, 0.0
        found, more, used = self.ways[way](arc, value, limit, units)
        self.known[key] = max(self.known.get(key, 0.0), found)
        return min(limit, found), more, used

    def _window(self, arc: Arc) -> Window:
        if self.serial is None:
            kept = set(self.chain.relaxed.ops)
            self.serial = AdditiveChain(self.c, Additive(self.c), [v for v in range(self.c.n) if v not in kept])
        k, a, b = arc
        return Window(self.chain.relaxed, self.chain.blocks[k], a, b, self.serial.charged[k])

    def _fractions(self, arc: Arc, value: float, limit: float, _: float) -> tuple[float, bool, float]:
        window, key = self._window(arc), self.chain.signature(arc)
        if key not in self.fractional:
            self.fractional[key] = window.fractional()
        assert self.serial is not None
        serial = self.serial.search(arc, limit, SERIAL_STATES)
        self.serial_cost[arc] = serial.cost
        used = PER_STATE * (1 + serial.states) + (PER_WINDOW if len(window.block.inner) > 1 else 0.0)
        return max(value, min(serial.cost, self.fractional[key])), False, used

    def _roles(self, arc: Arc, value: float, limit: float, units: float) -> tuple[float, bool, float]:
        serial = self.serial_cost.get(arc, 0.0)
        if serial <= value * (1 + LEAST_GAIN):
            return value, False, 0.0
        overlapped, used = RoleModel(self._window(arc), limit).bound(self.budget, units / 2)
        return max(value, min(serial, overlapped)), False, used

    def _starts(self, arc: Arc, value: float, limit: float, units: float) -> tuple[float, bool, float]:
        k, a, b = arc
        return BlockModel(self.chain.relaxed, self.chain.blocks[k], a, b, value, limit).bound(self.budget, units)
