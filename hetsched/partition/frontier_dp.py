"""``frontier-dp``: the exact optimum of an additive objective over a topological order, for several orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from hetsched.partition.frontier import Additive, FrontierResult, frontier_optimum
from hetsched.partition.orders import affinity, depth_first, file_order, is_chain
from hetsched.partition.problem import Budget, Problem, Solution, value_of
from hetsched.partition.timing import Costs, figures, measure, value
from hetsched.segments import schedule

if TYPE_CHECKING:
    from hetsched.partition.lagrangian import Prices


class Candidates(NamedTuple):
    """``(order, alternative)`` pairs, whether the first is exact, and the last prices that kept the limits (None: no limits)."""

    placed: list[tuple[list[int], tuple[int, ...]]]
    exact: bool
    prices: Prices | None


@dataclass(frozen=True)
class FrontierDP:
    """Serial latency (or energy) exactly for the depth-first order, the file's, and affinity orders in turn with the DP.

    Energy is additive, so for a chain its optimum is proven. A serial optimum bounds the latency of overlapping queues
    only where the graph has a single topological order; elsewhere it is a solution, never a bound.
    """

    rounds: int = 3
    cap: int = 500
    share: float = 0.2
    """Of the budget's units; when they are spent no further order is tried, and the beam of the last one narrows."""
    most: float = 0.01
    """Units at most, whatever the budget: a frontier that is wide in the first order costs more than it brings."""

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op."""
        c = Costs(problem.table)
        found, exact, prices = self.candidates(problem, c, budget)
        timed = [figures(c, *k) for k in found]
        (order, alternative), best = min(zip(found, timed, strict=True), key=lambda k: value(problem, k[1]))
        solution = Solution("frontier-dp", tuple(order), alternative, measure(problem.objective, best))
        bound = chain_optimum(problem, c, found[0], exact)
        if prices is not None and best in problem.limits:
            from hetsched.partition.lagrangian import bound_within_limits

            bound = max(bound, bound_within_limits(problem, c, prices, budget))
        notes = () if exact else (f"the frontier was wider than {self.cap} states or the budget: a beam search, not exact",)
        return replace(solution, bound=bound, status="optimal" if bound >= solution.objective * (1 - 1e-9) else "heuristic", notes=notes)

    def candidates(self, problem: Problem, c: Costs, budget: Budget) -> Candidates:
        """A placement per order and weighting, and those for rising prices of the limits."""
        left = min(self.share * budget.units, self.most)
        found: list[tuple[list[int], tuple[int, ...]]] = []
        exact = True
        for add in self.weightings(problem, c):
            best: FrontierResult | None = None
            solved: list[list[int]] = []
            for order in self.orders(c, found):
                if order in solved:
                    continue
                solved.append(order)
                got = frontier_optimum(c, order, add, self.cap, left, few=True)
                left -= got.units
                budget.charge(got.units)
                exact = exact and (got.exact or bool(found))
                found.append((order, got.alternative))
                if is_chain(c) or left <= 0 or budget.out_of_time():
                    break
                if best is not None and len(solved) > 3 and got.cost >= best.cost:
                    break
                best = got if best is None or got.cost < best.cost else best
        if problem.objective == "period":
            from hetsched.partition.balancing import levelled

            found.extend(levelled(c, budget))
        prices: Prices | None = None
        if problem.limits:
            from hetsched.partition.lagrangian import search

            priced = search(problem, c, budget)
            prices = priced.prices
            found.extend(priced.candidates)
        return Candidates(found, exact, prices)

    def weightings(self, problem: Problem, c: Costs) -> Iterator[Additive]:
        """What to add up: seconds, joules, or for the energy-delay product a few mixtures."""
        if problem.objective == "energy":
            mixes = [(0.0, 1.0)]
        elif problem.objective == "edp":
            scale = sum(c.time) / max(sum(c.energy), 1e-30)
            mixes = [(1.0, 0.0), (0.0, 1.0), *((1.0, scale * k) for k in (0.3, 1.0, 3.0))]
        else:
            mixes = [(1.0, 0.0)]
        for w, e in mixes:
            yield Additive(c, w, e)

    def orders(self, c: Costs, found: Sequence[tuple[list[int], tuple[int, ...]]]) -> Iterator[list[int]]:
        """Depth-first (few live tensors), as in the file, by the fastest queue, then regrouped around the last placement found."""
        yield depth_first(c)
        yield file_order(c)
        yield affinity(c, [c.queue[min(row, key=lambda a: (c.time[a], a))] for row in c.alts])
        for _ in range(self.rounds):
            yield affinity(c, [c.queue[a] for a in found[-1][1]])


def chain_optimum(problem: Problem, c: Costs, first: tuple[Sequence[int], Sequence[int]], exact: bool) -> float:
    """The proven optimum that the DP over the only order of a chain gives; 0 where it proves nothing."""
    if not exact or not is_chain(c) or problem.objective in ("edp", "period"):
        return 0.0
    timed = schedule(problem.table, *first)
    if problem.objective == "energy":
        return value_of(timed, "energy", c.queues)
    return timed.serial_s if c.n - 1 in c.results else 0.0
