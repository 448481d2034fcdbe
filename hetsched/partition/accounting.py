"""What a placement spends on what, and which refused ops cut it into pieces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hetsched.accounts import Accounts, RefusedOps, TypeWork
from hetsched.costs import CostTable
from hetsched.partition.timing import Costs, figures
from hetsched.segments import Schedule

#: Groups of refused ops that are timed at most, the largest first.
MOST_GROUPS = 16
_DETAIL = re.compile(r" \([^()]*\)$")
"""What differs from op to op in a reason: ``upsampling by more than 2 falls back (scale is 8)``."""


def accounts_of(table: CostTable, timed: Schedule) -> Accounts:
    """Work, launches, syncs and transfers of a timed placement of ``table``; ``timed`` is of :func:`hetsched.segments.schedule`."""
    path, sync_s, copied_s = critical_path(table, timed)
    launch_j = sum(float(table.launch_energy_j[s.queue]) for s in timed.segments)
    transfer_j = sum(t.energy_j for s in timed.segments for t in s.transfers)
    work_j = sum(s.energy_j for s in timed.segments) - launch_j - transfer_j
    on = [timed.segments[k] for k in path]
    return Accounts(
        work_s=sum(s.work_s for s in on), launch_s=sum(s.launch_s for s in on), sync_s=sync_s,
        transfer_s=sum(s.transfer_s for s in on) + copied_s,
        work_j=max(0.0, work_j), launch_j=launch_j, sync_j=_sync_energy(table, timed), transfer_j=transfer_j,
        segments=_per_queue(table, timed),
    )  # fmt: skip


def _sync_energy(table: CostTable, timed: Schedule) -> float:
    """Of the switches from segment to segment, and of the last one to the host: as the schedule's energy has it."""
    queues = [s.queue for s in timed.segments]
    return sum(float(table.sync_energy_j[a, b]) for a, b in zip(queues, [*queues[1:], table.host], strict=True)) if queues else 0.0


def _per_queue(table: CostTable, timed: Schedule) -> dict[str, int]:
    found = Counter(s.queue for s in timed.segments)
    return {q.name: found[k] for k, q in enumerate(table.queues) if k in found}


def critical_path(table: CostTable, timed: Schedule) -> tuple[tuple[int, ...], float, float]:
    """Segments, first to last, each of which starts when the one before it has ended (and signalled); seconds of signals, and of copies.

    Durations, signals and copies of the DMA engine add up to the latency: a segment never starts later than its queue or the last of
    its data allows.
    """
    if not timed.segments:
        return (), 0.0, 0.0
    sync, segments, end = table.sync_s, timed.segments, timed.end_s
    owner = {op: s.index for s in segments for op in s.ops}
    writers = sorted({owner[p] for t in table.graph_outputs.tolist() if (p := int(table.tensor_producer[t])) >= 0})
    ends = [(end[k], 0.0, k) for k in range(len(segments))]
    seen = [(end[k] + float(sync[segments[k].queue, table.host]), float(sync[segments[k].queue, table.host]), k) for k in writers]
    _, waited, at = max([*ends, *seen])
    path, copied = [at], 0.0
    while timed.start_s[at] > 0:
        here = segments[at]
        before = [(end[p] + (s := float(sync[segments[p].queue, here.queue])), s, p, -1) for p in here.feeds_from]
        before += [(end[k], 0.0, k, -1) for k in range(at - 1, -1, -1) if segments[k].queue == here.queue][:1]
        for k, c in enumerate(timed.copies):
            if c.segment == at:
                signal = float(sync[table.host if c.source < 0 else segments[c.source].queue, here.queue])
                before.append((c.end_s + signal, signal, c.source, k))
        _, signal, at, copy = max(before)
        waited += signal
        if copy >= 0:
            at, seconds = _before_copies(timed, copy)
            copied += seconds
        if at < 0:
            break
        path.append(at)
    return tuple(reversed(path)), waited, copied


def _before_copies(timed: Schedule, last: int) -> tuple[int, float]:
    """The segment (-1: none) whose end the copies up to ``last`` followed without a pause, and how long these took."""
    seconds = 0.0
    for c in reversed(timed.copies[: last + 1]):
        seconds += c.end_s - c.start_s
        if c.start_s <= (timed.end_s[c.source] if c.source >= 0 else 0.0):
            return c.source, seconds
    raise AssertionError("the first copy starts when its tensor is there")


def work_by_type(c: Costs, table: CostTable, types: Sequence[str], alternative: Sequence[int]) -> tuple[TypeWork, ...]:
    """What every type takes on every queue, in the order of the queues, the longest first.

    Args:
        c: the costs.
        table: they are of.
        types: per op.
        alternative: of the placement.
    """
    groups: dict[tuple[int, str], list[int]] = {}
    for kind, a in zip(types, alternative, strict=True):
        groups.setdefault((c.queue[a], kind), []).append(a)
    found = [
        (
            q, TypeWork(
                type=kind, queue=table.queues[q].name, ops=len(g), seconds=sum(c.time[a] for a in g),
                energy_j=sum(c.energy[a] for a in g),
            ),
        )
        for (q, kind), g in groups.items()
    ]  # fmt: skip
    return tuple(work for _, work in sorted(found, key=lambda f: (f[0], -f[1].seconds, f[1].type)))


def refused_by(
    c: Costs, table: CostTable, types: Sequence[str], order: Sequence[int], alternative: Sequence[int], queue: int
) -> tuple[RefusedOps, ...]:
    """The ops that ``queue`` refuses, by type and reason, those whose refusal costs most first.

    Each group is put on the queue, in the time that its ops take where they are and in the form in which the queue holds most of
    its tensors, and the placement is timed again.

    Args:
        c: the costs.
        table: they are of.
        types: per op.
        order: of the placement.
        alternative: of the placement.
        queue: which, as an index.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for op, row in enumerate(table.refusals):
        if all(c.queue[a] != queue for a in c.alts[op]):
            reason = next((r.reason for r in reversed(row) if r.queue == queue), "")
            groups.setdefault((types[op], _DETAIL.sub("", reason)), []).append(op)
    held = Counter(c.domain[a] for a in alternative if c.queue[a] == queue)
    if not held:
        return ()
    domain = min(held, key=lambda d: (-held[d], d))
    largest = sorted(groups, key=lambda g: (-len(groups[g]), g))[:MOST_GROUPS]
    found = [
        RefusedOps(
            type=kind, queue=table.queues[queue].name, reason=reason, ops=len(groups[kind, reason]),
            example=table.op_names[groups[kind, reason][0]],
            latency_s=_taken(c, order, alternative, groups[kind, reason], queue, domain),
        )
        for kind, reason in largest
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda r: (r.latency_s, r.type, r.reason)))


def _taken(c: Costs, order: Sequence[int], alternative: Sequence[int], ops: Sequence[int], queue: int, domain: int) -> float:
    """Latency if ``queue`` took ``ops`` in their present time, their results held in ``domain``."""
    known, moved = len(c.queue), list(alternative)
    for op in ops:
        a = alternative[op]
        moved[op] = len(c.queue)
        c.queue.append(queue)
        c.domain.append(domain)
        c.time.append(c.time[a])
        c.energy.append(c.energy[a])
        if c.loss:
            c.loss.append(c.loss[a])
    latency = figures(c, order, moved).latency_s
    for column in (c.queue, c.domain, c.time, c.energy, c.loss):
        del column[known:]
    return latency
