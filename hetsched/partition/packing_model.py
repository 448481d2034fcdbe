"""The smallest arena by CP-SAT, for few stretches that best fit leaves far above the bound."""

from __future__ import annotations

from collections.abc import Iterable

from hetsched.partition.liveness import ALIGNMENT, Liveness
from hetsched.partition.offsets import Packing

UNITS = 2.0
"""Deterministic time of CP-SAT."""


def smallest(live: Liveness, pairs: Iterable[tuple[int, int]], start: Packing, bound: int) -> tuple[Packing, int]:
    """The best packing found and the bytes that no packing can go below.

    Args:
        live: the stretches.
        pairs: (earlier, later) that may lie in the same bytes, of equal size, because the later one writes over the earlier.
        start: a packing to improve on.
        bound: bytes known to be needed.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    sizes = [int(s) // ALIGNMENT for s in live.sizes]
    top = start.nbytes // ALIGNMENT
    at = [model.new_int_var(0, top - size, "") for size in sizes]
    arena = model.new_int_var(bound // ALIGNMENT, top, "")
    shared = set(pairs)
    for k, size in enumerate(sizes):
        model.add(at[k] + size <= arena)
        model.add_hint(at[k], start.offsets[k] // ALIGNMENT)
        for j in live.conflicts[k, :k].nonzero()[0].tolist():
            ways = [model.new_bool_var("") for _ in range(3 if (k, j) in shared or (j, k) in shared else 2)]
            model.add(at[k] + size <= at[j]).only_enforce_if(ways[0])
            model.add(at[j] + sizes[j] <= at[k]).only_enforce_if(ways[1])
            if len(ways) == 3:
                model.add(at[j] == at[k]).only_enforce_if(ways[2])
            model.add_bool_or(ways)
    model.minimize(arena)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = UNITS
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return start, bound
    proven = max(bound, round(solver.best_objective_bound) * ALIGNMENT)
    found = Packing(tuple(solver.value(x) * ALIGNMENT for x in at), solver.value(arena) * ALIGNMENT)
    return found, proven
