"""Partitioning: a cost table in, a plan out (solvers, plan builder, memory, fences, explain, diff)."""

from hetsched.partition.comparing import Move, PlanDiff, diff
from hetsched.partition.explaining import Explanation, explain
from hetsched.partition.plan_builder import baselines, build_plan
from hetsched.partition.problem import OBJECTIVES, Budget, Problem, Solution, Solver
from hetsched.partition.solving import solve, solver_named, solver_names

__all__ = [
    "OBJECTIVES",
    "Budget",
    "Explanation",
    "Move",
    "PlanDiff",
    "Problem",
    "Solution",
    "Solver",
    "baselines",
    "build_plan",
    "diff",
    "explain",
    "solve",
    "solver_named",
    "solver_names",
]
