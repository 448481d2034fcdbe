"""The verb *simulate*: a plan in a phone at some temperature, for one inference or for minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.language import PlannedLanguage
from hetsched.app.language_simulating import SimulatedLanguage, simulate_language
from hetsched.app.planned import Planned
from hetsched.app.policies import levels_of, other_levels
from hetsched.app.sessions import open_session
from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.soc_words import power_basis
from hetsched.socs import SoC
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched_simulations import Simulation

MAX_DURATION_S = 24 * 3600.0


@dataclass(frozen=True, eq=False)
class Simulated:
    """A simulated run and what it was a run of."""

    planned: Planned
    outcome: Simulation = field(repr=False)
    ambient_c: float
    policy: str = "static"

    @property
    def trace(self) -> Trace:
        """What happened when."""
        return self.outcome.trace

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``simulate --json``."""
        import numpy as np

        lat = self.outcome.latencies_s
        return {
            "model": self.planned.graph.name,
            "soc": self.planned.soc.id,
            "ambient_c": self.ambient_c,
            "duration_s": self.outcome.duration_s,
            "inferences": len(lat),
            "latency_ms": {
                "first": float(lat[0]) * 1e3,
                "mean": float(np.mean(lat)) * 1e3,
                "median": float(np.median(lat)) * 1e3,
                "p90": float(np.percentile(lat, 90)) * 1e3,
                "p99": float(np.percentile(lat, 99)) * 1e3,
                "last": float(lat[-1]) * 1e3,
            },
            "predicted_ms": self.planned.plan.prediction.latency_s * 1e3,
            "energy_j": {k: float(v) for k, v in sorted(self.outcome.energy_j.items())},
            "average_power_w": float(sum(self.outcome.energy_j.values())) / self.outcome.duration_s if self.outcome.duration_s else 0.0,
            "power_basis": power_basis(self.planned.soc),
            "peak_temperatures_c": {k: float(v) for k, v in sorted(self.outcome.peak_temperatures_c.items())},
            "final_temperatures_c": {k: float(v) for k, v in sorted(self.outcome.final_temperatures_c.items())},
            "throttled": self.outcome.throttled,
            "thermal_status": None if self.outcome.status is None else self.outcome.status.to_dict(),
            "policy": self.policy,
            "levels": None if self.outcome.levels is None else self.outcome.levels.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a plan is put through; see :func:`simulate`."""

    duration_s: float | None = None
    ambient_c: float = 25.0
    period_s: float | None = None
    contention: bool = True
    battery: float = 1.0

    def check(self) -> None:
        """Raises :class:`OptionError` where a value is outside what makes sense."""
        if self.duration_s is not None and not 0 < self.duration_s <= MAX_DURATION_S:
            raise OptionError(f"a duration of {self.duration_s:g} s makes no sense: use more than 0 and at most 24 hours")
        if not -40 <= self.ambient_c <= 85:
            raise OptionError(f"an ambient temperature of {self.ambient_c:g} °C makes no sense: use -40 to 85")
        if not 0 <= self.battery <= 1:
            raise OptionError(f"a battery that is {self.battery:.0%} full makes no sense: use 0 to 100 %")


def simulate(
    target: str | Path | Graph | Planned,
    soc: str | Path | SoC | None = None,
    *,
    duration_s: float | None = None,
    ambient_c: float = 25.0,
    policy: str = "static",
    period_s: float | None = None,
    contention: bool = True,
    battery: float = 1.0,
    progress: Callable[[float], None] | None = None,
    **plan_options: Any,
) -> Simulated | SimulatedLanguage:
    """Simulate a plan (or plan a model first).

    Args:
        target: a plan file, a model file, a graph, or a :class:`Planned`.
        soc: where to plan, if ``target`` is a model.
        duration_s: repeat the inference for this long; None: once.
        ambient_c: temperature around the phone, degrees Celsius.
        policy: who switches between the plans of a plan file with levels; ``static`` keeps the plan whatever happens.
        period_s: an inference arrives every so often; None: back to back.
        contention: concurrent segments share the memory bandwidth.
        battery: state of charge that the policy sees, 0 to 1.
        progress: called with the share done, 0..1.
        **plan_options: passed to :func:`hetsched.app.planning.plan` if ``target`` is a model.

    Raises:
        OptionError: a value outside what makes sense.
    """
    scenario = Scenario(duration_s, ambient_c, period_s, contention, battery)
    scenario.check()
    planned = open_session(target, soc, **plan_options)
    return _simulated(planned, scenario, policy, other_levels(planned, policy), progress)


def simulate_policies(
    target: str | Path | Planned,
    policies: Sequence[str],
    scenario: Scenario,
    level: int = 0,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Simulated]:
    """The same scenario under several policies.

    Args:
        target: a plan file made with ``plan --levels``.
        policies: their names, ``static`` among them or not.
        scenario: what the plan is put through.
        level: at which every run begins.
        progress: called with the share done, 0..1.

    Raises:
        OptionError: a value outside what makes sense, or a policy without plans to switch between.
    """
    scenario.check()
    planned = open_session(target, level=level)
    others = [other_levels(planned, p) for p in policies]
    out: dict[str, Simulated] = {}
    for k, (policy, plans) in enumerate(zip(policies, others, strict=True)):
        share = None if progress is None else lambda done, k=k: progress((k + done) / len(policies))
        found = _simulated(planned, scenario, policy, plans, share)
        if not isinstance(found, Simulated):
            raise OptionError(f"the plan of {planned.graph.name!r} is a prompt and its answer, simulated once: give one --policy")
        out[policy] = found
    return out


def _simulated(
    planned: Planned | PlannedLanguage,
    scenario: Scenario,
    policy: str,
    others: dict[int, Planned],
    progress: Callable[[float], None] | None,
) -> Simulated | SimulatedLanguage:
    from hetsched_simulations import simulate as run_simulation

    at = scenario
    if isinstance(planned, PlannedLanguage):
        if at.duration_s is not None or at.period_s is not None:
            raise OptionError(
                f"the plan of {planned.graph.name!r} is a prompt and its answer, which are simulated once: leave --duration and --period "
                "out, or plan one phase with --dim past=N"
            )
        return simulate_language(planned, at.ambient_c, at.contention, progress)
    outcome = run_simulation(
        planned.table, planned.soc, *planned.placement, duration_s=at.duration_s, ambient_c=at.ambient_c, period_s=at.period_s,
        contention=at.contention, clocks=planned.deployment.entries[planned.entry].clocks,
        levels=levels_of(planned, others, policy, at.battery), progress=progress,
    )  # fmt: skip
    outcome.trace.model = planned.graph.name
    return Simulated(planned, outcome, at.ambient_c, policy)
