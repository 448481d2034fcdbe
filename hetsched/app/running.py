"""The verb *run*: execute a host plan on this machine and, on request, check every operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.app.language import PlannedLanguage
from hetsched.app.planned import Planned
from hetsched.app.sessions import open_session
from hetsched.app.static_ranges import STATIC, is_float_model
from hetsched.app.utilisation import write_from_spans
from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.ranges import TensorRange, read_ranges
from hetsched.socs import SoC
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched.runtime import CheckReport, RunResult

MAX_INPUT_BYTES = 4 << 30
#: Inputs that reach further beyond their calibrated range than this share of its width are worth a word.
FAR = 0.25
#: A fastest run below this share of the prediction says that the machine was slow when it was calibrated.
SLOW_CALIBRATION = 0.7
_WITHIN = ", within the calibrated ranges"
_HEADER_BYTES = 1 << 16


@dataclass(frozen=True, eq=False)
class Ran:
    """A real run and what it was a run of."""

    planned: Planned
    result: RunResult = field(repr=False)
    check: CheckReport | None = field(default=None, repr=False)
    inputs: str = "seeded noise"
    delegate: str = "as planned"
    notes: tuple[str, ...] = ()

    @property
    def trace(self) -> Trace:
        """What happened when."""
        return self.result.trace

    @property
    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """Graph outputs by name."""
        return self.result.outputs

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``run --json``."""
        lat = np.asarray(self.result.latencies_s)
        out: dict[str, Any] = {
            "model": self.planned.graph.name,
            "soc": self.planned.soc.id,
            "inputs": self.inputs,
            "delegate": self.delegate,
            "repeat": len(lat),
            "latency_ms": {"first": float(lat[0]) * 1e3, "median": float(np.median(lat)) * 1e3, "min": float(lat.min()) * 1e3},
            "predicted_ms": self.planned.plan.prediction.latency_s * 1e3,
            "predicted_ms_interval": [v * 1e3 for v in self.planned.plan.prediction.latency_interval_s],
            "outputs": {k: list(v.shape) for k, v in sorted(self.outputs.items())},
            "check": None if self.check is None else self.check.summary(),
        }
        if self.notes:
            out["notes"] = list(self.notes)
        return out


def read_inputs(path: Path, graph: Graph) -> dict[str, npt.NDArray[Any]]:
    """Inputs from an ``.npz`` file (no pickle), checked against the graph's inputs.

    Raises:
        OptionError: absent, not an npz, or names, shapes or types that do not fit.
    """
    if not path.is_file():
        raise OptionError(f"there is no input file {path}")
    if path.stat().st_size > MAX_INPUT_BYTES:
        raise OptionError(f"the input file {path} is larger than 4 GiB")
    try:
        sizes = _array_bytes(path)
        unknown = next((n for n in sizes if n not in graph.inputs), None)
        if unknown is not None:
            raise OptionError(f"{path} has an array {unknown!r}, which the model does not read: its inputs are {', '.join(graph.inputs)}")
        for name in graph.inputs:
            if sizes.get(name, 0) > graph.tensors[name].nbytes + _HEADER_BYTES:
                raise OptionError(f"{path}: {name!r} has {sizes[name]} bytes, the plan needs {graph.tensors[name].nbytes}")
        with np.load(path, allow_pickle=False) as archive:
            feeds = {k: archive[k] for k in graph.inputs if k in archive.files}
    except OptionError:
        raise
    except Exception as e:
        raise OptionError(f"{path} is not a readable .npz file ({e}): write it with numpy.savez") from e
    for name in graph.inputs:
        want = graph.tensors[name]
        if name not in feeds:
            raise OptionError(f"{path} has no array {name!r}: the model reads {', '.join(graph.inputs)}")
        if feeds[name].shape != want.shape or feeds[name].dtype != want.dtype.numpy:
            have = f"{feeds[name].dtype}{list(feeds[name].shape)}"
            raise OptionError(f"{path}: {name!r} is {have}, the plan needs {want.dtype.numpy}{list(want.shape)}")
    return {k: np.asarray(feeds[k], order="C") for k in graph.inputs}  # ascontiguousarray would make a scalar a list


def _array_bytes(path: Path) -> dict[str, int]:
    """Unpacked size of each array of an ``.npz`` file: a small archive may hold gigabytes of zeros."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        return {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}


def run(
    target: str | Path | Graph | Planned,
    soc: str | Path | SoC | None = None,
    *,
    inputs: str | Path | Mapping[str, npt.NDArray[Any]] | None = None,
    check: bool = False,
    repeat: int = 5,
    seed: int = 0,
    delegate: str | None = None,
    **plan_options: Any,
) -> Ran:
    """Execute a plan here (or plan a model for the host first).

    Args:
        target: a plan file, a model file, a graph, or a :class:`Planned`.
        soc: where to plan, if ``target`` is a model (only ``host`` can run here, unless ``delegate`` is ``null``).
        inputs: an ``.npz`` file or arrays by input name; None: seeded noise.
        check: compare every operator's output with ONNX Runtime.
        repeat: number of inferences.
        seed: of the noise.
        delegate: ``null`` runs any plan without computing; None: what the plan says.
        **plan_options: passed to :func:`hetsched.app.planning.plan` if ``target`` is a model.

    Raises:
        OptionError: bad inputs, or a plan that cannot run on this machine.
        ExecutionError: an operator failed; the message names the user's node.
    """
    from hetsched.runtime import check as check_against_reference
    from hetsched.runtime import compile as compile_plan
    from hetsched.runtime import make_inputs
    from hetsched.runtime.inputs import validate_feeds

    if not 1 <= repeat <= 1_000_000:
        raise OptionError(f"--repeat {repeat} makes no sense: use 1 to 1000000")
    if seed < 0:
        raise OptionError(f"--seed {seed} makes no sense: use a whole number of at least 0")
    planned = open_session(target, soc, **plan_options)
    if isinstance(planned, PlannedLanguage):
        raise OptionError(
            f"the plan of {planned.graph.name!r} is a prompt and its answer, and generating text does not run yet: plan one phase, "
            "with --dim tokens=N or --dim past=N, and run that"
        )
    if delegate != "null":
        _refuse_without_ranges(planned)
    calibrated = {} if delegate == "null" else _calibrated(planned)
    if inputs is None:
        feeds, described = make_inputs(planned.graph, seed, calibrated), f"seeded noise (seed {seed}{_WITHIN if calibrated else ''})"
    elif isinstance(inputs, (str, Path)):
        feeds, described = read_inputs(Path(inputs), planned.graph), Path(inputs).name
    else:
        feeds, described = validate_feeds(planned.graph, inputs), "given arrays"
    notes = [] if inputs is None else _beyond(calibrated, feeds)
    with compile_plan(planned.graph, planned.plan, soc=planned.soc.id, delegate=delegate) as executable:
        report = None
        if check:
            observed = executable.run(feeds, observe=True)
            report = check_against_reference(planned.graph, planned.plan, feeds, observed)
        executable.run(feeds)  # warm-up: first touches and caches are not the plan's doing
        result = executable.run(feeds, repeat=repeat)
    result.trace.model = planned.graph.name
    write_from_spans(result.trace, planned)
    if delegate is None and planned.soc.is_host:
        notes.extend(_faster(planned.plan.prediction.latency_s, min(result.latencies_s)))
    return Ran(planned, result, report, described, delegate or "as planned", tuple(notes))


def _faster(predicted_s: float, fastest_s: float) -> list[str]:
    """A sentence if the run was so much faster than predicted that the machine must have been slow when it was measured."""
    if fastest_s >= SLOW_CALIBRATION * predicted_s:
        return []
    return [
        f"the fastest run took {fastest_s / predicted_s:.2f} of what was predicted: this machine may have been slow when it was"
        " measured, 'hetsched calibrate' measures it again"
    ]


def _calibrated(planned: Planned) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each input that the plan's ranges file has."""
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
    if planned.soc.is_host and planned.deployment.precision == STATIC and is_float_model(planned.graph):
        name = planned.graph.name if planned.graph.source is None else planned.graph.source.name
        raise OptionError(
            f"{name} is a float model without ranges, so it cannot run in {STATIC}: make them with 'hetsched calibrate-ranges {name}"
            " INPUTS.npz' and plan again, or use --precision w8a8-dynamic"
        )
