"""What a report can show. Any number of items, in any order; the page arranges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hetsched.graph import Graph
from hetsched.passes import PassReport
from hetsched.plans import Deployment, Entry, Stage
from hetsched.socs import SoC
from hetsched.trace import Trace


@dataclass(frozen=True)
class PlanItem:
    """A deployment.

    With its ``graph`` the placement is drawn on the operators; with its ``soc`` estimates are listed; with ``passes`` what
    they made of the file's graph.
    """

    deployment: Deployment
    graph: Graph | None = None
    soc: SoC | None = None
    title: str = ""
    passes: Sequence[PassReport] = ()
    changes: Mapping[Stage, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """Phase and level -> op -> what would have to change for it to be elsewhere."""


@dataclass(frozen=True)
class TraceItem:
    """A simulated, measured or imported run; ``soc`` is the full name of where, if it is known."""

    trace: Trace
    title: str = ""
    soc: str = ""


@dataclass(frozen=True)
class CheckItem:
    """A numerical comparison with the reference.

    Each row has ``op, cosine, snr_db, max_abs`` (a number or None), and may have ``type``, ``ok`` (False marks a
    failure) and ``note``.
    """

    rows: Sequence[Mapping[str, Any]]
    title: str = "Numerical check"


@dataclass(frozen=True)
class ComparisonItem:
    """Plans of one or several models on several SoCs, shown as one table."""

    plans: Sequence[PlanItem]
    title: str = "Comparison"


ReportItem: TypeAlias = PlanItem | TraceItem | CheckItem | ComparisonItem


def soc_name(item: PlanItem) -> str:
    """The SoC's full name, or its id."""
    return item.soc.name if item.soc else item.deployment.soc.id


def model_name(item: PlanItem) -> str:
    """The model's name, or its file name without the ending where only the plan is at hand."""
    if item.graph is not None:
        return item.graph.name
    name = item.deployment.model.path.replace("\\", "/").rsplit("/", 1)[-1]
    return name.rsplit(".", 1)[0] or name


def entry_name(entry: Entry, item: PlanItem) -> str:
    """``decode, level 2``: a phase where the model has phases, a level where there are several; empty for the only plan."""
    phase = [] if entry.phase == "inference" else [entry.phase]
    level = [f"level {entry.level}"] if len({e.level for e in item.deployment.entries}) > 1 else []
    return ", ".join((*phase, *level))
