"""Operators shared by two queues: which are worth it, where to cut them, and how their parts are placed.

A segment waits for all that feeds it and signals at its end, so a shared operator is cut in three: the other queue computes the
first and the last part, and the home queue, between them in the order, the middle one. Then the middle part is a segment of its own: it
neither holds up what came before nor waits for the other queue; the join comes after the last part. The cuts level both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsched.costs import CostTable
from hetsched.partition.timing import Costs

#: Cuts are at multiples of this many channels where there are enough of them, as matrix units and vectors want it.
GRANULES = ((256, 32), (64, 8), (16, 4), (3, 1))
#: A split has to save this share of the operator's own time to be proposed.
LEAST = 0.05


@dataclass(frozen=True, slots=True)
class Split:
    """Cut op ``op`` at two output channels; the middle part stays on ``home``. ``saved_s`` is an estimate of it alone."""

    op: int
    cuts: tuple[int, int]
    home: int
    other: int
    saved_s: float


def proposals(table: CostTable, alternative: Sequence[int], channels: Mapping[int, int]) -> list[Split]:
    """Splits that would pay if nothing else changed, the largest saving first.

    Args:
        table: of the graph as it is.
        alternative: the placement of every op.
        channels: ops that can be split, and how many output channels each has.
    """
    c = Costs(table)
    cores = [set(q.cores) if q.kind == "cpu" else set[int]() for q in table.queues]
    found = []
    for op, count in channels.items():
        home = c.queue[alternative[op]]
        others = [q for q in range(c.queues) if q != home and not cores[q] & cores[home]]
        options = [s for q in others if (s := _best(table, c, alternative, op, count, q)) is not None]
        if options:
            found.append(max(options, key=lambda s: (s.saved_s, -s.other)))
    return sorted(found, key=lambda s: (-s.saved_s, s.op))


def _best(table: CostTable, c: Costs, alternative: Sequence[int], op: int, count: int, other: int) -> Split | None:
    a = alternative[op]
    there = [b for b in c.alts[op] if c.queue[b] == other]
    granule = next((g for least, g in GRANULES if count >= least), 0)
    if not there or not granule:
        return None
    b = min(there, key=lambda x: (c.time[x], x))
    home = c.queue[a]
    begin = c.sync[home][other] + 2 * c.launch[other] + sum(c.transfer[t][c.source(t, alternative)][c.domain[b]] for t in c.inputs[op])
    moved = sum(c.transfer[t][c.domain[b]][c.domain[a]] for t in c.outputs[op])
    joined = sum(2.0 * float(table.tensor_bytes[t, c.domain[a]]) for t in c.outputs[op]) / float(table.bandwidth_bytes_s[home])
    fixed_a, fixed_b = (min(float(table.overhead_s[x]), c.time[x]) for x in (a, b))
    work_a, work_b = c.time[a] - fixed_a, c.time[b] - fixed_b
    end = c.sync[other][home]

    def seconds(middle: int) -> float:
        share = middle / count
        far = begin + 2 * fixed_b + (1 - share) * (work_b + moved) + end
        return max(fixed_a + share * work_a, far) + 2 * c.launch[home] + joined

    steps = range(granule, count - 2 * granule + 1, granule)
    if not steps:
        return None
    middle = min(steps, key=lambda m: (seconds(m), m)) if len(steps) <= 64 else _level(steps, seconds)
    first = max(granule, (count - middle) // (2 * granule) * granule)
    saved = c.time[a] - seconds(middle)
    return Split(op, (first, first + middle), home, other, saved) if saved > LEAST * c.time[a] else None


def _level(steps: range, seconds: object) -> int:
    """Where a convex function is least."""
    low, high = 0, len(steps) - 1
    while low < high:
        mid = (low + high) // 2
        if seconds(steps[mid]) <= seconds(steps[mid + 1]):  # type: ignore[operator]
            high = mid
        else:
            low = mid + 1
    return steps[low]


def placed(
    before: CostTable, order: Sequence[int], alternative: Sequence[int], after: CostTable, splits: Sequence[Split], shared: set[int]
) -> tuple[list[int], list[int]]:
    """A placement of the graph with splits, from one of the graph without.

    Args:
        before: the table of the whole operators.
        order: of them.
        alternative: of them.
        after: the table of the graph with all of ``splits``.
        splits: what has been cut.
        shared: ops of ``before`` whose parts two queues share; the other parts stay together.

    Returns:
        Order and alternatives by ``after``.
    """
    c, d = Costs(before), Costs(after)
    index = {name: i for i, name in enumerate(after.op_names)}
    by_op = {s.op: s for s in splits}
    made, chosen = list[int](), [-1] * d.n

    def place(name: str, queue: int, domain: int) -> None:
        i = index[name]
        same = [x for x in d.alts[i] if d.queue[x] == queue]
        chosen[i] = min(same or d.alts[i], key=lambda x: (d.domain[x] != domain, d.time[x], x))
        made.append(i)

    for op in order:
        name, a = before.op_names[op], alternative[op]
        home, domain = c.queue[a], c.domain[a]
        if op not in by_op:
            place(name, home, domain)
            continue
        far = by_op[op].other if op in shared else home
        for part, queue in ((1, far), (2, home), (3, far)):
            place(f"{name}/{part}of3", queue, domain)
        place(f"{name}/join", home, domain)
    return made, chosen
