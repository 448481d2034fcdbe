"""Moving the cost of transfers into the ops at their ends, so that the cheapest alternatives of all ops add up to more.

A tensor that one op makes and one other op reads costs ``matrix[d][e]`` if they are in domains d and e. Whatever is added to the
maker's cost in d and to the reader's in e, and taken off the matrix, changes no plan's cost. As long as nothing in the matrix
falls below zero, the cheapest alternatives of all ops are a bound. Costs are moved along the ops, there and back
(V. Kolmogorov, Convergent tree-reweighted message passing, 2006).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hetsched.partition.relaxed import Matrix

PASSES = 4
"""Each back and there."""


@dataclass(eq=False)
class Edge:
    """A tensor between two ops (their positions): what it costs per domain of the maker and of the reader, and what has been moved."""

    ends: tuple[int, int]
    matrix: Matrix

    def __post_init__(self) -> None:
        self.moved = [0.0] * len(self.matrix), [0.0] * len(self.matrix)

    def left(self) -> Matrix:
        """What is left in the matrix."""
        u, v = self.moved
        return [[max(0.0, x - a - b) for x, b in zip(row, v, strict=True)] for row, a in zip(self.matrix, u, strict=True)]

    def pull(self, end: int, domains: Iterable[int], others: Sequence[int]) -> list[float]:
        """Move all that can be moved to one end; per domain by how much its cost has grown."""
        mine, theirs = self.moved[end], self.moved[1 - end]
        grown = [0.0] * len(self.matrix)
        for d in domains:
            most = min((self.matrix[e][d] if end else self.matrix[d][e]) - theirs[e] for e in others)
            grown[d], mine[d] = most - mine[d], most
        return grown


def diffused(cost: Sequence[Sequence[float]], edges: Sequence[Edge]) -> list[list[float]]:
    """Move costs along the edges, back and there.

    Args:
        cost: [n][d] least of each op per domain, infinite where it has no alternative.
        edges: from earlier to later ops; their ``moved`` is changed.

    Returns:
        [n][d] by how much each op's cost has grown.
    """
    own = [list(row) for row in cost]
    domains = [[d for d, x in enumerate(row) if x < float("inf")] for row in own]
    at: list[list[tuple[Edge, int]]] = [[] for _ in own]
    for e in edges:
        for end in (0, 1):
            at[e.ends[end]].append((e, end))
    for k in range(2 * PASSES):
        ahead = (k + 1) % 2
        for i in reversed(range(len(own))) if ahead else range(len(own)):
            _settle(i, own[i], at[i], domains, ahead)
    more = [[0.0] * len(row) for row in own]
    for e in edges:
        for i, moved in zip(e.ends, e.moved, strict=True):
            more[i] = [x + y for x, y in zip(more[i], moved, strict=True)]
    return more


def _settle(i: int, own: list[float], edges: Sequence[tuple[Edge, int]], domains: Sequence[Sequence[int]], ahead: int) -> None:
    """Pull the costs of an op's edges, then share out what it costs above its least among the edges ahead."""
    for e, end in edges:
        for d, x in enumerate(e.pull(end, domains[i], domains[e.ends[1 - end]])):
            own[d] += x
    on = [(e, end) for e, end in edges if end == ahead]
    share = 1.0 / max(1, len(on), len(edges) - len(on))
    least = min(own[d] for d in domains[i])
    for d in domains[i]:
        above = share * (own[d] - least)
        for e, end in on:
            e.moved[end][d] -= above
        own[d] -= len(on) * above
