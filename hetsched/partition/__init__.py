"""Partitioning: a cost table in, a plan out (solvers, plan builder, memory, fences, explain, diff)."""

from hetsched.partition.problem import OBJECTIVES, Budget, Problem, Solution, Solver
from hetsched.partition.solving import solve, solver_named, solver_names

__all__ = ["OBJECTIVES", "Budget", "Problem", "Solution", "Solver", "solve", "solver_named", "solver_names"]
