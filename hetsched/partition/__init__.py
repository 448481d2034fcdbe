"""Partitioning: a cost table in, a plan out (solvers, plan builder, memory, fences, explain, diff)."""

from hetsched.partition.comparing import Move, PlanDiff, diff
from hetsched.partition.explaining import Explanation, explain, smallest_changes
from hetsched.partition.losses import PlanExplanation, explain_plan
from hetsched.partition.plan_builder import baselines, build_plan
from hetsched.partition.problem import OBJECTIVES, Budget, Problem, Solution, Solver
from hetsched.partition.solving import solve, solver_named, solver_names

__all__ = [
    "OBJECTIVES",
    "Budget",
    "Explanation",
    "Move",
    "PlanDiff",
    "PlanExplanation",
    "Problem",
    "Solution",
    "Solver",
    "baselines",
    "build_plan",
    "diff",
    "explain",
    "explain_plan",
    "smallest_changes",
    "solve",
    "solver_named",
    "solver_names",
]
