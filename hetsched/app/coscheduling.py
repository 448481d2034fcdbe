"""Several models at once on one SoC: planned together, so that all of them keep their deadlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.comparing import dims_of
from hetsched.app.inputs import soc as find_soc
from hetsched.app.planned import Planned
from hetsched.app.planning import plan
from hetsched.app.planning_task import TIME_LIMIT_S, problem_of
from hetsched.errors import OptionError
from hetsched.placement import placement_of
from hetsched.socs import SoC

if TYPE_CHECKING:
    from hetsched.partition import Problem
    from hetsched.partition.coscheduling import Candidate
    from hetsched_simulations.streams import Shared, Stream

#: Periods of the slowest model that a choice is tried for, and inferences of all models together.
PERIODS, MOST = 10.0, 600
#: Rates that make sense, inferences a second.
RATES = (1e-3, 1e4)
#: Models planned together.
MODELS = 8


@dataclass(frozen=True)
class Demand:
    """What is asked of one of the models: inferences a second, seconds until each must be done, priority (smaller goes first)."""

    rate: float
    deadline_s: float
    priority: int


@dataclass(frozen=True, eq=False)
class PlannedTogether:
    """A plan a model, how they run side by side, and how every model's plan of its own would."""

    planned: tuple[Planned, ...]
    demands: tuple[Demand, ...]
    shared: Shared = field(repr=False)
    alone: Shared = field(repr=False)
    trace_path: Path | None = None
    """Where the run of ``shared`` has been written."""

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``plan --json`` for several models with rates."""
        queues = self.planned[0].table.lanes
        models = []
        for p, d, ours, theirs in zip(self.planned, self.demands, self.shared.streams, self.alone.streams, strict=True):
            figures = {"rate": d.rate, "deadline_ms": d.deadline_s * 1e3, "priority": d.priority}
            models.append(p.summary() | figures | {"together": _figures(ours), "planned_alone": _figures(theirs)})
        return {
            "soc": self.planned[0].soc.id,
            "models": models,
            "utilisation": {q.name: u for q, u in zip(queues, self.shared.utilisation, strict=True)},
            "utilisation_planned_alone": {q.name: u for q, u in zip(queues, self.alone.utilisation, strict=True)},
            "trace_path": None if self.trace_path is None else str(self.trace_path),
        }


def _figures(outcome: Any) -> dict[str, Any]:
    took = outcome.latencies_s
    return {
        "arrived": outcome.arrived, "late": outcome.late, "dropped": outcome.dropped, "missed": outcome.missed,
        "mean_ms": sum(took) / len(took) * 1e3 if took else None, "worst_ms": max(took) * 1e3 if took else None,
    }  # fmt: skip


def demands_of(
    count: int, rates: Sequence[float], deadlines_s: Sequence[float], priorities: Sequence[int], least: int = 2
) -> tuple[Demand, ...]:
    """What is asked of each model; without deadlines the period is the deadline, without priorities the shortest deadline goes first.

    ``least``: so many models at least.

    Raises:
        OptionError: not one figure a model, or one out of range.
    """
    if not rates and count:
        raise OptionError("--deadline and --priority are of models that share the SoC: say with --rate how often each runs, once a model")
    if count < least:
        raise OptionError("--rate is for several models at once: for one, use 'hetsched simulate PLAN --period 33ms'")
    if count > MODELS:
        raise OptionError(f"{count} models with --rate: give {MODELS} at most")
    for name, given in (("--rate", rates), ("--deadline", deadlines_s), ("--priority", priorities)):
        if len(given) != count and (given or name == "--rate"):
            raise OptionError(f"{len(given)} {name} for {count} models: give one each, in the models' order")
    for rate in rates:
        if not RATES[0] <= rate <= RATES[1]:
            raise OptionError(f"--rate {rate:g} is out of range: use {RATES[0]:g} to {RATES[1]:g} inferences a second")
    deadlines = list(deadlines_s) or [1.0 / r for r in rates]
    if any(not d > 0 for d in deadlines):
        raise OptionError("a --deadline must be more than 0")
    ranked = sorted(range(count), key=lambda m: (deadlines[m], m))
    order = list(priorities) or [ranked.index(m) for m in range(count)]
    return tuple(Demand(r, d, p) for r, d, p in zip(rates, deadlines, order, strict=True))


def plan_together(
    models: Sequence[str | Path],
    soc: str | Path | SoC,
    *,
    rates: Sequence[float],
    deadlines_s: Sequence[float] = (),
    priorities: Sequence[int] = (),
    dims: Mapping[str, int] | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    overrides: Mapping[str, str] | None = None,
    **options: Any,
) -> PlannedTogether:
    """Plan models that share one SoC.

    Args:
        models: model files, of one phase each.
        soc: where they run.
        rates: inferences a second, one a model.
        deadlines_s: seconds from arrival to result, one a model; empty: the period.
        priorities: smaller goes first, and its deadlines come before those of others; empty: the shortest deadline goes first and all
            misses count alike.
        dims: as for :func:`hetsched.app.comparing.compare`, ``model:name`` for one of the models.
        time_limit_s: for each model's own plan, and as much for its other placements.
        overrides: what-if hardware.
        **options: of :func:`hetsched.app.planning.plan`, for every model.

    Raises:
        OptionError: rates, deadlines or priorities do not fit the models, or an option is for models planned alone.
        InputError: of any of the models.
    """
    demands = demands_of(len(models), rates, deadlines_s, priorities)
    _check(options)
    chip = find_soc(soc, overrides)
    bound = dims_of(models, dims or {})
    own = [plan(m, chip, dims=d, time_limit_s=time_limit_s, **options) for m, d in zip(models, bound, strict=True)]
    return _choose(own, demands, time_limit_s, options, ranked=bool(priorities))


def _check(options: Mapping[str, Any]) -> None:
    if options.get("prompt") is not None or options.get("generate") is not None:
        raise OptionError("models planned together have one phase each: leave --prompt and --generate out and give --dim MODEL:tokens=N")
    for name in ("pareto", "levels"):
        if options.get(name):
            raise OptionError(f"models planned together have one plan each: leave --{name} out, or plan each alone with it")
    if options.get("memory_limit_bytes") is not None:
        raise OptionError("models planned together are planned without --memory-limit so far: plan each alone with it")


def _choose(
    own: Sequence[Planned], demands: tuple[Demand, ...], time_limit_s: float, options: Mapping[str, Any], ranked: bool
) -> PlannedTogether:
    from hetsched.partition import Solution
    from hetsched.partition.coscheduling import candidates, together
    from hetsched.partition.problem import objective_of

    demanded = (options.get("forced"), options.get("forbidden"), options.get("limits"))
    problems = [problem_of(p.graph, p.table, p.soc, p.plan.objective, *demanded) for p in own]
    offers = []
    for p, problem in zip(own, problems, strict=True):
        own_value = objective_of(problem, *p.placement)
        first = Solution(p.plan.solver, *p.placement, objective=own_value, bound=p.plan.bound_s, status=p.plan.status)
        offers.append(candidates(problem, first, options.get("solver", "auto"), time_limit_s))
    rates = [d.rate for d in demands]
    energy = own[0].plan.objective == "energy"

    def judge(choice: tuple[int, ...]) -> tuple[float, ...]:
        picked = [row[k] for row, k in zip(offers, choice, strict=True)]
        found = _run(own, demands, picked, PERIODS)
        levels: dict[int, float] = {}
        for d, o in zip(demands, found.streams, strict=True):
            level = d.priority if ranked else 0
            levels[level] = levels.get(level, 0.0) + o.missed
        slow = sum(sum(o.latencies_s) / max(1, len(o.latencies_s)) / d.deadline_s for d, o in zip(demands, found.streams, strict=True))
        joules = sum(d.rate * c.energy_j for d, c in zip(demands, picked, strict=True))
        return (*(levels[k] for k in sorted(levels)), joules if energy else slow, slow if energy else joules)

    best = together(offers, rates, judge)
    picked = [row[k] for row, k in zip(offers, best.chosen, strict=True)]
    shared, alone = (_run(own, demands, c, 2 * PERIODS) for c in (picked, [row[0] for row in offers]))
    planned = tuple(p if k == 0 else _replanned(p, problem, c) for p, problem, c, k in zip(own, problems, picked, best.chosen, strict=True))
    return PlannedTogether(planned, demands, shared, alone)


def _run(own: Sequence[Planned], demands: Sequence[Demand], picked: Sequence[Candidate], periods: float) -> Shared:
    """Let the models share the SoC for some periods of the slowest, fewer if that is very many inferences."""
    from hetsched_simulations.bandwidth import Bus
    from hetsched_simulations.streams import run_streams

    table = own[0].table
    bus = Bus.of_table(own[0].soc, table)
    duration = min(periods / min(d.rate for d in demands), max(MOST / sum(d.rate for d in demands), 1.0 / min(d.rate for d in demands)))
    streams = [_stream(p, d, c) for p, d, c in zip(own, demands, picked, strict=True)]
    return run_streams(
        bus,
        [q.name for q in table.lanes],
        streams,
        duration,
        cores=[q.cores for q in table.lanes],
        model=" + ".join(s.name for s in streams),
        soc=own[0].soc.id,
    )


def _stream(planned: Planned, demand: Demand, candidate: Candidate) -> Stream:
    from hetsched_simulations.streams import Stream
    from hetsched_simulations.workload import commands_of

    s = candidate.solution
    commands = commands_of(planned.table, s.order, s.alternative)
    return Stream(planned.graph.name, commands, 1.0 / demand.rate, demand.deadline_s, demand.priority)


def _replanned(planned: Planned, problem: Problem, candidate: Candidate) -> Planned:
    """The plan with another placement; its interval is as wide as before."""
    from hetsched.partition import build_plan
    from hetsched.partition.problem import objective_of
    from hetsched_simulations import latency

    before = planned.plan
    made = build_plan(planned.graph, problem, candidate.solution, before.baselines)
    placed = placement_of(made, planned.table)
    reached = objective_of(problem, *placed)
    bound = min(before.bound_s, reached)
    low, high = (made.prediction.latency_s / before.prediction.latency_s * v for v in before.prediction.latency_interval_s)
    simulated = None if before.prediction.simulated_s is None else latency(planned.table, planned.soc, *placed)
    prediction = made.prediction.model_copy(update={"latency_interval_s": (low, high), "simulated_s": simulated})
    note = f"placed so that it runs well beside other models: alone another plan takes {before.prediction.latency_s * 1e3:.3g} ms"
    gap = 1 - bound / reached if reached > 0 else 0.0
    update = {"prediction": prediction, "notes": (note, *before.notes), "bound_s": bound, "gap": gap, "status": "heuristic"}
    entry = planned.deployment.entries[0].model_copy(update={"plan": made.model_copy(update=update)})
    return replace(planned, deployment=planned.deployment.model_copy(update={"entries": (entry,)}))
