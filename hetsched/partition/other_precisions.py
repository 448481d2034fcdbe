"""What an op would cost in precisions that its plan does not have: ``npu if w8a8``."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from hetsched.costs import CostTable
from hetsched.partition.counterfactuals import Elsewhere, Moved, Placed, answer_of


@dataclass(frozen=True)
class Wider:
    """A plan by a table of the same ops with more precisions.

    ``pure`` is the table of the other precision alone: where all that runs on a queue is in it, segments are launched there as in that
    table (a compiled graph of integers starts in less time than one of floats).
    """

    placed: Placed
    pure: CostTable

    def loss(self, move: Moved, queue: int, precision: str) -> float:
        """What a move to ``queue`` in ``precision`` costs the plan."""
        placed, c = self.placed, self.placed.c
        if {placed.table.alt_precision[a] for a in move.alternative if c.queue[a] == queue} == {precision}:
            c = copy(c)
            c.launch, c.launch_j = list(c.launch), list(c.launch_j)
            c.launch[queue], c.launch_j[queue] = float(self.pure.launch_s[queue]), float(self.pure.launch_energy_j[queue])
        return placed.value(c, move.alternative) - placed.value(placed.c, placed.alternative)


def in_other_precisions(placed: Placed, wider: Wider, op: int) -> tuple[Elsewhere, ...]:
    """What the op would cost or save in precisions that its plan's table does not offer on that queue.

    Args:
        placed: the plan by its own table.
        wider: the plan by one with more precisions.
        op: which.
    """
    other = wider.placed
    if abs(other.value(other.c, other.alternative) / placed.value(placed.c, placed.alternative) - 1) > 1e-6:
        return ()  # a table that times the plan otherwise says nothing about it

    def offers(p: Placed) -> set[tuple[int, str]]:
        return {(p.c.queue[a], p.table.alt_precision[a]) for a in p.c.alts[op]}

    out, free = [], set(other.free_queues(op))
    for queue, precision in sorted(offers(other) - offers(placed)):
        if queue not in free:
            continue
        moves = other.moves(op, queue, precision)
        extra, _, move = min((wider.loss(m, queue, precision), len(m.ops), m) for m in moves)
        out.append(answer_of(other, op, queue, move, extra, ()))
    return tuple(out)
