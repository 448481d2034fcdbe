"""The segment rule: how a global order and a placement become segments, and what they cost and when they run.

Solver, simulator, runtime and report all use these functions, so that they can never disagree.

A *segment* is a maximal run of consecutive ops, in the plan's global order, on one queue. It starts when its queue is
free and every segment on another queue that feeds it has ended and signalled (``sync_s``); it then pays its launch,
the transfers of tensors that arrive in another domain (once per tensor and consuming domain), and its ops one after
another. It signals when it ends. Because segments are runs of one order, the graph of segments has no cycle.

Where the cost table has a DMA engine, that is one more queue, which copies tensors in the order in which segments need them: each copy
starts when the engine is free and the tensor's own segment has ended, and the segment waits for it as for any other (``sync_s``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hetsched.costs import CostTable, Transfer
from hetsched.errors import PlanError


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment and what it costs on its own. ``feeds_from`` are earlier segments, on any queue, whose data it reads."""

    index: int
    queue: int
    ops: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    feeds_from: tuple[int, ...]
    launch_s: float
    transfer_s: float
    work_s: float
    energy_j: float
    """With that of copies."""

    @property
    def seconds(self) -> float:
        """Duration without contention: launch, transfers, ops."""
        return self.launch_s + self.transfer_s + self.work_s


@dataclass(frozen=True, slots=True)
class Copy:
    """A tensor on its way through the DMA engine, from the segment ``source`` (-1: a graph input) to ``segment``."""

    segment: int
    source: int
    tensor: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """A timed plan without contention. Times are seconds from the start of the inference."""

    segments: tuple[Segment, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    latency_s: float
    serial_s: float
    energy_j: float
    copies: tuple[Copy, ...] = ()
    """Of the DMA engine, in its order."""


def runs(order: Sequence[int], queue_of: Sequence[int]) -> list[list[int]]:
    """Split ``order`` (op indices) into maximal runs on one queue; ``queue_of[op]`` is the op's queue."""
    out: list[list[int]] = []
    for op in order:
        if out and queue_of[out[-1][-1]] == queue_of[op]:
            out[-1].append(op)
        else:
            out.append([op])
    return out


def segment_cost(
    table: CostTable, ops: Sequence[int], alternative: Sequence[int], available: set[tuple[int, int]]
) -> tuple[float, tuple[Transfer, ...], float, float]:
    """What one segment costs: ``(launch_s, transfers, work_s, energy_j)``.

    Args:
        table: the cost table.
        ops: the segment's ops in execution order, all on one queue.
        alternative: alternative index of every op of the graph (only earlier ops and these are read).
        available: ``(tensor, domain)`` pairs that already exist; updated with what this segment makes available.
    """
    queue = int(table.alt_queue[alternative[ops[0]]])
    transfers: list[Transfer] = []
    work = 0.0
    energy = float(table.launch_energy_j[queue])
    for op in ops:
        alt = alternative[op]
        target = int(table.alt_domain[alt])
        for t in table.op_inputs.row(op).tolist():
            if (t, target) in available:
                continue
            producer = int(table.tensor_producer[t])
            source = table.input_domain if producer < 0 else int(table.alt_domain[alternative[producer]])
            available.add((t, target))
            if table.crosses[t, source, target]:
                transfers.append(table.transfer(t, source, target))
        for t in table.op_outputs.row(op).tolist():
            available.add((t, target))
        work += float(table.time_s[alt])
        energy += float(table.energy_j[alt])
    return float(table.launch_s[queue]), tuple(transfers), work, energy + sum(t.energy_j for t in transfers)


def segments_of(table: CostTable, order: Sequence[int], alternative: Sequence[int]) -> tuple[Segment, ...]:
    """Segments of a placement, each with its cost and its feeding segments.

    Raises:
        PlanError: ``order`` is not a permutation of the ops in a precedence-respecting order.
    """
    n = len(table.op_names)
    if sorted(order) != list(range(n)):
        raise PlanError(f"the order of the plan must name each of the {n} ops once")
    for op in range(n):
        if not table.alt_start[op] <= alternative[op] < table.alt_start[op + 1]:
            raise PlanError(f"alternative {alternative[op]} does not belong to op {table.op_names[op]!r}")
    queue_of = [int(table.alt_queue[a]) for a in alternative]
    owner = [-1] * n
    available: set[tuple[int, int]] = set()
    out: list[Segment] = []
    for index, ops in enumerate(runs(order, queue_of)):
        feeds: set[int] = set()
        for op in ops:
            owner[op] = index
            for p in table.predecessors.row(op).tolist():
                if owner[p] < 0:
                    raise PlanError(f"the plan runs op {table.op_names[op]!r} before {table.op_names[p]!r}, which it reads from")
                if owner[p] != index:
                    feeds.add(owner[p])
        launch, transfers, work, energy = segment_cost(table, ops, alternative, available)
        out.append(
            Segment(
                index, queue_of[ops[0]], tuple(ops), transfers, tuple(sorted(feeds)),
                launch, sum(t.seconds for t in transfers), work, energy,
            )
        )  # fmt: skip
    return tuple(out)


def schedule(table: CostTable, order: Sequence[int], alternative: Sequence[int]) -> Schedule:
    """Time a placement with overlapping queues and no contention.

    ``latency_s`` ends when the host has seen every graph output (one ``sync_s`` if the producer is elsewhere).
    ``serial_s`` is the same plan with one segment at a time: each switch pays its sync. ``energy_j`` is additive.
    """
    segs = segments_of(table, order, alternative)
    sync, sync_j = table.sync_s, table.sync_energy_j
    free = [0.0] * len(table.queues)
    start, end = [0.0] * len(segs), [0.0] * len(segs)
    owner = {op: s for s in segs for op in s.ops}
    copies: list[Copy] = []
    serial, energy, previous = 0.0, 0.0, -1
    for s in segs:
        arrival = max((end[p] + float(sync[segs[p].queue, s.queue]) for p in s.feeds_from), default=0.0)
        for c in copies_of(table, s, owner, end, copies[-1].end_s if copies else 0.0):
            copies.append(c)
            arrival = max(arrival, c.end_s + float(sync[table.host if c.source < 0 else segs[c.source].queue, s.queue]))
            serial += c.end_s - c.start_s
        start[s.index] = max(free[s.queue], arrival)
        end[s.index] = free[s.queue] = start[s.index] + s.seconds
        energy += s.energy_j
        if previous >= 0:
            serial += float(sync[previous, s.queue])
            energy += float(sync_j[previous, s.queue])
        serial += s.seconds
        previous = s.queue
    latency = 0.0
    for t in table.graph_outputs.tolist():
        p = int(table.tensor_producer[t])
        if p >= 0:
            latency = max(latency, end[owner[p].index] + float(sync[owner[p].queue, table.host]))
    latency = max([latency, *end])
    if previous >= 0:
        serial += float(sync[previous, table.host])
        energy += float(sync_j[previous, table.host])
    return Schedule(segs, tuple(start), tuple(end), latency, serial, energy, tuple(copies))


def copies_of(table: CostTable, segment: Segment, owner: Mapping[int, Segment], end_s: Sequence[float], free_s: float) -> Iterator[Copy]:
    """When the DMA engine copies what a segment reads.

    Args:
        table: the cost table.
        segment: that reads it.
        owner: op -> its segment.
        end_s: when each earlier segment ends.
        free_s: when the engine has made all copies for earlier segments.
    """
    for t in segment.transfers:
        if t.copy_s > 0:
            producer = int(table.tensor_producer[t.tensor])
            source = -1 if producer < 0 else owner[producer].index
            start = max(free_s, 0.0 if source < 0 else end_s[source])
            free_s = start + t.copy_s
            yield Copy(segment.index, source, t.tensor, start, free_s)
