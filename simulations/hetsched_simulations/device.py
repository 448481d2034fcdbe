"""The physical side of a run, shared by the full and the multi-rate path: temperatures, energy meters, clocks, governor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.costs import CostTable, FloatArray
from hetsched.soc import SoC
from hetsched.trace import Instant
from hetsched_simulations.clocks import Clusters, Dvfs, Points
from hetsched_simulations.governors import StepWise, Zone
from hetsched_simulations.history import History, Labels
from hetsched_simulations.power import Power
from hetsched_simulations.result import Energy, Throttling
from hetsched_simulations.thermal import Network, initial_temperatures

INSTANT_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Conditions:
    """What surrounds a run."""

    ambient_c: float = 25.0
    initial_c: float | Mapping[str, float] | None = None
    contention: bool = True
    thermal: bool = True
    governor: Dvfs | None = None


class Device:
    """A SoC that runs one plan: call :meth:`advance` for every interval, :meth:`poll` when a zone is due."""

    def __init__(self, soc: SoC, table: CostTable, used: Sequence[int], conditions: Conditions) -> None:
        self.soc, self.table = soc, table
        self.clusters = Clusters.of(soc, table.queues)
        self.power = Power.of(soc, self.clusters, used)
        self.thermal = conditions.thermal and bool(soc.thermal.nodes)
        self.network = Network.of(soc.thermal, conditions.ambient_c) if self.thermal else None
        self.initial_c = initial_temperatures(soc.thermal, conditions.ambient_c, conditions.initial_c)
        self.node_c = self.initial_c
        self.governor = StepWise.of(soc, self.clusters.processor, [len(c.operating_points) for c in self.clusters.clusters])
        self.zones: list[Zone] = self.governor.zones if self.thermal else []
        self.base: Points = self.clusters.base(conditions.governor or soc.governor)
        self.history = History()
        self.instants: list[Instant] = []
        self._seen, self._stride = 0, 1
        c = len(self.base)
        self.dynamic_j, self.static_j, self.hz_s = np.zeros(c), np.zeros(c), np.zeros(c)
        self.dram_j = self.bytes = self.elapsed_s = self.throttled_s = 0.0
        self.peak_c = self.node_c
        self.steps = 0
        self.first_step_s: float | None = None
        self.lowest: Points = self.base
        self.tripped: list[str] = []
        self._to_processor = np.zeros((len(soc.processors), c))
        self._to_processor[list(self.clusters.processor), range(c)] = 1.0
        self._set(self.base)

    def _set(self, points: Points) -> None:
        self.points = points
        self.dynamic_w = self.power.dynamic_w(points)
        self.leakage_25_w = self.power.leakage_25_w(points)
        self.hz = self.clusters.hz(points)
        self.rates = self.clusters.rates(points)
        self.lowest = tuple(min(a, b) for a, b in zip(self.lowest, points, strict=True))

    def cluster_activity(self, queue_activity: Sequence[float] | FloatArray) -> FloatArray:
        """[c] activity of clusters from that of queues."""
        return np.asarray(np.asarray(queue_activity) @ self.clusters.share)

    def preview(self, activity: FloatArray, flow_bytes_s: float, dt_s: float, grid: bool) -> tuple[FloatArray, FloatArray]:
        """Temperatures after ``dt_s`` and static power now, changing nothing. ``grid``: the step length recurs."""
        static = self.power.static_w(self.leakage_25_w, self.node_c)
        if self.network is None:
            return self.node_c, static
        sources = np.concatenate([self.dynamic_w * activity + static, [flow_bytes_s * self.power.j_per_byte, self.power.base_w]])
        step = self.network.grid_step if grid else self.network.step
        return step(self.node_c, self.power.heat @ sources, dt_s), static

    def advance(
        self, start_s: float, end_s: float, activity: FloatArray, flow_bytes_s: float, busy: FloatArray,
        previewed: tuple[FloatArray, FloatArray] | None = None,
    ) -> None:  # fmt: skip
        """Let an interval of constant activity ([c]) and traffic pass; ``busy`` [q] is for the trace."""
        dt = end_s - start_s
        node_c, static = previewed or self.preview(activity, flow_bytes_s, dt, grid=False)
        dynamic = self.dynamic_w * activity
        dram_w = flow_bytes_s * self.power.j_per_byte
        self.history.add(start_s, end_s, self.node_c, self._to_processor @ (dynamic + static), dram_w, flow_bytes_s, busy, self.hz)
        self.dynamic_j += dynamic * dt
        self.static_j += static * dt
        self.hz_s += self.hz * dt
        self.dram_j += dram_w * dt
        self.bytes += flow_bytes_s * dt
        self.elapsed_s += dt
        if self.points != self.base:
            self.throttled_s += dt
        self.node_c = node_c
        self.peak_c = np.maximum(self.peak_c, node_c)

    def poll(self, zone: Zone, now_s: float) -> bool:
        """Let the governor look at a zone; True if an operating point changed."""
        before = self.governor.states
        for e in self.governor.poll(zone, float(self.node_c[zone.node])):
            if e.fired and e.zone not in self.tripped:
                self.tripped.append(e.zone)
            verb = "fired" if e.fired else "cleared"
            self._instant("trip", e.zone, now_s, f"{e.trip_c:g} °C trip {verb} at {e.temperature_c:.2f} °C")
        if self.governor.states == before:
            return False
        capped = [max(last - s, 0) for last, s in zip(self.governor.last_state, self.governor.states, strict=True)]
        points = tuple(min(b, k) for b, k in zip(self.base, capped, strict=True))
        if points == self.points:
            return False
        for c, (a, b) in enumerate(zip(self.points, points, strict=True)):
            if a != b:
                self._step(c, a, b, now_s)
        self._set(points)
        return True

    def _step(self, cluster: int, a: int, b: int, now_s: float) -> None:
        self.steps += 1
        self.first_step_s = now_s if self.first_step_s is None else self.first_step_s
        levels = self.clusters.clusters[cluster].operating_points
        change = f"{levels[a].hz / 1e6:.0f} -> {levels[b].hz / 1e6:.0f} MHz"
        self._instant("throttle", self.clusters.names[cluster], now_s, change)

    def _instant(self, kind: str, name: str, now_s: float, detail: str) -> None:
        """Keep an instant; with more than a trace should hold, every second, fourth, ... one."""
        if self._seen % self._stride == 0:
            self.instants.append(Instant(kind, name, now_s, detail))
            if len(self.instants) > INSTANT_LIMIT:
                self.instants = self.instants[::2]
                self._stride *= 2
        self._seen += 1

    @property
    def instants_dropped(self) -> int:
        """How many instants were left out."""
        return self._seen - len(self.instants)

    @property
    def instants_seen(self) -> int:
        """How many there were."""
        return self._seen

    @property
    def labels(self) -> Labels:
        """Names for the counters."""
        processors = tuple(p.name for p in self.soc.processors)
        return Labels(
            tuple(n.name for n in self.soc.thermal.nodes), processors, self.clusters.names, tuple(q.name for q in self.table.queues)
        )

    def energy(self) -> Energy:
        """The meters."""
        names = [p.name for p in self.soc.processors]
        dynamic, static = self._to_processor @ self.dynamic_j, self._to_processor @ self.static_j
        base_j = self.power.base_w * self.elapsed_s
        return Energy(dict(zip(names, dynamic.tolist(), strict=True)), dict(zip(names, static.tolist(), strict=True)), self.dram_j, base_j)

    def throttling(self) -> Throttling:
        """What the governor did so far."""
        names = self.clusters.names
        mean = (self.hz_s / self.elapsed_s if self.elapsed_s else self.hz).tolist()
        lowest = self.clusters.hz(self.lowest).tolist()
        return Throttling(
            self.steps, self.first_step_s, self.throttled_s,
            dict(zip(names, lowest, strict=True)), dict(zip(names, mean, strict=True)), tuple(self.tripped),
        )  # fmt: skip

    def by_node(self, node_c: FloatArray) -> dict[str, float]:
        """Temperatures by node; empty without a thermal network."""
        return dict(zip((n.name for n in self.soc.thermal.nodes), node_c.tolist(), strict=True)) if self.thermal else {}
