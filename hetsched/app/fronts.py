"""The front of latency and energy beside a plan."""

from __future__ import annotations

from collections import Counter

from hetsched.graph import Graph
from hetsched.partition import Problem
from hetsched.plans import FrontPoint, Plan
from hetsched.segments import schedule


def front_points(graph: Graph, problem: Problem, plan: Plan, points: int, solver: str, time_limit_s: float) -> tuple[FrontPoint, ...]:
    """Plans of one problem that trade latency for energy, fastest first, in figures; those that do not fit into memory are left out.

    The plan at hand is a point too, unless another beats it in both.

    Args:
        graph: of the problem.
        problem: its limits hold for every point.
        plan: of the problem, or of the same graph with operators split.
        points: how many to look for; 0: none.
        solver: asked for every point.
        time_limit_s: for all of them together.

    Raises:
        OptionError: too few or too many points.
    """
    from hetsched.partition.memory_limit import Room, stored
    from hetsched.partition.pareto import front, thriftier

    if not points:
        return ()
    p = plan.prediction
    used = Counter(x.queue for x in plan.placements)
    own = FrontPoint(
        latency_s=p.latency_s, energy_j=p.energy_j, segments=len(plan.segments), ops_by_queue=dict(sorted(used.items())),
        gap=plan.gap if plan.objective == "latency" and plan.bound_s > 0 else None,
    )  # fmt: skip
    out = [own]
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
    return tuple(thriftier(sorted(out, key=lambda f: (f.latency_s, f.energy_j)), lambda f: f.energy_j))
