"""Offsets for stretches that conflict or not: best fit in several orders, and orders repaired where the arena is highest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hetsched.partition.liveness import Liveness

REPAIRS = 60
"""Most repairs of an order."""
Span = tuple[int, int]
"""First byte of a stretch and the one after its last."""


@dataclass(frozen=True)
class Packing:
    """An offset for each stretch, and the bytes in all."""

    offsets: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, eq=False)
class Fit:
    """Stretches to place: bytes of each, and those that each conflicts with."""

    sizes: Sequence[int]
    rows: Sequence[Sequence[int]]

    @property
    def visits(self) -> int:
        """Stretches looked at to place all of them once."""
        return len(self.sizes) + sum(map(len, self.rows))

    @classmethod
    def of(cls, live: Liveness) -> Fit:
        """What a liveness asks for."""
        return cls(live.sizes.tolist(), [row.nonzero()[0].tolist() for row in live.conflicts])

    def best(self, order: Sequence[int]) -> Packing:
        """Each stretch, in this order, goes to the tightest gap between those it conflicts with, else above them."""
        spans: list[Span | None] = [None] * len(self.sizes)
        for k in order:
            size, best, cursor, slack = self.sizes[k], -1, 0, -1
            for begin, finish in sorted([s for j in self.rows[k] if (s := spans[j])]):
                gap = begin - cursor
                if gap >= size and (slack < 0 or gap < slack):
                    best, slack = cursor, gap
                if finish > cursor:
                    cursor = finish
            at = cursor if best < 0 else best
            spans[k] = at, at + size
        return _packing(spans)

    def first(self, order: Sequence[int]) -> Packing:
        """Each stretch, in this order, goes to the lowest gap that holds it: the greedy arena of many runtimes."""
        spans: list[Span | None] = [None] * len(self.sizes)
        for k in order:
            size, cursor = self.sizes[k], 0
            for begin, finish in sorted([s for j in self.rows[k] if (s := spans[j])]):
                if begin - cursor >= size:
                    break
                cursor = max(cursor, finish)
            spans[k] = cursor, cursor + size
        return _packing(spans)

    def repairs(self, order: Sequence[int]) -> Iterator[Packing]:
        """Packings of repaired orders: what ends highest is placed before all that it conflicts with, again and again."""
        order = list(order)
        found = self.best(order)
        for _ in range(REPAIRS):
            where = {k: i for i, k in enumerate(order)}
            top = next(k for k in order if found.offsets[k] + self.sizes[k] == found.nbytes)
            earliest = min((where[j] for j in self.rows[top]), default=where[top])
            if earliest >= where[top]:
                return
            order.insert(earliest, order.pop(where[top]))
            found = self.best(order)
            yield found


def _packing(spans: Sequence[Span | None]) -> Packing:
    return Packing(tuple(s[0] for s in spans if s), max((s[1] for s in spans if s), default=0))


def as_written(live: Liveness) -> list[int]:
    """Stretches in the order in which the plan writes them."""
    return sorted(range(len(live.sizes)), key=lambda k: (live.segment[k], live.position[k], -live.sizes[k], k))


def orders(live: Liveness) -> Iterator[list[int]]:
    """Orders of placing: by size, by size times conflicts (a lifetime, wherever queues overlap), by conflicting bytes, as written."""
    sizes = live.sizes
    for weight in (sizes, sizes * live.conflicts.sum(axis=1), sizes + live.summed(live.conflicts)):
        yield sorted(range(len(sizes)), key=lambda k: (-weight[k], k))
    yield as_written(live)
