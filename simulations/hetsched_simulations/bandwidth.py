"""DRAM as a fluid that is shared max-min fairly.

Every piece of work that moves data is a *flow* with a demand: what it draws when it is alone. A processor's flows
together get at most what the processor reaches alone, and all flows together get at most what the memory system
reaches (for a measured pair of processors, what was measured). Within these limits nobody can get more without someone
who has less getting less still: Bertsekas and Gallager, *Data Networks*, section 6.5.2 (progressive filling).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hetsched.costs import Queue
from hetsched.errors import SoCError
from hetsched.socs import SoC

_TOLERANCE = 1e-12


def max_min_fair(demands: Sequence[float], groups: Sequence[int], group_caps: Sequence[float], total: float) -> list[float]:
    """Rates of flows by progressive filling.

    Args:
        demands: most each flow can use, bytes/s.
        groups: the group (processor) of each flow.
        group_caps: most each group gets, bytes/s.
        total: most all flows get, bytes/s.

    Returns:
        One rate per flow, bytes/s; exactly the demand where no limit binds.
    """
    rates = [0.0] * len(demands)
    rising = list(range(len(demands)))
    while rising:
        room = _room(rates, groups, group_caps, total, rising)
        rise = min(*(demands[i] - rates[i] for i in rising), *(room[g] for g in sorted({groups[i] for i in rising})), room[-1])
        rise = max(rise, 0.0)
        still: list[int] = []
        for i in rising:
            left = demands[i] - rates[i] - rise
            rates[i] = demands[i] if left <= _TOLERANCE * demands[i] else rates[i] + rise
            tight = min(room[groups[i]], room[-1]) - rise <= _TOLERANCE * total
            if rates[i] < demands[i] and not tight:
                still.append(i)
        rising = still
    return rates


def _room(rates: Sequence[float], groups: Sequence[int], caps: Sequence[float], total: float, rising: Sequence[int]) -> list[float]:
    """How far each rising flow may still rise by each group's limit; the last entry is the limit of all together."""
    room = list(caps)
    count = [0] * len(caps)
    for i, rate in enumerate(rates):
        room[groups[i]] -= rate
    for i in rising:
        count[groups[i]] += 1
    out = [r / c if c else float("inf") for r, c in zip(room, count, strict=True)]
    return [*out, (total - sum(rates)) / len(rising)]


@dataclass(frozen=True, slots=True)
class Bus:
    """The limits of one SoC's memory system as seen by a cost table's queues.

    ``group[q]`` is the processor of queue ``q``; ``alone[q]`` what the queue reaches alone, bytes/s.
    """

    kinds: tuple[str, ...]  # per processor
    names: tuple[str, ...]  # per processor
    group: tuple[int, ...]
    alone: tuple[float, ...]
    caps: tuple[float, ...]
    reachable: float
    together: dict[frozenset[str], float]
    contention: bool = True
    _cache: dict[tuple[tuple[int, float], ...], tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, soc: SoC, queues: Sequence[Queue], alone: Sequence[float], contention: bool = True) -> Bus:
        """The bus of a SoC.

        Raises:
            SoCError: a queue's processor is not on the SoC.
        """
        names = tuple(p.name for p in soc.processors)
        for q in queues:
            if q.processor not in names:
                raise SoCError(
                    f"queue {q.name!r} of the cost table is on {q.processor!r}, which {soc.id} does not have: use the SoC of the table"
                )
        pairs = {frozenset(pair.split("+")): float(v) for pair, v in soc.memory.together_bytes_s.items()}
        return cls(
            tuple(p.kind for p in soc.processors), names, tuple(names.index(q.processor) for q in queues), tuple(alone),
            tuple(float(p.bandwidth_bytes_s) for p in soc.processors), float(soc.memory.reachable_bytes_s), pairs, contention,
        )  # fmt: skip

    def limit(self, active: Sequence[int]) -> float:
        """What the active processors (indices, sorted) reach together, bytes/s: measured if it was, else what all reach."""
        for labels in (self.names, self.kinds):
            measured = self.together.get(frozenset(labels[p] for p in active)) if len(active) > 1 else None
            if measured is not None:
                return measured
        return self.reachable

    def share(self, flows: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
        """Rates, bytes/s, of ``(queue, demand)`` flows; what runs alone always gets its demand, so that it takes as long as planned."""
        if len(flows) < 2 or not self.contention:
            return tuple(d for _, d in flows)
        if flows not in self._cache:
            if len(self._cache) > 4096:
                self._cache.clear()
            self._cache[flows] = self._fair(flows)
        return self._cache[flows]

    def _fair(self, flows: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
        active = sorted({self.group[q] for q, _ in flows})
        demands = [d for _, d in flows]
        groups = [active.index(self.group[q]) for q, _ in flows]
        return tuple(max_min_fair(demands, groups, [self.caps[p] for p in active], self.limit(active)))
