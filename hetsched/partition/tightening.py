"""Tighter latency bounds: the blocks on a chain's cheapest path are bounded better and better, while it pays.

Five ways, the cheap ones first: serial or overlapping (:mod:`hetsched.partition.overlap`) with fractions of ops, the same with
whole ops (:mod:`hetsched.partition.counted`), :mod:`hetsched.partition.sequences` where branches are alike, CP-SAT over segments
(:mod:`hetsched.partition.block_slots`; only if no op is left out), and CP-SAT over starts and ends (:mod:`hetsched.partition.relaxation`).
Identical blocks are bounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from hetsched.partition.additive_chain import AdditiveChain, Arc
from hetsched.partition.alike import Classes
from hetsched.partition.block_descent import BlockDescent
from hetsched.partition.block_plans import LOOSE, BlockPlans
from hetsched.partition.block_search import search
from hetsched.partition.block_slots import BlockSlots
from hetsched.partition.chain import INFINITE, Chain
from hetsched.partition.counted import Counted, QueueCounts
from hetsched.partition.frontier import Additive
from hetsched.partition.overlap import Window
from hetsched.partition.phases import PER_STATE, Found
from hetsched.partition.problem import Budget
from hetsched.partition.relaxation import BlockModel
from hetsched.partition.sequences import bounded, planned
from hetsched.partition.stages import MOST, main_queue
from hetsched.partition.timing import Costs
from hetsched.partition.twins import twins

LARGEST = 250
"""Blocks with more inner ops than this are not given to CP-SAT with starts and ends."""
STALL = 0.35
"""The search for a better bound ends when this share of its units has raised no block by ``LEAST_GAIN``."""
LEAST_GAIN = 1e-3
SLOTS = (0, 1, 3)
"""Segments that are modelled one by one, in turn."""
SERIAL_STATES = 5_000
"""Most states of the search for the serial cost of a block."""
STAGED_OPS = 150
"""Blocks with more inner ops are not given to :mod:`hetsched.partition.stages`; those above the next wait for it if it can solve them."""
SLOTS_OPS, TWINS_OPS = 60, 100
"""Blocks with more inner ops are not given to CP-SAT with segments; the second, if it has identical branches."""
FEW_OPS = 30
"""Blocks with no more inner ops are given to CP-SAT with segments even if their branches are alike."""
PLANNED = 0.4
"""Share of the units for plans with few segments, before such blocks are bounded."""
PER_WINDOW = 0.002
"""Units of a bound with fractions of ops."""

#: An arc, its known value and the most that is of interest -> the value, whether more units could help, the units used.
Way: TypeAlias = Callable[[Arc, float, float, float], tuple[float, bool, float]]


LEAST_OPS: Mapping[str, float] = {"fractions": 0}
FIRST: Mapping[str, float] = {"slots 1": 0.5, "sequences": 0.9}
"""Share of the units for the first try at a block, if not a quarter."""
MOST_OPS: Mapping[str, float] = {"fractions": INFINITE, "roles": INFINITE, "starts": LARGEST}


class Stage(NamedTuple):
    """Ways that are tried together, whether only on the chain that has every op, and the share of the units left that they may spend."""

    ways: tuple[str, ...]
    whole: bool
    share: float


LAYERS = (
    Stage(("fractions", "roles", "slots 0"), True, 0.45),
    Stage(("sequences",), True, 0.7),
    Stage(("slots 1",), True, 0.5),
    Stage(("slots 0", "slots 3"), True, 0.7),
)
"""For small blocks and such with identical branches."""
OTHERS = (Stage(("fractions", "roles"), False, 0.6), Stage(("starts",), False, 1.0))


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


def tighten(tightened: Sequence[Tightened], stage: Stage, incumbent: float, target: float, budget: Budget, units: float) -> float:
    """A latency bound from chains with fewer and with more ops, loose blocks replaced by better bounds.

    Args:
        tightened: the chains; the least times of their blocks are raised.
        stage: what is tried.
        incumbent: a known latency in seconds.
        target: a bound that is good enough.
        budget: is charged.
        units: of it, how much may be spent; a share of ``STALL`` without any progress ends the search.

    Returns:
        A proven lower bound in seconds.
    """
    patience = Patience(STALL * units)
    before = budget.spent
    able = [one for one in tightened if not stage.whole or one.left_out() == 0]
    for way in stage.ways:
        ranked = sorted(able, key=Tightened.largest if way == "starts" else Tightened.left_out)
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
        self.fractional: dict[str, float] = {}
        self.known: dict[Any, tuple[float, float]] = {}
        self.ways: dict[str, Way] = {"fractions": self._fractions, "roles": self._roles, "starts": self._starts}
        self.branched: dict[int, bool] = {}
        self.classes: dict[int, Classes] = {}
        self.planned, self.wanted = set[str](), 1.0  # the second: what share of a block's known plan is a good enough bound
        self.names: dict[Arc, str] = {}
        self.plans = BlockPlans(chain, budget)
        self.ways |= {"sequences": self._sequences} | {f"slots {k}": partial(self._slots, k) for k in SLOTS}

    def largest(self) -> int:
        """Inner ops of its largest block."""
        return max(len(b.inner) for b in self.chain.blocks)

    def left_out(self) -> int:
        """How many ops are not in it: the more, the less serial work is left to count."""
        return self.c.n - len(self.chain.relaxed.ops)

    def raise_by(self, way: str, incumbent: float, target: float, units: float, patience: Patience) -> None:
        """Raise the arcs of the cheapest path until the chain is dear enough, one way has no more to give, or the units are spent.

        Arcs of the path whose blocks are identical are raised together: layers that repeat cost as much as one.
        """
        chain, tries, closed = self.chain, dict[Arc, int](), set[Arc]()
        self.wanted = target / incumbent
        while True:
            total, path = chain.bound()
            loose = [arc for arc in path if arc not in closed and self._fits(way, arc[0])]
            if total >= target or not loose or units <= 0 or patience.lost or self.budget.out_of_time():
                return
            arc = min(loose, key=lambda arc: (tries.get(arc, 0), len(chain.blocks[arc[0]].inner), arc))
            improved = self.plans.improved
            value, more, used = self._raised(way, arc, incumbent - total, units if tries.get(arc) else units * FIRST.get(way, 0.25))
            units -= used
            self.budget.charge(used)
            patience.after(used, value > chain.values[arc] * (1 + LEAST_GAIN) or self.plans.improved > improved)
            tried = tries.get(arc, 0) + 1
            chain.raise_to(arc, value)
            for other in (other for other in loose if self.alike(other) == self.alike(arc)):
                chain.raise_to(other, min(value, chain.values[other] + max(0.0, incumbent - total)))
                tries[other] = tried
                if not more or tried > 1:
                    closed.add(other)

    def replanned(self, order: Sequence[int], alternative: Sequence[int], units: float) -> tuple[list[int], list[int]]:
        """A plan with its blocks searched anew, in no more than ``units``, and put together with all that is known of others."""
        for arc in self.plans.adopt(order, alternative):
            if self._fits("slots 1", arc[0]) and units > 0:
                _, used = self.plans.best(arc, self.window(arc), units)
                self.budget.charge(used)
                units -= used
        return self.plans.composed()

    def _fits(self, way: str, block: int) -> bool:
        """Whether a block is of a size that a way is for."""
        inner, repeated = len(self.chain.blocks[block].inner), self._repeated(block)
        if way == "sequences" or (repeated and way != "starts"):
            return inner > 1 and (repeated if way == "sequences" else not way.startswith("slots"))
        if not way.startswith("slots") or not SLOTS_OPS < inner <= TWINS_OPS:
            return inner >= LEAST_OPS.get(way, 2) and inner <= MOST_OPS.get(way, SLOTS_OPS)
        if block not in self.branched:
            self.branched[block] = bool(twins(self.chain.relaxed, self.chain.blocks[block], self.window((block, -1, -1)).tensors))
        return self.branched[block]

    def _repeated(self, block: int) -> bool:
        """Whether few classes of ops stand for all of a block: heads of an attention, for example."""
        inner = len(self.chain.blocks[block].inner)
        return inner > FEW_OPS and self.left_out() == 0 and self.classes_of((block, -1, -1)).few

    def _raised(self, way: str, arc: Arc, slack: float, units: float) -> tuple[float, bool, float]:
        """A better value of an arc, at most ``slack`` above the one that it has; whether more units could help; the work done.

        What an identical block gave is taken over; a search that was cut short is repeated with at least twice the units.
        """
        value = self.chain.values[arc]
        limit = value + max(slack, value * 1e-6)
        key = way, self.alike(arc)
        known, given = self.known.get(key, (0.0, 0.0))
        if known > value or units < 2 * given:
            return max(value, min(limit, known)), given < INFINITE, 0.0
        found, more, used = self.ways[way](arc, value, limit, units)
        found = min(limit, found)
        self.known[key] = max(known, found), units if more else INFINITE
        return found, more, used

    def alike(self, arc: Arc) -> str:
        """Equal for arcs whose blocks cost the same and pay for the same transfers."""
        if arc not in self.names:
            self.names[arc] = self.chain.alike(arc, self.window(arc).tensors)
        return self.names[arc]

    def window(self, arc: Arc) -> Window:
        """A block between two alternatives, with the tensors whose transfers it pays."""
        if self.serial is None:
            kept = set(self.chain.relaxed.ops)
            self.serial = AdditiveChain(self.c, Additive(self.c), [v for v in range(self.c.n) if v not in kept])
        k, a, b = arc
        return Window(self.chain.relaxed, self.chain.blocks[k], a, b, self.serial.charged[k])

    def _fractions(self, arc: Arc, value: float, limit: float, _: float) -> tuple[float, bool, float]:
        window, key = self.window(arc), self.alike(arc)
        serial, used = self.serially(arc, limit)
        if key not in self.fractional:
            self.fractional[key] = window.fractional()
            used += PER_WINDOW
        return max(value, min(serial.cost, self.fractional[key])), False, used

    def serially(self, arc: Arc, limit: float, states: int = SERIAL_STATES) -> tuple[Found, float]:
        """What a block costs if its segments wait for each other, as far as it is below ``limit``, and the work done."""
        self.window(arc)
        assert self.serial is not None
        found = self.serial.search(arc, limit, states)
        self.plans.offer(arc, found)
        return found, PER_STATE * (1 + found.states)

    def _roles(self, arc: Arc, value: float, limit: float, units: float) -> tuple[float, bool, float]:
        serial, used = self.serially(arc, limit)
        window = self.window(arc)
        left = SLOTS_OPS < len(window.block.inner) <= STAGED_OPS and self.left_out() == 0
        if left and window.fractional(main_queue(window), MOST + 1) >= limit:
            return value, True, used
        if serial.cost <= value * (1 + LEAST_GAIN):
            return value, False, used
        found = QueueCounts(self.window(arc), self.classes_of(arc), value, min(limit, serial.cost)).solve(self.budget, units - used)
        self._plan_from(arc, found)
        return max(value, min(serial.cost, found.bound)), found.open, used + found.units

    def _sequences(self, arc: Arc, value: float, limit: float, units: float) -> tuple[float, bool, float]:
        """Identical blocks are raised together; and no more is needed than to come close enough to a block's known plan."""
        serial, used = self.serially(arc, limit)
        if self.chain.signature(arc) not in self.planned:
            self.planned.add(self.chain.signature(arc))
            first = planned(self.window(arc), self.classes_of(arc), self._known_plan(arc), self.budget, PLANNED * units)
            self._plan_from(arc, first)
            used += first.units
        repeats = sum(self.alike(other) == self.alike(arc) for other in self.chain.bound()[1])
        most = min(value + (limit - value) / max(1, repeats), self._known_plan(arc) * self.wanted)
        if min(most, serial.cost) <= value * (1 + LEAST_GAIN):
            return max(value, min(most, serial.cost)), most < limit, used
        found = bounded(self.window(arc), self.classes_of(arc), value, most, self.budget, units - used)
        self._plan_from(arc, found)
        return max(value, min(serial.cost, most, found.bound)), found.open or most < limit, used + found.units

    def _known_plan(self, arc: Arc) -> float:
        """Seconds of the best known plan of a block, or far more than its bound."""
        return self.plans.known.get(self.chain.signature(arc), (LOOSE * max(self.chain.values[arc], 1e-9), ()))[0]

    def classes_of(self, arc: Arc) -> Classes:
        """The classes of a block's inner ops."""
        if arc[0] not in self.classes:
            self.classes[arc[0]] = Classes(self.window(arc))
        return self.classes[arc[0]]

    def _plan_from(self, arc: Arc, found: Counted) -> None:
        if found.placed and self._repeated(arc[0]):
            self.plans.offer(arc, BlockDescent(self.window(arc), self.budget).found(self.classes_of(arc), found.placed))

    def _slots(self, between: int, arc: Arc, value: float, limit: float, units: float) -> tuple[float, bool, float]:
        window, key = self.window(arc), self.alike(arc)
        serial, used = self.serially(arc, INFINITE)
        plan, more = self.plans.best(arc, window, units) if between else (INFINITE, 0.0)
        used += more
        limit = min(limit, plan, serial.cost)
        if limit <= value * (1 + LEAST_GAIN):
            return max(value, limit), False, used
        if between and self.known.get(("slots 0", key), (0.0, INFINITE))[1] < INFINITE:
            return value, True, used  # a smaller model is still open
        found = search(BlockSlots(window, between, value, limit, rest=True), self.budget, units - used)
        return max(value, min(limit, found.bound)), found.open, used + found.units

    def _starts(self, arc: Arc, value: float, limit: float, units: float) -> tuple[float, bool, float]:
        k, a, b = arc
        return BlockModel(self.chain.relaxed, self.chain.blocks[k], a, b, value, limit).bound(self.budget, units)
