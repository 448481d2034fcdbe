"""Clocks: which operating point every cluster is at, how fast a queue computes there and what that costs in power.

A *cluster* here is an index into the SoC's clusters, processor by processor. Operating points are indices into the
cluster's list, the last one being the fastest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hetsched.costs import FloatArray, Queue
from hetsched.errors import OptionError
from hetsched.socs import Cluster, SoC

Dvfs = Literal["performance", "schedutil", "powersave"]
Points = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Clusters:
    """All clusters of a SoC (``c`` of them) and how a cost table's queues (``q``) use them."""

    names: tuple[str, ...]
    """Unique: the cluster's own name, or its processor's if that has one cluster, or ``processor.cluster``."""
    processor: tuple[int, ...]
    clusters: tuple[Cluster, ...]
    share: FloatArray  # [q, c] share of the cluster's cores that the queue owns
    weight: FloatArray  # [q, c] share of the queue's peak rate that comes from the cluster; rows sum to 1
    most: FloatArray  # [c] the share of the top clock that the plan asks for; a cluster runs no faster, whatever its operating point

    @classmethod
    def of(cls, soc: SoC, queues: Sequence[Queue]) -> Clusters:
        """Clusters of a SoC for these queues."""
        pairs = [(i, c) for i, p in enumerate(soc.processors) for c in p.clusters]
        plain = [soc.processors[i].name if len(soc.processors[i].clusters) == 1 else c.name for i, c in pairs]
        names = tuple(n if plain.count(n) == 1 else f"{soc.processors[i].name}.{c.name}" for n, (i, c) in zip(plain, pairs, strict=True))
        share = np.array([[_share(q, soc.processors[i].name, c) for i, c in pairs] for q in queues])
        peak = np.array([_peak(c) for _, c in pairs])
        weight = share * peak
        weight /= np.maximum(weight.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        return cls(names, tuple(i for i, _ in pairs), tuple(c for _, c in pairs), share, weight, np.ones(len(pairs)))

    def base(self, dvfs: Dvfs) -> Points:
        """Operating points that DVFS may ask for: ``powersave`` the bottom, ``performance`` the top, ``schedutil`` up to the top.

        Raises:
            OptionError: there is no such governor.
        """
        if dvfs not in ("performance", "schedutil", "powersave"):
            raise OptionError(f"the DVFS governor {dvfs!r} does not exist: use performance, schedutil or powersave")
        return tuple(0 if dvfs == "powersave" else len(c.operating_points) - 1 for c in self.clusters)

    def hz(self, points: Points) -> FloatArray:
        """[c] frequencies."""
        listed = np.array([c.operating_points[k].hz for c, k in zip(self.clusters, points, strict=True)])
        return np.asarray(np.minimum(listed, self.most * np.array([c.top.hz for c in self.clusters])))

    def volts(self, points: Points) -> FloatArray:
        """[c] relative supply voltages, 1 at the top; between operating points interpolated."""
        listed = np.array([c.operating_points[k].v / c.top.v for c, k in zip(self.clusters, points, strict=True)])
        held = [np.interp(m * c.top.hz, [p.hz for p in c.operating_points], [p.v / c.top.v for p in c.operating_points])
                for c, m in zip(self.clusters, self.most, strict=True)]  # fmt: skip
        return np.where(self.most < 1.0, np.minimum(listed, held), listed)

    def rates(self, points: Points) -> tuple[float, ...]:
        """Per queue: its rate of computation relative to all its clusters at the clocks that the plan asks for (then exactly 1)."""
        relative = self.hz(points) / np.array([c.top.hz for c in self.clusters])
        if (relative >= self.most).all():
            return (1.0,) * len(self.weight)
        now, asked = (self.weight @ relative).tolist(), (self.weight @ self.most).tolist()
        return tuple(a / b if b > 0 else 1.0 for a, b in zip(now, asked, strict=True))  # the DMA engine has a clock of its own

    def held(self, clocks: Mapping[str, float], processors: Sequence[str]) -> Clusters:
        """The same with some processors (by name) held at fractions of their top clocks, all others free."""
        return replace(self, most=np.array([clocks.get(processors[p], 1.0) for p in self.processor]))


def _share(queue: Queue, processor: str, cluster: Cluster) -> float:
    if queue.processor != processor:
        return 0.0
    if not queue.cores or not cluster.cores:
        return 1.0
    return len(set(queue.cores) & set(cluster.cores)) / len(cluster.cores)


def _peak(cluster: Cluster) -> float:
    """Peak rate by which a cluster weighs in its processor; the widest float the cluster has."""
    for precision in ("f32", "f16", *sorted(cluster.peak_ops_s)):
        if precision in cluster.peak_ops_s:
            return float(cluster.peak_ops_s[precision])
    return cluster.top.hz
