"""The least time of a block in which queues overlap.

Take the segments between two cuts: *E* holds the entry, *F* the exit. Everything in between waits for E's end, and F waits for
everything, so neither overlaps with another segment that holds an inner op. So there are two cases. Either the segments
wait for each other one after another: then the block costs what it costs serially (:mod:`hetsched.partition.phases`). Or
two of them on different queues do not wait for each other: then E ends, each of the two pays its own way from E and to F,
and F, a new segment, is launched at the end. This module bounds the second case: an op is in E (on the entry's queue), in
F (on the exit's), or between them on some queue; only what is between may overlap.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from hetsched.partition.blocks import Block
from hetsched.partition.relaxed import Matrix, Relaxed

INFINITE = float("inf")
ROUNDS = 40


@dataclass(frozen=True)
class Window:
    """A block between alternatives of its entry and exit (-1: start, end); ``tensors``: whose transfers it pays."""

    relaxed: Relaxed
    block: Block
    a: int
    b: int
    tensors: Collection[int] = ()

    @cached_property
    def entry(self) -> int:
        """Queue of the entry, -1 at the start."""
        return -1 if self.a < 0 else self.relaxed.c.queue[self.a]

    @cached_property
    def exit(self) -> int:
        """Queue of the exit, -1 at the end."""
        return -1 if self.b < 0 else self.relaxed.c.queue[self.b]

    @cached_property
    def times(self) -> npt.NDArray[np.float64]:
        """[q, n] least seconds of the inner ops per queue; infinite where one cannot run."""
        c = self.relaxed.c
        queues = range(c.queues)
        rows = [[min((c.time[x] for x in c.alts[v] if c.queue[x] == q), default=INFINITE) for v in self.block.inner] for q in queues]
        return np.array(rows)

    @cached_property
    def through(self) -> npt.NDArray[np.float64]:
        """[q, n] least seconds from the entry's end to the exit's if an inner op is on a queue; infinite where it cannot run."""
        c, forward, backward = self.relaxed.c, self.relaxed.forward(self.block, self.a), self.relaxed.backward(self.block, self.b)
        found = np.full((c.queues, len(self.block.inner)), INFINITE)
        for k, v in enumerate(self.block.inner):
            for x, before, after in zip(c.alts[v], forward[v], backward[v], strict=True):
                found[c.queue[x], k] = min(found[c.queue[x], k], before + after)
        return found

    @cached_property
    def into(self) -> list[float]:
        """Per queue the least seconds from E's end to the work of a new segment, its launch included."""
        c, crossing = self.relaxed.c, self.relaxed.crossing
        return [c.launch[q] if self.entry in (-1, q) else crossing[self.entry][q] for q in range(c.queues)]

    @cached_property
    def out(self) -> list[float]:
        """Per queue the least seconds from a segment's end to F's start; at the end, until the host has seen a result."""
        c, crossing, queues = self.relaxed.c, self.relaxed.crossing, range(self.relaxed.c.queues)
        if self.exit >= 0:
            return [0.0 if q == self.exit else crossing[q][self.exit] - c.launch[self.exit] for q in queues]
        results = set(c.results)
        if not all(c.succs[v] or v in results for v in range(c.n)):
            return [0.0 for _ in queues]  # nobody waits for an op whose results are not read
        return [min(crossing[q][p] + c.sync[p][c.host] for p in queues) for q in queues]

    @cached_property
    def ways(self) -> list[float]:
        """Per queue the least seconds from E's end to F's start besides the work there: ways in and out, the launch."""
        return [x + y for x, y in zip(self.into, self.out, strict=True)]

    @property
    def after(self) -> float:
        """Seconds of F's launch and the exit itself."""
        return 0.0 if self.b < 0 else self.relaxed.c.launch[self.exit] + self.relaxed.c.time[self.b]

    def alternatives(self, k: int) -> Collection[int]:
        """Of an inner op (its position), or of the exit, which comes after the last of them."""
        return [self.b] if k == len(self.block.inner) else self.relaxed.c.alts[self.block.inner[k]]

    def readers(self, tensor: int) -> list[int]:
        """The positions of the inner ops, and of the exit, that read a tensor."""
        ops = (*self.block.inner, *([self.block.exit] if self.b >= 0 else []))
        return [k for k, v in enumerate(ops) if tensor in self.relaxed.c.inputs[v]]

    def domains(self, queue: int, ops: Collection[int]) -> set[int]:
        """The domains that ops (their positions) may have on a queue."""
        c = self.relaxed.c
        return {c.domain[x] for k in ops for x in self.alternatives(k) if c.queue[x] == queue}

    def waits(self, u: int, v: int, matrix: Matrix) -> dict[tuple[int, int], float]:
        """Per pair of queues the least seconds between the ends of one op and the work of another one that needs it."""
        c, found = self.relaxed.c, dict[tuple[int, int], float]()
        for a, row in zip(c.alts[u], matrix, strict=True):
            for b, wait in zip(c.alts[v], row, strict=True):
                key = c.queue[a], c.queue[b]
                found[key] = min(wait, found.get(key, INFINITE))
        return found

    def held(self, producer: int) -> dict[int, int]:
        """The domains that an op's results may be made in, each with the queue; before the block there is only one (and no queue)."""
        c = self.relaxed.c
        if producer not in self.block.inner:
            return {c.input_domain if producer < 0 else c.domain[self.a]: -1}
        found = {q: self.domains(q, range(len(self.block.inner))) for q in range(c.queues)}
        return {next(iter(d)): q for q, d in found.items() if len(d) == 1}

    def fractional(self, main: int = -1, segments: int = 0) -> float:
        """The bound if every op could be cut to pieces, whatever its predecessors.

        Args:
            main: a queue,
            segments: of which there are at least so many between E and F.
        """
        if len(self.block.inner) < 2:
            return INFINITE
        outside = [self.times[q] for q in (self.entry, self.exit) if q >= 0]
        free = np.min(outside, axis=0) if outside else np.full(len(self.block.inner), INFINITE)
        c = self.relaxed.c
        ways = [x + (c.launch[q] * (segments - 1) if q == main and segments else 0.0) for q, x in enumerate(self.ways)]
        chosen = [q for k in range(2, c.queues + 1) for q in combinations(range(c.queues), k) if not segments or main in q]
        return self.after + min((_shared(self.times[list(q)], np.array([ways[r] for r in q]), free) for q in chosen), default=INFINITE)


def _shared(times: npt.NDArray[np.float64], ways: npt.NDArray[np.float64], free: npt.NDArray[np.float64]) -> float:
    """Least of ``max over queues of (way + work)`` plus the work outside, for fractions of ops.

    Any weights of the queues that add up to one give a bound; they follow the load.
    """
    weight = np.full(len(ways), 1.0 / len(ways))
    best = float(ways.max())
    for _ in range(ROUNDS):
        cost = weight[:, None] * times  # weights stay positive, so that infinite times stay infinite
        queue = cost.argmin(axis=0)
        least = cost.min(axis=0)
        best = max(best, float(np.minimum(least, free).sum() + weight @ ways))
        inside = np.flatnonzero(least < free)
        load = ways + np.bincount(queue[inside], times[queue[inside], inside], len(ways))
        weight = weight * np.exp(0.3 * load / max(float(load.max()), 1e-30))
        weight /= weight.sum()
    return best * (1 - 1e-12)
