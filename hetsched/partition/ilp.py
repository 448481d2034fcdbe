"""``ilp``: CP-SAT over placements and orders, warm-started, with a proven bound.

Small graphs get the whole slot model: exact. Larger ones are improved a neighbourhood at a time (a few consecutive
segments are freed, the rest stays), every answer timed again by the segment rule; their bound is that of
:mod:`hetsched.partition.bounds` and :mod:`hetsched.partition.tightening`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hetsched.errors import InfeasibleError
from hetsched.partition.additive_chain import least_cost
from hetsched.partition.bounds import lower_bound
from hetsched.partition.chain import Chain, chains
from hetsched.partition.coarsening import coarsened
from hetsched.partition.frontier import Additive
from hetsched.partition.frontier_dp import FrontierDP
from hetsched.partition.heft import Cpop, Heft, Peft
from hetsched.partition.multilevel import improve_by_levels
from hetsched.partition.problem import Budget, Problem, Solution, Solver
from hetsched.partition.rules import Rules
from hetsched.partition.search import LocalSearch, as_solution
from hetsched.partition.single import SingleQueue
from hetsched.partition.timing import Costs, figures, value
from hetsched.partition.vendor import Vendor

EXACT_OPS = 10
"""Graphs of at most this many ops are given to the whole slot model."""
TOLERANCE = 0.01
"""Larger graphs are searched until the proven gap is at most this."""
RESOLUTION = 1e-5
"""The slot model rounds times; closer than this is proven equal."""
DESCENT = 0.08
"""Most of the budget that local search may spend on each of its three starts."""
LEAST_EVALUATIONS = 200
FLAT_OPS = 300
"""Local search of larger graphs goes from coarse to fine."""
LEVEL = 0.025
"""Most of the budget that each level may take, for each start."""
PHASES = 0.6
"""Share of the budget for the search over phases."""
BLOCKS = 0.8
"""Share of the budget for blocks between cuts."""
REPLANNED = 0.25
"""Share of what is left of that, for new plans of the incumbent's blocks, after each stage."""
STAGED = 0.8
"""Share of the budget for the segments of the main queue one by one."""
MERGED_PER_OP = 2e-4
"""Units per op to merge ops."""
CHEAP_PER_OP = 1e-3
"""Units per op of the fast solvers (without ``frontier-dp``) and of the bound together."""


@dataclass(frozen=True)
class Ilp:
    """CP-SAT from the best of ``seeds`` (default: the single queues, ``vendor``, the list schedulers and ``frontier-dp``)."""

    seeds: tuple[Solution, ...] = field(default=(), repr=False)

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op.

        Raises:
            InfeasibleError: no plan respects the limit on segments.
        """
        c = Costs(problem.table)
        seeds = self.seeds or cheap_solutions(problem, budget)
        best = min(seeds, key=lambda s: value(problem, figures(c, s.order, s.alternative)))
        found = chains(c) if problem.objective == "latency" else []
        general = 0.0 if problem.objective == "energy" else lower_bound(c, problem.objective, found)  # phases have a better one
        bound = max([general, *(s.bound for s in seeds)])
        budget.report("seeds", best.objective, bound)
        if problem.objective in ("energy", "edp"):
            best, bound = _by_phases(problem, c, best, bound, budget)
        if c.n <= EXACT_OPS and problem.objective != "edp":
            best = _descend(problem, c, best, seeds, budget, bound)
            best, bound = self._exact(problem, c, best, bound, budget)
        elif best.objective > bound * (1 + TOLERANCE):
            best, bound = _improve(problem, c, found, best, bound, seeds, budget)
        bound = min(bound, best.objective)
        budget.report("ilp", best.objective, bound)
        return replace(best, solver="ilp", bound=bound, status="optimal" if bound >= best.objective * (1 - 1e-9) else "feasible", causes=())

    def _exact(self, problem: Problem, c: Costs, best: Solution, bound: float, budget: Budget) -> tuple[Solution, float]:
        """The whole slot model."""
        from hetsched.partition.slots import SlotModel

        if best.objective <= bound * (1 + 1e-9):
            return best, bound
        slots = min(c.n, problem.limits.segments or c.n)
        start = value(problem, figures(c, best.order, best.alternative))
        feasible = start < float("inf")
        incumbent = start if feasible else best.objective * 100
        model = SlotModel(c, problem.objective, slots, incumbent, limits=problem.limits)
        if feasible:
            model.hint(best.order, best.alternative)
        answer = model.solve(budget, budget.left)
        if answer.placed is None:
            if not feasible and answer.proven:
                raise InfeasibleError("no plan is within the limits")
            return best, bound
        found = as_solution(problem, "ilp", *answer.placed)
        if value(problem, figures(c, *answer.placed)) < start:
            best = found
        bound = max(bound, answer.bound)
        if answer.proven and bound >= best.objective * (1 - RESOLUTION):
            bound = best.objective
        return best, bound


def cheap_solutions(problem: Problem, budget: Budget) -> tuple[Solution, ...]:
    """What the fast solvers answer; those that cannot place some op are left out."""
    budget.charge(CHEAP_PER_OP * len(problem.table.op_names))
    found: list[Solution] = []
    solvers: list[Solver] = [SingleQueue(q.name) for q in problem.table.queues]
    if problem.op_types:
        solvers.append(Rules())
    for solver in (*solvers, Vendor(), Heft(), Peft(), Cpop(), FrontierDP()):
        try:
            found.append(solver.solve(problem, budget))
        except InfeasibleError:
            continue
    return tuple(found)


def _by_phases(problem: Problem, c: Costs, best: Solution, bound: float, budget: Budget) -> tuple[Solution, float]:
    """The least energy in any order, which is a plan too; for the energy-delay product a factor of the bound."""
    if bound >= best.objective * (1 - 1e-9):
        return best, bound
    delay = lower_bound(c, "latency") if problem.objective == "edp" else 1.0
    known = best.objective / delay
    good = known / (1 + (0.0 if c.n <= EXACT_OPS else TOLERANCE))
    budget.charge(MERGED_PER_OP * c.n)
    merged = coarsened(problem, c)
    d = c if merged is None else Costs(merged.problem.table)
    found = least_cost(d, Additive(d, 0.0, 1.0), known, good, budget, PHASES * budget.left)
    if found.placed is not None:
        placed = found.placed if merged is None else merged.expanded(*found.placed)
        if value(problem, figures(c, *placed)) < value(problem, figures(c, best.order, best.alternative)):
            best = as_solution(problem, "ilp", *placed)
    return best, max(bound, found.cost * delay)


def _descend(problem: Problem, c: Costs, best: Solution, seeds: Sequence[Solution], budget: Budget, bound: float) -> Solution:
    """Local search from the three best seeds, unless the best is within the tolerance of the bound already."""
    small = c.n <= EXACT_OPS
    if best.objective <= bound * (1 + (1e-9 if small else TOLERANCE)):
        return best
    search = LocalSearch(problem, c, budget)
    ranked = sorted(seeds, key=lambda s: value(problem, figures(c, s.order, s.alternative)))
    current = value(problem, figures(c, best.order, best.alternative))
    limit = max(LEAST_EVALUATIONS, int(DESCENT * budget.units / search.units))
    target = bound * (1 + 1e-12)
    for seed in ranked[:3]:
        if c.n <= FLAT_OPS:
            order, alternative, got = search.improve(seed.order, seed.alternative, limit, target)
        else:
            order, alternative, got = improve_by_levels(problem, c, seed.order, seed.alternative, budget, LEVEL * budget.units, target)
        if got < current * (1 - 1e-12):
            best, current = as_solution(problem, "ilp", order, alternative), got
    return best


def _improve(
    problem: Problem, c: Costs, found: Sequence[Chain], best: Solution, bound: float, seeds: Sequence[Solution], budget: Budget
) -> tuple[Solution, float]:
    """Tighten the bound, then search neighbourhoods of the incumbent; either gives up when it stops paying."""
    from hetsched.partition.neighbourhoods import improve_by_neighbourhoods

    if problem.objective == "latency":
        best, bound = _by_blocks(problem, c, found, best, bound, seeds, budget)
    else:
        best = _descend(problem, c, best, seeds, budget, bound)
    if best.objective > bound * (1 + TOLERANCE) and problem.objective != "edp":
        best = improve_by_neighbourhoods(problem, c, best, bound * (1 + TOLERANCE), budget, budget.left)
    return best, bound


def _by_blocks(
    problem: Problem, c: Costs, found: Sequence[Chain], best: Solution, bound: float, seeds: Sequence[Solution], budget: Budget
) -> tuple[Solution, float]:
    """Bound the blocks between cuts better and better, and put plans of whole blocks together.

    Local search of the whole comes after the first of it: where layers repeat, their plans are found one block at a time.
    """
    from hetsched.partition.stage_search import improve_by_stages
    from hetsched.partition.tightening import LAYERS, OTHERS, Stage, Tightened, tighten

    chains_ = [Tightened(c, chain, budget) for chain in found]

    def by(stages: Sequence[Stage], best: Solution, bound: float) -> tuple[Solution, float]:
        left = budget.left * BLOCKS
        for stage in stages:
            before = budget.spent
            bound = max(bound, tighten(chains_, stage, best.objective, best.objective / (1 + TOLERANCE), budget, left * stage.share))
            for one in (one for one in chains_ if one.left_out() == 0 and best.objective > bound * (1 + TOLERANCE)):
                placed = one.replanned(best.order, best.alternative, REPLANNED * left)
                if value(problem, figures(c, *placed)) < value(problem, figures(c, best.order, best.alternative)):
                    best = as_solution(problem, "ilp", *placed)
            left -= budget.spent - before
            budget.report("blocks", best.objective, bound)
            if best.objective <= bound * (1 + TOLERANCE):
                break
        return best, bound

    best, bound = by(LAYERS, best, bound)
    best = _descend(problem, c, best, seeds if best in seeds else (best, *seeds), budget, bound)
    budget.report("local search", best.objective, bound)
    if best.objective > bound * (1 + TOLERANCE):
        best, raised = improve_by_stages(problem, c, chains_, best, TOLERANCE, budget, budget.left * STAGED)
        bound = max(bound, raised)
        budget.report("stages", best.objective, bound)
    if best.objective > bound * (1 + TOLERANCE):
        best, bound = by(OTHERS, best, bound)
    return best, bound
