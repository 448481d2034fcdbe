"""Power: dynamic, leakage, DRAM and the rest of the device, and which thermal node each of them heats.

- Dynamic: ``dynamic_w (f / f_top) (V / V_top)^2 activity`` per cluster, that is C V^2 f. Activity is 1 while the queue works
  on an op or a transfer, computing or waiting for memory, as in the cost table's energy: the SoC files' ``dynamic_w`` come
  from whole workloads, stalls included. During a launch the queue rests and the host draws the table's ``launch_energy_j``.
- Leakage: ``leakage_w (V / V_top) 2^((T - 25 °C) / leakage_doubling_k)`` per cluster that the plan uses; the others are
  power-gated and draw their ``idle_w``.
- DRAM: ``energy_j_per_byte`` times the bytes that move.
- Base: ``base_w``, always.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.costs import FloatArray
from hetsched.socs import SoC
from hetsched_simulations.clocks import Clusters, Points


@dataclass(frozen=True, eq=False)
class Power:
    """The power model of a SoC; ``c`` clusters, ``n`` thermal nodes (one imaginary one if the SoC has none)."""

    clusters: Clusters
    dynamic_top_w: FloatArray  # [c]
    leakage_top_w: FloatArray  # [c] zero for clusters that are power-gated
    per_doubling: FloatArray  # [c] 1 / leakage_doubling_k
    idle_w: FloatArray  # [c]
    j_per_byte: float
    base_w: float
    heat: FloatArray  # [n, c + 2] share of each cluster's, the DRAM's and the base's power that enters each node
    sense: FloatArray  # [c, n] temperature of a cluster as a mean of nodes

    @classmethod
    def of(cls, soc: SoC, clusters: Clusters, used: Sequence[int]) -> Power:
        """The power model; ``used`` are the queues that the plan uses."""
        powered = clusters.share[sorted(used)].max(axis=0, initial=0.0) > 0
        leak = np.array([float(c.leakage_w) for c in clusters.clusters])
        heat = _heat(soc, clusters)
        sense = heat[:, : len(leak)].T.copy()
        return cls(
            clusters,
            np.array([float(c.dynamic_w) for c in clusters.clusters]),
            np.where(powered, leak, 0.0),
            1.0 / np.array([max(float(c.leakage_doubling_k), 1e-9) for c in clusters.clusters]),
            np.array([float(c.idle_w) for c in clusters.clusters]) * ~powered,
            float(soc.memory.energy_j_per_byte),
            float(soc.base_w),
            heat,
            sense,
        )

    def dynamic_w(self, points: Points) -> FloatArray:
        """[c] dynamic power at full activity."""
        hz = np.array([c.top.hz for c in self.clusters.clusters])
        return np.asarray(self.dynamic_top_w * (self.clusters.hz(points) / hz) * self.clusters.volts(points) ** 2)

    def leakage_25_w(self, points: Points) -> FloatArray:
        """[c] leakage at 25 degrees."""
        return np.asarray(self.leakage_top_w * self.clusters.volts(points))

    def queue_w(self, queue: int) -> float:
        """Dynamic power of all that a queue owns, at the top clocks and full activity."""
        return float(self.clusters.share[queue] @ self.dynamic_top_w)

    def static_w(self, leakage_25_w: FloatArray, node_c: FloatArray) -> FloatArray:
        """[c] leakage at the nodes' temperatures ([n], degrees), plus what gated clusters draw."""
        return np.asarray(leakage_25_w * np.exp2((self.sense @ node_c - 25.0) * self.per_doubling) + self.idle_w)


def _heat(soc: SoC, clusters: Clusters) -> FloatArray:
    nodes = soc.thermal.nodes
    if not nodes:
        return np.ones((1, len(clusters.clusters) + 2))
    sources = [soc.processors[p].name for p in clusters.processor] + ["dram", "base"]
    heat = np.zeros((len(nodes), len(sources)))
    for j, source in enumerate(sources):
        named = [i for i, n in enumerate(nodes) if source in n.processors] or [_default_node(soc, source)]
        heat[named, j] = 1.0 / len(named)
    return heat


def _default_node(soc: SoC, source: str) -> int:
    """Where a source heats that no node names: the base the case (next to ambient), everything else the package (next to the case)."""
    nodes = soc.thermal.nodes
    outer = {n for r in soc.thermal.resistances if "ambient" in r.between for n in r.between}
    free = [i for i, n in enumerate(nodes) if not n.processors]
    case = [i for i in free if nodes[i].name in outer] or [i for i, n in enumerate(nodes) if n.name in outer] or [len(nodes) - 1]
    package = [i for i in free if nodes[i].name not in outer] or case
    return case[0] if source == "base" else package[0]
