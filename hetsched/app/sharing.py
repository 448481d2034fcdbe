"""Several planned models on one phone for minutes: who keeps its deadlines once it is warm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.app.coscheduling import Demand, demands_of
from hetsched.app.phone_summary import phone_summary
from hetsched.app.planned import Planned
from hetsched.app.policies import level_plan, levels_of, other_levels, together
from hetsched.app.scenario import Scenario
from hetsched.app.sessions import open_session
from hetsched.errors import OptionError
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched_simulations.shared_run import SharedSimulation
    from hetsched_simulations.streams import StreamOutcome


@dataclass(frozen=True, eq=False)
class SimulatedTogether:
    """A simulated run of several models, each with what is asked of it."""

    planned: tuple[Planned, ...]
    demands: tuple[Demand, ...]
    outcome: SharedSimulation = field(repr=False)
    scenario: Scenario = field(default_factory=Scenario, repr=False)
    policy: str = "static"

    @property
    def trace(self) -> Trace:
        """What happened when."""
        return self.outcome.device.trace

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``simulate --json`` for several plans."""
        run = self.outcome.device
        rows = zip(self.planned, self.demands, self.outcome.streams, strict=True)
        return {
            "soc": self.planned[0].soc.id, "ambient_c": self.scenario.ambient_c, "duration_s": run.duration_s,
            "models": [
                {"model": p.graph.name, "rate": d.rate, "deadline_ms": d.deadline_s * 1e3, "priority": d.priority} | _figures(o)
                for p, d, o in rows
            ],
            **phone_summary(run, self.planned[0].soc, self.policy),
        }  # fmt: skip


def _figures(o: StreamOutcome) -> dict[str, Any]:
    took = np.array(o.latencies_s) * 1e3
    spread = None
    if len(took):
        middle, high, highest = np.percentile(took, [50, 90, 99]).tolist()
        spread = {"mean": float(took.mean()), "median": middle, "p90": high, "p99": highest, "worst": float(took.max())}
    return {"arrived": o.arrived, "done": len(took), "dropped": o.dropped, "late": o.late, "missed": o.missed, "latency_ms": spread}


def _for_one_soc(targets: Sequence[str | Path | Planned], level: int) -> tuple[Planned, ...]:
    planned = tuple(open_session(t, level=level) for t in targets)
    first = planned[0]
    other = next((p for p in planned if p.deployment.soc.sha256 != first.deployment.soc.sha256), None)
    if other is not None:
        raise OptionError(
            f"{other.graph.name!r} is planned for {other.soc.id} and {first.graph.name!r} for {first.soc.id}: plan for one SoC"
        )
    return planned


def simulate_together(
    targets: Sequence[str | Path | Planned],
    scenario: Scenario,
    *,
    rates: Sequence[float],
    deadlines_s: Sequence[float] = (),
    priorities: Sequence[int] = (),
    level: int = 0,
    policy: str = "static",
    progress: Callable[[float], None] | None = None,
) -> SimulatedTogether:
    """Simulate models side by side.

    Args:
        targets: plan files of one phase each, for one SoC.
        scenario: with a duration; what arrives is said by the rates.
        rates: inferences a second, one a model.
        deadlines_s: seconds from arrival to result, one a model; empty: the period.
        priorities: smaller goes first; empty: the shortest deadline.
        level: throttle level whose plans run, or run first.
        policy: who switches all of them between the levels of their plan files.
        progress: called with the share done, 0..1.

    Raises:
        OptionError: the plans do not go together, or an option is for one plan.
    """
    from hetsched_simulations.conditions import Conditions
    from hetsched_simulations.shared_run import simulate_streams
    from hetsched_simulations.streams import Stream
    from hetsched_simulations.surroundings import surroundings
    from hetsched_simulations.workload import commands_of

    demands, at = demands_of(len(targets), rates, deadlines_s, priorities), scenario
    if at.duration_s is None:
        raise OptionError("several plans run side by side for a while: say with --duration for how long")
    if at.period_s or at.poisson or at.queue or at.think_s or at.chat is not None or at.workload is not None:
        raise OptionError("several plans run at their --rate: leave --period, --poisson, --queue, --think, --chat and --workload out")
    planned = _for_one_soc(targets, level)
    first = planned[0]
    conditions = Conditions(
        at.ambient_c, None, at.contention, surroundings=surroundings(at.case, at.ambient_c, first.soc), battery=at.battery,
        charging_w=at.charging_w, loads_w=at.loads, background=at.background,
    )  # fmt: skip

    def streams(plans: Sequence[Planned]) -> list[Stream]:
        return [
            Stream(p.graph.name, commands_of(p.table, *p.placement), 1.0 / d.rate, d.deadline_s, d.priority)
            for p, d in zip(plans, demands, strict=True)
        ]

    others = [other_levels(p, policy) for p in planned]
    common = sorted(set.intersection(*(set(o) for o in others)))
    levels = together([levels_of(p, o, policy, 1.0 if at.battery is None else at.battery) for p, o in zip(planned, others, strict=True)])
    outcome = simulate_streams(
        first.table, first.soc, streams(planned), conditions, duration_s=at.duration_s, cores=[q.cores for q in first.table.queues],
        levels=levels, others={n: streams([o[n] for o in others]) for n in common}, first=level_plan(first),
        path="full" if at.exact else "auto", progress=progress,
    )  # fmt: skip
    return SimulatedTogether(planned, demands, outcome, scenario, policy)
