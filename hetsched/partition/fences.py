"""Happens-before between segments, and the fewest fences that enforce it."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.costs import CostTable
from hetsched.plans import Fence
from hetsched.segments import Schedule, Segment
from hetsched.spinning import SPIN_LIMIT_S


def happens_before(segments: Sequence[Segment], waits: Sequence[tuple[int, int]]) -> list[int]:
    """Per segment a bit set of the segments that have ended before it starts.

    Args:
        segments: in global order.
        waits: fences as ``(signal, wait)``; a queue also runs its own segments one after another.
    """
    signals: list[list[int]] = [[] for _ in segments]
    for signal, wait in waits:
        signals[wait].append(signal)
    last: dict[int, int] = {}
    before = [0] * len(segments)
    for s in segments:
        sources = signals[s.index] + ([last[s.queue]] if s.queue in last else [])
        for p in sources:
            before[s.index] |= before[p] | 1 << p
        last[s.queue] = s.index
    return before


def needed_waits(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Every ``(signal, wait)`` between queues that data flow asks for, redundant ones included."""
    return [(p, s.index) for s in segments for p in s.feeds_from if segments[p].queue != s.queue]


def minimal_waits(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """The waits that are not implied by others through queue order and further fences (the transitive reduction)."""
    before = happens_before(segments, needed_waits(segments))
    kept: list[tuple[int, int]] = []
    last: dict[int, int] = {}
    for s in segments:
        direct = [p for p in s.feeds_from if segments[p].queue != s.queue]
        others = direct + ([last[s.queue]] if s.queue in last else [])
        for p in direct:
            if not any(w != p and before[w] >> p & 1 for w in others):
                kept.append((p, s.index))
        last[s.queue] = s.index
    return kept


def fences_of(table: CostTable, timed: Schedule) -> tuple[Fence, ...]:
    """The plan's fences, each with how its waiter should wait."""
    free: dict[int, float] = {}
    idle_since: list[float] = []
    for s in timed.segments:
        idle_since.append(free.get(s.queue, 0.0))
        free[s.queue] = timed.end_s[s.index]
    out: list[Fence] = []
    for signal, wait in minimal_waits(timed.segments):
        sync = float(table.sync_s[timed.segments[signal].queue, timed.segments[wait].queue])
        expected = timed.end_s[signal] + sync - idle_since[wait]
        out.append(Fence(signal=signal, wait=wait, sync_s=sync, mode="spin" if expected < SPIN_LIMIT_S else "block"))
    return tuple(out)
