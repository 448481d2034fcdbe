"""The physical side of a run, shared by the full and the multi-rate path: temperatures, energy meters, clocks, governor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hetsched.costs import CostTable, FloatArray
from hetsched.errors import SoCError
from hetsched.socs import SoC
from hetsched.trace import Instant
from hetsched_simulations.clocks import Clusters, Dvfs, Points
from hetsched_simulations.governors import Governors
from hetsched_simulations.history import Columns, History, Labels, Mode
from hetsched_simulations.machine import Host
from hetsched_simulations.power import Power
from hetsched_simulations.result import Energy, Throttling
from hetsched_simulations.schedutil import Schedutil
from hetsched_simulations.thermal import Network, initial_temperatures
from hetsched_simulations.zones import Zone

INSTANT_LIMIT = 1000
RUNAWAY_C = 1000.0
"""No phone is hotter; a thermal network that gets there is wrong, and leakage would soon be infinite."""


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

    def __init__(self, soc: SoC, table: CostTable, conditions: Conditions) -> None:
        self.soc, self.table = soc, table
        self.clusters = Clusters.of(soc, table.queues)
        self.power = Power.of(soc, self.clusters)
        self.thermal = conditions.thermal and bool(soc.thermal.nodes)
        self.network = Network.of(soc.thermal, conditions.ambient_c) if self.thermal else None
        self.initial_c = initial_temperatures(soc.thermal, conditions.ambient_c, conditions.initial_c)
        self.node_c = self.initial_c
        self.governor = Governors.of(soc, self.clusters.processor, self.power.state_mw())
        self.zones: list[Zone] = self.governor.zones if self.thermal else []
        dvfs = conditions.governor or soc.governor
        self.base: Points = self.clusters.base(dvfs)
        self.schedutil = Schedutil(self.clusters.clusters) if dvfs == "schedutil" else None
        self.host = Host(table.host, max(self.power.queue_w(table.host), 1e-9))
        self.history = History()
        self.instants: list[Instant] = []
        self._seen, self._stride = 0, 1
        self.steps = 0
        self.first_step_s: float | None = None
        self.tripped: list[str] = []
        self._cluster_heat = self.power.heat[:, : len(self.base)].copy()
        self._to_processor = np.zeros((len(soc.processors), len(self.base)))
        self._to_processor[list(self.clusters.processor), range(len(self.base))] = 1.0
        self._set(self.base)

    def _set(self, points: Points) -> None:
        self.points = points
        self.dynamic_w = self.power.dynamic_w(points)
        self.leakage_25_w = self.power.leakage_25_w(points)
        self.hz = self.clusters.hz(points)
        self.rates = self.clusters.rates(points)
        self.asked_hz = self.clusters.hz(self.base)
        self.note_clocks(self.hz)

    def note_clocks(self, hz: FloatArray) -> None:
        """Tell the thermal governors what the clusters ([c]) run at."""
        self.governor.actors.at = [
            max(sum(p.hz >= f for p in c.operating_points) - 1, 0) for c, f in zip(self.clusters.clusters, hz.tolist(), strict=True)
        ]

    def hold(self, clocks: Mapping[str, float]) -> None:
        """Hold processors at fractions of their top clocks, as a plan for a throttle level asks; the others are free."""
        self.clusters = self.clusters.held(clocks, [p.name for p in self.soc.processors])
        self.power = replace(self.power, clusters=self.clusters)
        self._set(self.points)

    def heat_w(self, mode: Mode) -> FloatArray:
        """[n] what enters each node in this mode at the present temperatures."""
        return mode.heat_w + self._cluster_heat @ self.power.static_w(mode.leakage_25_w, self.node_c, mode.active)

    def heat_j(self, first: int) -> tuple[float, FloatArray]:
        """Seconds and joules that entered each node ([n]) since interval ``first`` of the history."""
        return self.history.heat_j(first, self._cluster_heat)

    def mode(
        self, activity: Sequence[float] | FloatArray, effort: Sequence[float] | FloatArray, busy: Sequence[float] | FloatArray,
        flow_bytes_s: float,
    ) -> Mode:  # fmt: skip
        """What holds at the present clocks while queues have this activity, effort and are busy ([q]) and move this much together."""
        active = np.asarray(activity) @ self.clusters.share
        dynamic = self.dynamic_w * (np.asarray(effort) @ self.clusters.share)
        dram = flow_bytes_s * self.power.j_per_byte
        heat = self.power.heat @ np.concatenate([dynamic, [dram, self.power.base_w]])
        throttled = bool((self.hz < self.asked_hz).any())
        return Mode(dynamic, active, self.leakage_25_w * active, flow_bytes_s, dram, np.array(busy), self.hz, throttled, heat)

    def preview(self, mode: Mode, dt_s: float, grid: bool) -> tuple[FloatArray, FloatArray]:
        """Temperatures after ``dt_s`` and static power now, changing nothing. ``grid``: the step length recurs."""
        static = self.power.static_w(mode.leakage_25_w, self.node_c, mode.active)
        if self.network is None:
            return self.node_c, static
        step = self.network.grid_step if grid else self.network.step
        return step(self.node_c, mode.heat_w + self._cluster_heat @ static, dt_s), static

    def advance(self, start_s: float, end_s: float, mode: Mode, previewed: tuple[FloatArray, FloatArray] | None = None) -> None:
        """Let an interval pass."""
        node_c, static = previewed or self.preview(mode, end_s - start_s, grid=False)
        self.history.add(start_s, end_s, mode, self.node_c, static)
        if not float(np.max(node_c)) < RUNAWAY_C:
            hottest = self.labels.nodes[int(np.argmax(node_c))] if self.thermal else "device"
            raise SoCError(
                f"the thermal node {hottest!r} of {self.soc.id} runs away, beyond {RUNAWAY_C:g} °C after {end_s:.3g} s: "
                "check the capacities, resistances and watts of its file"
            )
        self.node_c = node_c
        self.governor.actors.advance(end_s - start_s, mode.active)
        if self.schedutil is not None:
            self.schedutil.advance(end_s - start_s, mode.active, mode.hz)

    def scale(self) -> bool:
        """Let a DVFS governor that follows the load look at it; True if what it asks for changed."""
        if self.schedutil is None or self.schedutil.points() == self.base:
            return False
        self.base = self.schedutil.points()
        self._set(self._limited())
        return True

    def _limited(self) -> Points:
        """What DVFS asks for, as far as the thermal governors let it."""
        tops = [len(c.operating_points) - 1 for c in self.clusters.clusters]
        return tuple(min(b, max(top - s, 0)) for b, top, s in zip(self.base, tops, self.governor.states, strict=True))

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
        points = self._limited()
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
        nodes = tuple(n.name for n in self.soc.thermal.nodes)
        queues = tuple(q.name for q in self.table.queues)
        return Labels(nodes, processors, self.clusters.names, queues, self._to_processor)

    def energy(self, columns: Columns) -> Energy:
        """What the run drew."""
        names = [p.name for p in self.soc.processors]
        dynamic = (self._to_processor @ (columns.seconds @ columns.dynamic_w)).tolist()
        static = (self._to_processor @ (columns.seconds @ columns.static_w)).tolist()
        dram, base = float(columns.seconds @ columns.dram_w), self.power.base_w * float(columns.seconds.sum())
        return Energy(dict(zip(names, dynamic, strict=True)), dict(zip(names, static, strict=True)), dram, base)

    def throttling(self, columns: Columns) -> Throttling:
        """What the governor did."""
        names, elapsed = self.clusters.names, float(columns.seconds.sum())
        mean = (columns.seconds @ columns.hz / elapsed).tolist()
        lowest = columns.hz.min(axis=0).tolist()
        return Throttling(
            self.steps, self.first_step_s, float(columns.seconds[columns.throttled].sum()),
            dict(zip(names, lowest, strict=True)), dict(zip(names, mean, strict=True)), tuple(self.tripped),
        )  # fmt: skip

    def by_node(self, node_c: FloatArray) -> dict[str, float]:
        """Temperatures by node; empty without a thermal network."""
        return dict(zip((n.name for n in self.soc.thermal.nodes), node_c.tolist(), strict=True)) if self.thermal else {}
