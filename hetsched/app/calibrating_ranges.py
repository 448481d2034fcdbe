"""The verb *calibrate-ranges*: activation ranges of a float model from sample inputs, written beside the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy.typing as npt

from hetsched.app.samples import read_samples, samples_of
from hetsched.errors import OptionError
from hetsched.files import check_destination
from hetsched.graph import Graph
from hetsched.ranges import ActivationRanges, CalibratedModel, Granularity, Method, beside

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class CalibratedRanges:
    """Ranges and the file that holds them; ``tensors`` is how many float activations the model has, inputs included."""

    ranges: ActivationRanges = field(repr=False)
    path: Path | None
    tensors: int

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``calibrate-ranges --json``."""
        r = self.ranges
        return {
            "model": r.model.name,
            "method": r.method,
            "percentile": r.percentile,
            "granularity": r.granularity,
            "symmetric": r.symmetric,
            "samples": r.samples,
            "tensors": self.tensors,
            "ranges": len(r.ranges),
            "ranges_path": None if self.path is None else str(self.path),
        }


def calibrate_ranges(
    model: str | Path,
    inputs: str | Path | Arrays | Sequence[str | Path],
    *,
    method: Method = "minmax",
    percentile: float = 99.99,
    granularity: Granularity = "tensor",
    symmetric: bool = False,
    dims: Mapping[str, int] | None = None,
    output: str | Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> CalibratedRanges:
    """Run a float model on samples and write the range of every float activation.

    Args:
        model: a model file; its format is found from its content.
        inputs: ``.npz`` files, or arrays by input name, with a leading axis of samples.
        method: ``minmax``; ``percentile``: all but the outermost values; ``mse``: least squared error in 8 bits.
        percentile: share of the values kept, in percent, for ``percentile``.
        granularity: one range a ``tensor``, or one a ``channel`` (for reports; integer kernels need one a tensor).
        symmetric: as far below zero as above: signed integers without a zero point.
        dims: symbolic dimensions.
        output: where to write; None: beside the model, where ``plan`` and ``run`` find it.
        progress: called with the share done, 0..1.

    Raises:
        ModelError: a bad model, or one that is quantized already.
        OptionError: a bad option, or inputs that do not fit the model.
        ExecutionError: an activation is not a number.
        CheckError: nothing here can run the model.
    """
    from hetsched.frontends import load
    from hetsched.runtime.calibration import Calibration, calibrated, quantized_op

    _check_options(method, percentile, granularity)
    graph = load(Path(model), dims)
    source = graph.source or Path(model)
    path = beside(source) if output is None else Path(output)
    files = [] if isinstance(inputs, Mapping) else [Path(inputs)] if isinstance(inputs, (str, Path)) else [Path(p) for p in inputs]
    weights = [t.data.path for t in graph.tensors.values() if t.data is not None]
    check_destination(path, (source, *dict.fromkeys(weights), *files))
    quantized = quantized_op(graph)
    if quantized is not None:
        raise OptionError(f"{source} is quantized already (at node {quantized.name!r}) and uses its own ranges: calibrate a float model")
    samples = samples_of(graph, inputs, "the inputs") if isinstance(inputs, Mapping) else read_samples(graph, files)
    found = calibrated(graph, samples, Calibration(method, percentile, granularity, symmetric), progress)
    ranges = ActivationRanges(
        model=CalibratedModel(name=source.name, sha256=graph.sha256, dims=dict(graph.dims)), method=method,
        percentile=percentile if method == "percentile" else None, granularity=granularity, symmetric=symmetric, samples=len(samples),
        ranges=found,
    )  # fmt: skip
    ranges.save(path)
    return CalibratedRanges(ranges, path, _float_activations(graph))


def _check_options(method: str, percentile: float, granularity: str) -> None:
    for what, value, allowed in (("method", method, get_args(Method)), ("granularity", granularity, get_args(Granularity))):
        if value not in allowed:
            raise OptionError(f"no {what} is called {value!r}: use one of {', '.join(allowed)}")
    if not 50 < percentile <= 100:
        raise OptionError(f"--percentile {percentile:g} makes no sense: use more than 50 and at most 100, for example 99.99")


def _float_activations(graph: Graph) -> int:
    return sum(t.dtype.is_float and not t.is_constant for t in graph.tensors.values())
