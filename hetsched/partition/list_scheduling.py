"""Classic list scheduling of a task graph on queues: ``heft``, ``peft``, ``cpop`` and the best of them, on arrays.

The task-graph problem of the literature: a task runs on one queue, an edge between queues takes time, queues run one task at a
time. It knows no segments, launches or precisions; :mod:`hetsched.partition.heft` applies the same ranks to those.

    tasks = Tasks.of(cost, edges, size, rate)
    placed = best(tasks)
    placed.makespan, placed.queue[7], placed.begin[7]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.errors import InfeasibleError, OptionError

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

MEANS = (1.0, 0.75, 0.5, 0.0, 2.0)
"""How much the mean communication weighs in the upward rank of the schedules that :func:`best` compares."""

STARTS, TRIALS = 8, 10_000
"""How many different ones of those :func:`best` improves, and how many schedules it tries from each."""


@dataclass(frozen=True, eq=False)
class Tasks:
    """A task graph and its costs; tasks are numbered in topological order.

    ``cost`` [n, q] is seconds, infinite where a task cannot run. An edge that carries ``size`` takes ``size * rate[p, q] +
    delay[p, q]`` seconds from queue p to queue q. Edges are packed twice: by source (``out_*``) and by target (``in_*``).
    """

    cost: FloatArray
    out_start: IntArray
    out_items: IntArray
    out_size: FloatArray
    in_start: IntArray
    in_items: IntArray
    in_size: FloatArray
    rate: FloatArray
    delay: FloatArray

    @classmethod
    def of(cls, cost: Any, edges: Any, size: Any, rate: Any, delay: Any = None) -> Tasks:
        """Pack a task graph.

        Args:
            cost: [n, q] seconds.
            edges: [m, 2] source and target, source < target.
            size: [m] what an edge carries.
            rate: [q, q] seconds per unit of size.
            delay: [q, q] seconds of any edge (None: zeros).

        Raises:
            OptionError: shapes do not fit, a figure is negative, not a number or (costs aside) infinite, or an edge does not point forward.
        """
        cost, size, rate = (np.ascontiguousarray(x, np.float64) for x in (cost, size, rate))
        edges = np.asarray(edges, np.int64).reshape(-1, 2)
        delay = np.zeros_like(rate) if delay is None else np.ascontiguousarray(delay, np.float64)
        if cost.ndim != 2 or not rate.shape == delay.shape == (cost.shape[1],) * 2 or size.shape != (len(edges),):
            raise OptionError(
                f"costs {cost.shape}, rates {rate.shape}, delays {delay.shape}, {len(edges)} edges and {len(size)} sizes do not "
                "belong together: give [n, q], [q, q], [q, q], [m, 2] and [m]"
            )
        for name, values in (("cost", cost), ("size", size), ("rate", rate), ("delay", delay)):
            wrong = ~((values >= 0) & (np.isfinite(values) | (name == "cost")))
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                raise OptionError(f"the {name} at {at} is {values[at]}: give a number that is not negative, infinite only for costs")
        source, target = edges[:, 0], edges[:, 1]
        wrong = ~((source >= 0) & (source < target) & (target < len(cost)))
        if wrong.any():
            u, v = edges[np.argmax(wrong)].tolist()
            raise OptionError(f"the edge {u} -> {v} of {len(cost)} tasks does not point forward: number the tasks in topological order")
        return cls(cost, *_packed(source, target, size, len(cost)), *_packed(target, source, size, len(cost)), rate, delay)

    @cached_property
    def own(self) -> FloatArray:
        """[n] mean seconds over the queues that can run a task."""
        able = np.isfinite(self.cost)
        return np.asarray(np.where(able, self.cost, 0.0).sum(1) / np.maximum(1, able.sum(1)))

    @cached_property
    def mirrored(self) -> Tasks:
        """The same graph from its end to its beginning; task v is ``n - 1 - v``."""
        last = len(self.cost) - 1
        edges = np.stack([last - self.out_items, last - np.repeat(np.arange(last + 1), np.diff(self.out_start))], 1)
        return Tasks.of(self.cost[::-1], edges, self.out_size, self.rate.T, self.delay.T)

    @cached_property
    def runnable(self) -> bool:
        """Whether every task has a queue."""
        return bool(np.isfinite(self.cost).any(1).all())

    def mean_edge(self, size: FloatArray) -> FloatArray:
        """[m] mean seconds of edges over the pairs of different queues."""
        apart = ~np.eye(len(self.rate), dtype=bool)
        if not apart.any():
            return np.zeros_like(size)
        return np.asarray(size * self.rate[apart].mean() + self.delay[apart].mean())


def _packed(by: IntArray, other: IntArray, size: FloatArray, n: int) -> tuple[IntArray, IntArray, FloatArray]:
    order = np.argsort(by, kind="stable")
    start = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(by, minlength=n), out=start[1:])
    return start, np.ascontiguousarray(other[order]), size[order]


@dataclass(frozen=True, eq=False)
class Placed:
    """A schedule: queue [n], begin [n] and end [n] of every task."""

    queue: IntArray
    begin: FloatArray
    end: FloatArray

    @property
    def makespan(self) -> float:
        """When the last task ends."""
        return float(self.end.max(initial=0.0))


def heft(tasks: Tasks, weight: float = 1.0) -> Placed:
    """Heterogeneous earliest finish time: by upward rank, ties by index, each task where it finishes first.

    Args:
        tasks: what to place.
        weight: factor of the mean communication in the rank (1: as published).

    Raises:
        InfeasibleError: a task can run nowhere.
    """
    rank = _upward(tasks, weight * tasks.mean_edge(tasks.out_size))
    return placed_in_order(tasks, np.argsort(-rank, kind="stable"))


def peft(tasks: Tasks) -> Placed:
    """Predict earliest finish time (Arabnejad, Barbosa 2014): ready tasks by mean optimistic cost; least finish plus that cost.

    Raises:
        InfeasibleError: a task can run nowhere.
    """
    from hetsched.partition import list_core

    table = np.empty_like(tasks.cost)
    list_core.optimistic_cost(tasks.out_start, tasks.out_items, tasks.mean_edge(tasks.out_size), tasks.cost, table)
    return placed_in_order(tasks, _ready(tasks, table.mean(1)), bias=table)


def cpop(tasks: Tasks, weight: float = 1.0) -> Placed:
    """Critical path on a processor (Topcuoglu, Hariri, Wu 2002): the critical path stays on the queue where it is shortest.

    Args:
        tasks: what to place.
        weight: factor of the mean communication in the ranks (1: as published).

    Raises:
        InfeasibleError: a task can run nowhere.
    """
    from hetsched.partition import list_core

    down, on_path = np.empty(len(tasks.cost)), np.zeros(len(tasks.cost), np.int8)
    list_core.downward_rank(tasks.in_start, tasks.in_items, weight * tasks.mean_edge(tasks.in_size), tasks.own, down)
    priority = _upward(tasks, weight * tasks.mean_edge(tasks.out_size)) + down
    roots = np.flatnonzero(np.diff(tasks.in_start) == 0).astype(np.int64)
    list_core.critical_path(tasks.out_start, tasks.out_items, roots, priority, on_path)
    path = tasks.cost[on_path == 1].sum(0)
    fixed = np.full(len(on_path), -1, np.int64)
    if np.isfinite(path).any():
        fixed[on_path == 1] = int(np.argmin(path))
    return placed_in_order(tasks, _ready(tasks, priority), fixed)


def best(tasks: Tasks, trials: int = TRIALS) -> Placed:
    """The shortest of ``heft`` and ``cpop`` at several weights of the communication and ``peft``; the first on a tie.

    All are tried from the end backwards, too, and the ``STARTS`` shortest are improved.

    Args:
        tasks: what to place.
        trials: schedules that :func:`annealed` tries from each of them (0: list scheduling alone).

    Raises:
        InfeasibleError: a task can run nowhere.
    """
    found = _variants(tasks)
    for p in _variants(tasks.mirrored):
        order = np.argsort(-p.end[::-1], kind="stable")
        found.append(placed_in_order(tasks, order, np.ascontiguousarray(p.queue[::-1])))
    different = {p.makespan: p for p in reversed(found)}
    starts = [different[makespan] for makespan in sorted(different)[:STARTS]]
    return min((annealed(tasks, p, trials, seed) for seed, p in enumerate(starts)), key=lambda p: p.makespan)


def _variants(tasks: Tasks) -> list[Placed]:
    return [*(heft(tasks, w) for w in MEANS), peft(tasks), *(cpop(tasks, w) for w in MEANS)]


def annealed(tasks: Tasks, placed: Placed, trials: int, seed: int = 1) -> Placed:
    """The shortest of ``trials`` schedules on a random walk from ``placed`` that settles down; never a longer one.

    Args:
        tasks: what is placed.
        placed: where to begin.
        trials: how many schedules are tried.
        seed: of the walk.
    """
    from hetsched.partition import task_core

    if len(tasks.cost) == 0 or trials <= 0:
        return placed
    begin, end, queue = task_core.anneal(
        tasks.cost, tasks.in_start, tasks.in_items, tasks.in_size, tasks.out_start, tasks.out_items, tasks.rate, tasks.delay,
        placed.begin, placed.end, placed.queue, trials, seed,
    )  # fmt: skip
    return Placed(queue, begin, end)


def _upward(tasks: Tasks, weight: FloatArray) -> FloatArray:
    from hetsched.partition import list_core

    rank = np.empty(len(tasks.cost))
    list_core.upward_rank(tasks.out_start, tasks.out_items, weight, tasks.own, rank)
    return rank


def _ready(tasks: Tasks, priority: FloatArray) -> IntArray:
    from hetsched.partition import list_core

    order = np.empty(len(priority), np.int64)
    list_core.ready_order(tasks.out_start, tasks.out_items, np.diff(tasks.in_start), priority, order)
    return order


def placed_in_order(tasks: Tasks, order: IntArray, queue: IntArray | None = None, bias: FloatArray | None = None) -> Placed:
    """Place tasks one by one where they finish first, each in the first gap that holds it.

    Args:
        tasks: what to place.
        order: [n] a topological order.
        queue: [n] the only queue allowed, -1 for any (None: any for all).
        bias: [n, q] added to the finish when queues are compared (None: nothing).

    Raises:
        InfeasibleError: a task can run nowhere.
    """
    from hetsched.partition import list_core

    if not tasks.runnable:
        stuck = int(np.argmin(np.isfinite(tasks.cost).any(1)))
        raise InfeasibleError(f"task {stuck} can run on no queue: give it a finite cost on one")
    bias = np.empty((0, 0)) if bias is None else bias
    queue = np.full(len(order), -1, np.int64) if queue is None else queue
    begin, end, chosen = list_core.place(
        order, tasks.cost, tasks.in_start, tasks.in_items, tasks.in_size, tasks.rate, tasks.delay, bias, queue
    )
    return Placed(chosen, begin, end)
