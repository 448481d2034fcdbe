"""What would have to change for an op to go elsewhere: the one figure of the cost table at which moving it breaks even.

Nothing here is a rule of thumb: the plan and the plan with the op moved are timed by the segment rule, once with the figure
as it is, and again while it is lowered until moving costs no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hetsched.costs import CostTable
from hetsched.partition.problem import Objective, Problem
from hetsched.partition.timing import Costs, figures, value
from hetsched.segments import runs

Figure: TypeAlias = Literal["time", "sync", "launch", "transfer"]
#: As :class:`~hetsched.partition.timing.Costs` has them: seconds, and joules where those are minimised.
_COLUMNS: dict[Figure, tuple[str, str]] = {
    "time": ("time", "energy"), "sync": ("sync", "sync_j"), "launch": ("launch", "launch_j"), "transfer": ("transfer", "transfer_j"),
}  # fmt: skip
#: How finely a figure is found, as a share of what it is now.
STEP = 2.0**-20
_NOTHING = 1e-12


@dataclass(frozen=True)
class Change:
    """One figure that is lowered, everything else being as it is.

    ``time``: of the moved ops there; ``sync``: of any signal to or from that queue; ``launch``: of a segment there;
    ``transfer``: conversions, cache maintenance and copies of the moved ops' tensors. In the objective's unit (seconds for
    ``edp`` and ``period``).
    """

    figure: Figure
    now: float
    below: float | None
    """At most this much, and moving pays; None: not even at 0."""
    left: float
    """What moving would still cost with the figure at 0."""


@dataclass(frozen=True)
class Elsewhere:
    """An op on another queue, alone or with the neighbours that make it cheapest to move."""

    queue: str
    precision: str
    ops: tuple[str, ...]
    """What moves, the op among them."""
    extra: float
    """What the whole plan would lose, in the objective's unit; below 0 it gains."""
    changes: tuple[Change, ...]
    """The smallest first (as a share of the figure), then those that do not suffice, the nearest first."""


@dataclass(frozen=True, order=True)
class Moved:
    """Ops of one segment to another queue: all alternatives of the plan after it."""

    ops: tuple[int, ...]
    alternative: tuple[int, ...]


class Placed:
    """A finished plan, to try moves against.

    Args:
        table: the plan's cost table.
        objective: what it minimises.
        order: of the plan.
        alternative: of the plan.
        closed: names of queues that may not be used.
    """

    def __init__(
        self, table: CostTable, objective: Objective, order: Sequence[int], alternative: Sequence[int], closed: Collection[str] = ()
    ) -> None:
        self.table, self.c, self.problem = table, Costs(table), Problem(table, objective)
        self.order, self.alternative = tuple(order), tuple(alternative)
        self.closed = {q for q, queue in enumerate(table.queues) if queue.name in closed}
        self.joules = objective == "energy"
        self.segments = runs(order, [self.c.queue[a] for a in alternative])
        self.segment_of = {op: s for s in self.segments for op in s}
        self.timed_ops = 0
        """Ops timed so far: what this has cost."""

    def value(self, c: Costs, alternative: Sequence[int]) -> float:
        """The objective of a placement by the figures of ``c``."""
        self.timed_ops += c.n
        return value(self.problem, figures(c, self.order, alternative))

    def loss(self, c: Costs, move: Moved) -> float:
        """What the move costs the plan by the figures of ``c``."""
        return self.value(c, move.alternative) - self.value(c, self.alternative)

    def free_queues(self, op: int) -> Iterator[int]:
        """Queues that offer the op, are open, and share no cores with another that the plan uses; the op's own is one."""
        c = self.c
        used = {c.queue[a] for k, a in enumerate(self.alternative) if k != op}
        for q in sorted({c.queue[a] for a in c.alts[op]} - self.closed):
            if not any(_share_cores(self.table, q, u) for u in used):
                yield q

    def moves(self, op: int, queue: int, precision: str = "") -> Iterator[Moved]:
        """The op to ``queue``, alone, with its neighbours at either side, and with all around it that the queue offers.

        Args:
            op: which.
            queue: to where; it must offer the op.
            precision: that the op must have there, and its neighbours where they can; empty: what costs least.
        """
        segment = self.segment_of[op]
        at = first = last = segment.index(op)
        offered = [any(self.c.queue[a] == queue for a in self.c.alts[v]) for v in segment]
        while first > 0 and offered[first - 1]:
            first -= 1
        while last + 1 < len(segment) and offered[last + 1]:
            last += 1
        near = [(max(first, at - k), min(last, at + k)) for k in (0, 1, 4)]
        for low, high in dict.fromkeys([*near, (first, at), (at, last), (first, last)]):
            yield self._moved(segment[low : high + 1], queue, precision)

    def _moved(self, ops: Sequence[int], queue: int, precision: str) -> Moved:
        c, moved, precisions = self.c, list(self.alternative), self.table.alt_precision
        own, crossing = (c.energy, c.transfer_j) if self.joules else (c.time, c.transfer)
        for op in ops:
            there = [a for a in c.alts[op] if c.queue[a] == queue]
            wanted = [a for a in there if precisions[a] == precision] or there

            def cost(a: int, op: int = op) -> tuple[float, int]:
                return own[a] + sum(crossing[t][c.source(t, moved)][c.domain[a]] for t in c.inputs[op]), a

            moved[op] = min(wanted, key=cost)
        return Moved(tuple(ops), tuple(moved))

    def changed(self, figure: Figure, move: Moved, queue: int) -> tuple[float, Callable[[float], Costs]]:
        """What a figure is for a move to ``queue``, and the costs with it at a share (0 to 1) of that."""
        name = _COLUMNS[figure][self.joules]
        column = getattr(self.c, name)
        now = self._now(figure, column, move, queue)

        def at(share: float) -> Costs:
            costs = copy(self.c)
            setattr(costs, name, self._lowered(figure, column, move, queue, share, share * now))
            return costs

        return now, at

    def _now(self, figure: Figure, column: Any, move: Moved, queue: int) -> float:
        if figure == "time":
            return float(sum(column[move.alternative[op]] for op in move.ops))
        if figure == "launch":
            return float(column[queue])
        if figure == "sync":
            others = {self.c.queue[a] for a in move.alternative} | {self.c.host}
            return float(max(max(column[queue][q], column[q][queue]) for q in others))
        return self._transferred(column, self._tensors(move), move.alternative)

    def _lowered(self, figure: Figure, column: Any, move: Moved, queue: int, share: float, most: float) -> list[Any]:
        """A column with a figure at ``share`` of what it is: at ``most``."""
        new = list(column)
        if figure == "time":
            for op in move.ops:
                new[move.alternative[op]] *= share
        elif figure == "launch":
            new[queue] = most
        elif figure == "sync":
            return [[min(x, most) if queue in (p, q) else x for q, x in enumerate(row)] for p, row in enumerate(column)]
        else:
            for t in self._tensors(move):
                new[t] = [[share * x for x in row] for row in column[t]]
        return new

    def _tensors(self, move: Moved) -> list[int]:
        """What the moved ops read and write."""
        return sorted({t for op in move.ops for t in (*self.c.inputs[op], *self.c.outputs[op])})

    def _transferred(self, column: Sequence[Sequence[Sequence[float]]], tensors: Sequence[int], alternative: Sequence[int]) -> float:
        """Transfers of some tensors, each once per domain that reads it."""
        c, wanted = self.c, set(tensors)
        pairs = {(t, c.domain[alternative[op]]) for op in self.order for t in c.inputs[op] if t in wanted}
        return sum(column[t][c.source(t, alternative)][d] for t, d in sorted(pairs) if c.source(t, alternative) != d)


def elsewhere(placed: Placed, op: int) -> tuple[Elsewhere, ...]:
    """Per queue that could take the op: the move that needs the smallest change of one figure, with all that would make it pay."""
    here = placed.c.queue[placed.alternative[op]]
    return tuple(_nearest(placed, op, queue) for queue in placed.free_queues(op) if queue != here)


def _share_cores(table: CostTable, a: int, b: int) -> bool:
    return a != b and bool(set(table.queues[a].cores) & set(table.queues[b].cores))


def _nearest(placed: Placed, op: int, queue: int) -> Elsewhere:
    found = [(move, placed.loss(placed.c, move)) for move in placed.moves(op, queue)]
    gain = min(found, key=lambda f: (f[1], len(f[0].ops)))
    small = _NOTHING * placed.value(placed.c, placed.alternative)
    if gain[1] <= small:
        return answer_of(placed, op, queue, *gain, ())
    tried = [(move, extra, _changes(placed, move, queue)) for move, extra in found]
    return answer_of(placed, op, queue, *min(tried, key=lambda t: (_size(t[2][0]), t[1], len(t[0].ops))))


def answer_of(placed: Placed, op: int, queue: int, move: Moved, extra: float, changes: tuple[Change, ...]) -> Elsewhere:
    """A move in the names of the table."""
    table = placed.table
    precision = table.alt_precision[move.alternative[op]]
    return Elsewhere(table.queues[queue].name, precision, tuple(table.op_names[v] for v in move.ops), extra, changes)


def _size(change: Change) -> tuple[bool, float]:
    """How large a change is: the share by which the figure falls; what does not suffice comes last, by what is left."""
    return (True, change.left) if change.below is None else (False, 1.0 - change.below / change.now)


def _changes(placed: Placed, move: Moved, queue: int) -> tuple[Change, ...]:
    found = []
    for figure in _COLUMNS:
        now, at = placed.changed(figure, move, queue)
        left = placed.loss(at(0.0), move)
        if now <= 0 or left > 0:
            found.append(Change(figure, now, None, left))
            continue

        def lost(share: float, at: Callable[[float], Costs] = at) -> float:
            return placed.loss(at(share), move)

        found.append(Change(figure, now, now * break_even(lost), left))
    return tuple(sorted(found, key=_size))


def break_even(loss: Callable[[float], float]) -> float:
    """A share between 0, where ``loss`` is no more than 0, and 1, where it is more: no loss there, and a loss :data:`STEP` above.

    By false position, which finds the kinks of a piecewise linear function in a few steps, with a bisection in every third.
    """
    low, high, at_low, at_high = 0.0, 1.0, loss(0.0), loss(1.0)
    turn = 0
    while high - low > STEP:
        turn += 1
        x = (low + high) / 2 if turn % 3 == 0 or at_high <= at_low else low - at_low * (high - low) / (at_high - at_low)
        x = min(max(x, low + STEP / 2), high - STEP / 2)
        lost = loss(x)
        if lost <= 0:
            low, at_low = x, lost
        else:
            high, at_high = x, lost
    return low
