"""The smallest arena that can be found for stretches, and the bytes that none can go below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.partition.liveness import Liveness
from hetsched.partition.offsets import Fit, Packing, orders
from hetsched.partition.stretches import joined, matched

#: An arena this close above its bound is not repaired, one this close not given to CP-SAT.
CLOSE, NEAR = 1.01, 1.05
#: Most stretches for CP-SAT, and for the bound of queues that overlap.
MODELLED, FLOWS = 300, 3000
VISITS = 1_000_000
"""Stretches looked at in the search for one arena: about half a second where even that does not reach the bound."""

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Packed:
    """An offset for each stretch, the bytes in all, and the bytes that no packing of these stretches can go below."""

    offsets: tuple[int, ...]
    nbytes: int
    bound: int


def packed(live: Liveness, pairs: Pairs = ()) -> Packed:
    """Offsets for stretches, as low as can be found quickly.

    Writing over inputs wherever that is allowed gives the least bytes alive at once. It ties tensors together, though, and
    may leave gaps, so it is also tried only where the bytes alive exceed the bound without it.

    Args:
        live: the stretches.
        pairs: (earlier, later) of them where the later one may take the earlier one's bytes, in order of time.
    """
    if not len(live.sizes):
        return Packed((), 0, 0)
    search = _Search(VISITS)
    everywhere = _Joined.of(live, matched(pairs))
    bound = int(everywhere.live.loads.max())
    search.try_orders(everywhere, bound)
    if search.best.nbytes > bound and live.overlap and len(live.sizes) <= FLOWS:
        bound = max(bound, live.widest(pairs))
    if search.best.nbytes > bound:
        needed = _Joined.of(live, matched(p for p in pairs if live.loads[p[1]] > bound))
        search.try_orders(needed, bound)
        for tried in (everywhere, needed):
            search.repair(tried, bound, int(CLOSE * bound))
    best = search.best
    if best.nbytes > NEAR * bound and len(live.sizes) <= MODELLED:
        from hetsched.partition.packing_model import smallest

        best, bound = smallest(live, pairs, best, bound)
    return Packed(best.offsets, best.nbytes, bound)


class _Search:
    """The best packing so far. Looking at ``visits`` stretches ends it; the first order of all is always tried."""

    def __init__(self, visits: int) -> None:
        self.left = visits
        self.best = Packing((), 1 << 62)

    def try_orders(self, tried: _Joined, target: int) -> None:
        """Best fit in one order after another, until one reaches ``target``."""
        for order in orders(tried.live):
            if self.best.nbytes <= target or (self.left <= 0 and self.best.offsets):
                return
            self._take(tried, tried.fit.best(order))

    def repair(self, tried: _Joined, target: int, enough: int) -> None:
        """Repair one order after another, unless ``enough`` is reached, until ``target`` is."""
        for order in orders(tried.live) if self.best.nbytes > enough else ():
            for found in tried.fit.repairs(order) if self.left > 0 else ():
                self._take(tried, found)
                if self.best.nbytes <= target:
                    return
                if self.left <= 0:
                    break

    def _take(self, tried: _Joined, found: Packing) -> None:
        self.left -= tried.fit.visits
        if found.nbytes < self.best.nbytes:
            self.best = Packing(tuple(found.offsets[k] for k in tried.part), found.nbytes)


@dataclass(frozen=True, eq=False)
class _Joined:
    """Stretches of which some pairs are joined; ``part[k]`` is the joined one that holds stretch ``k``."""

    live: Liveness
    fit: Fit
    part: tuple[int, ...]

    @classmethod
    def of(cls, live: Liveness, pairs: Pairs) -> _Joined:
        made = joined(live.stretches, pairs)
        index = {name: k for k, x in enumerate(made) for name in x.names}
        whole = Liveness(made, live.after) if pairs else live
        return cls(whole, Fit.of(whole), tuple(index[x.names[0]] for x in live.stretches))
