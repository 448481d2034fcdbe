"""Where tensors live: liveness by happens-before, offsets by best fit.

Two tensors may share bytes only if every use of one happens before the other is first written, whatever the timing:
through queue order and fences, never through the order in which the plan happens to list them. Overlapping queues
would otherwise write over each other's data.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hetsched.costs import FOUR_BITS, CostTable
from hetsched.graph import Graph
from hetsched.partition.fences import happens_before, needed_waits
from hetsched.plans import Buffer
from hetsched.segments import Segment
from hetsched.states import in_place

ALIGNMENT = 64
HOST = -1
"""Position of what the host does before the first op of a segment."""


@dataclass(frozen=True)
class Lifetime:
    """A stretch of memory and when it is needed.

    ``written`` and ``uses`` are ``(segment, position)``: positions count ops inside a segment, ``HOST`` is its entry
    (conversions). ``written`` is None for graph inputs, which the host writes before anything runs; ``kept`` says that
    the host reads it after everything has run. ``continues`` names the lifetime whose bytes it takes over: the past of a
    state that is updated in place.
    """

    name: str
    nbytes: int
    written: tuple[int, int] | None
    uses: tuple[tuple[int, int], ...]
    kept: bool = False
    continues: str = ""

    @property
    def first(self) -> int:
        """Segment that writes it."""
        return 0 if self.written is None else self.written[0]


def lifetimes_of(graph: Graph | None, table: CostTable, segments: Sequence[Segment], alternative: Sequence[int]) -> list[Lifetime]:
    """Every activation tensor, and every copy that a transfer converts into another domain.

    Args:
        graph: gives the stored size where a CPU holds the tensor; None: the table's bytes are used throughout.
        table: the cost table.
        segments: of the plan.
        alternative: of every op.
    """
    place = {op: (s.index, k) for s in segments for k, op in enumerate(s.ops)}
    home, copies = _copies(table, segments, alternative, place)
    outputs = set(table.graph_outputs.tolist())
    read: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for op, (segment, position) in place.items():
        d = int(table.alt_domain[alternative[op]])
        for t in table.op_inputs.row(op).tolist():
            key = (t, d) if (t, d) in copies else (t, home[t])
            read.setdefault(key, []).append((segment, position))
    for (t, _), entered in copies.items():
        read.setdefault((t, home[t]), []).append(entered)
    pasts = in_place(graph) if graph is not None else {}
    out: list[Lifetime] = []
    for t, name in enumerate(table.tensor_names):
        producer = int(table.tensor_producer[t])
        written = None if producer < 0 else place[producer]
        uses = tuple(sorted(read.get((t, home[t]), []))) or ((written,) if written else ())
        out.append(Lifetime(name, _nbytes(graph, table, t, home[t]), written, uses, t in outputs, pasts.get(name, "")))
    for (t, d), entered in copies.items():
        domain = table.domains[d]
        name = f"{table.tensor_names[t]}@{table.queues[domain.queue].name}:{domain.dtype}"
        out.append(Lifetime(name, _nbytes(None, table, t, d), entered, tuple(sorted(read[t, d]))))
    return out


def _copies(
    table: CostTable, segments: Sequence[Segment], alternative: Sequence[int], place: Mapping[int, tuple[int, int]]
) -> tuple[list[int], dict[tuple[int, int], tuple[int, int]]]:
    """The domain each tensor is written in; ``(tensor, domain) -> point`` of each converted copy.

    A transfer that only makes memory visible (no conversion) shares the original's bytes. A copy whose original is
    written in the same segment is made just before its first reader, any other on entry.
    """
    home = [table.input_domain if p < 0 else int(table.alt_domain[alternative[p]]) for p in table.tensor_producer.tolist()]
    copies: dict[tuple[int, int], tuple[int, int]] = {}
    for s in segments:
        for x in s.transfers:
            if x.conversion_s <= 0:
                continue
            producer = int(table.tensor_producer[x.tensor])
            point = (s.index, HOST)
            if producer >= 0 and place[producer][0] == s.index:
                readers = [op for op in s.ops if x.tensor in table.op_inputs.row(op).tolist()]
                point = min(place[op] for op in readers if int(table.alt_domain[alternative[op]]) == x.target)
            copies[x.tensor, x.target] = point
    return home, copies


def _nbytes(graph: Graph | None, table: CostTable, tensor: int, domain: int) -> int:
    held = int(np.ceil(table.tensor_bytes[tensor, domain]))
    queue = table.queues[table.domains[domain].queue]
    if graph is not None and queue.kind == "cpu":
        return max(held, graph.tensors[table.tensor_names[tensor]].nbytes)
    return held


class Liveness:
    """Which lifetimes may share memory, from happens-before between segments."""

    def __init__(self, lifetimes: Sequence[Lifetime], segments: Sequence[Segment]) -> None:
        before = happens_before(segments, needed_waits(segments))
        n = len(segments)
        after = np.zeros((n, n), np.bool_)  # after[a, b]: a has ended before b starts
        for b, bits in enumerate(before):
            for a in range(n):
                after[a, b] = bits >> a & 1
        self.segment = np.array([-1 if x.written is None else x.written[0] for x in lifetimes])
        self.position = np.array([-2 if x.written is None else x.written[1] for x in lifetimes])
        self.free = np.zeros((len(lifetimes), n), np.bool_)  # every use has ended before the segment starts
        self.tail = np.full(len(lifetimes), -1)  # the segment that holds the last use, if all others end before it
        self.tail_position = np.full(len(lifetimes), -1)
        for k, x in enumerate(lifetimes):
            if x.kept:
                continue
            used = sorted({s for s, _ in x.uses})
            self.free[k] = after[used].all(axis=0) if used else True
            last = max(used, default=-1)
            if last >= 0 and all(after[s, last] for s in used if s != last):
                self.tail[k], self.tail_position[k] = last, max(p for s, p in x.uses if s == last)

    def conflicts(self, k: int) -> npt.NDArray[np.bool_]:
        """[lifetimes] which of them lifetime ``k`` may not share bytes with (itself included)."""
        mine_first = np.zeros(len(self.segment), np.bool_)
        placed = self.segment >= 0
        mine_first[placed] = self.free[k, self.segment[placed]]
        mine_first |= placed & (self.segment == self.tail[k]) & (self.position > self.tail_position[k])
        theirs_first = np.zeros_like(mine_first)
        if self.segment[k] >= 0:
            theirs_first = self.free[:, self.segment[k]] | ((self.tail == self.segment[k]) & (self.tail_position < self.position[k]))
        return ~(mine_first | theirs_first)


def place_buffers(lifetimes: Sequence[Lifetime], segments: Sequence[Segment]) -> tuple[tuple[Buffer, ...], int]:
    """Offsets for every lifetime and the size of the arena, in bytes.

    Best fit: in each of two orders (largest first; as written) every buffer goes to the tightest gap between those it
    may not overlap; the smaller arena is kept. A state that is updated in place has one place.
    """
    stretches = _stretches(lifetimes)
    liveness = Liveness(stretches, segments)
    rows = [np.flatnonzero(liveness.conflicts(k)).tolist() for k in range(len(stretches))]
    index = range(len(stretches))
    largest = sorted(index, key=lambda k: (-stretches[k].nbytes, k))
    written = sorted(index, key=lambda k: (stretches[k].written or (-1, -1), -stretches[k].nbytes, k))
    offsets, size = min((_best_fit(stretches, rows, order) for order in (largest, written)), key=lambda r: r[1])
    place = {x.name: offset for x, offset in zip(stretches, offsets, strict=True)}
    end = max(0, len(segments) - 1)
    buffers = []
    for x in lifetimes:
        last = end if x.kept else max((s for s, _ in x.uses), default=x.first)
        offset = place[x.continues or x.name]
        buffers.append(Buffer(tensor=x.name, offset=offset, nbytes=x.nbytes, first=x.first, last=max(last, x.first)))
    return tuple(buffers), size


def _stretches(lifetimes: Sequence[Lifetime]) -> list[Lifetime]:
    """The lifetimes with each state that continues another joined to it: as large as the larger, as long as both."""
    later = {x.continues: x for x in lifetimes if x.continues}
    out = []
    for x in lifetimes:
        if x.continues:
            continue
        y = later.get(x.name)
        if y is not None:
            written = () if y.written is None else (y.written,)
            uses = tuple(sorted({*x.uses, *y.uses, *written}))
            x = replace(x, nbytes=max(x.nbytes, y.nbytes), uses=uses, kept=x.kept or y.kept)
        out.append(x)
    return out


def _best_fit(lifetimes: Sequence[Lifetime], conflicts: Sequence[Sequence[int]], order: Sequence[int]) -> tuple[list[int], int]:
    offsets = [-1] * len(lifetimes)
    arena = 0
    for k in order:
        size = -(-lifetimes[k].nbytes // ALIGNMENT) * ALIGNMENT
        taken: list[tuple[int, int]] = []
        for j in conflicts[k]:
            if offsets[j] >= 0 and j != k:
                insort(taken, (offsets[j], offsets[j] + -(-lifetimes[j].nbytes // ALIGNMENT) * ALIGNMENT))
        best, cursor, slack = -1, 0, float("inf")
        for begin, finish in taken:
            if size <= begin - cursor < slack:
                best, slack = cursor, begin - cursor
            cursor = max(cursor, finish)
        offsets[k] = cursor if best < 0 else best
        arena = max(arena, offsets[k] + size)
    return offsets, arena


def weight_bytes(graph: Graph, table: CostTable, alternative: Sequence[int]) -> int:
    """Bytes of constants held: once per processor and stored width, so twice if two processors need a weight each its way."""
    return sum(held_weights(graph, table, alternative).values())


def held_weights(graph: Graph, table: CostTable, alternative: Sequence[int]) -> dict[tuple[str, str, float], int]:
    """Bytes of every constant by its name, the processor that holds it, and the width of an element there (0: as stored)."""
    held: dict[tuple[str, str, float], int] = {}
    for i, op in enumerate(graph.ops):
        a = alternative[i]
        queue, precision = table.queues[int(table.alt_queue[a])], table.alt_precision[a]
        for name in graph.constants(op):
            tensor = graph.tensors[name]
            blocks = tensor.quantization is not None and tensor.quantization.block_bytes > 0
            if (blocks or tensor.is_sparse) and queue.kind == "cpu":
                held[name, queue.processor, 0] = tensor.nbytes  # blocks and sparse weights stay as they are stored
                continue
            is_float = tensor.dtype.is_float or tensor.is_packed
            bits = _stored_bits(16 if tensor.is_packed else tensor.dtype.bits, is_float, len(tensor.shape), precision)
            held[name, queue.processor, bits] = math.ceil(tensor.elements * bits / 8)
    return held


def _stored_bits(bits: int, is_float: bool, rank: int, precision: str) -> float:
    """Width of a constant under a precision: float matrices as its weights, other floats as float, integers as they are."""
    if not is_float:
        return bits
    if precision.startswith("w") and rank >= 2:
        return FOUR_BITS if precision.startswith("w4") else 8
    return 16 if precision == "f16" else min(bits, 32)
