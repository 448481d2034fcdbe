"""What the switches and transfers along one path of a block cost at least.

The ops of a path follow one another in every order, so the queue changes at least as often as along the path, whatever
runs in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.partition.phases import PhaseSearch

INFINITE = float("inf")


class Spine:
    """The dearest path of a block; costs are in excess of every op at its cheapest."""

    def __init__(self, block: PhaseSearch, leave: Sequence[float], target: int) -> None:
        """Choose the path.

        Args:
            block: the block.
            leave: per queue the cost of going on from it after the block.
            target: the domain of the exit's alternative, -1 at the end.
        """
        self.s, self.leave = block, leave
        self.path = self._path()
        self.position = {op: k for k, op in enumerate(self.path)}
        self.ahead: list[list[tuple[int, float]]] = [[] for _ in self.path]
        """Per op of the path and alternative: its queue; its excess and everything after it."""
        self.enter: list[list[float]] = [[] for _ in self.path]
        """Per op of the path and open queue: the least of switching to it, its excess and everything after it."""
        self._backward(target)

    def _path(self) -> list[int]:
        """The path whose switches and excesses cost most; the longer one on a tie."""
        s, switch, q = self.s, self.s.switch, self.s.queues
        cost: list[list[float]] = []
        via: list[int] = []
        length: list[int] = []
        for i in range(s.n):
            into, origin, reached = [0.0 for _ in q], -1, (-1.0, -1.0, 0)
            for u in (u for u in range(i) if s.preds[i] >> u & 1):
                row = [min(cost[u][p] + switch[p][r] for p in q) for r in q]
                worth = min(x + y for x, y in zip(row, self._excess(i), strict=True)), sum(x for x in row if x < INFINITE), length[u]
                if worth > reached:
                    into, origin, reached = row, u, worth
            cost.append([x + y for x, y in zip(into, self._excess(i), strict=True)])
            via.append(origin)
            length.append(reached[2] + 1)
        end = max(range(s.n), key=lambda i: (min(x + y for x, y in zip(cost[i], self.leave, strict=True)), length[i]), default=-1)
        out: list[int] = []
        while end >= 0:
            out.append(end)
            end = via[end]
        return out[::-1]

    def _excess(self, op: int) -> list[float]:
        return [x - self.s.lowest[op] for x in self.s.least[op]]

    def _backward(self, target: int) -> None:
        s = self.s
        after: list[tuple[int, int, float]] = []
        for k in reversed(range(len(self.path))):
            op, last = self.path[k], k + 1 == len(self.path)
            reader = s.n if last else self.path[k + 1]
            matrices = [(m, slot in s.paid) for slot, m in s.reads[reader] if slot in s.writes[op]] if reader < len(s.reads) else []
            row: list[tuple[int, int, float]] = []
            for q, ways in enumerate(s.ways[op]):
                for _, d, cost in ways:
                    if last:
                        rest = self.leave[q] + sum(m[d][target] for m, paid in matrices if paid or d != target)
                    else:
                        rest = min(s.switch[q][r] + x + sum(m[d][e] for m, paid in matrices if paid or d != e) for r, e, x in after)
                    row.append((q, d, cost - s.lowest[op] + rest))
            after = row
            self.ahead[k] = [(q, x) for q, _, x in row]
            self.enter[k] = [min(s.switch[p][q] + x for q, _, x in row) for p in s.queues]

    def passed(self, at: int, op: int) -> int:
        """How much of the path is done after ``op``, if ``at`` of it was before."""
        return at + (self.position.get(op) == at)

    def least(self, at: int, queue: int, behind: Sequence[int], first: Sequence[float]) -> float:
        """Least excess from a state on.

        Args:
            at: how many ops of the path are done.
            queue: the open queue, -1 at the start.
            behind: per queue the ops that were left behind there.
            first: per queue the cost of opening it at the start.
        """
        if at == len(self.path):
            return self.leave[queue] if queue >= 0 else 0.0
        op = self.path[at]
        if queue < 0:
            return min(first[q] + x for q, x in self.ahead[at])
        if not any(mask >> op & 1 for mask in behind):
            return self.enter[at][queue]
        lowest = min(x for r, x in enumerate(self.s.least[op]) if not behind[r] >> op & 1)
        free = [self.s.switch[queue][q] + x for q, x in self.ahead[at] if not behind[q] >> op & 1]
        return min(free) + self.s.lowest[op] - lowest
