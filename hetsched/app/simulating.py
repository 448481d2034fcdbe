"""The verb *simulate*: a plan in a phone at some temperature, for one inference or for minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.chatting import SimulatedChat
from hetsched.app.circumstances import circumstances
from hetsched.app.guessing import guesses, without_guesses
from hetsched.app.language import PlannedLanguage
from hetsched.app.language_simulating import SimulatedLanguage, simulate_language
from hetsched.app.phone_summary import phone_summary
from hetsched.app.planned import Planned
from hetsched.app.policies import levels_of, other_levels
from hetsched.app.scenario import Chat, Scenario
from hetsched.app.serving import jobs_of, single_turn
from hetsched.app.sessions import open_session
from hetsched.app.utilisation import write_from_run
from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.socs import SoC
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched_simulations import Simulation

__all__ = ["Chat", "Scenario", "Simulated", "simulate", "simulate_policies"]


@dataclass(frozen=True, eq=False)
class Simulated:
    """A simulated run and what it was a run of."""

    planned: Planned
    outcome: Simulation = field(repr=False)
    ambient_c: float
    policy: str = "static"
    scenario: Scenario = field(default_factory=Scenario, repr=False)

    @property
    def trace(self) -> Trace:
        """What happened when."""
        return self.outcome.trace

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``simulate --json``."""
        import numpy as np

        from hetsched_simulations.host_time import host_time

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
            **phone_summary(self.outcome, self.planned.soc, self.policy),
            "arrivals": self._arrivals(),
            "host": host_time(self.planned.table, *self.planned.placement).to_dict(),
        }

    def _arrivals(self) -> dict[str, Any] | None:
        """What became of what arrived; None where one inference simply followed another."""
        import numpy as np

        jobs, took, at = self.outcome.jobs, self.outcome.latencies_s, self.scenario
        if jobs is None and at.period_s is None and at.deadline_s is None:
            return None
        dropped = 0
        if jobs is not None:
            dropped = jobs.dropped
        elif at.period_s is not None:
            dropped = int(np.maximum(np.ceil(took / at.period_s - 1e-9), 1).sum()) - len(took)
        late = None if at.deadline_s is None else int((took > at.deadline_s * (1 + 1e-9)).sum())
        return {
            "arrived": len(took) + dropped, "done": len(took), "dropped": dropped, "late": late,
            "deadline_ms": None if at.deadline_s is None else at.deadline_s * 1e3,
            "missed": None if late is None else (late + dropped) / (len(took) + dropped),
        }  # fmt: skip


def simulate(
    target: str | Path | Graph | Planned,
    soc: str | Path | SoC | None = None,
    scenario: Scenario | None = None,
    *,
    policy: str = "static",
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Simulated | SimulatedLanguage | SimulatedChat:
    """Simulate a plan (or plan a model first).

    Args:
        target: a plan file, a model file, a graph, or a :class:`Planned`.
        soc: where to plan, if ``target`` is a model.
        scenario: what the plan is put through; None: what ``options`` say.
        policy: who switches between the plans of a plan file with levels; ``static`` keeps the plan whatever happens.
        progress: called with the share done, 0..1.
        **options: fields of :class:`Scenario` (``duration_s``, ``ambient_c``, ...) without ``scenario``; the others are passed to
            :func:`hetsched.app.planning.plan` if ``target`` is a model, and ``level`` is that of a plan file.

    Raises:
        OptionError: a value outside what makes sense.
    """
    said = {k: options.pop(k) for k in list(options) if k in Scenario.model_fields}
    if scenario is None:
        scenario = Scenario.of(said)
    elif said:
        raise OptionError(f"{', '.join(said)} and a scenario are given: put all of it into the scenario")
    planned = open_session(target, soc, **options)
    return _simulated(planned, scenario, policy, other_levels(planned, policy), progress)


def simulate_policies(
    target: str | Path | Planned,
    policies: Sequence[str],
    scenario: Scenario,
    level: int = 0,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Simulated | SimulatedChat]:
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
    planned = open_session(target, level=level)
    others = [other_levels(planned, p) for p in policies]
    out: dict[str, Simulated | SimulatedChat] = {}
    for k, (policy, plans) in enumerate(zip(policies, others, strict=True)):
        share = None if progress is None else lambda done, k=k: progress((k + done) / len(policies))
        found = _simulated(planned, scenario, policy, plans, share)
        if isinstance(found, SimulatedLanguage):
            raise _over_too_soon(planned)
        out[policy] = found
    return out


def _over_too_soon(planned: Planned) -> OptionError:
    return OptionError(f"one prompt and its answer are over before a policy could act: simulate {planned.graph.name!r} with --duration")


def _simulated(
    planned: Planned,
    scenario: Scenario,
    policy: str,
    others: dict[int, Planned],
    progress: Callable[[float], None] | None,
) -> Simulated | SimulatedLanguage | SimulatedChat:
    from hetsched_simulations import simulate as run_simulation

    at = scenario
    if isinstance(planned, PlannedLanguage) and at.duration_s is None:
        if policy != "static":
            raise _over_too_soon(planned)
        if at != Scenario(ambient_c=at.ambient_c, contention=at.contention, case=at.case):
            raise OptionError(
                f"one prompt to {planned.graph.name!r} and its answer know --ambient and --case only: say with --duration for how long"
            )
        return simulate_language(planned, at.ambient_c, at.contention, progress, at.case)
    jobs = jobs_of(planned, others, at)
    outcome = run_simulation(
        planned.table, planned.soc, *planned.placement, duration_s=at.duration_s, ambient_c=at.ambient_c, period_s=at.period_s,
        contention=at.contention, clocks=planned.deployment.entries[planned.entry].clocks, jobs=jobs,
        case=at.case, battery=at.battery, charging_w=at.charging_w, loads_w=at.loads, background=at.background,
        path="full" if at.exact else "auto",
        levels=levels_of(planned, others, policy, 1.0 if at.battery is None else at.battery), progress=progress,
    )  # fmt: skip
    outcome.trace.model = planned.graph.name
    outcome.trace.notes.insert(0, circumstances(at, policy, outcome.phone()))
    write_from_run(outcome, planned, others, at.period_s)
    if isinstance(planned, PlannedLanguage):
        chat = SimulatedChat(planned, outcome, at.ambient_c, policy, at.deadline_s, single_turn(planned, at))
        if not guesses(planned):
            return chat
        plain = _simulated(without_guesses(planned), scenario, policy, {n: without_guesses(p) for n, p in others.items()}, progress)
        assert isinstance(plain, SimulatedChat)
        return replace(chat, plain=plain)
    return Simulated(planned, outcome, at.ambient_c, policy, at)
