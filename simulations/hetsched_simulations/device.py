"""The physical side of a run, shared by the full and the multi-rate path: temperatures, energy meters, clocks, governor."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hetsched.costs import DMA, CostTable, FloatArray, Queue
from hetsched.errors import SoCError
from hetsched.socs import SoC
from hetsched_simulations.battery import stored
from hetsched_simulations.clocks import Clusters, Points
from hetsched_simulations.conditions import Conditions
from hetsched_simulations.governors import Governors
from hetsched_simulations.history import History, Labels, Mode, Other
from hetsched_simulations.instants import Instants
from hetsched_simulations.machine import Host
from hetsched_simulations.power import Power, entry
from hetsched_simulations.schedutil import Schedutil
from hetsched_simulations.sensors import Sampling
from hetsched_simulations.supply import Supply
from hetsched_simulations.surroundings import Surroundings
from hetsched_simulations.thermal import Network, initial_temperatures
from hetsched_simulations.zones import Zone

RUNAWAY_C = 1000.0
"""No phone is hotter; a thermal network that gets there is wrong, and leakage would soon be infinite."""


class Device:
    """A SoC that runs one plan: call :meth:`advance` for every interval, :meth:`poll` when a zone is due."""

    def __init__(self, soc: SoC, table: CostTable, conditions: Conditions) -> None:
        self.soc, self.table = soc, table
        self.clusters = Clusters.of(soc, table.lanes)
        self.power = Power.of(soc, self.clusters, conditions.loads_w)
        self.host = Host(table.host, max(self.power.queue_w(table.host), 1e-9))
        self.dma_w = 0.0 if table.dma is None else table.dma.active_w
        """What the DMA engine draws while it copies."""
        self.dma_heat = entry(soc, DMA)
        """[n] the share of it that enters each node."""
        self.history = History()
        self.instants = Instants()
        self._surround(conditions)
        self._govern(conditions)
        self._cluster_heat = self.power.heat[:, : len(self.base)].copy()
        self.to_processor = np.zeros((len(soc.processors), len(self.base)))
        self.to_processor[list(self.clusters.processor), range(len(self.base))] = 1.0
        self.background = conditions.background
        self._running = True
        self._toggles = iter(()) if self.background is None else self.background.toggles()
        self.next_toggle_s = next(self._toggles, math.inf)
        """When the background load stops or starts again."""
        self.taken = np.zeros(len(self.base)) if self.background is None else self.background.of_clusters(soc, self.clusters)
        """[c] the share of each cluster that the background load takes now."""
        self._set(self.base)

    def _surround(self, conditions: Conditions) -> None:
        """Temperatures, and what feeds the device."""
        thermal = self.soc.thermal
        self.thermal = conditions.thermal and bool(thermal.nodes)
        around = conditions.surroundings or Surroundings(ambient_c=conditions.ambient_c, seen_c=conditions.ambient_c)
        self.surroundings = around
        self.network = Network.of(thermal, around.seen_c, around.cooling) if self.thermal else None
        self.initial_c = initial_temperatures(thermal, around.seen_c, conditions.initial_c)
        self.node_c = self.initial_c
        self.peak_c, self.peak_s = self.initial_c.copy(), np.zeros(len(self.initial_c))
        self.sampling = Sampling.of(thermal)
        store = stored(self.soc, conditions.battery, conditions.charging_w)
        self.supply = None if store is None else Supply(self.soc, store)

    def _govern(self, conditions: Conditions) -> None:
        """Governors of clocks and heat."""
        self.governor = Governors.of(self.soc, self.clusters.processor, self.power.state_mw())
        if self.supply is not None and self.supply.zone is not None:
            self.governor.zones.append(self.supply.zone)
        self.zones: list[Zone] = self.governor.zones if self.thermal else []
        dvfs = conditions.governor or self.soc.governor
        self.base: Points = self.clusters.base(dvfs)
        self.schedutil = Schedutil(self.clusters.clusters) if dvfs == "schedutil" else None
        self._noted_hz: FloatArray | None = None
        self.steps = 0
        self.first_step_s: float | None = None
        self.tripped: list[str] = []

    def _set(self, points: Points) -> None:
        self.points = points
        self.dynamic_w = self.power.dynamic_w(points)
        self.leakage_25_w = self.power.leakage_25_w(points)
        self.hz = self.clusters.hz(points)
        self.rates = self.rates_at(points)
        self.asked_hz = self.clusters.hz(self.base)
        most = self.clusters.share.max(axis=0)
        self._owned = np.where(most > 0, most, 1.0)
        self.other = None
        if self.background is not None:
            self.other = Other(self.dynamic_w * self.taken, self.leakage_25_w * self.taken, self.other_bytes_s * self.power.j_per_byte)
        self.note_clocks(self.hz)

    def rates_at(self, points: Points) -> tuple[float, ...]:
        """[q] rates of computation at operating points, as far as the background load leaves them."""
        left = (1.0 - self.clusters.weight @ self.taken).tolist()
        return tuple(r * share for r, share in zip(self.clusters.rates(points), left, strict=True))

    def note_clocks(self, hz: FloatArray) -> None:
        """Tell the thermal governors what the clusters ([c]) run at."""
        if hz is self._noted_hz:
            return
        self._noted_hz = hz
        self.governor.actors.at = [
            max(sum(p.hz >= f for p in c.operating_points) - 1, 0) for c, f in zip(self.clusters.clusters, hz.tolist(), strict=True)
        ]

    def hold(self, clocks: Mapping[str, float], queues: Sequence[Queue] | None = None) -> None:
        """Hold processors at fractions of their top clocks, as a plan for a throttle level asks; the others are free.

        ``queues``: with the cores that the plan uses; None: those of the device's table.
        """
        used = Clusters.of(self.soc, queues or self.table.lanes)
        self.clusters = used.held(clocks, [p.name for p in self.soc.processors])
        self.power = replace(self.power, clusters=self.clusters)
        self.host = Host(self.table.host, max(self.power.queue_w(self.table.host), 1e-9))
        self._set(self.points)

    def heat_w(self, mode: Mode) -> FloatArray:
        """[n] what enters each node in this mode at the present temperatures."""
        return mode.heat_w + self._cluster_heat @ self.power.static_w(mode.leakage_25_w, self.node_c, mode.active)

    def heat_j(self, first: int) -> tuple[float, FloatArray]:
        """Seconds and joules that entered each node ([n]) since interval ``first`` of the history."""
        seconds, joules = self.history.heat_j(first, self._cluster_heat)
        if self.supply is not None:
            joules = joules + self.supply.heat_j(first, np.diff(np.append(self.history.start_s[first:], self.history.end_s)))
        return seconds, joules

    def mode(
        self, activity: Sequence[float] | FloatArray, effort: Sequence[float] | FloatArray, busy: Sequence[float] | FloatArray,
        flow_bytes_s: float, cached_bytes_s: float = 0.0,
    ) -> Mode:  # fmt: skip
        """What holds at the present clocks while queues have this activity, effort and are busy ([q]) and move this much together.

        What moves is from and to the DRAM, and what the system cache serves.
        """
        active, worked = self.loaded(np.asarray(activity), np.asarray(effort))
        dynamic, flow_bytes_s = self.dynamic_w * worked, flow_bytes_s + self.other_bytes_s
        dram = flow_bytes_s * self.power.j_per_byte
        heat = self.power.heat[:, :-1] @ np.append(dynamic, dram) + self.power.rest_heat_w
        leakage, busy = self.leakage_25_w * active, np.array(busy)
        if self.dma_w:
            heat = heat + self.copying_w(busy) * self.dma_heat
        return Mode(dynamic, active, leakage, flow_bytes_s, dram, busy, self.hz, self.throttled, heat, cached_bytes_s, self.other)

    def copying_w(self, busy: FloatArray) -> FloatArray:
        """[...] what the DMA engine draws while queues are busy for these shares of the time ([..., q]); zero without one."""
        return self.dma_w * np.asarray(busy[..., -1])

    def loaded(self, activity: FloatArray, effort: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[..., c] activity and effort of clusters whose queues have these ([..., q]), with the background load."""
        left, share = 1.0 - self.taken, self.clusters.share
        return activity @ share * left + self.taken, effort @ share * left + self.taken

    def busiest(self, active: FloatArray) -> FloatArray:
        """[c] activity of the busiest core of clusters of which these shares are at work.

        Cores of a queue work alike, and another app takes as much of every core. Queues with parts of one cluster count as if they
        worked at once.
        """
        return np.asarray(np.minimum((active - self.taken) / self._owned + self.taken, 1.0))

    @property
    def other_bytes_s(self) -> float:
        """What the background load asks of the memory now."""
        return 0.0 if self.background is None or not self._running else self.background.dram

    @property
    def state(self) -> tuple[Points, bool, bool]:
        """What decides how an inference runs and counts: operating points, whether the background load does, and heat holds clocks down."""
        return self.points, self._running, self.throttled

    def share_with(self, other: Device) -> None:
        """Have the background load of another device as it is now, for ever."""
        self.background, self._running, self.taken = other.background, other._running, other.taken
        self._toggles, self.next_toggle_s = iter(()), math.inf
        self._set(self.points)

    def toggle(self) -> None:
        """Let the background load stop or start again."""
        assert self.background is not None
        self._running = not self._running
        self.taken = self.background.of_clusters(self.soc, self.clusters) * self._running
        self.next_toggle_s = next(self._toggles, math.inf)
        self._set(self.points)

    @property
    def throttled(self) -> bool:
        """Whether any cluster runs below what DVFS asks for."""
        return bool((self.hz < self.asked_hz).any())

    @property
    def base_heat_w(self) -> FloatArray:
        """[n] what enters each node whatever the processors do."""
        return self.power.rest_heat_w

    def preview(self, mode: Mode, dt_s: float, grid: bool, leaking_c: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Temperatures after ``dt_s`` and static power, changing nothing.

        ``grid``: the step length recurs. ``leaking_c``: temperatures that leakage goes by; None: those of now.
        """
        static = self.power.static_w(mode.leakage_25_w, self.node_c if leaking_c is None else leaking_c, mode.active)
        if self.network is None:
            return self.node_c, static
        step = self.network.grid_step if grid else self.network.step
        return step(self.node_c, mode.heat_w + self._cluster_heat @ static, dt_s), static

    def advance(self, start_s: float, end_s: float, mode: Mode, previewed: tuple[FloatArray, FloatArray] | None = None) -> None:
        """Let an interval pass, or as much of it as the battery lasts."""
        if self.off:
            return
        node_c, static = previewed or self.preview(mode, end_s - start_s, grid=False)
        if self.supply is not None:
            drawn_w = float(mode.dynamic_w.sum() + static.sum() + self.copying_w(mode.busy)) + mode.dram_w + self.power.rest_w
            end_s, node_c = self.supply.feed(drawn_w, start_s, end_s, (self.node_c, node_c), self.network)
        self.passed(np.array([start_s]), np.array([end_s]), [mode], np.array([self.node_c, node_c]), static[None])

    def passed(self, start_s: FloatArray, end_s: FloatArray, modes: Sequence[Mode], node_c: FloatArray, static_w: FloatArray) -> None:
        """Note intervals ([k]) with what held, the temperatures at their starts and after the last ([k + 1, n]), static power ([k, c])."""
        if not float(np.max(node_c)) < RUNAWAY_C:
            hottest = self.labels.nodes[int(np.argmax(node_c.max(axis=0)))] if self.thermal else "device"
            raise SoCError(
                f"the thermal node {hottest!r} of {self.soc.id} runs away, beyond {RUNAWAY_C:g} °C after {float(end_s[-1]):.3g} s: "
                "check the capacities, resistances and watts of its file"
            )
        for k, mode in enumerate(modes):
            start, end = float(start_s[k]), float(end_s[k])
            self.history.add(start, end, mode, node_c[k], static_w[k])
            self.governor.actors.advance(end - start, mode.active)
            if self.schedutil is not None:
                self.schedutil.advance(end - start, self.busiest(mode.active), mode.hz)
        self.node_c = node_c[-1]
        self.saw(node_c[1:].max(axis=0), end_s[node_c[1:].argmax(axis=0)])

    @property
    def off(self) -> bool:
        """Whether the battery is empty: nothing happens any more."""
        return self.off_s < math.inf

    @property
    def off_s(self) -> float:
        """When the battery was empty; infinite: it is not."""
        return math.inf if self.supply is None or self.supply.empty_s is None else self.supply.empty_s

    def saw(self, node_c: FloatArray, time_s: FloatArray) -> None:
        """Take note of temperatures ([n]) that nodes had within an interval, each at its time."""
        hotter = node_c > self.peak_c
        self.peak_c, self.peak_s = np.where(hotter, node_c, self.peak_c), np.where(hotter, time_s, self.peak_s)

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
        charging = None if self.supply is None else self.supply.zone
        for e in self.governor.poll(zone, max(self.reading(p, now_s) for p in zone.points)):
            if e.fired and zone is not charging and e.zone not in self.tripped:
                self.tripped.append(e.zone)
            verb = "fired" if e.fired else "cleared"
            self.instants.note("trip", e.zone, now_s, f"{e.trip_c:g} °C trip {verb} at {e.temperature_c:.2f} °C")
        if self.supply is not None:
            self.supply.polled()
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

    def reading(self, point: int, now_s: float) -> float:
        """What whoever asks is told of a node or a sensor: its temperature when it was last sampled."""
        sampled_s = self.sampling.last(point, now_s)
        if sampled_s >= now_s:
            return self.sampling.shown(point, float(self.node_c[point]))
        k = bisect_right(self.history.start_s, sampled_s) - 1
        times = [*self.history.start_s[k:], now_s]
        seen_c = np.interp(sampled_s, times[:2], [n[point] for n in (*self.history.node_c[k:], self.node_c)][:2])
        return self.sampling.shown(point, float(seen_c))

    def _step(self, cluster: int, a: int, b: int, now_s: float) -> None:
        self.steps += 1
        self.first_step_s = now_s if self.first_step_s is None else self.first_step_s
        levels = self.clusters.clusters[cluster].operating_points
        change = f"{levels[a].hz / 1e6:.0f} -> {levels[b].hz / 1e6:.0f} MHz"
        self.instants.note("throttle", self.clusters.names[cluster], now_s, change)

    @property
    def labels(self) -> Labels:
        """Names for the counters."""
        processors = tuple(p.name for p in self.soc.processors)
        queues = tuple(q.name for q in self.table.lanes)
        nodes, clusters, to = self.soc.thermal.points, self.clusters.names, self.to_processor
        return Labels(nodes, processors, clusters, queues, to, self.power.loads_w, self.table.cache_bytes_s, self.dma_w)

    def by_node(self, node_c: FloatArray) -> dict[str, float]:
        """Temperatures by node; empty without a thermal network."""
        return dict(zip(self.soc.thermal.points, node_c.tolist(), strict=True)) if self.thermal else {}
