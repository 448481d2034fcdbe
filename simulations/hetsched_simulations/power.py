"""Power: dynamic, leakage, DRAM and the rest of the device, and which thermal node each of them heats.

- Dynamic: ``dynamic_w (f / f_top) (V / V_top)^2 effort`` per cluster, that is C V^2 f. A queue's effort is 1 on its share
  of the clusters while it converts a tensor, and on an op what the cost table says: less than 1 where it waits for memory.
  During a launch, cache maintenance and waits the queue rests.
- Leakage: ``leakage_w (V / V_top) 2^((T - 25 °C) / leakage_doubling_k) activity``: a queue's activity is 1 while
  it works on an op or converts a tensor, computing or waiting for memory; a core or block that does not work is
  power-gated and draws its share of ``idle_w``.
- Host: launches, cache maintenance and spinning for fences are activity of the host's queue, as much as makes the table's
  joules of them at the top clocks and 25 degrees.
- DRAM: ``energy_j_per_byte`` times the bytes that move.
- DMA engine: its power while it copies.
- Base: ``base_w``, always, and on top of it what the run adds (a bright display, a modem).

At 25 degrees and the top clocks, without contention, the first four add up to the energy of the plan: ``docs/simulator.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hetsched.costs import DMA, FloatArray
from hetsched.socs import SoC
from hetsched_simulations.clocks import Clusters, Points

HOTTEST_C = 2000.0
"""Where it is hotter, leakage stays as it is here: such a run has ended (``device.RUNAWAY_C``), and figures would overflow."""


@dataclass(frozen=True, eq=False)
class Power:
    """The power model of a SoC; ``c`` clusters, ``n`` thermal nodes and sensors (one imaginary node if the SoC has none)."""

    clusters: Clusters
    dynamic_top_w: FloatArray  # [c]
    leakage_top_w: FloatArray  # [c]
    per_doubling: FloatArray  # [c] 1 / leakage_doubling_k
    idle_w: FloatArray  # [c]
    j_per_byte: float
    base_w: float
    heat: FloatArray  # [n, c + 2] share of each cluster's, the DRAM's and the base's power that enters each node
    sense: FloatArray  # [c, n] temperature of a cluster as a mean of nodes
    loads_w: Mapping[str, float]  # what the run adds to the base, by name
    rest_heat_w: FloatArray  # [n] what base and loads put into each node

    @classmethod
    def of(cls, soc: SoC, clusters: Clusters, loads_w: Mapping[str, float] | None = None) -> Power:
        """The power model of a SoC, with loads beside the base."""
        loads = dict(sorted((loads_w or {}).items()))
        leak = np.array([float(c.leakage_w) for c in clusters.clusters])
        heat = _heat(soc, clusters)
        sense = heat[:, : len(leak)].T.copy()
        return cls(
            clusters,
            np.array([float(c.dynamic_w) for c in clusters.clusters]),
            leak,
            1.0 / np.array([max(float(c.leakage_doubling_k), 1e-9) for c in clusters.clusters]),
            np.array([float(c.idle_w) for c in clusters.clusters]),
            float(soc.memory.energy_j_per_byte),
            float(soc.base_w),
            heat,
            sense,
            loads,
            heat[:, -1] * float(soc.base_w) + sum(w * entry(soc, name) for name, w in loads.items()),
        )

    @property
    def rest_w(self) -> float:
        """Base and loads together."""
        return self.base_w + sum(self.loads_w.values())

    def dynamic_w(self, points: Points) -> FloatArray:
        """[c] dynamic power at full activity."""
        hz = np.array([c.top.hz for c in self.clusters.clusters])
        return np.asarray(self.dynamic_top_w * (self.clusters.hz(points) / hz) * self.clusters.volts(points) ** 2)

    def state_mw(self) -> list[list[int]]:
        """Per cluster and state, from the top operating point down: dynamic power at full activity, in whole milliwatts."""
        lengths = [len(c.operating_points) for c in self.clusters.clusters]
        rows = [self.dynamic_w(tuple(max(n - 1 - k, 0) for n in lengths)) for k in range(max(lengths))]
        return [[round(1000 * float(rows[k][c])) for k in range(n)] for c, n in enumerate(lengths)]

    def leakage_25_w(self, points: Points) -> FloatArray:
        """[c] leakage at 25 degrees."""
        return np.asarray(self.leakage_top_w * self.clusters.volts(points))

    def queue_w(self, queue: int) -> float:
        """Power of all that a queue owns at work, at the top clocks and 25 degrees."""
        return float(self.clusters.share[queue] @ (self.dynamic_top_w + self.leakage_top_w))

    def static_w(self, leakage_25_w: FloatArray, node_c: FloatArray, active: FloatArray) -> FloatArray:
        """[c] leakage of what works (its watts at 25 degrees) at the nodes' temperatures ([n]), plus what the rest draws."""
        leakage = leakage_25_w * self.leaks_more(self.sense @ node_c)
        return np.asarray(leakage + self.idle_w * np.clip(1.0 - active, 0.0, 1.0))

    def leaks_more(self, cluster_c: FloatArray) -> FloatArray:
        """[..., c] by how much clusters at these temperatures leak more than at 25 degrees."""
        return np.asarray(np.exp2((np.minimum(cluster_c, HOTTEST_C) - 25.0) * self.per_doubling))


def _heat(soc: SoC, clusters: Clusters) -> FloatArray:
    sources = [soc.processors[p].name for p in clusters.processor] + ["dram", "base"]
    return np.stack([entry(soc, source) for source in sources], axis=1)


def entry(soc: SoC, source: str) -> FloatArray:
    """[n] the share of a source's heat that enters each node: a processor's, the DRAM's, that of any other part of the device."""
    if not soc.thermal.nodes:
        return np.ones(1)
    named = [i for i, n in enumerate(soc.thermal.nodes) if source in n.processors] or [_default_node(soc, source)]
    share = np.zeros(len(soc.thermal.points))
    share[named] = 1.0 / len(named)
    return share


def _default_node(soc: SoC, source: str) -> int:
    """Where a source heats that no node names.

    Processors, the DRAM and the DMA engine heat the package (next to the case), everything else the case (next to ambient).
    """
    nodes, outer = soc.thermal.nodes, soc.thermal.outer
    free = [i for i, n in enumerate(nodes) if not n.processors]
    case = [i for i in free if i in outer] or [*outer] or [len(nodes) - 1]
    package = [i for i in free if i not in outer] or case
    return package[0] if source in ("dram", DMA) or source in soc.by_name else case[0]
