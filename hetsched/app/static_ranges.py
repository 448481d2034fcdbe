"""Static integers of a float model: which ranges are used, and the graph that they make."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from hetsched.errors import OptionError, PlanError, RangesError
from hetsched.graph import Graph
from hetsched.passes import PassReport
from hetsched.plans import Deployment, Entry
from hetsched.ranges import beside, read_ranges

#: The precision whose activations are quantized with ranges that are known ahead.
STATIC = "w8a8"
#: The one whose activations are quantized when they arrive.
DYNAMIC = "w8a8-dynamic"
#: For phases of a language model, whose steps at other contexts have other tensors than the file's.
NO_RANGES = ""
#: What a plan says that could not be run.
WITHOUT_RANGES = (
    "planned as quantized: the model is float and has no ranges, which running it needs"
    " (hetsched calibrate-ranges, or --precision w8a8-dynamic)"
)


@dataclass(frozen=True, slots=True)
class UsedRanges:
    """The ranges file that a graph was quantized with, and the hash of its bytes."""

    path: Path
    sha256: str


def with_static_ranges(
    graph: Graph, precision: str, ranges: str | Path | None, report: list[PassReport]
) -> tuple[Graph, UsedRanges | None]:
    """The graph to plan at ``precision``: quantized with ``ranges``, or with the file beside the model, if that is wanted.

    Args:
        graph: after the passes and for the target.
        precision: what the user asked for.
        ranges: a ranges file; None: the one beside the model, if there is one; :data:`NO_RANGES`: none, even so.
        report: what the pass changed is appended.

    Raises:
        OptionError: ``ranges`` is given for another precision, or for a model that brings its own.
        RangesError: the file is absent, malformed, of another model or of no use.
    """
    if ranges == NO_RANGES:
        return graph, None
    if precision != STATIC:
        if ranges is not None:
            raise OptionError(f"--ranges {ranges} is of no use with --precision {precision}: only {STATIC} reads ranges")
        return graph, None
    if not is_float_model(graph):
        if ranges is not None:
            raise OptionError(f"--ranges {ranges} is of no use: {graph.name!r} is quantized already and brings its own ranges")
        return graph, None
    found = Path(ranges) if ranges is not None else None if graph.source is None else beside(graph.source)
    if found is None or (ranges is None and not found.is_file()):
        return graph, None
    return quantized(graph, found, report), UsedRanges(found, file_sha256(found))


def quantized(graph: Graph, path: Path, report: list[PassReport]) -> Graph:
    """The graph quantized with the ranges file at ``path``.

    Raises:
        RangesError: the file is absent, malformed, of another model or of no use.
    """
    from hetsched.passes.protocol import pass_report
    from hetsched.passes.quantize_static import QuantizeStatic, quantize

    ranges = read_ranges(path)
    ranges.check_model(graph.sha256, path)
    if ranges.granularity == "channel":
        raise RangesError(
            f"{path} holds ranges per channel, with which no integer kernel can sum products: calibrate with --granularity tensor"
        )
    result = quantize(graph, ranges)
    if result is graph:
        raise RangesError(f"{path} has no range for the input of any convolution or matrix product of {graph.name!r}: calibrate again")
    report.append(pass_report(QuantizeStatic.name, graph, result))
    return result


def ranges_of_plan(
    graph: Graph, deployment: Deployment, entry: Entry, plan_path: Path, report: list[PassReport]
) -> tuple[Graph, Path | None]:
    """The graph that an entry of a plan file was made for, quantized with the plan's ranges if it is in static integers; and their path.

    Raises:
        PlanError: the ranges file is not where the plan says, or has changed.
    """
    if deployment.ranges is None:
        return graph, None
    path = plan_path.parent / deployment.ranges.path
    if not path.is_file():
        raise PlanError(f"the ranges of {plan_path} are not at {path}: keep plan, model and ranges together, or make the plan again")
    if file_sha256(path) != deployment.ranges.sha256:
        raise PlanError(f"the ranges {path} have changed since {plan_path} was made: make the plan again with 'hetsched plan'")
    static = (entry.precision or deployment.precision) == STATIC
    return quantized(graph, path, report) if static else graph, path


def is_float_model(graph: Graph) -> bool:
    """Whether no activation is a quantized integer."""
    return not any(t.quantization is not None and not t.is_constant for t in graph.tensors.values())


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
