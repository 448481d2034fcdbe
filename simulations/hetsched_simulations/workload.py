"""What the simulator runs: a placement as commands for queues and for the DMA engine, each a list of pieces of work.

A piece of work takes ``fixed_s``, then computes and moves data side by side and ends when both are done. Alone and at
the top clocks it takes exactly what the cost table says. A transfer is a piece without computation: it moves its bytes
evenly over its conversion and maintenance time, and takes longer when it gets less bandwidth than that needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hetsched.costs import DMA, CostTable, Transfer
from hetsched.segments import Segment, segments_of
from hetsched.trace import Kind


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work. ``traffic_s`` is how long its bytes take alone, at ``demand_bytes_s``."""

    kind: Kind
    name: str
    fixed_s: float
    compute_s: float = 0.0
    traffic_s: float = 0.0
    bytes: float = 0.0
    demand_bytes_s: float = 0.0
    activity: float = 1.0
    """Share of the time in which the queue works (the rest it waits for the host), on average."""
    effort: float = 1.0
    """Share of its dynamic power that the queue draws while it works, on average."""
    host_w: float = 0.0
    """What the host draws meanwhile for it, at the top clocks: launch, cache maintenance, spinning for its fences."""
    hits: float = 0.0
    """The share of its bytes that the system cache serves while nobody else moves anything."""

    @property
    def seconds(self) -> float:
        """Duration alone at the top clocks."""
        return self.fixed_s + max(self.compute_s, self.traffic_s)


@dataclass(frozen=True, slots=True)
class Command:
    """A segment as submitted, or a copy for one.

    ``waits`` are ``(earlier command, sync_s)``; the host sees its outputs ``output_sync_s`` later.
    """

    index: int
    """Its place in the order of submission."""
    queue: int
    name: str
    work: tuple[Work, ...]
    waits: tuple[tuple[int, float], ...]
    output_sync_s: float | None
    seconds: float
    segment: int = 0
    kind: Kind = "segment"
    """``transfer``: a copy, for the segment ``segment``."""


def commands_of(table: CostTable, order: Sequence[int], alternative: Sequence[int]) -> tuple[Command, ...]:
    """Commands of one inference, in the order of submission.

    Raises:
        PlanError: the order or the alternatives break the rules of a plan.
    """
    segments = segments_of(table, order, alternative)
    owner = {op: s.index for s in segments for op in s.ops}
    outputs = {owner[int(table.tensor_producer[t])] for t in table.graph_outputs.tolist() if table.tensor_producer[t] >= 0}
    spins, at, out = _spins_w(table, segments), list[int](), list[Command]()
    for s in segments:
        waits = [(at[p], float(table.sync_s[segments[p].queue, s.queue])) for p in s.feeds_from if segments[p].queue != s.queue]
        for t in s.transfers:
            if t.copy_s > 0:
                source = owner.get(int(table.tensor_producer[t.tensor]))
                waits.append((len(out), float(table.sync_s[table.host if source is None else segments[source].queue, s.queue])))
                out.append(_copy(table, t, len(out), () if source is None else ((at[source], 0.0),), s.index))
        work = tuple(replace(w, host_w=w.host_w + spins[s.index]) for w in _work(table, s, alternative))
        seen = float(table.sync_s[s.queue, table.host]) if s.index in outputs else None
        at.append(len(out))
        out.append(Command(len(out), s.queue, _name(table, s), work, tuple(waits), seen, s.seconds, s.index))
    return tuple(out)


def chained(parts: Sequence[Sequence[Command]]) -> tuple[Command, ...]:
    """Commands of several inferences as one: each begins once the host has seen what the one before it made."""
    out, ready = list[Command](), tuple[tuple[int, float], ...]()
    for part in parts:
        at, segments = len(out), max((c.segment + 1 for c in out), default=0)
        for c in part:
            waits = tuple((at + p, sync_s) for p, sync_s in c.waits) or ready
            out.append(replace(c, index=at + c.index, waits=waits, segment=segments + c.segment))
        ready = tuple((at + c.index, c.output_sync_s) for c in part if c.output_sync_s is not None)
    return tuple(out)


def _spins_w(table: CostTable, segments: Sequence[Segment]) -> list[float]:
    """[segments] what the host draws for every switch of queues (``sync_energy_j``), evenly over the segment after it, at the top clocks.

    As in :func:`hetsched.segments.schedule`, each switch in the global order and the host's wait at the end spin once. The
    last wait is added to the last segment, and what comes before a segment that takes no time to a later one.
    """
    owed = [0.0] * len(segments)
    for a, b in pairwise(segments):
        owed[b.index] += float(table.sync_energy_j[a.queue, b.queue])
    if segments:
        owed[-1] += float(table.sync_energy_j[segments[-1].queue, table.host])
    last = max((s.index for s in segments if s.seconds > 0), default=-1)
    out, carried = [0.0] * len(segments), 0.0
    for s in segments:
        carried += owed[s.index]
        if s.index == last:
            carried += sum(owed[s.index + 1 :])
        if s.seconds > 0:
            out[s.index], carried = carried / s.seconds / table.host_share, 0.0
    return out


def _copy(table: CostTable, t: Transfer, index: int, waits: tuple[tuple[int, float], ...], segment: int) -> Command:
    """What the DMA engine does for a segment: it reads a tensor from the memory and writes it elsewhere."""
    dma, name = table.dma, table.tensor_names[t.tensor]
    assert dma is not None
    moves = Work("transfer", name, 0.0, 0.0, t.copy_bytes / dma.bandwidth_bytes_s, t.copy_bytes, dma.bandwidth_bytes_s)
    work = (Work("launch", f"launch {DMA}", dma.launch_s), moves) if dma.launch_s > 0 else (moves,)
    return Command(index, len(table.queues), f"copy {name}", work, waits, None, t.copy_s, segment, "transfer")


def _name(table: CostTable, s: Segment) -> str:
    first, last = table.op_names[s.ops[0]], table.op_names[s.ops[-1]]
    return first if len(s.ops) == 1 else f"{first} … {last}"


def _work(table: CostTable, s: Segment, alternative: Sequence[int]) -> list[Work]:
    bandwidth = float(table.bandwidth_bytes_s[s.queue])
    work: list[Work] = []
    if s.launch_s > 0:
        host_w = float(table.launch_energy_j[s.queue]) / s.launch_s / table.host_share
        work.append(Work("launch", f"launch {table.queues[s.queue].name}", s.launch_s, activity=0.0, host_w=host_w))
    work += [_transfer(table, t, bandwidth) for t in s.transfers if t.seconds > 0]
    for op in s.ops:
        a = alternative[op]
        moved = float(table.dram_bytes[a])
        piece = Work(
            "op", table.op_names[op], float(table.overhead_s[a]), float(table.compute_s[a]),
            moved / bandwidth, moved, bandwidth, effort=float(table.effort[a]) if len(table.effort) else 1.0,
        )  # fmt: skip
        cached = float(table.cache_bytes[a]) if len(table.cache_bytes) else 0.0
        work.append(_cached(piece, cached, table.cache_bytes_s) if cached > 0.0 else piece)
    return work


def _cached(piece: Work, served: float, cache_bytes_s: float) -> Work:
    """An op of which the system cache serves so many bytes more: all go through it, in no more time than the op takes anyway."""
    every = piece.bytes + served
    traffic_s = max(piece.traffic_s, min(every / cache_bytes_s, piece.compute_s))
    return replace(piece, traffic_s=traffic_s, bytes=every, demand_bytes_s=every / traffic_s if traffic_s > 0 else 0.0, hits=served / every)


def _transfer(table: CostTable, t: Transfer, bandwidth: float) -> Work:
    """The queue converts; meanwhile the host maintains caches (or copies), as much as the table says of each."""
    name, converting = table.tensor_names[t.tensor], t.conversion_s / t.seconds
    host_w = table.host_w * t.maintenance_s / t.seconds
    if t.bytes <= 0:
        return Work("transfer", name, t.seconds, activity=converting, host_w=host_w)
    demand = min(t.bytes / t.seconds, bandwidth)
    return Work("transfer", name, 0.0, 0.0, t.seconds, t.bytes, demand, activity=converting, host_w=host_w)
