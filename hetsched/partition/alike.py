"""Classes of ops of a block that nothing tells apart: heads of an attention, and the same op of every head.

Whatever holds of every op and of every arc between two of them adds up to something that holds of how many ops of each class
are where. A model of such numbers has no symmetry, and is as small as one head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hetsched.partition.overlap import Window

FEW = 30
"""Most classes of a block that is taken for one of identical branches."""


@dataclass(frozen=True)
class Moved:
    """Equal tensors, ``many`` of them, that class ``maker`` makes (-1: one, from outside the block).

    ``readers``: per class that reads them (-1: the exit), how many such arcs there are. ``tensor`` stands for all of them.
    """

    tensor: int
    many: int
    maker: int
    readers: tuple[tuple[int, int], ...]


class Classes:
    """The inner ops of a window by class, in topological order of their first ops.

    Two ops are of one class if they cost the same and have the same numbers of predecessors, successors and tensors of each
    class: the coarsest such partition is found by refinement.
    """

    def __init__(self, window: Window) -> None:
        self.w = window
        inner = window.block.inner
        self.position = {v: k for k, v in enumerate(inner)}
        colour = _numbered({v: self._own(v) for v in inner})
        while True:
            finer = _numbered({v: (colour[v], self._around(v, colour)) for v in inner})
            if len(set(finer.values())) == len(set(colour.values())):
                break
            colour = finer
        rows: dict[int, list[int]] = {}
        for v in inner:
            rows.setdefault(colour[v], []).append(v)
        self.rows = tuple(tuple(row) for row in rows.values())
        self.of = {v: i for i, row in enumerate(self.rows) for v in row}

    @property
    def few(self) -> bool:
        """Whether few classes stand for more ops."""
        return len(self.rows) < len(self.of) and len(self.rows) <= FEW

    def _own(self, v: int) -> Hashable:
        """What an op costs, and what it reads from outside: the very same tensors."""
        w, c, relaxed = self.w, self.w.relaxed.c, self.w.relaxed
        outside = tuple((t, t in w.tensors) for t in c.inputs[v] if c.producer[t] not in self.position)
        alternatives = tuple((c.queue[a], c.domain[a], c.time[a]) for a in c.alts[v])
        ends = tuple(relaxed.follow[v]), v in c.results, w.block.entry in relaxed.preds[v]
        return alternatives, outside, ends

    def _around(self, v: int, colour: Mapping[int, int]) -> Hashable:
        """The classes around an op, with what the tensors between cost."""
        c = self.w.relaxed.c
        reads = [(colour[c.producer[t]], c.outputs[c.producer[t]].index(t)) for t in c.inputs[v] if c.producer[t] in colour]
        before, after = ([colour[u] for u in of[v] if u in colour] for of in (self.w.relaxed.preds, self.w.relaxed.succs))
        writes = []
        for t in c.outputs[v]:
            readers = sorted((colour.get(s, -1), s == self.w.block.exit) for s in c.succs[v] if t in c.inputs[s])
            writes.append((t in self.w.tensors, tuple(map(tuple, c.transfer[t])), tuple(readers)))
        return tuple(sorted(reads)), tuple(sorted(before)), tuple(sorted(after)), tuple(writes)

    @cached_property
    def arcs(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Per pair of classes with arcs between: how many each op of the first has, and how many each of the second."""
        found = Counter((self.of[u], self.of[v]) for v in self.of for u in self.w.relaxed.preds[v] if u in self.of)
        return {(i, j): (n // len(self.rows[i]), n // len(self.rows[j])) for (i, j), n in found.items()}

    @cached_property
    def moved(self) -> list[Moved]:
        """The tensors whose transfers the block pays, those of one class and port together."""
        c, found = self.w.relaxed.c, list[Moved]()
        for t in sorted(self.w.tensors):
            p = c.producer[t]
            if p not in self.of:
                found.append(Moved(t, 1, -1, self._readers([t])))
            elif p == self.rows[self.of[p]][0]:
                port, row = c.outputs[p].index(t), self.rows[self.of[p]]
                found.append(Moved(t, len(row), self.of[p], self._readers([c.outputs[u][port] for u in row])))
        return found

    def _readers(self, tensors: Sequence[int]) -> tuple[tuple[int, int], ...]:
        c, wanted = self.w.relaxed.c, set(tensors)
        found = Counter(self.of.get(v, -1) for v in (*self.of, self.w.block.exit) if v >= 0 for t in c.inputs[v] if t in wanted)
        return tuple(sorted(found.items()))


def _numbered(keys: Mapping[int, Hashable]) -> dict[int, int]:
    """A number per different key, in the order in which they come."""
    numbers: dict[Hashable, int] = {}
    return {v: numbers.setdefault(key, len(numbers)) for v, key in keys.items()}
