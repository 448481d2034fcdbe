"""The verb *run*: execute a host plan on this machine and, on request, check every operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.app.fallbacks import check_policy, run_with_fallback
from hetsched.app.stored_runs import Place, Said
from hetsched.errors import OptionError
from hetsched.files import is_plan_file
from hetsched.graph import Graph
from hetsched.runtime.executable import LIMIT_S
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched.app.planned import Planned
    from hetsched.runtime import CheckReport, Executable, RunResult
    from hetsched.runtime.assignment import Moved
    from hetsched.runtime.fallback import Fallback
    from hetsched.socs import SoC

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

#: Larger files are no plans (:meth:`hetsched.plans.Deployment.from_file` says so).
MAX_PLAN_BYTES = 256 << 20
#: Inputs that reach further beyond their calibrated range than this share of its width are worth a word.
FAR = 0.25
#: A fastest run below this share of the prediction says that the machine was slow when it was calibrated.
SLOW_CALIBRATION = 0.7
_WITHIN = ", within the calibrated ranges"


@dataclass(frozen=True, eq=False)
class Ran:
    """A real run and what it was a run of."""

    said: Said
    result: RunResult = field(repr=False)
    open: Callable[[], Planned] = field(repr=False)
    """Gives the plan with its graph and cost table, which a stored executable does not need."""
    check: CheckReport | None = field(default=None, repr=False)
    inputs: str = "seeded noise"
    delegate: str = "as planned"
    notes: tuple[str, ...] = ()
    emulated: Mapping[str, str] = field(default_factory=dict)
    """What stood in for the processor of a queue; latencies mean nothing then."""
    fallback: str = "none"
    """The policy."""
    fallbacks: tuple[Fallback, ...] = ()
    """What failed, and what was done about it."""

    @property
    def runners(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the delegates of each queue."""
        return self.said.runners

    @cached_property
    def planned(self) -> Planned:
        """What ran, with its graph and its cost table."""
        return self.open()

    @cached_property
    def trace(self) -> Trace:
        """What happened when, and how much of their peak the processors computed."""
        from hetsched.app.utilisation import write_from_spans

        trace = self.result.trace
        if self.planned.soc.is_host or self.delegate == "null":  # elsewhere the times are not those of the plan's processors
            write_from_spans(trace, self.planned)
        return trace

    @property
    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """Graph outputs by name."""
        return self.result.outputs

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``run --json``."""
        lat = np.asarray(self.result.latencies_s)
        out: dict[str, Any] = {
            "model": self.said.model,
            "soc": self.said.soc,
            "inputs": self.inputs,
            "delegate": self.delegate,
            "repeat": len(lat),
            "latency_ms": {"first": float(lat[0]) * 1e3, "median": float(np.median(lat)) * 1e3, "min": float(lat.min()) * 1e3},
            "predicted_ms": self.said.predicted_s * 1e3,
            "predicted_ms_interval": [v * 1e3 for v in self.said.interval_s],
            "outputs": {k: list(v.shape) for k, v in sorted(self.outputs.items())},
            "check": None if self.check is None else self.check.summary(),
        }
        if self.said.runners:
            out["delegates"] = {q: list(names) for q, names in self.said.runners.items()}
        if self.result.copied_bytes:
            out["copied_bytes"] = self.result.copied_bytes
        if self.emulated:
            out["emulated"] = dict(self.emulated)
        if self.fallback != "none":
            out |= {"fallback": self.fallback, "fallbacks": [f.summary() for f in self.fallbacks]}
        if self.notes:
            out["notes"] = list(self.notes)
        return out


def run(
    target: str | Path | Graph | Planned,
    soc: str | Path | SoC | None = None,
    *,
    inputs: str | Path | Mapping[str, npt.NDArray[Any]] | None = None,
    check: bool = False,
    repeat: int = 5,
    seed: int = 0,
    delegate: str | Mapping[str, str] | None = None,
    fallback: str = "none",
    timeout_s: float = LIMIT_S,
    **plan_options: Any,
) -> Ran:
    """Execute a plan here (or plan a model for the host first).

    Args:
        target: a plan file, a model file, a graph, or a :class:`Planned`.
        soc: where to plan, if ``target`` is a model (only ``host`` can run here, unless ``delegate`` says who stands in).
        inputs: an ``.npz`` file or arrays by input name; None: seeded noise.
        check: compare every operator's output with ONNX Runtime.
        repeat: number of inferences.
        seed: of the noise.
        delegate: ``null`` runs any plan without computing; names by queue or processor (``{"npu": "qnn", "cpu": "numba"}``) run a
            plan for another SoC, with its NPU or GPU emulated; None: what the plan says.
        fallback: what to do when a segment cannot be compiled or fails: ``none`` raises, ``cpu`` computes it on the CPU, ``next-best``
            plans again without that processor.
        timeout_s: seconds that all inferences together may take.
        **plan_options: passed to :func:`hetsched.app.planning.plan` if ``target`` is a model.

    Raises:
        OptionError: bad inputs, or a plan that cannot run on this machine.
        ExecutionError: an operator failed; the message names the user's node.
    """
    if not 1 <= repeat <= 1_000_000:
        raise OptionError(f"--repeat {repeat} makes no sense: use 1 to 1000000")
    if seed < 0:
        raise OptionError(f"--seed {seed} makes no sense: use a whole number of at least 0")
    check_policy(fallback)
    if not 0 < timeout_s <= LIMIT_S:
        raise OptionError(f"--timeout {timeout_s:g} makes no sense: use seconds, at most {LIMIT_S:g}")
    plain = soc is None and delegate is None and not check and fallback == "none" and timeout_s == LIMIT_S
    if isinstance(target, (str, Path)) and plain:
        ran = run_stored(Path(target), inputs, repeat, seed, plan_options.get("level", 0))
        if ran is not None:
            return ran
    return _compile_and_run(target, soc, inputs, check, repeat, seed, delegate, (fallback, timeout_s), plan_options)


def _place(path: Path, level: int) -> Place | None:
    """Where the executable of a plan file is stored; None if ``path`` is no plan file."""
    is_plan = path.is_file() and is_plan_file(path) and path.stat().st_size <= MAX_PLAN_BYTES
    return Place(path, level) if is_plan else None


def run_stored(path: Path, inputs: str | Path | Arrays | None, repeat: int, seed: int, level: int) -> Ran | None:
    """Run a plan file as :func:`run`, from what an earlier run of it has left.

    Returns:
        None if there is nothing, or it was left by a run with another seed, or there is something to be said about the arguments.

    Raises:
        OptionError: bad inputs.
        ExecutionError: an operator failed.
    """
    place = _place(path, level) if repeat >= 1 and seed >= 0 else None
    found = None if place is None else place.find()
    if found is None:
        return None

    def reopened() -> Planned:
        from hetsched.app.sessions import open_session

        return open_session(path, level=level)

    with found.executable as executable:
        feeds = found.noise(seed) if inputs is None else _given(inputs, executable.graph)
        if feeds is None:
            return None
        ran = _run(executable, found.said, reopened, feeds, inputs, repeat, seed)
    return replace(ran, notes=(*ran.notes, *_faster(found.said.predicted_s, min(ran.result.latencies_s))))


def _compile_and_run(
    target: str | Path | Graph | Planned, soc: str | Path | SoC | None, inputs: str | Path | Arrays | None, check: bool, repeat: int,
    seed: int, delegate: str | Mapping[str, str] | None, safety: tuple[str, float], plan_options: Mapping[str, Any],
) -> Ran:  # fmt: skip
    from hetsched.app.language import PlannedLanguage
    from hetsched.app.sessions import open_session
    from hetsched.runtime import check as check_against_reference
    from hetsched.runtime import compile as compile_plan
    from hetsched.runtime import make_inputs

    policy, timeout_s = safety
    # Made first, so that it knows of changes of the files while they are read.
    path = Path(target) if isinstance(target, (str, Path)) and soc is None and delegate is None and policy == "none" else None
    place = None if path is None else _place(path, plan_options.get("level", 0))
    opened = open_session(target, soc, **plan_options)
    if isinstance(opened, PlannedLanguage):
        raise OptionError(
            f"the plan of {opened.graph.name!r} is a prompt and its answer: run one for host with --prompt TEXT, or plan one phase, with "
            "--dim tokens=N or --dim past=N, and run that"
        )

    def attempt(planned: Planned, moved: Mapping[str, Moved]) -> Ran:
        if delegate != "null":
            _refuse_without_ranges(planned)
        calibrated = {} if delegate == "null" else calibrated_inputs(planned)
        feeds = make_inputs(planned.graph, seed, calibrated) if inputs is None else _given(inputs, planned.graph)
        with compile_plan(planned.graph, planned.plan, soc=planned.soc, delegate=delegate, moved=moved) as executable:
            assigned, prediction = executable.assigned, planned.plan.prediction
            said = Said(
                planned.graph.name, planned.soc.id, prediction.latency_s, prediction.latency_interval_s, calibrated,
                {} if assigned is None else assigned.of_queue,
            )  # fmt: skip
            report = None
            if check:
                observed = executable.run(feeds, observe=True, timeout_s=timeout_s)
                report = check_against_reference(planned.graph, planned.plan if assigned is None else assigned.plan, feeds, observed)
            ran = _run(executable, said, lambda: planned, feeds, inputs, repeat, seed, timeout_s)
            if place is not None:
                place.keep(executable, planned, said, (seed, feeds) if inputs is None else None)
        told = delegate if isinstance(delegate, str) else "as chosen" if delegate else "as planned"
        emulated = {} if assigned is None else assigned.emulated
        notes = [*ran.notes, *(ran.result.trace.notes if isinstance(delegate, Mapping) else ())]
        if delegate is None and planned.soc.is_host and not moved:
            notes.extend(_faster(prediction.latency_s, min(ran.result.latencies_s)))
        return replace(ran, check=report, delegate=told, notes=tuple(notes), emulated=emulated)

    return run_with_fallback(policy, opened, delegate, attempt)


def _given(inputs: str | Path | Arrays, graph: Graph) -> dict[str, npt.NDArray[Any]]:
    """Inputs from a file or from arrays, checked."""
    from hetsched.app.input_files import read_inputs
    from hetsched.runtime.inputs import validate_feeds

    return read_inputs(Path(inputs), graph) if isinstance(inputs, (str, Path)) else validate_feeds(graph, inputs)


def _run(
    executable: Executable,
    said: Said,
    opened: Callable[[], Planned],
    feeds: Arrays,
    inputs: str | Path | Arrays | None,
    repeat: int,
    seed: int,
    timeout_s: float = LIMIT_S,
) -> Ran:
    """Run an executable, and say on which inputs."""
    if inputs is None:
        described = f"seeded noise (seed {seed}{_WITHIN if said.calibrated else ''})"
    else:
        described = Path(inputs).name if isinstance(inputs, (str, Path)) else "given arrays"
    # Warm-up: first touches and caches are not the plan's doing. Ranges that are too small show on the first inference.
    executable.run(feeds, finite=True, timeout_s=timeout_s)
    result = executable.run(feeds, repeat=repeat, timeout_s=timeout_s)
    result.trace.model = said.model
    notes = [] if inputs is None else _beyond(said.calibrated, feeds)
    return Ran(said, result, opened, inputs=described, notes=tuple(notes))


def _faster(predicted_s: float, fastest_s: float) -> list[str]:
    """A sentence if the run was so much faster than predicted that the machine must have been slow when it was measured."""
    if fastest_s >= SLOW_CALIBRATION * predicted_s:
        return []
    return [
        f"the fastest run took {fastest_s / predicted_s:.2f} of what was predicted: this machine may have been slow when it was"
        " measured, 'hetsched calibrate' measures it again"
    ]


def calibrated_inputs(planned: Planned) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each input that the plan's ranges file has."""
    from hetsched.ranges import TensorRange, read_ranges

    if planned.ranges_path is None:
        return {}
    ranges = read_ranges(planned.ranges_path).ranges
    found = {name: ranges[name] for name in planned.graph.inputs if name in ranges}
    return {name: (r.min, r.max) for name, r in found.items() if isinstance(r, TensorRange)}


def _beyond(calibrated: Mapping[str, tuple[float, float]], feeds: Mapping[str, npt.NDArray[Any]]) -> list[str]:
    """A sentence for each input that reaches beyond its calibrated range by more than :data:`FAR` of its width."""
    out = []
    for name, (low, high) in calibrated.items():
        if not feeds[name].size:
            continue
        least, most = float(feeds[name].min()), float(feeds[name].max())
        if max(low - least, most - high) > FAR * (high - low):
            out.append(
                f"the input {name!r} reaches from {least:.3g} to {most:.3g}, far beyond its calibrated {low:.3g} to {high:.3g}: what is"
                " outside is clipped; calibrate with such inputs, or scale them as the calibration samples were"
            )
    return out


def _refuse_without_ranges(planned: Planned) -> None:
    """Static integers need to know what they stand for."""
    from hetsched.app.static_ranges import STATIC, is_float_model

    if planned.soc.is_host and planned.deployment.precision == STATIC and is_float_model(planned.graph):
        name = planned.graph.name if planned.graph.source is None else planned.graph.source.name
        raise OptionError(
            f"{name} is a float model without ranges, so it cannot run in {STATIC}: make them with 'hetsched calibrate-ranges {name}"
            " INPUTS.npz' and plan again, or use --precision w8a8-dynamic"
        )
