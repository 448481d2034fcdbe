"""The figures of a SoC as a flat list with their origins: to count estimates, to compare two SoCs, to show them all.

Paths are those that ``--set`` takes: list items by name, links and thermal resistances by the names that they join. A
cluster adds two lines for its ladder: ``top_hz`` and ``top_v``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from hetsched.fusions import Fusions
from hetsched.soc_quantities import Features, Figure
from hetsched.socs import Cluster, Processor, SoC


@dataclass(frozen=True, slots=True)
class Line:
    """One figure. ``value`` is in the SI unit of its name; for fusions and instruction sets it is how many there are."""

    path: str
    value: float
    origin: str
    """The source, or the basis of the estimate."""
    estimated: bool
    was: float | None = None
    """The file's own value, if the user has set another."""


def figures(soc: SoC) -> list[Line]:
    """Every figure of a SoC, in the order of its file."""
    return list(_lines(soc, ""))


def estimated_share(soc: SoC) -> float:
    """How many of the figures are estimates, from 0 to 1; the clocks and the voltages of a cluster count once each."""
    found = figures(soc)
    return sum(f.estimated for f in found) / len(found)


def peak(processor: Processor, precision: str) -> Line | None:
    """The peak rate of all clusters together, estimated if one of them is; None where the precision has none."""
    found = [c.peak_ops_s[precision] for c in processor.clusters if precision in c.peak_ops_s]
    if not found:
        return None
    origin = "; ".join(dict.fromkeys(f.source or f.estimated or "" for f in found))
    was = None if all(f.was is None for f in found) else sum(f.value if f.was is None else f.was for f in found)
    estimated = any(f.estimated is not None for f in found)
    return Line(f"processors.{processor.name}.peak_ops_s.{precision}", sum(f.value for f in found), origin, estimated, was)


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure that two SoCs do not share. ``None``: one of them has no such figure."""

    path: str
    a: float | None
    b: float | None

    @property
    def ratio(self) -> float | None:
        """The second over the first; None where that means nothing."""
        return None if self.a is None or self.b is None or self.a == 0 else self.b / self.a


def differences(a: SoC, b: SoC) -> list[Difference]:
    """The figures in which two SoCs differ, in the order of the first one's file, then what only the second has."""
    first, second = ({f.path: f.value for f in (*_peaks(s), *figures(s))} for s in (a, b))
    paths = dict.fromkeys((*first, *second))
    found = [Difference(p, first.get(p), second.get(p)) for p in paths]
    return [d for d in found if d.a != d.b]


def _peaks(soc: SoC) -> Iterator[Line]:
    """Peaks of whole processors, since clusters of two SoCs seldom have the same names."""
    for processor in soc.processors:
        for precision in sorted({p for c in processor.clusters for p in c.peak_ops_s}):
            found = peak(processor, precision)
            if found is not None:
                yield found


def _lines(node: object, at: str) -> Iterator[Line]:
    if isinstance(node, Figure):
        yield Line(at, node.value, node.source or node.estimated or "", node.estimated is not None, node.was)
    elif isinstance(node, (Fusions, Features)):
        yield Line(at, float(len(node.value)), node.source or node.estimated or "", node.estimated is not None)
    elif isinstance(node, Cluster):
        yield from _ladder(node, at)
        yield from _fields(node, at)
    elif isinstance(node, BaseModel):
        yield from _fields(node, at)
    elif isinstance(node, dict):
        for key, child in node.items():
            yield from _lines(child, f"{at}.{key}")
    elif isinstance(node, tuple):
        for i, child in enumerate(node):
            yield from _lines(child, f"{at}.{_name(child, i)}")


def _fields(node: BaseModel, at: str) -> Iterator[Line]:
    for name in type(node).model_fields:
        yield from _lines(getattr(node, name), f"{at}.{name}" if at else name)


def _ladder(cluster: Cluster, at: str) -> Iterator[Line]:
    """A cluster's top clock and top voltage. A ladder whose source begins with "estimated" is an estimate."""
    source = cluster.operating_points_source
    yield Line(f"{at}.top_hz", cluster.top.hz, source, source.startswith("estimated"))
    yield Line(f"{at}.top_v", cluster.top.v, source, any(p.voltage_estimated for p in cluster.operating_points))


def _name(item: Any, number: int) -> str:
    between = getattr(item, "between", None)
    return "-".join(between) if between else str(getattr(item, "name", number))
