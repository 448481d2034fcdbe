"""Where the time and the energy of a placement go: work, launches, syncs, transfers; and what cuts it into segments."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from hetsched.soc_quantities import Strict

Count: TypeAlias = Annotated[int, Field(ge=0)]


class Accounts(Strict):
    """What a placement spends on what.

    The seconds are those of the critical path: of the segments, signals and waits, one after another, that make the latency,
    so they add up to it. The joules are those of the whole placement and add up to its energy.
    """

    work_s: float
    launch_s: float
    sync_s: float
    """Signals between queues, and to the host at the end."""
    transfer_s: float
    """Conversions, cache maintenance and copies on entry of a segment."""
    work_j: float
    launch_j: float
    sync_j: float
    transfer_j: float
    segments: dict[str, Count]
    """Queue -> segments on it."""

    @property
    def count(self) -> int:
        """Segments in all."""
        return sum(self.segments.values())


class TypeWork(Strict):
    """What the ops of one type take on one queue, added up (not only on the critical path)."""

    type: str
    queue: str
    ops: Count
    seconds: float
    energy_j: float


class RefusedOps(Strict):
    """Ops of one type that ``queue`` refuses for one reason, and that cut its work into segments."""

    type: str
    queue: str
    reason: str
    ops: Count
    example: str
    """Name of the first."""
    latency_s: float
    """Of the placement, if the queue took them in the time that they take where they are."""
