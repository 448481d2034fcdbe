"""The verb *plan*: model + SoC -> cost table -> solver -> plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import hetsched
from hetsched.anchors import Anchor
from hetsched.app.inputs import load, targeted
from hetsched.app.inputs import soc as find_soc
from hetsched.app.levels import Levels, plan_levels
from hetsched.app.planned import Planned, soc_ref
from hetsched.app.planning_task import TIME_LIMIT_S, Task
from hetsched.app.splitting import with_reasons, with_splits
from hetsched.app.static_ranges import NO_RANGES, STATIC, UsedRanges, with_static_ranges
from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.measured import Measured
from hetsched.partition.switching import Placed
from hetsched.passes import PassReport
from hetsched.placement import placement_of
from hetsched.plan_language import Language
from hetsched.plans import Deployment, Entry, Header, ModelRef, RangesRef
from hetsched.socs import SoC

if TYPE_CHECKING:
    from hetsched.partition.limits import Limits

Objective = Literal["latency", "energy", "edp", "period"]
Length = int | Literal["auto"]
PRECISIONS = ("auto", "float", "mixed", "w8a8", "w8a8-dynamic", "w8a16", "w4a16", "w4a8", "fp8")
Progress = Callable[[str], None]
#: What the plans of a prompt and its answer say of limits.
PER_PHASE = "the limits hold for the prefill and for one decode step, each by itself; a memory limit for both together"


def plan(
    model: str | Path | Graph,
    soc: str | Path | SoC = "host",
    *,
    objective: Objective = "latency",
    precision: str = "auto",
    runtime: str = "default",
    solver: str = "auto",
    dims: Mapping[str, int] | None = None,
    ranges: str | Path | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit_bytes: int | None = None,
    forced: Mapping[str, str] | None = None,
    forbidden: Mapping[str, str] | None = None,
    simulated: bool = True,
    progress: Progress | None = None,
    prompt: int | None = None,
    generate: int | None = None,
    kv: str | None = None,
    experts: str | Path | Sequence[Sequence[float]] | None = None,
    sampling: str | None = None,
    speculate: Length | None = None,
    acceptance: float | str | Path | None = None,
    draft: str | Path | None = None,
    draft_layers: int | None = None,
    overrides: Mapping[str, str] | None = None,
    anchors: Sequence[str | Path | Anchor] = (),
    public_anchors: bool = True,
    measured: str | Path | None = None,
    limits: Limits | None = None,
    sensitivities: str | Path | None = None,
    pareto: int = 0,
    splits: bool = False,
    levels: bool = False,
) -> Planned:
    """Decide where each operator runs.

    Args:
        model: a model file, or a graph from :func:`hetsched.load`.
        soc: a SoC id, a YAML file, ``host``, or a :class:`~hetsched.socs.SoC`.
        objective: what to minimise.
        precision: ``auto`` keeps float models float and integer models integer; ``float``; ``w8a8`` (static, running a float
            model needs ``ranges``); ``w8a8-dynamic`` (CPU kernels quantize activations when they arrive).
        runtime: the vendor runtime whose operator support and overheads are assumed.
        solver: a solver's name; ``auto`` is never worse than any other; ``rules:FILE.yaml`` uses your own table.
        dims: symbolic dimensions, if ``model`` is a path.
        ranges: for ``w8a8`` of a float model, also at level 3 of the ``levels``: a file of :func:`hetsched.calibrate_ranges`; None:
            the one beside the model.
        time_limit_s: budget of the solver in deterministic work (about seconds of one core), so that the plan does not
            depend on the machine's load; the wall clock stops it only at six times as long (``status: clock``).
        memory_limit_bytes: weights and activations may not exceed it.
        forced: op name (or the user's node name) -> queue or processor kind.
        forbidden: op name (``*``: every op) -> queue or processor kind that it must not use, or several with commas between.
        simulated: also simulate one inference with bandwidth contention (and let ``auto`` rank by it).
        progress: called with a short line whenever a stage begins.
        prompt: tokens of a prompt; with ``generate``, a language model is planned as prefill and decode
            (:class:`hetsched.app.language.PlannedLanguage`).
        generate: tokens of the answer.
        kv: precision of its key-value caches (``int8``, ``int8/int4``).
        experts: how often its experts are used: ``uniform``, a file or rows of probabilities.
        sampling: how it chooses tokens: greedy, top_k or top_p.
        speculate: tokens that are guessed at once and verified in one step; ``auto``: as many as are fastest.
        acceptance: the probability that a guess is accepted, or a file of what a model accepted (``hetsched run --save-acceptance``).
        draft: a smaller model that guesses (None: a lookup, which costs nothing).
        draft_layers: the model's own first layers, so many of them, guess instead.
        overrides: what-if hardware: field of the SoC -> value, ``{"npu.int8_tops": "100"}`` (``docs/soc_files.md``).
        anchors: measured whole-model latencies that correct the prediction (``docs/measurements.md``).
        public_anchors: without ``anchors``, look a known network up in the shipped table of public ones.
        measured: a profile whose operators' times take the place of the model's.
        limits: the most that the plan may have of latency, energy, power, accuracy loss and segments.
        sensitivities: a file of what each op loses in integers, for ``mixed`` precision (``docs/solvers.md``).
        pareto: also look for this many plans between the fastest and the thriftiest.
        splits: let two processors share large operators where that pays.
        levels: also plan for a phone that throttles, a plan a level.

    Raises:
        InputError: bad model, SoC or option.
        InfeasibleError: no placement satisfies the constraints.
    """
    from hetsched.app.language import asked_of
    from hetsched.app.language_planning import plan_language
    from hetsched.app.speculating import speculation_of
    from hetsched.app.step_costs import with_step_times

    _check_names(objective, precision, solver, splits)
    asked = asked_of(prompt, generate, kv, experts, sampling)
    language = asked is not None and asked.prompt > 0
    if language:
        _check_language(model, ranges, anchors, measured)
    guessed = speculation_of(Path(str(model)), generate or 0, speculate, acceptance, draft, draft_layers) if language else None
    if speculate is not None and not language:
        raise OptionError("--speculate guesses tokens of an answer: give --prompt and --generate too")
    say, chip = progress or (lambda _: None), find_soc(soc, overrides)

    def task(loaded: Graph, barred: Sequence[str] = ()) -> Task:
        return Task(
            chip, loaded, objective, precision, runtime, solver, time_limit_s, memory_limit_bytes, forced,
            _barring(forbidden or {}, barred), limits, sensitivities, anchors, public_anchors and not language, measured, simulated, pareto,
        )  # fmt: skip

    if language and asked is not None:

        def phase(graph: Graph, barred: Sequence[str], saver: str | None) -> Planned:
            asked_for = replace(task(graph, barred), said=(*said, *((PER_PHASE,) if limits else ())), steps=given.steps)
            return _planned(asked_for, Extras(None, NO_RANGES, splits, levels, saver), [], say, time.perf_counter())

        given, said = with_step_times(Path(str(model)), chip, asked.model_copy(update={"speculation": guessed}), precision, say)
        return plan_language(Path(str(model)), chip, given, dims or {}, phase, memory_limit_bytes, speculate == "auto")
    began = time.perf_counter()
    say("loading")
    passes: list[PassReport] = []
    graph = model if isinstance(model, Graph) else load(model, dims, passes)
    return _planned(task(graph), Extras(asked, ranges, splits, levels), passes, say, began)


def _check_names(objective: str, precision: str, solver: str, splits: bool) -> None:
    """Raises :class:`OptionError` where a name is unknown or two options exclude each other."""
    if objective not in get_args(Objective):
        raise OptionError(f"no objective is called {objective!r}: use one of {', '.join(get_args(Objective))}")
    if splits and solver not in ("auto", "ilp"):
        raise OptionError(f"--split looks for placements of its own, and --solver {solver} for others: leave one out")
    if precision not in PRECISIONS:
        raise OptionError(f"no precision is called {precision!r}: use one of {', '.join(PRECISIONS)}")


def _check_language(model: str | Path | Graph, ranges: object, anchors: Sequence[object], measured: object) -> None:
    """Raises :class:`OptionError` where something does not go with a prompt and its answer."""
    if isinstance(model, Graph):
        raise OptionError(f"the graph {model.name!r} is one phase: give the model file to plan a prompt and its answer")
    if ranges is not None:
        raise OptionError("a prompt and its answer are planned without --ranges: plan one phase with --dim tokens=N to use them")
    if anchors or measured is not None:
        raise OptionError("a prompt and its answer are planned without --anchor and --measured: plan one phase with --dim to use them")


@dataclass(frozen=True)
class Extras:
    """What a graph becomes before it is planned, and what is planned beside it."""

    asked: Language | None
    ranges: str | Path | None
    splits: bool
    levels: bool
    saver: str | None = None
    """Cores of the last level, chosen already for another phase."""


def _planned(task: Task, extras: Extras, passes: list[PassReport], say: Progress, began: float) -> Planned:
    """Plan the task's graph, on which work ``began``; what the passes change is appended to ``passes``."""
    from hetsched.app.language import rewritten

    target = targeted(task.loaded, task.chip, passes)
    least = task.precision != STATIC and extras.levels  # ranges are those of level 3
    graph, used = (target, None) if least else with_static_ranges(target, task.precision, extras.ranges, passes)
    graph = rewritten(graph, extras.asked)
    say("costing")
    costed = task.costed(graph)
    say("solving")
    task = replace(task, anchors=costed.anchors, public_anchors=False, measured=costed.measured)  # a plan file holds them once for all
    solution, shared, whole = task.solved(costed), dict[str, tuple[int, ...]](), costed
    if extras.splits:
        say("splitting")
        costed, solution, shared = with_splits(task, costed, solution)
    made = task.built(costed, solution, whole if shared else None)
    base = Entry(plan=with_reasons(made, costed.table, shared), splits=shared)
    more = Levels((), (), ())
    if extras.levels:
        say("planning levels")
        placed = Placed(costed.graph, costed.table, placement_of(base.plan, costed.table)[1])
        more = plan_levels(task, graph, base, placed, extras.ranges if least else NO_RANGES, extras.saver)
        used = used or more.ranges
        base = base.model_copy(update={"plan": base.plan.model_copy(update={"notes": (*more.notes, *base.plan.notes)})})
    deployment = _deployment(task, graph, extras.asked, used, base, more)
    wall_s, path = time.perf_counter() - began, None if used is None else used.path
    return Planned(deployment, costed.graph, task.chip, costed.table, wall_s, passes=tuple(passes), ranges_path=path)


def _deployment(task: Task, graph: Graph, asked: Language | None, used: UsedRanges | None, base: Entry, more: Levels) -> Deployment:
    """What the plan file holds."""
    from hetsched_cost_models import parameter_version

    measured = task.measured
    return Deployment(
        header=Header(hetsched=hetsched.__version__),
        model=ModelRef(path="" if graph.source is None else graph.source.name, sha256=graph.sha256, dims=dict(graph.dims)),
        soc=soc_ref(task.chip),
        runtime=task.runtime,
        precision=task.precision,
        parameters=parameter_version(),
        language=asked,
        ranges=None if used is None else RangesRef(path=used.path.name, sha256=used.sha256),
        anchors=tuple(a for a in task.anchors if isinstance(a, Anchor)),
        measured=measured if isinstance(measured, Measured) else None,
        entries=(base, *more.entries),
        switches=more.switches,
    )


def _barring(forbidden: Mapping[str, str], queues: Sequence[str]) -> dict[str, str]:
    """What the user forbids, with these queues closed to every op too."""
    everywhere = ",".join([*([forbidden["*"]] if "*" in forbidden else []), *queues])
    return {**forbidden, **({"*": everywhere} if everywhere else {})}
