"""The front of latency and energy beside a plan."""

from __future__ import annotations

from collections import Counter

from hetsched.graph import Graph
from hetsched.partition import Problem
from hetsched.plans import FrontPoint
from hetsched.segments import schedule


def front_points(graph: Graph, problem: Problem, points: int, solver: str, time_limit_s: float) -> tuple[FrontPoint, ...]:
    """Plans of one problem that trade latency for energy, fastest first, in figures; those that do not fit into memory are left out.

    Args:
        graph: of the problem.
        problem: its limits hold for every point.
        points: how many to look for; 0: none.
        solver: asked for every point.
        time_limit_s: for all of them together.

    Raises:
        OptionError: too few or too many points.
    """
    from hetsched.partition.memory_limit import Room, stored
    from hetsched.partition.pareto import front

    if not points:
        return ()
    out = []
    table, room = problem.table, Room.of(problem)
    for s in front(problem, points, solver, time_limit_s):
        if room.limited and not room.fits(stored(graph, problem, s)):
            continue
        timed = schedule(table, s.order, s.alternative)
        used = Counter(table.queues[int(table.alt_queue[a])].name for a in s.alternative)
        out.append(
            FrontPoint(
                latency_s=timed.latency_s, energy_j=timed.energy_j, segments=len(timed.segments), ops_by_queue=dict(sorted(used.items())),
                gap=s.gap if s.bound > 0 else None,
            )
        )  # fmt: skip
    return tuple(out)
