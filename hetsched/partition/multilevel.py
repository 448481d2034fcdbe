"""Large plans improved from coarse to fine: runs of ops move together first, then halves of them, then single ops.

The levels are made from a plan: neighbours in one of its segments, in one domain and with the same places to go, are one op of the
next level, so the plan itself is a plan of every level, in the same time. Local search goes from the coarsest level, where an
evaluation is cheap and a move large, to the finest; what it finds on a level is a plan of the finer ones. Nothing here
proves anything: it looks for better plans only.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.partition.problem import Budget, Problem
from hetsched.partition.search import LocalSearch, runs_of
from hetsched.partition.super_ops import SuperOps, grouped
from hetsched.partition.timing import Costs

COARSEST = 60
"""Levels of no more ops are not made coarser."""
SHRINKS = 0.9
"""Share of the ops that a level may have of the finer one; with more, it is not worth making."""
LEAST = 100
"""A level is not searched at all if its units are fewer evaluations than this."""
PER_OP = 6e-5
"""Units per op to make a coarser level (measured)."""


def improve_by_levels(
    problem: Problem, c: Costs, order: Sequence[int], alternative: Sequence[int], budget: Budget, units: float, target: float
) -> tuple[list[int], list[int], float]:
    """A plan that is no worse, with its objective.

    Args:
        problem: the problem.
        c: its costs.
        order: of a plan.
        alternative: of the plan.
        budget: is charged.
        units: of it, how much each level may take.
        target: an objective that is good enough.
    """
    found = _coarser(problem, c, order, alternative) if c.n > COARSEST and not budget.out_of_time() else None
    if found is not None:
        budget.charge(PER_OP * c.n)
        level, *placed = found
        order, alternative, _ = improve_by_levels(level.problem, Costs(level.problem.table), placed[0], placed[1], budget, units, target)
        order, alternative = level.expanded(order, alternative)
    search = LocalSearch(problem, c, budget)
    evaluations = int(units / search.units)
    return search.improve(order, alternative, evaluations if evaluations >= LEAST else 0, target)


def _coarser(problem: Problem, c: Costs, order: Sequence[int], alternative: Sequence[int]) -> tuple[SuperOps, list[int], list[int]] | None:
    """The problem with neighbours of a plan in pairs, and the plan in it; None if few ops have a neighbour to pair up with."""
    groups = _pairs(c, order, alternative)
    if len(groups) > SHRINKS * c.n:
        return None
    ways: list[list[list[int]]] = []
    placed: list[int] = []
    for group in groups:
        mine = [alternative[op] for op in group]
        here = c.queue[mine[0]], c.domain[mine[0]]
        rows = [_cheapest(problem, c, op) for op in group]
        there = {place: [row[place] for row in rows] for place in rows[0]} | {here: mine}
        placed.append(sum(map(len, ways)) + list(there).index(here))
        ways.append(list(there.values()))
    return grouped(problem, c, groups, ways), list(range(len(groups))), placed


def _cheapest(problem: Problem, c: Costs, op: int) -> dict[tuple[int, int], int]:
    """Per queue and domain the alternative that takes least."""
    own = c.energy if problem.objective == "energy" else c.time
    ways: dict[tuple[int, int], int] = {}
    for a in sorted(c.alts[op], key=lambda a: (own[a], a)):
        ways.setdefault((c.queue[a], c.domain[a]), a)
    return ways


def _pairs(c: Costs, order: Sequence[int], alternative: Sequence[int]) -> list[list[int]]:
    """The order in pieces of one or two ops, depth-first within each segment."""
    places = [frozenset((c.queue[a], c.domain[a]) for a in row) for row in c.alts]
    out: list[list[int]] = []
    for run in runs_of(c, order, alternative):
        open_ = False
        for op in _depth_first(c, run):
            if open_ and c.domain[alternative[op]] == c.domain[alternative[out[-1][0]]] and places[op] == places[out[-1][0]]:
                out[-1].append(op)
                open_ = False
            else:
                out.append([op])
                open_ = True
    return out


def _depth_first(c: Costs, run: Sequence[int]) -> list[int]:
    """The ops of a segment, each branch to its end before the next one: their order in a segment costs nothing."""
    inside = set(run)
    waiting = {op: sum(p in inside for p in c.preds[op]) for op in run}
    stack = [op for op in reversed(run) if waiting[op] == 0]
    out: list[int] = []
    while stack:
        op = stack.pop()
        out.append(op)
        for s in reversed(c.succs[op]):
            if s in inside:
                waiting[s] -= 1
                if waiting[s] == 0:
                    stack.append(s)
    return out
