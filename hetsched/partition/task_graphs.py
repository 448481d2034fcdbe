"""``ilp`` on classic task graphs: a schedule with a proven bound on the makespan.

A task graph is not a cost table: a wait along an edge keeps no queue busy, and a task signals when it ends and not when its
segment does. So it has its own exact solver, beside the list schedulers of :mod:`hetsched.partition.list_scheduling`:

    proven = ilp(tasks, time_limit_s=10)
    proven.placed.makespan, proven.bound, proven.status

The graph is cut into blocks; a bound per block and pair of its cuts' queues starts with the longest way, and only the pairs
that the shortest path over the cuts goes through are solved. Identical blocks are solved once.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from hetsched.errors import OptionError
from hetsched.partition.blocks import Block
from hetsched.partition.intervals import IntervalModel
from hetsched.partition.list_scheduling import STARTS, Placed, Tasks, annealed, best, heft
from hetsched.partition.problem import Budget
from hetsched.partition.task_blocks import INFINITE, between, blocks_of, ids_of, without_implied
from hetsched.partition.task_bounds import area_bound, heads, path_bound, tails
from hetsched.plans import Status

RESOLUTION = 1e-5
"""Times are rounded to ticks; a schedule this close to its bound is called optimal."""
WALL_FACTOR = 6.0
FEW_PAIRS = 5000
"""Graphs whose blocks have more pairs of queues than this, and more than the budget can bound, stay whole."""
MOST_LITERALS = 100_000
"""Blocks whose edges have more pairs of queues than this keep their simple bound."""
UNITS_PER_PAIR = 2.5e-4
"""Units of the budget to bound a pair."""
UNITS_PER_TASK = 2.5e-7
"""Units of the budget to place one task once."""
ANNEALING = 0.2
"""Share of the budget that goes to annealing the whole graph, half of it from several schedules and half from the best then."""
FIRST_TRY = 0.5
"""Units for the first attempt at a block; every further one has twice as many."""


@dataclass(frozen=True, eq=False)
class Proven:
    """A schedule and what is known about it: no schedule is shorter than ``bound`` seconds."""

    placed: Placed
    bound: float
    status: Status

    @property
    def gap(self) -> float:
        """How far the makespan may be above the least one, as a share of itself."""
        return max(0.0, 1.0 - self.bound / self.placed.makespan) if self.placed.makespan > 0 else 0.0


def ilp(tasks: Tasks, time_limit_s: float = 10.0) -> Proven:
    """Schedule a task graph and prove how good the schedule is.

    Args:
        tasks: what to place.
        time_limit_s: work allowed, in seconds of an ordinary core; the wall clock stops the search at six times as much.

    Raises:
        InfeasibleError: a task can run nowhere.
        OptionError: a time limit that is not positive.
    """
    if not time_limit_s > 0:
        raise OptionError(f"the time limit is {time_limit_s} s: give a positive number")
    lean = without_implied(tasks)
    trials = int(ANNEALING * time_limit_s / (2 * UNITS_PER_TASK * max(1, len(tasks.cost))))
    found = annealed(lean, best(lean, trials // STARTS), trials)
    budget = Budget(time_limit_s * (1 - ANNEALING), None, perf_counter(), time_limit_s * WALL_FACTOR)
    chain = TaskChain(lean, found, max(FEW_PAIRS, int(budget.units / UNITS_PER_PAIR)))
    budget.charge(UNITS_PER_PAIR * sum(len(row) for row in chain.pairs))
    chain.close(budget)
    found = chain.shortest() if chain.incumbent < found.makespan else found
    bound = min(chain.bound()[0], found.makespan)
    if bound >= found.makespan * (1 - RESOLUTION):
        return Proven(found, bound, "optimal")
    return Proven(found, bound, "clock" if budget.clock_stopped else "feasible")


@dataclass(eq=False)
class Pair:
    """A block with its cuts on two queues: its least time is at least ``value``; ``placed`` is the shortest schedule known."""

    tasks: Tasks
    value: float
    placed: Placed
    tries: int = 0
    closed: bool = False

    @classmethod
    def of(cls, tasks: Tasks) -> Pair:
        """A pair with the longest way as its bound and what ``heft`` makes of it."""
        pair = cls(tasks, path_bound(heads(tasks), tails(tasks)), heft(tasks))
        pair.settle()
        return pair

    def settle(self) -> None:
        """Note whether anything is left to prove."""
        self.value = min(self.value, self.placed.makespan)
        self.closed |= self.value >= self.placed.makespan * (1 - 1e-9)

    def improve(self, slack: float, budget: Budget, units: float) -> None:
        """Raise the bound, or find a shorter schedule; schedules longer than the bound by more than ``slack`` are of no use."""
        if self.tries == 0:
            self.value = max(self.value, area_bound(self.tasks, heads(self.tasks), tails(self.tasks)))
            self.settle()
        self.closed |= len(self.tasks.in_items) * len(self.tasks.rate) ** 2 > MOST_LITERALS
        if self.closed:
            return
        limit = min(self.placed.makespan, self.value + slack)
        model = IntervalModel(self.tasks, self.value, limit)
        if model.possible and limit == self.placed.makespan:
            model.hint(self.placed)
        answer = model.solve(budget, min(budget.left, units))
        self.tries += 1
        if answer.placed is not None and answer.placed.makespan < self.placed.makespan:
            self.placed = answer.placed
        self.value = max(self.value, min(answer.bound, limit))
        self.closed |= answer.proven
        self.settle()


class TaskChain:
    """The blocks of a task graph, each with a :class:`Pair` per pair of queues of its cuts (-1 where it has none)."""

    def __init__(self, tasks: Tasks, found: Placed, most_pairs: int = FEW_PAIRS) -> None:
        """Bound every pair; ``found`` is a schedule of the whole, and with more than ``most_pairs`` nothing is cut."""
        self.tasks, self.blocks = tasks, blocks_of(tasks)
        if len(self.blocks) * tasks.cost.shape[1] ** 2 > most_pairs:
            self.blocks = [Block(-1, tuple(range(len(tasks.cost))), -1)]
        self.pairs: list[dict[tuple[int, int], Pair]] = []
        known: dict[bytes, Pair] = {}
        for block in self.blocks:
            row: dict[tuple[int, int], Pair] = {}
            for p in self._queues(block.entry):
                for q in self._queues(block.exit):
                    part = between(tasks, block, p, q)
                    key = b"|".join(a.tobytes() for a in (part.cost, part.in_start, part.in_items, part.in_size))
                    row[p, q] = known[key] if key in known else known.setdefault(key, Pair.of(part))
            self.pairs.append(row)
        self._seed(found)
        self.incumbent = self._path(upper=True)[0]

    def _queues(self, cut: int) -> list[int]:
        return [-1] if cut < 0 else np.flatnonzero(np.isfinite(self.tasks.cost[cut])).tolist()

    def _seed(self, found: Placed) -> None:
        """What a schedule of the whole graph does in every block."""
        for block, row in zip(self.blocks, self.pairs, strict=True):
            p, q = (int(found.queue[cut]) if cut >= 0 else -1 for cut in (block.entry, block.exit))
            ids, offset = ids_of(block), found.end[block.entry] if block.entry >= 0 else 0.0
            part = Placed(found.queue[ids], np.maximum(0.0, found.begin[ids] - offset), found.end[ids] - offset)
            if part.makespan < row[p, q].placed.makespan:
                row[p, q].placed = part

    def bound(self) -> tuple[float, list[Pair]]:
        """A bound on the makespan, and the pairs that it adds up."""
        return self._path(upper=False)

    def _path(self, upper: bool) -> tuple[float, list[Pair]]:
        total = {-1: 0.0}
        back: list[dict[int, tuple[int, Pair]]] = []
        for row in self.pairs:
            following: dict[int, float] = {}
            origin: dict[int, tuple[int, Pair]] = {}
            for (p, q), pair in row.items():
                value = total[p] + (pair.placed.makespan if upper else pair.value)
                if value < following.get(q, INFINITE):
                    following[q], origin[q] = value, (p, pair)
            total = following
            back.append(origin)
        end = min(total, key=lambda q: total[q])
        path, q = list[Pair](), end
        for origin in reversed(back):
            q, pair = origin[q]
            path.append(pair)
        return total[end], path[::-1]

    def close(self, budget: Budget) -> None:
        """Solve the pairs on the way of the bound, the least tried and smallest first, until it meets the incumbent."""
        while True:
            total, path = self.bound()
            open_pairs = list(dict.fromkeys(pair for pair in path if not pair.closed))
            if total >= self.incumbent * (1 - 1e-9) or not open_pairs:
                return
            tried = min(pair.tries for pair in open_pairs)
            for pair in sorted((p for p in open_pairs if p.tries == tried), key=lambda p: len(p.tasks.cost)):
                if budget.left <= 0 or budget.out_of_time():
                    return
                pair.improve(self.incumbent - total, budget, FIRST_TRY * 2**tried if len(open_pairs) > 1 else budget.left)
            self.incumbent = min(self.incumbent, self._path(upper=True)[0])

    def shortest(self) -> Placed:
        """The shortest schedules of the blocks one after another."""
        n = len(self.tasks.cost)
        queue, begin, end = np.empty(n, np.int64), np.empty(n), np.empty(n)
        offset = 0.0
        for block, pair in zip(self.blocks, self._path(upper=True)[1], strict=True):
            skip = 1 if block.entry >= 0 else 0
            ids = ids_of(block)[skip:]
            queue[ids], begin[ids], end[ids] = pair.placed.queue[skip:], offset + pair.placed.begin[skip:], offset + pair.placed.end[skip:]
            offset += pair.placed.makespan
        return Placed(queue, begin, end)
