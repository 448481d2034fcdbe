"""What one inference takes of the host: the CPU time that it spends for the others, and how long it sleeps while it waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from hetsched.costs import CostTable
from hetsched.segments import segments_of


@dataclass(frozen=True, slots=True)
class HostTime:
    """Seconds of one core, beside the plan's own work on the CPU.

    A wait spins for at most 50 us, which is CPU time, and blocks from then on, which is none: ``blocked_s``.
    """

    launch_s: float
    maintenance_s: float
    """Caches cleaned and invalidated, and copies where no zero-copy handle is shared and no DMA engine makes them."""
    spin_s: float
    blocked_s: float
    waits: int

    @property
    def cpu_s(self) -> float:
        """All that the core works."""
        return self.launch_s + self.maintenance_s + self.spin_s

    def to_dict(self) -> dict[str, float]:
        """For JSON, milliseconds."""
        named = {f"{k.removesuffix('_s')}_ms": v * 1e3 for k, v in (*asdict(self).items(), ("cpu_s", self.cpu_s)) if k != "waits"}
        return named | {"waits": self.waits}


def host_time(table: CostTable, order: Sequence[int], alternative: Sequence[int]) -> HostTime:
    """Of a placement, as its energy is priced: a wait at every switch of queues, and for the results."""
    segments = segments_of(table, order, alternative)
    queues = [*(s.queue for s in segments), table.host] if segments else []
    switches = [(a, b) for a, b in pairwise(queues) if table.sync_s[a, b] > 0]
    core_w = table.host_w or float("inf")
    spin = sum(float(table.sync_energy_j[a, b]) for a, b in switches) / core_w
    return HostTime(
        sum(float(table.launch_energy_j[s.queue]) for s in segments) / core_w,
        sum(t.maintenance_s for s in segments for t in s.transfers),
        spin, max(sum(float(table.sync_s[a, b]) for a, b in switches) - spin, 0.0), len(switches),
    )  # fmt: skip
