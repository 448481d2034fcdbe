"""Undoing fusion: the graph of the user's own operators."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from hetsched.graph import Graph, Op


def parts(op: Op) -> Iterator[Op]:
    """The original operators that ``op`` stands for, in execution order; an operator of control flow stands for itself."""
    if not op.is_composite:
        yield op
        return
    for part in op.body:
        yield from parts(part)


def unfuse(graph: Graph) -> Graph:
    """The graph with every fused operator replaced by what it was made of.

    An operator that several fused ones hold (a DequantizeLinear with several readers) comes back once. The order is
    topological; the tensors of the bodies are in ``graph.tensors`` already, as the passes leave them there.
    """
    ops = list({part.name: part for op in graph.ops for part in parts(op)}.values())
    return graph.replace(ops=tuple(in_order(ops)))


def in_order(ops: Sequence[Op]) -> list[Op]:
    """Topological order that keeps the given one wherever it is valid."""
    producer = {o: i for i, op in enumerate(ops) for o in op.outputs if o}
    waits = [len({producer[i] for i in op.inputs if i in producer}) for op in ops]
    feeds: list[list[int]] = [[] for _ in ops]
    for i, op in enumerate(ops):
        for p in sorted({producer[n] for n in op.inputs if n in producer}):
            feeds[p].append(i)
    ready = [i for i, n in enumerate(waits) if n == 0]
    out = []
    while ready:
        i = heapq.heappop(ready)
        out.append(ops[i])
        for j in feeds[i]:
            waits[j] -= 1
            if waits[j] == 0:
                heapq.heappush(ready, j)
    return out
