"""The alternatives of a graph's operators on the queues of a SoC: which there are, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hetsched.costs import Queue, Refusal
from hetsched.errors import UnsupportedModelError
from hetsched.graph import Graph, IntArray
from hetsched_cost_models.alike import Alike
from hetsched_cost_models.precisions import Offer, Place, Supported, offer
from hetsched_cost_models.work import BoolArray


class Option(NamedTuple):
    """A way of running an op: the index of a queue, a precision, and what runs it there."""

    queue: int
    precision: str
    delegate: str


@dataclass(frozen=True, eq=False)
class Alternatives:
    """Alternatives, op after op: op ``i`` has ``start[i]`` to ``start[i + 1]``, alternative ``a`` is ``options[option[a]]``."""

    start: IntArray
    option: IntArray
    options: tuple[Option, ...]
    refusals: tuple[tuple[Refusal, ...], ...]

    @cached_property
    def owner(self) -> IntArray:
        """[m] the op of each alternative."""
        return np.repeat(np.arange(len(self.start) - 1, dtype=np.int32), np.diff(self.start))

    @cached_property
    def queue(self) -> IntArray:
        """[m] the queue of each alternative."""
        return np.array([x.queue for x in self.options], np.int32)[self.option]

    @cached_property
    def precision(self) -> tuple[str, ...]:
        """[m] the precision of each alternative."""
        return tuple(np.array([x.precision for x in self.options], object)[self.option].tolist())

    @cached_property
    def delegate(self) -> tuple[str, ...]:
        """[m] what runs each alternative."""
        return tuple(np.array([x.delegate for x in self.options], object)[self.option].tolist())

    def foreign(self, queues: Sequence[Queue]) -> BoolArray:
        """[m] whether another delegate than the queue's own runs it."""
        return np.array([x.delegate != queues[x.queue].delegate for x in self.options], bool)[self.option]


@dataclass(eq=False)
class Choosing:
    """What a graph's operators may choose from; what was found for a place is kept for the next SoC with one like it."""

    groups: Alike
    quantized: bool

    def __post_init__(self) -> None:
        self._known: dict[tuple[Place, str], list[Offer]] = {}

    def choose(self, graph: Graph, queues: Sequence[Queue], places: Sequence[Place], wanted: str) -> Alternatives:
        """Every alternative at the ``wanted`` precision; one place a queue.

        Raises:
            UnsupportedModelError: an op can run nowhere; the message names its nodes and what is missing.
        """
        offers = []
        for place in places:
            if (place, wanted) not in self._known:
                self._known[place, wanted] = [offer(graph, op, place, wanted, self.quantized) for op in self.groups.example]
            offers.append(self._known[place, wanted])
        return _alternatives(graph, queues, list(zip(*offers, strict=True)), self.groups)

    def choose_here(
        self, graph: Graph, queues: Sequence[Queue], places: Sequence[Place], wanted: str,
        supported: Supported, others: Mapping[str, Supported],
    ) -> Alternatives:  # fmt: skip
        """The same on this machine, whose kernels are asked about every op: they may look at values.

        Args:
            graph: the graph.
            queues: of the machine.
            places: one a queue.
            wanted: the precision.
            supported: what its kernels refuse, and why.
            others: what other delegates of its CPU refuse.

        Raises:
            UnsupportedModelError: an op can run nowhere.
        """
        rows = [tuple(offer(graph, op, place, wanted, self.quantized, supported, others) for place in places) for op in graph.ops]
        return _alternatives(graph, queues, rows, Alike(np.arange(len(rows)), graph.ops))


def _alternatives(graph: Graph, queues: Sequence[Queue], offers: Sequence[tuple[Offer, ...]], groups: Alike) -> Alternatives:
    """``offers[k]`` are those of the ops of class ``k``, one a queue."""
    index: dict[Option, int] = {}
    rows: list[list[int]] = []
    refusals: list[tuple[Refusal, ...]] = []
    for row in offers:
        taken = [Option(q, p, got.delegate or queues[q].delegate) for q, got in enumerate(row) for p in got.precisions]
        rows.append([index.setdefault(x, len(index)) for x in taken])
        refusals.append(tuple(Refusal(q, p, why) for q, got in enumerate(row) for p, why in got.refusals))
    missing = np.array([not row for row in rows], bool)[groups.kind]
    if missing.any():
        i = int(np.argmax(missing))
        raise _nowhere(graph, i, queues, refusals[int(groups.kind[i])])
    start, item = groups.expand([len(row) for row in rows])
    option = np.array([x for row in rows for x in row], np.int32)[item]
    return Alternatives(start, option, tuple(index), tuple([refusals[k] for k in groups.kind.tolist()]))


def _nowhere(graph: Graph, i: int, queues: Sequence[Queue], refused: Sequence[Refusal]) -> UnsupportedModelError:
    op = graph.ops[i]
    why = "; ".join(dict.fromkeys(f"{queues[r.queue].kind} {r.precision}: {r.reason}" for r in refused))
    nodes = ", ".join(repr(n) for n in op.origin) or repr(op.name)
    return UnsupportedModelError(f"node {nodes} ({op.type}) of {graph.name!r} can run nowhere on this SoC: {why}")
