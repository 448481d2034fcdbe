"""The latency bound of a relaxation: a shortest path over the cuts' alternatives, with a least time per block.

Whatever the order, all ops between two neighbouring cuts run between them. The time from one cut's end to the next,
given their alternatives, is bounded by the longest path (each arc at its cheapest) and by "one queue or several":
either every op of the block is on one queue, which then does all the work one after another, or for every queue some
op is off it, and the path through that op pays its crossings.
"""

from __future__ import annotations

from collections.abc import Collection

from hetsched.partition.blocks import Block, light_ops
from hetsched.partition.relaxed import Relaxed, simplified
from hetsched.partition.timing import Costs

INFINITE = float("inf")


class Chain:
    """Blocks of a relaxation and a least time per block and pair of alternatives: ``values``, which :meth:`raise_to` raises."""

    def __init__(self, relaxed: Relaxed) -> None:
        self.relaxed, self.c = relaxed, relaxed.c
        self.blocks = relaxed.blocks()
        self.values: dict[tuple[int, int, int], float] = {}
        self.signatures: dict[tuple[int, int, int], str] = {}
        self.solved: list[tuple[dict[int, float], dict[int, int]]] = []
        """Per block, as far as no value has been raised since: the least time up to each exit, and from which entry."""
        for k, block in enumerate(self.blocks):
            backward = {b: relaxed.backward(block, b) for b in self.exits(block)}
            for a in self.entries(block):
                forward = relaxed.forward(block, a)
                for b in self.exits(block):
                    self.values[k, a, b] = self._least(block, a, b, forward, backward[b])

    def entries(self, block: Block) -> list[int]:
        """Alternatives of the block's entry."""
        return [-1] if block.entry < 0 else list(self.c.alts[block.entry])

    def exits(self, block: Block) -> list[int]:
        """Alternatives of the block's exit."""
        return [-1] if block.exit < 0 else list(self.c.alts[block.exit])

    def bound(self) -> tuple[float, list[tuple[int, int, int]]]:
        """The least total in seconds and the ``(block, entry, exit)`` keys of ``values`` that add up to it."""
        cost = self.solved[-1][0] if self.solved else {-1: 0.0}
        for k in range(len(self.solved), len(self.blocks)):
            ways = {b: min([(x + self.values[k, a, b], i, a) for i, (a, x) in enumerate(cost.items())]) for b in self.exits(self.blocks[k])}
            cost = {b: least for b, (least, _, _) in ways.items()}
            self.solved.append((cost, {b: a for b, (_, _, a) in ways.items()}))
        b, path = -1, list[tuple[int, int, int]]()
        for k in reversed(range(len(self.blocks))):
            a = self.solved[k][1][b]
            path.append((k, a, b))
            b = a
        return cost[-1] * (1 - 1e-12), path[::-1]

    def raise_to(self, arc: tuple[int, int, int], value: float) -> None:
        """Raise a least time; a smaller value changes nothing."""
        if value > self.values[arc]:
            self.values[arc] = value
            del self.solved[arc[0] :]

    def signature(self, arc: tuple[int, int, int]) -> str:
        """Equal for arcs whose blocks cost the same in every way."""
        if arc not in self.signatures:
            self.signatures[arc] = self._signature(*arc)
        return self.signatures[arc]

    def alike(self, arc: tuple[int, int, int], paid: Collection[int]) -> str:
        """Equal for arcs whose blocks cost the same and pay for the same transfers: a graph input is ``paid`` where it is read first."""
        block = self.blocks[arc[0]]
        return f"{self.signature(arc)} {[t in paid for v in (*block.inner, block.exit) if v >= 0 for t in self.c.inputs[v]]}"

    def _signature(self, k: int, a: int, b: int) -> str:
        c, relaxed, block = self.c, self.relaxed, self.blocks[k]
        ops = (block.entry, *block.inner, block.exit)
        place = {v: i for i, v in enumerate(ops) if v >= 0}
        tensors = {t: i for i, t in enumerate(dict.fromkeys(t for v in ops[1:] if v >= 0 for t in c.inputs[v]))}
        rows: list[object] = [len(ops), block.entry < 0, block.exit < 0]
        for v in (v for v in ops[1:] if v >= 0):
            rows.append([(c.queue[x], c.domain[x], c.time[x]) for x in ([b] if v == block.exit else c.alts[v])])
            rows.append([(place[u], matrix) for u, matrix in relaxed.preds[v].items() if u in place])
            rows.append([tensors[t] for t in c.inputs[v]])
            rows.append(relaxed.arrive[v] if block.entry < 0 else relaxed.follow[v] if block.exit < 0 else ())
        for t in tensors:
            p = c.producer[t]
            readers = sum(t in c.inputs[s] for s in c.succs[p]) if p >= 0 else 0
            rows.append((place.get(p, -1 if p < 0 else -2), readers, c.transfer[t]))
        return repr((rows, None if a < 0 else (c.queue[a], c.domain[a], a - c.alts[block.entry].start)))

    def _least(self, block: Block, a: int, b: int, forward: dict[int, list[float]], backward: dict[int, list[float]]) -> float:
        c = self.c
        if block.exit >= 0:
            bound = forward[block.exit][b - c.alts[block.exit].start]
        else:
            bound = self.relaxed.follow[block.entry][a - c.alts[block.entry].start] if block.entry >= 0 else 0.0
        if not block.inner:
            return bound
        through = {v: [x + y for x, y in zip(forward[v], backward[v], strict=True)] for v in block.inner}
        bound = max(bound, max(min(row) for row in through.values()))
        off = [
            min((x for v, row in through.items() for i, x in zip(c.alts[v], row, strict=True) if c.queue[i] != q), default=INFINITE)
            for q in range(c.queues)
        ]
        alone = min(self.alone(block, a, b, q) for q in range(c.queues))
        return max(bound, min(alone, max(off)))

    def alone(self, block: Block, a: int, b: int, q: int) -> float:
        """Least time of the block if queue ``q`` does all its inner ops one after another."""
        c, crossing = self.c, self.relaxed.crossing
        work = c.launch[q] if block.entry < 0 else crossing[c.queue[a]][q]
        for v in block.inner:
            work += min((c.time[x] for x in c.alts[v] if c.queue[x] == q), default=INFINITE)
        return work if block.exit < 0 else work + crossing[q][c.queue[b]] + c.time[b]


SHARES = (0.0, 0.003, 0.01, 0.03, 0.1)
"""Shares of the work left out; the best of the bounds counts."""


def chains(c: Costs) -> list[Chain]:
    """Chains with more and more light ops left out, best bound first."""
    light = light_ops(c.preds, [min(c.time[a] for a in row) for row in c.alts], SHARES[-1])
    found: list[Chain] = []
    sizes: list[int] = []
    for share in SHARES:
        left_out = [v for v, made_up in light if made_up <= share and share > 0]
        if len(left_out) in sizes:
            continue
        sizes.append(len(left_out))
        found.append(Chain(simplified(c, left_out)))
        if all(not b.inner for b in found[-1].blocks):
            break
    return sorted(found, key=lambda chain: -chain.bound()[0])
