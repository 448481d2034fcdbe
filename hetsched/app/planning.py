"""The verb *plan*: model + SoC -> cost table -> solver -> plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import hetsched
from hetsched.anchors import Anchor
from hetsched.app.inputs import cost_table, load, targeted, what_if_notes
from hetsched.app.inputs import soc as find_soc
from hetsched.app.static_ranges import STATIC, WITHOUT_RANGES, is_float_model, with_static_ranges
from hetsched.costs import CostTable
from hetsched.errors import OptionError, SoCError
from hetsched.files import check_destination, write_atomically
from hetsched.graph import Graph
from hetsched.passes import PassReport
from hetsched.placement import placement_of
from hetsched.plans import Deployment, Entry, Header, ModelRef, Plan, RangesRef, SoCRef
from hetsched.soc_words import power_basis
from hetsched.socs import SoC

if TYPE_CHECKING:
    from hetsched.partition.limits import Limits

Objective = Literal["latency", "energy", "edp", "period"]
PRECISIONS = ("auto", "float", "mixed", "w8a8", "w8a8-dynamic", "w8a16", "w4a16", "w4a8")
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Planned:
    """A deployment together with what it was made from, so that it can be simulated, run and reported at once."""

    deployment: Deployment
    graph: Graph
    soc: SoC
    table: CostTable = field(repr=False)
    wall_s: float = 0.0
    path: Path | None = None
    passes: tuple[PassReport, ...] = ()
    ranges_path: Path | None = None
    entry: int = 0

    def __repr__(self) -> str:
        p = self.plan.prediction
        return f"Planned({self.graph.name!r} on {self.soc.id!r}: {p.latency_s * 1e3:.3f} ms, {len(self.plan.segments)} segments)"

    @property
    def plan(self) -> Plan:
        """The plan of one entry: the only one of a single-shot model."""
        return self.deployment.entries[self.entry].plan

    @cached_property
    def placement(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """``(order, alternative)`` as indices of the cost table.

        Raises:
            PlanError: the plan names an op, a queue or a precision that the table does not have.
        """
        return placement_of(self.plan, self.table)

    def save(self, path: str | Path) -> Path:
        """Write the plan file (to a temporary name, then renamed); the model's path is made relative to it."""
        path = Path(path)
        weights = dict.fromkeys(t.data.path for t in self.graph.tensors.values() if t.data is not None)
        check_destination(path, (self.graph.source, self.ranges_path, *weights))
        write_atomically(path, relocated(self.deployment, self.graph, path, self.ranges_path).to_json().encode())
        return path

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``plan --json``."""
        p = self.plan.prediction
        by_kind = {q.name: q.kind for q in self.table.queues}
        return {
            "model": self.graph.name,
            "soc": self.soc.id,
            "solver": self.plan.solver,
            "status": self.plan.status,
            "objective": self.plan.objective,
            "latency_ms": p.latency_s * 1e3,
            "latency_ms_interval": [v * 1e3 for v in p.latency_interval_s],
            "simulated_ms": None if p.simulated_s is None else p.simulated_s * 1e3,
            "energy_mj": p.energy_j * 1e3,
            "power_basis": power_basis(self.soc),
            "peak_memory_mb": p.peak_memory_bytes / 1e6,
            "lower_bound_ms": self.plan.bound_s * 1e3 if self.plan.objective == "latency" else None,
            "gap": self.plan.gap,
            "segments": len(self.plan.segments),
            "ops_by_processor": dict(sorted(Counter(by_kind[x.queue] for x in self.plan.placements).items())),
            "baselines": {b.solver: None if b.latency_s is None else b.latency_s * 1e3 for b in self.plan.baselines},
            "wall_s": self.wall_s,
            "plan_path": None if self.path is None else str(self.path),
        } | self._corrections()

    def _corrections(self) -> dict[str, Any]:
        """Keys of the summary that only plans with corrections, a front or sensitivities have."""
        anchors, measured = self.deployment.anchors, self.deployment.measured
        out: dict[str, Any] = {"anchored_to": [a.model_dump(mode="json") for a in anchors]} if anchors else {}
        if self.plan.front:
            out["front"] = [f.model_dump(mode="json") for f in self.plan.front]
        if self.plan.prediction.loss is not None:
            out["loss"] = self.plan.prediction.loss
        return out if measured is None else out | {"measured": {"source": measured.source, "ops": len({o.op for o in measured.ops})}}


def relocated(deployment: Deployment, graph: Graph, plan_path: Path, ranges: Path | None = None) -> Deployment:
    """The deployment with the paths of the model and of its ranges relative to where the plan file will be."""
    changes: dict[str, Any] = {}
    if graph.source is not None:
        changes["model"] = deployment.model.model_copy(update={"path": _relative(graph.source, plan_path, "model")})
    if ranges is not None and deployment.ranges is not None:
        changes["ranges"] = deployment.ranges.model_copy(update={"path": _relative(ranges, plan_path, "ranges")})
    return deployment.model_copy(update=changes)


def _relative(path: Path, plan_path: Path, what: str) -> str:
    import os

    relative = Path(os.path.relpath(path.resolve(), plan_path.resolve().parent)).as_posix()
    if relative != relative.encode("utf-8", "replace").decode():
        raise OptionError(f"the path {relative!r} of the {what} is not UTF-8, so a plan file cannot name it: rename the {what} file")
    return relative


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
    time_limit_s: float = 5.0,
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
    overrides: Mapping[str, str] | None = None,
    anchors: Sequence[str | Path | Anchor] = (),
    public_anchors: bool = True,
    measured: str | Path | None = None,
    limits: Limits | None = None,
    sensitivities: str | Path | None = None,
    pareto: int = 0,
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
        ranges: for ``w8a8`` of a float model: a file of :func:`hetsched.calibrate_ranges`; None: the one beside the model.
        time_limit_s: budget of the solver in deterministic work (about seconds of one core), so that the plan does not
            depend on the machine's load; the wall clock stops it only at six times as long (``status: clock``).
        memory_limit_bytes: weights and activations may not exceed it.
        forced: op name (or the user's node name) -> queue or processor kind.
        forbidden: op name -> queue or processor kind that it must not use.
        simulated: also simulate one inference with bandwidth contention (and let ``auto`` rank by it).
        progress: called with a short line whenever a stage begins.
        prompt: tokens of a prompt; with ``generate``, a language model is planned as prefill and decode
            (:class:`hetsched.app.language.PlannedLanguage`).
        generate: tokens of the answer.
        kv: precision of its key-value caches (``int8``, ``int8/int4``).
        experts: how often its experts are used: ``uniform``, a file or rows of probabilities.
        sampling: how it chooses tokens: greedy, top_k or top_p.
        overrides: what-if hardware: field of the SoC -> value, ``{"npu.int8_tops": "100"}`` (``docs/soc_files.md``).
        anchors: measured whole-model latencies that correct the prediction (``docs/measurements.md``).
        public_anchors: without ``anchors``, look a known network up in the shipped table of public ones.
        measured: a profile whose operators' times take the place of the model's.
        limits: the most that the plan may have of latency, energy, power, accuracy loss and segments.
        sensitivities: a file of what each op loses in integers, for ``mixed`` precision (``docs/solvers.md``).
        pareto: also look for this many plans between the fastest and the thriftiest.

    Raises:
        InputError: bad model, SoC or option.
        InfeasibleError: no placement satisfies the constraints.
    """
    from hetsched.app.corrections import anchors_for, corrected, honest, read_measured
    from hetsched.app.fronts import front_points
    from hetsched.app.language import asked_of, plan_language, rewritten
    from hetsched.app.sensitivities import with_sensitivities
    from hetsched.partition import Problem, baselines, build_plan, solve
    from hetsched.partition.limits import UNLIMITED
    from hetsched_cost_models import parameter_version

    if objective not in get_args(Objective):
        raise OptionError(f"no objective is called {objective!r}: use one of {', '.join(get_args(Objective))}")
    if precision not in PRECISIONS:
        raise OptionError(f"no precision is called {precision!r}: use one of {', '.join(PRECISIONS)}")
    asked = asked_of(prompt, generate, kv, experts, sampling)
    if asked is not None and asked.prompt:
        if isinstance(model, Graph):
            raise OptionError(f"the graph {model.name!r} is one phase: give the model file to plan a prompt and its answer")
        if ranges is not None:
            raise OptionError("a prompt and its answer are planned without --ranges: plan one phase with --dim tokens=N to use them")
        if anchors or measured is not None:
            raise OptionError("a prompt and its answer are planned without --anchor and --measured: plan one phase with --dim to use them")
        options: dict[str, Any] = {
            "public_anchors": False,
            "objective": objective, "precision": precision, "runtime": runtime, "solver": solver, "time_limit_s": time_limit_s,
            "memory_limit_bytes": memory_limit_bytes, "forced": forced, "forbidden": forbidden, "simulated": simulated,
            "progress": progress, "limits": limits, "sensitivities": sensitivities, "pareto": pareto,
        }  # fmt: skip
        chip = find_soc(soc, overrides)
        return plan_language(Path(model), chip, asked, dims or {}, lambda g: plan(g, chip, **options), memory_limit_bytes)
    say = progress or (lambda _: None)
    began = time.perf_counter()
    say("loading")
    passes: list[PassReport] = []
    graph = model if isinstance(model, Graph) else load(model, dims, passes)
    chip, loaded = find_soc(soc, overrides), graph
    graph, used = with_static_ranges(targeted(graph, chip, passes), precision, ranges, passes)
    graph = rewritten(graph, asked)
    say("costing")
    plain = cost_table(graph, chip, precision, runtime)
    anchored = anchors_for(loaded, chip, plain, precision, runtime, anchors, public=public_anchors)
    timed = None if measured is None else read_measured(measured, graph, plain)
    table = with_sensitivities(corrected(plain, anchored, timed), graph, sensitivities, limits)
    problem = Problem(
        table=table,
        objective=objective,
        memory_limit_bytes=memory_limit_bytes,
        forced=op_names(graph, forced),
        forbidden=tuple(op_names(graph, forbidden).items()),
        limits=limits or UNLIMITED,
        op_types=tuple(op.type for op in graph.ops),
    )
    say("solving")

    def contended(order: Sequence[int], alternative: Sequence[int]) -> float:
        from hetsched_simulations import latency

        return latency(table, chip, tuple(order), tuple(alternative))

    evaluate = (lambda s: contended(s.order, s.alternative)) if simulated and objective == "latency" else None
    solution = solve(problem, solver, time_limit_s=time_limit_s, evaluate=evaluate)
    made = honest(build_plan(graph, problem, solution, baselines=baselines(problem)), plain, table, anchored)
    made = made.model_copy(update={"front": front_points(problem, pareto, solver, time_limit_s)})
    without_ranges = (WITHOUT_RANGES,) if precision == STATIC and is_float_model(graph) else ()
    notes = (*made.notes, *without_ranges, *what_if_notes(chip, set(table.alt_precision)), *filter(None, (power_basis(chip),)))
    made = made.model_copy(update={"notes": _model_first(notes, chip)})
    if simulated:
        value = contended(*placement_of(made, table))  # a memory limit may have made it another placement
        made = made.model_copy(update={"prediction": made.prediction.model_copy(update={"simulated_s": value})})
    deployment = Deployment(
        header=Header(hetsched=hetsched.__version__),
        model=ModelRef(path="" if graph.source is None else graph.source.name, sha256=graph.sha256, dims=dict(graph.dims)),
        soc=soc_ref(chip),
        runtime=runtime,
        precision=precision,
        parameters=parameter_version(),
        language=asked,
        ranges=None if used is None else RangesRef(path=used.path.name, sha256=used.sha256),
        anchors=anchored,
        measured=timed,
        entries=(Entry(plan=made),),
    )
    wall_s = time.perf_counter() - began
    return Planned(deployment, graph, chip, table, wall_s, passes=tuple(passes), ranges_path=None if used is None else used.path)


def _model_first(notes: Sequence[str], chip: SoC) -> tuple[str, ...]:
    """The notes with those that every plan for the SoC has last."""
    return tuple(sorted(dict.fromkeys(notes), key=lambda n: n in chip.notes))


def soc_ref(chip: SoC) -> SoCRef:
    """How a plan file refers to a SoC; one that no SoC file describes (``host``, or the user's own YAML) is embedded whole."""
    from hetsched.soc_files import list_socs, load_soc, soc_sha256

    digest = soc_sha256(chip)
    overrides = dict(chip.overrides)
    try:
        shipped = chip.id in list_socs() and soc_sha256(load_soc(chip.id, overrides=overrides)) == digest
    except SoCError:  # overrides of fields that only the user's own file has
        shipped = False
    return SoCRef(id=chip.id, sha256=digest, overrides=overrides, spec=None if shipped else chip.model_dump(mode="json"))


def op_names(graph: Graph, wanted: Mapping[str, str] | None) -> dict[str, str]:
    """Replace the user's own node names in ``name -> queue`` by the ops that they became.

    Raises:
        OptionError: no op or node has the name.
    """
    by_origin = {o: op.name for op in graph.ops for o in (*op.origin, op.name)}
    out: dict[str, str] = {}
    for name, where in (wanted or {}).items():
        if name not in by_origin:
            from difflib import get_close_matches

            near = get_close_matches(name, by_origin, 3)
            hint = f"did you mean {', '.join(near)}?" if near else "the plan file lists the names"
            raise OptionError(f"no op or node of {graph.name!r} is called {name!r}: {hint}")
        out[by_origin[name]] = where
    return out
