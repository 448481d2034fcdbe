"""What a solver is asked and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.costs import CostTable
from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.partition.limits import UNLIMITED, Limits
from hetsched.plans import Status
from hetsched.segments import Schedule, schedule

Objective: TypeAlias = Literal["latency", "energy", "edp", "period"]
OBJECTIVES: tuple[Objective, ...] = ("latency", "energy", "edp", "period")
UNITS: Mapping[str, str] = {"latency": "s", "energy": "J", "edp": "J s", "period": "s"}
Progress: TypeAlias = Callable[[str, float, float], None]
"""Called with the stage, the best objective so far and its proven bound."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A cost table, an objective and the user's constraints.

    ``forced`` maps op names to a queue name (or a processor kind with one queue); ``forbidden`` holds ``(op, queue)``
    pairs, ``"*"`` for every op. ``affinity`` is a table for the ``rules`` solver: op type -> processor kinds or queue
    names, most wanted first (None: the table that ships with hetsched). ``op_types`` are the ONNX types of the ops,
    needed by ``rules`` only. ``processor_limits`` are the bytes that a processor can address: its weights and the arena; they and
    ``memory_limit_bytes``, which holds weights, arena and workspace together and is applied by
    :func:`hetsched.partition.build_plan`. ``limits`` are the most that a plan may have of other figures than the objective.
    """

    table: CostTable
    objective: Objective = "latency"
    memory_limit_bytes: int | None = None
    processor_limits: Mapping[str, int] = field(default_factory=dict)
    forced: Mapping[str, str] = field(default_factory=dict)
    forbidden: tuple[tuple[str, str], ...] = ()
    limits: Limits = UNLIMITED
    affinity: Mapping[str, tuple[str, ...]] | None = None
    op_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise OptionError(f"there is no objective {self.objective!r}: use one of {', '.join(OBJECTIVES)}")
        if self.memory_limit_bytes is not None and self.memory_limit_bytes <= 0:
            raise OptionError(f"the memory limit is {self.memory_limit_bytes} bytes: give a positive number")
        if self.op_types and len(self.op_types) != len(self.table.op_names):
            raise OptionError(f"{len(self.op_types)} op types were given for {len(self.table.op_names)} ops")

    @classmethod
    def of(cls, graph: Graph, table: CostTable, objective: Objective = "latency") -> Problem:
        """The unconstrained problem of placing ``graph`` with the costs ``table``."""
        return cls(table, objective, op_types=tuple(op.type for op in graph.ops))

    @cached_property
    def keep(self) -> npt.NDArray[np.bool_]:
        """[m] which alternatives ``forced`` and ``forbidden`` leave.

        Raises:
            OptionError: an op or a queue that does not exist is named.
        """
        table = self.table
        index = {name: i for i, name in enumerate(table.op_names)}
        keep = np.ones(len(table.alt_queue), np.bool_)
        for name, queue in self.forced.items():
            rows = table.alternatives(_op(index, name))
            keep[rows.start : rows.stop] &= table.alt_queue[rows.start : rows.stop] == table.queue_index(queue)
        for name, queue in self.forbidden:
            rows = range(len(keep)) if name == "*" else table.alternatives(_op(index, name))
            keep[rows.start : rows.stop] &= table.alt_queue[rows.start : rows.stop] != table.queue_index(queue)
        return keep

    def on(self, table: CostTable) -> Problem:
        """The same problem on another table of the same ops, without the constraints that the table already holds."""
        return replace(self, table=table, forced={}, forbidden=())


def _op(index: Mapping[str, int], name: str) -> int:
    if name not in index:
        from difflib import get_close_matches

        near = get_close_matches(name, index, 3)
        raise OptionError(f"the model has no op {name!r}" + (f": did you mean {', '.join(near)}?" if near else ""))
    return index[name]


@dataclass(frozen=True)
class Solution:
    """A placement with its order, its cause per op, and how good it is proven to be.

    ``alternative`` indexes the problem's cost table. ``objective`` and ``bound`` are in the objective's unit (seconds,
    joules or joule-seconds); ``gap`` is ``(objective - bound) / objective``. ``finalists`` are what ``auto`` chose from
    and ``evaluate`` is what ranked them (None: the objective), for whoever must choose again under a memory limit.
    ``wall_s`` is for the eye only: like these two it takes no part in comparisons and never reaches a plan file.
    """

    solver: str
    order: tuple[int, ...]
    alternative: tuple[int, ...]
    objective: float
    bound: float = 0.0
    status: Status = "heuristic"
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    finalists: tuple[Solution, ...] = field(default=(), compare=False, repr=False)
    evaluate: Evaluate | None = field(default=None, compare=False, repr=False)
    wall_s: float = field(default=0.0, compare=False)

    @property
    def gap(self) -> float:
        """How far the objective may be above the optimum, as a share of itself; 0 where it is proven optimal."""
        return max(0.0, 1.0 - self.bound / self.objective) if self.objective > 0 else 0.0


Evaluate: TypeAlias = Callable[[Solution], float]
"""Ranks finished placements, smaller is better; ``alternative`` indexes the table of the problem that was asked."""


@dataclass
class Budget:
    """How long a solver may work.

    Work is counted in deterministic units (one is about a second of one core), so that the answer does not depend on
    the machine's load; the wall clock is only an emergency stop. ``spent`` is what has been charged so far.
    """

    units: float = 10.0
    progress: Progress | None = None
    started_s: float = 0.0
    wall_limit_s: float = float("inf")
    clock_stopped: bool = False
    spent: float = 0.0

    @property
    def left(self) -> float:
        """Units not yet charged."""
        return max(0.0, self.units - self.spent)

    def charge(self, units: float) -> None:
        """Count work: an estimate of its seconds that depends on the input only."""
        self.spent += units

    def out_of_time(self) -> bool:
        """Whether the wall clock has stopped the search; remembered, so that the status can say so."""
        from time import perf_counter

        if perf_counter() - self.started_s > self.wall_limit_s:
            self.clock_stopped = True
        return self.clock_stopped

    def left_s(self) -> float:
        """Seconds until the wall clock stops the search."""
        from time import perf_counter

        return max(0.0, self.wall_limit_s - (perf_counter() - self.started_s))

    def report(self, stage: str, best: float, bound: float) -> None:
        """Tell whoever listens."""
        if self.progress is not None:
            self.progress(stage, best, bound)


class Solver(Protocol):
    """What every solver is: a frozen object, whose fields are its options, with one method."""

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op.

        Args:
            problem: without forced or forbidden placements left (they are already cut from its table).
            budget: how long it may take.

        Raises:
            InfeasibleError: this solver cannot place some op; the message names it.
        """
        ...


def busy_s(timed: Schedule, queues: int) -> list[float]:
    """[queues] seconds that each queue works."""
    busy = [0.0] * queues
    for s in timed.segments:
        busy[s.queue] += s.seconds
    return busy


def value_of(timed: Schedule, objective: str, queues: int) -> float:
    """The objective of a timed plan (seconds, joules or joule-seconds).

    ``period`` is the time between results of a steady pipeline of independent inputs: the busiest queue's work, or the DMA engine's.
    """
    if objective == "energy":
        return timed.energy_j
    if objective == "edp":
        return timed.energy_j * timed.latency_s
    if objective == "period":
        return max([*busy_s(timed, queues), sum(c.end_s - c.start_s for c in timed.copies)])
    return timed.latency_s


def objective_of(problem: Problem, order: tuple[int, ...], alternative: tuple[int, ...]) -> float:
    """The problem's objective for a placement, by the segment rule itself."""
    return value_of(schedule(problem.table, order, alternative), problem.objective, len(problem.table.queues))
