"""A plan timed again with one op elsewhere, for each of many ops: all that is far from the op in the order is a few super-ops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from hetsched.partition.problem import Problem, Solution
from hetsched.partition.super_ops import grouped
from hetsched.partition.timing import Costs, figures, value

WINDOW = 400
"""Ops that are timed one by one around an op. Smaller plans are timed whole."""


class _Near(NamedTuple):
    """A plan in which the ops of a window are single: its costs, their places in its order, its alternatives, its objective."""

    c: Costs
    place: dict[int, int]
    alternative: list[int]
    value: float


class Retiming:
    """What it adds to the objective if one op of a plan goes elsewhere, the order as it is."""

    def __init__(self, problem: Problem, c: Costs, plan: Solution) -> None:
        self.problem, self.c, self.plan = problem, c, plan
        self.position = {op: k for k, op in enumerate(plan.order)}
        self.near: dict[int, _Near] = {}

    def added(self, op: int, alternative: int) -> float:
        """By how much the objective grows with ``op`` in another alternative; infinite where that breaks a limit."""
        first = self.position[op] // WINDOW * WINDOW
        if first not in self.near:
            self.near[first] = self._around(first)
        near = self.near[first]
        moved = list(near.alternative)
        moved[near.place[op]] += alternative - self.plan.alternative[op]
        return value(self.problem, figures(near.c, range(near.c.n), moved)) - near.value

    def _around(self, first: int) -> _Near:
        c, chosen = self.c, self.plan.alternative
        groups = list(self._groups(first))
        ways = [[[a] for a in c.alts[group[0]]] if len(group) == 1 else [[chosen[op] for op in group]] for group in groups]
        d = Costs(grouped(self.problem, c, groups, ways).problem.table)
        alone = {group[0]: k for k, group in enumerate(groups) if len(group) == 1}
        alternative = [row.start for row in d.alts]
        for op, k in alone.items():
            alternative[k] += chosen[op] - c.alts[op].start
        return _Near(d, alone, alternative, value(self.problem, figures(d, range(d.n), alternative)))

    def _groups(self, first: int) -> Iterator[list[int]]:
        """The order in pieces: single ops within the window, runs in one place outside."""
        c, chosen = self.c, self.plan.alternative

        def piece(k: int) -> tuple[int, int, int]:
            a = chosen[self.plan.order[k]]
            return (k, 0, 0) if first <= k < first + WINDOW else (-1 - (k >= first), c.queue[a], c.domain[a])

        for _, run in groupby(range(c.n), piece):
            yield [self.plan.order[k] for k in run]
