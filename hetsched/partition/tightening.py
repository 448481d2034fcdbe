"""Tighter latency bounds: the blocks that the simple bound leaves loose are solved one after another, while it pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.partition.chain import Chain
from hetsched.partition.problem import Budget
from hetsched.partition.relaxation import BlockModel
from hetsched.partition.timing import Costs

LARGEST = 250
"""Blocks with more inner ops than this keep their simple bound."""
STALL = 0.35
"""The search for a better bound ends when this share of its units has raised no block by ``LEAST_GAIN``."""
LEAST_GAIN = 1e-3


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
    """A latency bound from chains with fewer and with more ops, loose blocks replaced by what CP-SAT proves.

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
    best = max(chain.bound()[0] for chain in found)
    patience = Patience(STALL * units)
    ranked = sorted(found, key=lambda chain: max(len(b.inner) for b in chain.blocks))
    for left, chain in zip(range(len(ranked), 0, -1), ranked, strict=True):
        value, used = _tighten_chain(chain, incumbent, target, budget, units / left, patience)
        best, units = max(best, value), units - used
        if best >= target or patience.lost:
            break
    return best


def _tighten_chain(chain: Chain, incumbent: float, target: float, budget: Budget, units: float, patience: Patience) -> tuple[float, float]:
    """Solve the blocks on the chain's cheapest path until it is dear enough or nothing more can be proven.

    Returns:
        The bound in seconds, and the work done.
    """
    given = units
    tries: dict[tuple[int, int, int], int] = {}
    closed: dict[tuple[int, int, int], bool] = {}
    while True:
        total, path = chain.bound()
        loose = [k for k in path if not closed.get(k) and 2 <= len(chain.blocks[k[0]].inner) <= LARGEST]
        if total >= target or not loose or units <= 0 or patience.lost or budget.out_of_time():
            return total, given - units
        key = min(loose, key=lambda k: (tries.get(k, 0), len(chain.blocks[k[0]].inner), k))
        share = units if tries.get(key) else units / 4
        known = chain.values[key]
        limit = known + max(incumbent - total, known * 1e-6)
        value, more, used = BlockModel(chain.relaxed, chain.blocks[key[0]], key[1], key[2], known, limit).bound(budget, share)
        units -= used
        budget.charge(used)
        patience.after(used, value > known * (1 + LEAST_GAIN))
        tries[key] = tries.get(key, 0) + 1
        closed[key] = not more or tries[key] > 1
        chain.values[key] = max(known, min(limit, value))
