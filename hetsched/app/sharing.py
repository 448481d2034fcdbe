"""Several planned models on one phone for minutes: who keeps its deadlines once it is warm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.app.chatting import turn_figures
from hetsched.app.circumstances import circumstances
from hetsched.app.coscheduling import Demand, demands_of
from hetsched.app.language import PlannedLanguage
from hetsched.app.phone_summary import phone_summary
from hetsched.app.planned import Planned
from hetsched.app.policies import level_plan, levels_of, other_levels, together
from hetsched.app.scenario import Scenario
from hetsched.app.serving import jobs_of, single_turn
from hetsched.app.sessions import open_session
from hetsched.errors import OptionError
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched_simulations.shared_run import SharedSimulation
    from hetsched_simulations.streams import StreamOutcome, Talk


@dataclass(frozen=True, eq=False)
class SimulatedTogether:
    """A simulated run of several models, each with what is asked of it; of a chat among them that is None."""

    planned: tuple[Planned, ...]
    demands: tuple[Demand | None, ...]
    outcome: SharedSimulation = field(repr=False)
    scenario: Scenario = field(default_factory=Scenario, repr=False)
    policy: str = "static"
    talking: Talking | None = None
    """What is asked of the chat."""

    @property
    def trace(self) -> Trace:
        """What happened when."""
        return self.outcome.device.trace

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``simulate --json`` for several plans. Of a chat its model has those of turns, and no ``rate``."""
        run, outcomes = self.outcome.device, iter(self.outcome.streams)
        return {
            "soc": self.planned[0].soc.id, "ambient_c": self.scenario.ambient_c, "duration_s": run.duration_s,
            "models": [
                {"model": p.graph.name} | (self._of_chat(p) if d is None else _of_stream(d, next(outcomes)))
                for p, d in zip(self.planned, self.demands, strict=True)
            ],
            **phone_summary(run, self.planned[0].soc, self.policy),
        }  # fmt: skip

    def _of_chat(self, planned: Planned) -> dict[str, Any]:
        asked, jobs, batch = self.talking, self.outcome.device.jobs, planned.deployment.model.dims.get("batch", 1)
        assert asked is not None and jobs is not None
        late = None if asked.deadline_s is None else jobs.late(asked.deadline_s)
        return {
            "rate": None, "deadline_ms": None if asked.deadline_s is None else asked.deadline_s * 1e3, "priority": asked.priority,
            **turn_figures(jobs, batch, self.outcome.device.duration_s), "note": asked.note,
            "late": late, "missed": None if late is None else late / max(len(jobs.done), 1),
        }  # fmt: skip


@dataclass(frozen=True)
class Talking:
    """What is asked of a chat beside other models: seconds from a question to the end of its answer, and its priority."""

    deadline_s: float | None
    priority: int
    note: str | None = None
    """What the user should know of its conversations."""


def _of_stream(d: Demand, o: StreamOutcome) -> dict[str, Any]:
    took = np.array(o.latencies_s) * 1e3
    spread = None
    if len(took):
        middle, high, highest = np.percentile(took, [50, 90, 99]).tolist()
        spread = {"mean": float(took.mean()), "median": middle, "p90": high, "p99": highest, "worst": float(took.max())}
    return {
        "rate": d.rate, "deadline_ms": d.deadline_s * 1e3, "priority": d.priority,
        "arrived": o.arrived, "done": len(took), "dropped": o.dropped, "late": o.late, "missed": o.missed, "latency_ms": spread,
    }  # fmt: skip


def _for_one_soc(targets: Sequence[str | Path | Planned], level: int) -> tuple[Planned, ...]:
    planned = tuple(open_session(t, level=level) for t in targets)
    first = planned[0]
    other = next((p for p in planned if p.deployment.soc.sha256 != first.deployment.soc.sha256), None)
    if other is not None:
        raise OptionError(
            f"{other.graph.name!r} is planned for {other.soc.id} and {first.graph.name!r} for {first.soc.id}: plan for one SoC"
        )
    return planned


def talker_of(answers: Sequence[bool], scenario: Scenario) -> int | None:
    """Which of several plans has the chat, by whether each has a prompt and its answer; None: there is no chat.

    Raises:
        OptionError: not one of them could.
    """
    if scenario.chat is None and scenario.workload is None:
        return None
    able = [k for k, can in enumerate(answers) if can]
    if len(able) != 1:
        has = "none of the plans has" if not able else f"{len(able)} of the plans have"
        raise OptionError(f"{has} a prompt and its answer, and one has the chat: give one plan of a language model, made with --prompt")
    return able[0]


def asked_of_each(
    count: int, talker: int | None, rates: Sequence[float], deadlines_s: Sequence[float], priorities: Sequence[int]
) -> tuple[list[Demand | None], Talking | None]:
    """What is asked of each of ``count`` plans. Deadlines and priorities may be told with the chat's among them or without it.

    Raises:
        OptionError: not one figure a plan, or one out of range.
    """
    if talker is None:
        return list(demands_of(count, rates, deadlines_s, priorities)), None
    deadlines, ranks = list(deadlines_s), list(priorities)
    deadline = deadlines.pop(talker) if len(deadlines) == count else None
    rank = ranks.pop(talker) if len(ranks) == count else None
    demands: list[Demand | None] = [*demands_of(count - 1, rates, deadlines, ranks, least=0)]
    if deadline is not None and not deadline > 0:
        raise OptionError("a --deadline must be more than 0")
    last = 1 + max((d.priority for d in demands if d is not None), default=-1)
    demands.insert(talker, None)
    return demands, Talking(deadline, last if rank is None else rank)


def shared_duration_s(scenario: Scenario) -> float:
    """The duration of a run of several plans.

    Raises:
        OptionError: there is none, or an option is for one plan.
    """
    s = scenario
    if s.duration_s is None:
        raise OptionError("several plans run side by side for a while: say with --duration for how long")
    if s.period_s or s.poisson or s.queue:
        raise OptionError("several plans run at their --rate: leave --period, --poisson and --queue out")
    if s.think_s and s.chat is None:
        raise OptionError("several plans run at their --rate: --think is of a chat beside them, so give --chat too, or leave it out")
    return s.duration_s


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
        targets: plan files for one SoC, of one phase each; with a chat or a workload in the scenario one is of a prompt and its answer.
        scenario: with a duration; what arrives is said by the rates, and what is asked of the chat by the scenario.
        rates: inferences a second, one a model; none for the chat.
        deadlines_s: seconds from arrival to result, one a model; empty: the period. The chat may have one, for the whole answer.
        priorities: smaller goes first; empty: the shortest deadline, and the chat last.
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

    at, duration_s = scenario, shared_duration_s(scenario)
    planned = _for_one_soc(targets, level)
    talker = talker_of([isinstance(p, PlannedLanguage) for p in planned], at)
    demands, talking = asked_of_each(len(planned), talker, rates, deadlines_s, priorities)
    first = planned[0]
    conditions = Conditions(
        at.ambient_c, None, at.contention, surroundings=surroundings(at.case, at.ambient_c, first.soc), battery=at.battery,
        charging_w=at.charging_w, loads_w=at.loads, background=at.background,
    )  # fmt: skip

    def streams(plans: Sequence[Planned]) -> list[Stream]:
        return [
            Stream(p.graph.name, commands_of(p.table, *p.placement), 1.0 / d.rate, d.deadline_s, d.priority)
            for p, d in zip(plans, demands, strict=True)
            if d is not None
        ]

    others = [other_levels(p, policy) for p in planned]
    common = sorted(set.intersection(*(set(o) for o in others)))
    levels = together([levels_of(p, o, policy, 1.0 if at.battery is None else at.battery) for p, o in zip(planned, others, strict=True)])
    talk = None
    if talker is not None and talking is not None:
        chat = planned[talker]
        assert isinstance(chat, PlannedLanguage)
        talk, talking = _talk(chat, others[talker], at, talking), replace(talking, note=single_turn(chat, at))
    outcome = simulate_streams(
        first.table, first.soc, streams(planned), conditions, duration_s=duration_s, cores=[q.cores for q in first.table.lanes],
        talk=talk, levels=levels, others={n: streams([o[n] for o in others]) for n in common}, first=level_plan(first),
        path="full" if at.exact else "auto", progress=progress,
    )  # fmt: skip
    asked = [f"{p.graph.name} {d.rate:g} times a second" for p, d in zip(planned, demands, strict=True) if d is not None]
    outcome.device.trace.notes.insert(0, "; ".join((circumstances(at, policy, outcome.device.phone()), *asked)))
    return SimulatedTogether(planned, tuple(demands), outcome, scenario, policy, talking)


def _talk(planned: PlannedLanguage, others: dict[int, Planned], scenario: Scenario, talking: Talking) -> Talk:
    """The chat as the simulator takes it; the plan's own decode step stands for it where a policy weighs levels."""
    from hetsched_simulations.jobs import Part
    from hetsched_simulations.streams import Talk

    jobs = jobs_of(planned, others, scenario.model_copy(update={"deadline_s": talking.deadline_s}))
    assert jobs is not None
    asked = planned.asked
    return Talk(planned.graph.name, jobs, Part("decode", 1, asked.prompt + asked.generate - 1), talking.priority)
