"""Which stretches may share memory, from happens-before between segments, and how much memory none can go below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hetsched.partition.fences import happens_before, needed_waits
from hetsched.partition.stretches import Stretch
from hetsched.segments import Segment

Matrix = npt.NDArray[np.bool_]
ALIGNMENT = 64


def ended_before(segments: Sequence[Segment]) -> Matrix:
    """[segments, segments] whether the first has ended before the second starts, by queue order and fences."""
    n = len(segments)
    width = -(-n // 8)
    raw = b"".join(bits.to_bytes(width, "little") for bits in happens_before(segments, needed_waits(segments)))
    rows = np.frombuffer(raw, np.uint8).reshape(n, width)
    return np.unpackbits(rows, axis=1, count=n, bitorder="little").astype(np.bool_).T


@dataclass(frozen=True, eq=False)
class Liveness:
    """Stretches and their order in time: ``after[a, b]`` says that segment ``a`` has ended before segment ``b`` starts."""

    stretches: Sequence[Stretch]
    after: Matrix

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """[stretches] bytes, whole multiples of the alignment."""
        return np.array([-(-x.nbytes // ALIGNMENT) * ALIGNMENT for x in self.stretches], np.int64)

    @cached_property
    def segment(self) -> npt.NDArray[np.int64]:
        """[stretches] where each is written; -1 for graph inputs."""
        return np.array([-1 if x.written is None else x.written[0] for x in self.stretches], np.int64)

    @cached_property
    def position(self) -> npt.NDArray[np.int64]:
        """[stretches] position of the writing op in its segment."""
        return np.array([-2 if x.written is None else x.written[1] for x in self.stretches], np.int64)

    @cached_property
    def over(self) -> Matrix:
        """[a, b] whether every use of ``a`` happens before ``b`` is written: a partial order."""
        m, n = len(self.stretches), len(self.after)
        free = np.zeros((m, n), np.bool_)  # every use has ended before the segment starts
        tail, tail_position = np.full(m, -2), np.full(m, -1)  # the segment of the last use, if all others end before it
        for k, x in enumerate(self.stretches):
            if x.kept:
                continue
            used = sorted({s for s, _ in x.uses})
            free[k] = self.after[used].all(axis=0) if used else True
            last = max(used, default=-1)
            if last >= 0 and all(self.after[s, last] for s in used if s != last):
                tail[k], tail_position[k] = last, max(p for s, p in x.uses if s == last)
        placed = self.segment >= 0
        out: Matrix = (tail[:, None] == self.segment) & (tail_position[:, None] < self.position)
        out[:, placed] |= free[:, self.segment[placed]]
        return out

    @cached_property
    def conflicts(self) -> Matrix:
        """[stretches, stretches] which may not share bytes: neither is over when the other is written."""
        out: Matrix = ~(self.over | self.over.T)
        np.fill_diagonal(out, False)
        return out

    @cached_property
    def overlap(self) -> bool:
        """Whether some segments may run at the same time."""
        return not (self.after | self.after.T | np.eye(len(self.after), dtype=np.bool_)).all()

    @cached_property
    def loads(self) -> npt.NDArray[np.int64]:
        """[stretches] bytes that are alive for certain when each is written; all of them conflict with each other."""
        earlier = (self.segment[:, None] == self.segment) & (self.position[:, None] <= self.position)
        placed = self.segment >= 0
        earlier[np.ix_(placed, placed)] |= self.after[np.ix_(self.segment[placed], self.segment[placed])]
        earlier[~placed] = True
        return self.summed(earlier & ~self.over)

    def summed(self, which: Matrix) -> npt.NDArray[np.int64]:
        """[stretches] bytes of those whose entry in each column is true (exact below 2^53)."""
        return np.asarray(self.sizes.astype(np.float64) @ which.astype(np.float64)).astype(np.int64)

    def widest(self, pairs: Iterable[tuple[int, int]]) -> int:
        """Most bytes of stretches that conflict pairwise: no arena is smaller, however they are placed.

        Conflict is incomparability in a partial order, so this is its heaviest antichain: all bytes less the most that a flow
        can pair up along chains (Dilworth's theorem with weights).

        Args:
            pairs: (earlier, later) that need not conflict, because the later one may write over the earlier.
        """
        from ortools.graph.python.max_flow import SimpleMaxFlow

        order = self.over.copy()
        for first, then in pairs:
            order[first, then] = True
        below, above = np.nonzero(order)
        m, total = len(self.sizes), int(self.sizes.sum())
        flow, own = SimpleMaxFlow(), np.arange(m)
        flow.add_arcs_with_capacity(np.full(m, 2 * m), own, self.sizes)
        flow.add_arcs_with_capacity(below, above + m, np.full(len(below), total))
        flow.add_arcs_with_capacity(own + m, np.full(m, 2 * m + 1), self.sizes)
        flow.solve(2 * m, 2 * m + 1)
        return int(total - flow.optimal_flow())
