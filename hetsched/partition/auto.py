"""``auto``: every cheap solver, then ``ilp`` within the budget; the finalists are ranked by whoever knows best."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetsched.partition.ilp import Ilp, cheap_solutions
from hetsched.partition.problem import Budget, Evaluate, Problem, Solution
from hetsched.partition.timing import Costs, figures, value


@dataclass(frozen=True)
class Auto:
    """Never worse, by the evaluator it used, than any other built-in solver: their answers are finalists.

    ``evaluate`` ranks the finalists (None: the problem's own objective).
    """

    evaluate: Evaluate | None = None

    def solve(self, problem: Problem, budget: Budget) -> Solution:
        """Place every op."""
        c = Costs(problem.table)
        cheap = cheap_solutions(problem, budget)
        strong = Ilp(cheap).solve(problem, budget)
        finalists = [strong, *cheap]
        if problem.limits:
            finalists = [s for s in finalists if value(problem, figures(c, s.order, s.alternative)) < float("inf")] or finalists
        rank = self.evaluate or (lambda s: s.objective)
        best = min(finalists, key=rank)
        status = strong.status if best is strong else "optimal" if strong.bound >= best.objective * (1 - 1e-9) else "feasible"
        notes = () if best is strong else (f"the placement of {best.solver} was ranked first",)
        bound = min(strong.bound, best.objective)
        return replace(best, solver="auto", bound=bound, status=status, notes=(*best.notes, *notes), finalists=tuple(finalists))
