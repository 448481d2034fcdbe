"""What an operator of control flow costs: the operators of its body, one after another, times the trips.

The body of an ``If`` is its costlier branch. How often a loop runs is its attribute ``trips``, which the reader of the file
sets (``docs/operators.md``). The operator itself moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from hetsched.graph import Graph, Op
from hetsched_cost_models.roofline import Cost, Rates, Storage, roofline
from hetsched_cost_models.work import Work, work_of


@dataclass(frozen=True, eq=False)
class BodyWork:
    """The work of the body of op ``index``, done ``trips`` times; ``inner`` are the bodies within it."""

    index: int
    trips: int
    work: Work
    inner: tuple[BodyWork, ...]


def bodies(graph: Graph) -> tuple[BodyWork, ...]:
    """The bodies of the control flow in ``graph``."""
    return _bodies(graph, graph.ops)


def _bodies(graph: Graph, ops: Sequence[Op]) -> tuple[BodyWork, ...]:
    return tuple(
        BodyWork(i, op.attr_int("trips", 1), work_of(graph, op.body), _bodies(graph, op.body))
        for i, op in enumerate(ops)
        if op.is_control_flow
    )


def with_bodies(cost: Cost, inside: Sequence[BodyWork], rates: Rates, precision: str, storage: Storage, pace: float) -> Cost:
    """``cost`` with that of the bodies in the rows of the operators that run them."""
    if not inside:
        return cost
    columns = {f.name: np.array(getattr(cost, f.name)) for f in fields(Cost)}
    for body in inside:
        one = with_bodies(roofline(body.work, rates, precision, storage, pace), body.inner, rates, precision, storage, pace)
        for name, column in columns.items():
            column[body.index] = body.trips * float(getattr(one, name).sum())
    return replace(cost, **columns)


def notes(graph: Graph) -> tuple[str, ...]:
    """Sentences about loops whose trips are not known exactly, and about branches that the bound dims rule out."""
    flow = [op for op in graph.ops if op.is_control_flow]
    loops = [op for op in flow if op.attr_str("trips_are", "exact") != "exact"]
    out = [f"{op.name} ({op.type}) fails if it takes its {op.attr_str('impossible', '')}" for op in flow if "impossible" in op.attrs]
    if loops:
        said = ", ".join(f"{op.name} ({op.attr_int('trips', 1)}, {op.attr_str('trips_are', '')})" for op in loops[:3])
        more = f" and {len(loops) - 3} more" if len(loops) > 3 else ""
        out.append(f"how often these loops run depends on the data; costed for this many trips: {said}{more}")
    return tuple(out)
