"""Plans within limits, and bounds on them: every limit gets a price, and what is left is additive.

With a price on each limit (a Lagrange multiplier) the objective is a sum over ops, transfers and switches again, so that the
frontier DP minimises it exactly for an order. Prices are raised while their limit is broken and bisected afterwards. The same
prices give a bound: the latency is at least any weighted mean of the queues' busy times, which is a sum over ops too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from hetsched.partition.bounds import energy_bound
from hetsched.partition.frontier import Additive, frontier_optimum
from hetsched.partition.orders import affinity, file_order
from hetsched.partition.pricing import Price
from hetsched.partition.problem import Budget, Problem
from hetsched.partition.timing import Costs, Figures, figures

ROUNDS = 18
"""Prices tried; each costs two passes of the DP."""
SHARE = 0.2
"""Of the budget's units that the search may spend."""
FIRST = 0.05
"""The first price of a limit: this share of the objective for the whole of the limited figure."""
NEAR = (1.0, 0.8, 1.25, 0.5, 2.0)
"""The bound is tried at the last prices times these."""
PER_OP = 1e-4
"""Units per op of a bound at one price."""
CAP = 200
"""States of the DP."""


@dataclass(frozen=True)
class Prices:
    """What a unit of each limited figure costs, in the objective's unit."""

    latency_s: float = 0.0
    energy_j: float = 0.0
    power_w: float = 0.0
    loss: float = 0.0
    segments: float = 0.0

    def coefficients(self, problem: Problem) -> tuple[float, float]:
        """What a second and a joule of the plan count; the price of power is on ``energy - limit * latency``."""
        seconds = self.latency_s + (0.0 if problem.objective == "energy" else 1.0) - self.power_w * (problem.limits.power_w or 0.0)
        return max(0.0, seconds), self.energy_j + self.power_w + (1.0 if problem.objective == "energy" else 0.0)


@dataclass(frozen=True)
class Priced:
    """What the search found: ``(order, alternative)`` pairs, within the limits or not, and the last prices that kept them."""

    candidates: tuple[tuple[list[int], tuple[int, ...]], ...]
    prices: Prices


def search(problem: Problem, c: Costs, budget: Budget) -> Priced:
    """Placements for rising prices of the limits; the caller times them and keeps the best that breaks none."""
    price = {k: Price(0.0) for k in problem.limits.given}
    found: list[tuple[list[int], tuple[int, ...]]] = []
    left = SHARE * budget.units
    for _ in range(ROUNDS):
        best: tuple[float, Figures] | None = None
        add = _additive(problem, c, Prices(**{k: p.value for k, p in price.items()}))
        for order in _orders(c, found):
            got = frontier_optimum(c, order, add, CAP, left)
            left -= got.units
            budget.charge(got.units)
            found.append((order, got.alternative))
            if best is None or got.cost < best[0]:
                best = got.cost, figures(c, order, got.alternative)
        assert best is not None
        if not any(p.first for p in price.values()):
            _set_first(problem, best[1], price)
        broken = {name for name, _ in problem.limits.broken(best[1])}
        changed = [p.broken() if k in broken else p.kept() for k, p in price.items()]
        if left <= 0 or budget.out_of_time() or not any(changed):
            break
    return Priced(tuple(found), Prices(**{k: p.high if p.enough else p.value for k, p in price.items()}))


def _orders(c: Costs, found: Sequence[tuple[list[int], tuple[int, ...]]]) -> Iterator[list[int]]:
    yield file_order(c)
    if found:
        yield affinity(c, [c.queue[a] for a in found[-1][1]])


def _additive(problem: Problem, c: Costs, prices: Prices) -> Additive:
    add = Additive(c, *prices.coefficients(problem), prices.segments)
    if prices.loss and c.loss:
        return add.with_ops([own + prices.loss * lost for own, lost in zip(add.op, c.loss, strict=True)])
    return add


def _set_first(problem: Problem, f: Figures, price: Mapping[str, Price]) -> None:
    """The first price of each limit."""
    objective = f.energy_j if problem.objective == "energy" else f.serial_s
    figure = {"latency_s": f.serial_s, "energy_j": f.energy_j, "power_w": f.energy_j, "loss": f.loss, "segments": float(f.segments)}
    for k, p in price.items():
        p.first = FIRST * objective / max(figure[k], 1e-30)


def bound_within_limits(problem: Problem, c: Costs, prices: Prices, budget: Budget) -> float:
    """A value of the objective that no plan within the limits can beat; 0 for the energy-delay product, which is no sum.

    Args:
        problem: with its limits.
        c: the costs.
        prices: of those limits, where to look for the best bound; any give a valid one.
        budget: is charged; when it is spent, the best bound so far is the answer.
    """
    if problem.objective == "edp":
        return 0.0
    best = 0.0
    for factor in NEAR:
        at = Prices(**{k: factor * getattr(prices, k) for k in problem.limits.given})
        for weights in _weightings(c):
            if best > 0 and budget.left <= 0:
                break
            budget.charge(PER_OP * c.n)
            best = max(best, _bound_at(problem, c, at, weights))
    return best * (1 - 1e-9)


def _weightings(c: Costs) -> list[list[float]]:
    """Weights of the queues' busy times, which sum to one: all alike, or all on one queue."""
    n = c.queues
    return [[1.0 / n] * n, *([float(q == r) for r in range(n)] for q in range(n))] if n > 1 else [[1.0]]


def _bound_at(problem: Problem, c: Costs, prices: Prices, weights: Sequence[float]) -> float:
    limits = problem.limits.given
    own = 1.0 if problem.objective == "latency" else 0.0
    if prices.power_w * limits.get("power_w", 0.0) > own + prices.latency_s:
        return 0.0  # a second of latency, which has no upper bound, would be worth less than nothing
    seconds, joules = prices.coefficients(problem)
    loss = c.loss or [0.0] * len(c.time)
    d = copy(c)
    d.energy = [joules * e + seconds * weights[q] * t + prices.loss * x for e, q, t, x in zip(c.energy, c.queue, c.time, loss, strict=True)]
    d.launch_j = [joules * j + seconds * w * s + prices.segments for j, w, s in zip(c.launch_j, weights, c.launch, strict=True)]
    d.sync_j = [[joules * j for j in row] for row in c.sync_j]
    d.transfer_j = [[[joules * j for j in row] for row in m] for m in c.transfer_j]
    spent = sum(getattr(prices, k) * limit for k, limit in limits.items() if k != "power_w")
    return float(energy_bound(d) - spent)
