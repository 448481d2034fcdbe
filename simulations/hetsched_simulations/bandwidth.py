"""DRAM and system cache as fluids that are shared max-min fairly.

Every piece of work that moves data is a *flow* with a demand: what it draws when it is alone. A processor's flows
together get at most what the processor reaches alone, and all flows together get at most what the memory system
reaches (for a measured pair of processors, what was measured). Within these limits nobody can get more without someone
who has less getting less still: Bertsekas and Gallager, *Data Networks*, section 6.5.2 (progressive filling). Where a system cache
serves a part of what flows move, all of them go through it, and the rest through the DRAM as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from hetsched.costs import DMA, CostTable, Queue
from hetsched.errors import SoCError
from hetsched.socs import IdleState, SoC
from hetsched_simulations.fluid import share


def max_min_fair(
    demands: Sequence[float], groups: Sequence[int], group_caps: Sequence[float], total: float,
    misses: Sequence[float] = (), cache: float = inf,
) -> list[float]:  # fmt: skip
    """Rates of flows by progressive filling.

    Args:
        demands: most each flow can use, bytes/s.
        groups: the group (processor) of each flow.
        group_caps: most each group gets from the DRAM, bytes/s.
        total: most all flows get from the DRAM, bytes/s.
        misses: the share of each flow that comes from the DRAM; empty: all of it.
        cache: most that all flows get through the system cache, bytes/s.

    Returns:
        One rate per flow, bytes/s; exactly the demand where no limit binds.
    """
    room = [0.0] * (2 * len(demands) + 2 * len(group_caps))
    share(len(demands), demands, misses or [1.0] * len(demands), room, groups, group_caps, total, cache)
    return room[: len(demands)]


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
    idle: tuple[tuple[IdleState, ...], ...] = ()
    """Idle states of each queue's processor."""
    cache_bytes_s: float = inf
    """What all reach together through the system cache; infinite: it serves nothing of its own."""

    @classmethod
    def of_table(cls, soc: SoC, table: CostTable, contention: bool = True) -> Bus:
        """The bus of a SoC as seen by all that works side by side in a cost table, the DMA engine among it.

        Raises:
            SoCError: a queue's processor is not on the SoC.
        """
        bus = cls.of(soc, table.queues, table.bandwidth_bytes_s.tolist(), contention, table.cache_bytes_s)
        if table.dma is None:
            return bus
        rate = table.dma.bandwidth_bytes_s
        return replace(
            bus, kinds=(*bus.kinds, DMA), names=(*bus.names, DMA), group=(*bus.group, len(bus.names)), alone=(*bus.alone, rate),
            caps=(*bus.caps, rate), idle=(*bus.idle, ()),
        )  # fmt: skip

    @classmethod
    def of(cls, soc: SoC, queues: Sequence[Queue], alone: Sequence[float], contention: bool = True, cache_bytes_s: float = inf) -> Bus:
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
            tuple(soc.by_name[q.processor].idle_states for q in queues), cache_bytes_s,
        )  # fmt: skip

    def limit(self, active: Sequence[int]) -> float:
        """What the active processors (indices, sorted) reach together, bytes/s: measured if it was, else what all reach."""
        for labels in (self.names, self.kinds):
            measured = self.together.get(frozenset(labels[p] for p in active)) if len(active) > 1 else None
            if measured is not None:
                return measured
        return self.reachable

    def limits(self) -> tuple[list[int], list[float], list[float], list[float]]:
        """For ``fluid.run``: who owns the queues and what is not simulated, what processors, bit masks of them and queues reach.

        What bit masks reach is empty without contention.
        """
        masks = range(1 << len(self.caps)) if self.contention else ()
        together = [self.limit([p for p in range(len(self.caps)) if mask >> p & 1]) for mask in masks]
        return [*self.group, len(self.caps)], [*self.caps, inf], together, [*self.alone]

    def share(self, flows: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
        """Rates, bytes/s, of ``(queue, demand)`` flows; what runs alone always gets its demand, so that it takes as long as planned."""
        if len(flows) < 2 or not self.contention:
            return tuple(d for _, d in flows)
        return self._fair(flows)

    def _fair(self, flows: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
        active = sorted({self.group[q] for q, _ in flows})
        demands = [d for _, d in flows]
        groups = [active.index(self.group[q]) for q, _ in flows]
        return tuple(max_min_fair(demands, groups, [self.caps[p] for p in active], self.limit(active)))
