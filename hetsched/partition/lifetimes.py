"""What a plan keeps in memory and for how long: a lifetime per tensor and per converted copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.costs import CostTable
from hetsched.graph import Graph, Role
from hetsched.segments import Segment

HOST = -1
"""Position of what the host does before the first op of a segment."""

Point = tuple[int, int]
"""(segment, position of an op in it or ``HOST``)."""
Held = tuple[int, int]
"""(tensor, domain): the tensor in the domain it is written in, or a copy converted to another."""


@dataclass(frozen=True)
class Lifetime:
    """A tensor's bytes and when they are needed.

    ``written`` is None for graph inputs, which the host writes before anything runs; ``kept`` says that the host reads it
    after everything has run; ``pooled`` that it is a state that stays between inferences.
    """

    name: str
    nbytes: int
    written: Point | None
    uses: tuple[Point, ...]
    kept: bool = False
    pooled: bool = False

    @property
    def first(self) -> int:
        """Segment that writes it."""
        return 0 if self.written is None else self.written[0]


class Holding:
    """Where the ops of a plan find what they read.

    A transfer that only makes memory visible (no conversion) shares the original's bytes. A copy whose original is
    written in the same segment is made just before its first reader, any other on entry.
    """

    def __init__(self, table: CostTable, segments: Sequence[Segment], alternative: Sequence[int]) -> None:
        self.table, self.segments = table, segments
        self.domain: list[int] = table.alt_domain[np.asarray(alternative, np.int64)].tolist()
        self.place = {op: (s.index, k) for s in segments for k, op in enumerate(s.ops)}
        self.home = [table.input_domain if p < 0 else self.domain[p] for p in table.tensor_producer.tolist()]
        self.reads: list[list[int]] = [row.tolist() for row in table.op_inputs]
        self.copies: dict[Held, Point] = {
            (x.tensor, x.target): self._made(s, x.tensor, x.target) for s in segments for x in s.transfers if x.conversion_s > 0
        }

    def _made(self, s: Segment, tensor: int, target: int) -> Point:
        producer = int(self.table.tensor_producer[tensor])
        if producer < 0 or self.place[producer][0] != s.index:
            return s.index, HOST
        return min(self.place[op] for op in s.ops if tensor in self.reads[op] and self.domain[op] == target)

    def read(self, op: int, tensor: int) -> Held:
        """What an op reads of a tensor: the copy in its own domain, or the tensor itself."""
        copy = tensor, self.domain[op]
        return copy if copy in self.copies else (tensor, self.home[tensor])

    def name(self, held: Held) -> str:
        """``tensor``, or ``tensor@queue:type`` for a copy."""
        tensor, d = held
        if held not in self.copies:
            return self.table.tensor_names[tensor]
        domain = self.table.domains[d]
        return f"{self.table.tensor_names[tensor]}@{self.table.queues[domain.queue].name}:{domain.dtype}"


def lifetimes_of(graph: Graph | None, holding: Holding) -> list[Lifetime]:
    """Every activation tensor, in the table's order, then every copy that a transfer converts into another domain.

    Args:
        graph: gives the stored size where a CPU holds the tensor, and the states; None: the table's bytes are used.
        holding: of the plan.
    """
    table, home = holding.table, holding.home
    outputs = set(table.graph_outputs.tolist())
    uses: dict[Held, list[Point]] = {}
    for op, point in holding.place.items():
        for t in holding.reads[op]:
            uses.setdefault(holding.read(op, t), []).append(point)
    for (t, _), made in holding.copies.items():
        uses.setdefault((t, home[t]), []).append(made)
    out: list[Lifetime] = []
    for t, name in enumerate(table.tensor_names):
        producer = int(table.tensor_producer[t])
        written = None if producer < 0 else holding.place[producer]
        read = tuple(sorted(uses.get((t, home[t]), []))) or ((written,) if written else ())
        pooled = graph is not None and graph.tensors[name].role is Role.STATE
        out.append(Lifetime(name, _nbytes(graph, table, t, home[t]), written, read, t in outputs, pooled))
    for held, made in holding.copies.items():
        out.append(Lifetime(holding.name(held), _nbytes(None, table, *held), made, tuple(sorted(uses[held]))))
    return out


def _nbytes(graph: Graph | None, table: CostTable, tensor: int, domain: int) -> int:
    held = int(np.ceil(table.tensor_bytes[tensor, domain]))
    queue = table.queues[table.domains[domain].queue]
    if graph is not None and queue.kind == "cpu":
        return max(held, graph.tensors[table.tensor_names[tensor]].nbytes)
    return held
