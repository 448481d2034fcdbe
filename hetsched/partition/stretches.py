"""Stretches of memory: lifetimes that hold the same bytes, because one continues, names anew or writes over another.

A state lies where it is updated. What a CPU only gives another shape keeps its bytes. An operator may write over an input of
the same size where its kernel allows that (:mod:`hetsched.sharing`) and every other use of the input has happened before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hetsched.graph import Graph
from hetsched.partition.lifetimes import Holding, Lifetime, Point
from hetsched.sharing import overwritable, view_of
from hetsched.states import in_place


@dataclass(frozen=True)
class Stretch:
    """Bytes and when they are needed, as of a :class:`Lifetime`; ``names`` are the lifetimes that hold them, earliest first."""

    names: tuple[str, ...]
    nbytes: int
    written: Point | None
    uses: tuple[Point, ...]
    kept: bool = False
    pooled: bool = False

    @classmethod
    def of(cls, x: Lifetime) -> Stretch:
        """The stretch of one lifetime."""
        return cls((x.name,), x.nbytes, x.written, x.uses, x.kept, x.pooled)

    def and_then(self, later: Stretch) -> Stretch:
        """Both together: as large as the larger, as long as both."""
        written = () if later.written is None else (later.written,)
        uses = tuple(sorted({*self.uses, *later.uses, *written}))
        return replace(
            self, names=self.names + later.names, nbytes=max(self.nbytes, later.nbytes), uses=uses,
            kept=self.kept or later.kept, pooled=self.pooled or later.pooled,
        )  # fmt: skip

    def is_over_with(self, point: Point, after: npt.NDArray[np.bool_]) -> bool:
        """Whether nobody needs it later than the op at ``point``, whatever the timing (``after``: see :func:`overwrites`)."""
        segment, position = point
        return not self.kept and all(after[s, segment] or (s == segment and p <= position) for s, p in self.uses)


def joined(stretches: Sequence[Stretch], pairs: Iterable[tuple[int, int]]) -> list[Stretch]:
    """The stretches after each second one of ``pairs`` has been joined to the first, in the order of the first ones.

    Args:
        stretches: to join.
        pairs: indices (earlier, later), in order of time; nothing is joined twice.
    """
    root = list(range(len(stretches)))
    made = dict(enumerate(stretches))
    for first, then in pairs:
        root[then] = root[first]
        made[root[first]] = made[root[first]].and_then(made.pop(then))
    return list(made.values())


def stretches_of(graph: Graph | None, holding: Holding, lifetimes: Sequence[Lifetime]) -> list[Stretch]:
    """The stretches of a plan as they must be: states lie where they are updated, views where what they show lies.

    Args:
        graph: says what each op does; None: every lifetime has bytes of its own.
        holding: where each op finds what it reads.
        lifetimes: of the plan.
    """
    singles = [Stretch.of(x) for x in lifetimes]
    if graph is None:
        return singles
    index = {x.name: k for k, x in enumerate(lifetimes)}
    states = [(index[past], index[present]) for present, past in in_place(graph).items()]
    return joined(singles, [*states, *_views(graph, holding, index, singles)])


def _views(graph: Graph, holding: Holding, index: dict[str, int], singles: Sequence[Stretch]) -> Iterator[tuple[int, int]]:
    for s in holding.segments:
        for op in s.ops if holding.table.queues[s.queue].kind == "cpu" else ():
            source = view_of(graph, graph.ops[op])
            if source:
                first, then = index[_read(holding, op)[source]], index[graph.ops[op].outputs[0]]
                a, b = singles[first], singles[then]
                if a.nbytes == b.nbytes and not (a.pooled or b.pooled):
                    yield first, then


def overwrites(graph: Graph | None, holding: Holding, stretches: Sequence[Stretch], after: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Every (input, output) of an op, as indices of stretches, where the output may take the input's bytes, in order of time.

    Args:
        graph: says what each op does; None: no pairs.
        holding: where each op finds what it reads.
        stretches: from :func:`stretches_of`, without those that are not to be shared (states).
        after: ``after[a, b]``: segment ``a`` has ended before segment ``b`` starts, whatever the timing.
    """
    if graph is None:
        return []
    index = {name: k for k, x in enumerate(stretches) for name in x.names}
    return [
        (k, j)
        for s in holding.segments
        for op in s.ops
        for k, j in _overwritten(graph, holding, op, holding.table.queues[s.queue].kind == "cpu", index)
        if stretches[k].nbytes == stretches[j].nbytes and stretches[k].is_over_with(holding.place[op], after)
    ]


def _overwritten(graph: Graph, holding: Holding, op: int, cpu: bool, index: dict[str, int]) -> Iterator[tuple[int, int]]:
    """Pairs of an op's input and output whose kernel allows it; no other input may lie in the same bytes."""
    node = graph.ops[op]
    allowed = overwritable(graph, node, cpu)
    if not allowed or node.outputs[0] not in index:
        return
    read = {name: index[held] for name, held in _read(holding, op).items() if held in index}
    others = {k for name, k in read.items() if name not in allowed}
    for k in dict.fromkeys(read[name] for name in allowed if name in read):
        if k not in others:
            yield k, index[node.outputs[0]]


def _read(holding: Holding, op: int) -> dict[str, str]:
    """Tensor -> lifetime that the op reads of it."""
    return {holding.table.tensor_names[t]: holding.name(holding.read(op, t)) for t in holding.reads[op]}


def matched(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs without those that would join a stretch a second time on the same side: the first of each is taken."""
    taken: set[int] = set()
    written: set[int] = set()
    out = []
    for first, then in pairs:
        if first not in taken and then not in written:
            taken.add(first)
            written.add(then)
            out.append((first, then))
    return out
