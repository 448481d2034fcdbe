"""The multi-rate path: one inference op by op per distinct operating state, only the thermal loop in between.

In one state every inference takes the same time and draws the same mean power, so inferences become a flow: they
progress at ``1 / cycle`` and an inference during which a clock changes goes on at the new state's rate, as it does in the
full path. Steps end at every poll that can matter, and after :data:`MAX_STEP_S` at the latest. A zone below its lowest trip
with nothing to undo is not polled; when a step would carry it over the trip, the step is taken again poll by poll.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from simpy import Environment

from hetsched.costs import FloatArray
from hetsched.trace import Span
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.clocks import Points
from hetsched_simulations.device import Device
from hetsched_simulations.engine import Engine, EventLog
from hetsched_simulations.governors import Zone
from hetsched_simulations.history import Mode
from hetsched_simulations.machine import Host, Machine
from hetsched_simulations.workload import Command

MAX_STEP_S = 0.05
"""Longest step of the thermal loop, for runs up to half an hour: leakage is evaluated at its start."""
MAX_STEPS = 40_000
"""Longer runs take this many steps without polls."""


@dataclass(frozen=True, eq=False, slots=True)
class Profile:
    """One inference in one state: seconds, per-queue seconds of activity, of effort and of being busy, bytes, spans from time 0."""

    latency_s: float
    activity_s: FloatArray
    effort_s: FloatArray
    busy_s: FloatArray
    bytes: float
    log: EventLog


def profile(bus: Bus, commands: Sequence[Command], rates: Sequence[float], log: EventLog, host: Host) -> Profile:
    """Simulate one inference at constant clocks."""
    env = Environment()
    activity, effort, busy = (np.zeros(len(rates)) for _ in range(3))
    moved = 0.0

    def observe(a: float, b: float) -> None:
        nonlocal moved
        for q, on in enumerate(machine.busy):
            activity[q] += machine.activity[q] * (b - a)
            effort[q] += machine.effort[q] * (b - a)
            if on:
                busy[q] += b - a
                moved += machine.flow_bytes_s[q] * (b - a)

    machine = Machine(env, bus, rates, observe, host)
    engine = Engine(env, machine, commands, log)
    env.run(until=env.process(engine.inference(0)))
    machine.settle()
    return Profile(float(env.now), activity, effort, busy, moved, log)


@dataclass(frozen=True, eq=False, slots=True)
class _State:
    """A profile as a flow of inferences, one per cycle."""

    profile: Profile
    cycle_s: float
    mode: Mode


class Flow:
    """Inferences in progress: finished ones, how far the current one is, and which were kept as spans."""

    def __init__(self, log: EventLog, limit: int) -> None:
        self.log, self.limit = log, limit
        self.chunks: list[tuple[float, int, float]] = []
        """(time of the first, how many, latency)"""
        self.count = 0
        self._fraction = 0.0
        self._latency_s = 0.0
        self._whole = True
        self._shown: set[Points] = set()

    def changed(self) -> None:
        """The state changed: an inference in flight belongs to no single one."""
        self._whole = self._fraction < 1e-9

    def until(self, count: int, cycle_s: float) -> float:
        """Seconds until ``count`` inferences have finished, at this state's pace."""
        return (count - self.count - self._fraction) * cycle_s

    def advance(self, now_s: float, dt_s: float, state: _State, points: Points) -> None:
        """Let ``dt_s`` pass."""
        reached = self._fraction + dt_s / state.cycle_s
        n = math.floor(reached + 1e-9)
        if n == 0:
            self._latency_s += (reached - self._fraction) * state.profile.latency_s
            self._fraction = reached
            return
        latency = state.profile.latency_s
        begun = now_s - self._fraction * state.cycle_s
        idle = state.cycle_s - latency
        first = self._latency_s + (1.0 - self._fraction) * latency
        if self._whole:
            self._show(begun, 0, state, points)
            first = latency
        elif n > 1:
            self._show(begun + state.cycle_s, 1, state, points)
        self.chunks.append((begun + state.cycle_s - idle, 1, first))
        if n > 1:
            self.chunks.append((begun + 2 * state.cycle_s - idle, n - 1, latency))
        self.count += n
        self._fraction = max(reached - n, 0.0)
        self._latency_s = self._fraction * latency
        self._whole = True

    def latencies(self) -> FloatArray:
        """The latency of every finished inference."""
        return np.repeat(np.array([v for _, _, v in self.chunks]), [n for _, n, _ in self.chunks])

    def _show(self, begun: float, ahead: int, state: _State, points: Points) -> None:
        if points in self._shown or len(self._shown) >= self.limit:
            return
        self._shown.add(points)
        it, source = self.count + ahead, state.profile.log
        self.log.spans += [
            Span(s.queue, s.kind, s.name, begun + s.start_s, begun + s.end_s, s.segment, it, s.predicted_s) for s in source.spans
        ]
        self.log.fences += [replace(f, time_s=begun + f.time_s, detail=f"iteration {it}") for f in source.fences]


class MultiRate:
    """A long run of one plan on one device."""

    def __init__(self, device: Device, bus: Bus, commands: Sequence[Command], log: EventLog, period_s: float | None) -> None:
        self.device, self.bus, self.commands, self.period_s = device, bus, tuple(commands), period_s
        self.flow = Flow(log, log.iterations)
        self._profiles: dict[tuple[float, ...], Profile] = {}
        self._states: dict[Points, _State] = {}

    @property
    def states(self) -> int:
        """Distinct states simulated op by op."""
        return len(self._profiles)

    def run(self, duration_s: float | None, iterations: int, progress: Callable[[float], None] | None) -> None:
        """Run to the end."""
        now, state = 0.0, self._state()
        polls: dict[int, float] = {}
        reported, longest = 0.0, max(MAX_STEP_S, (duration_s or 0.0) / MAX_STEPS)
        while True:
            left = self.flow.until(iterations, state.cycle_s) if duration_s is None else duration_s - now
            if left <= 1e-12:
                break
            end = min([now + min(left, longest), *polls.values()])
            preview = self.device.preview(state.mode, end - now, grid=True)
            if self._wake(polls, preview[0], now, end):
                continue
            self.device.advance(now, end, state.mode, preview)
            self.flow.advance(now, end - now, state, self.device.points)
            now = end
            if self._poll(polls, now):
                state = self._state()
                self.flow.changed()
            done = now / duration_s if duration_s else self.flow.count / iterations
            if progress is not None and done >= reported + 0.01:
                reported = done
                progress(min(done, 1.0))

    def _wake(self, polls: dict[int, float], node_c: FloatArray, now: float, end: float) -> bool:
        """Start polling the quiet zones that this step would carry over a trip; True if one is due within the step."""
        again = False
        for i, zone in enumerate(self.device.zones):
            if i not in polls and round(1000 * float(node_c[zone.node])) >= zone.lowest_mc:
                polls[i] = zone.next_poll(now)
                zone.last_mc = round(1000 * float(self.device.node_c[zone.node]))
                self._first_poll(zone)
                again = again or polls[i] < end - 1e-12
        return again

    def _first_poll(self, zone: Zone) -> None:
        """Do what the skipped polls below the trip would have done: initialise the instances, with no target."""
        if zone.last_mc is not None and zone.last_mc < zone.lowest_mc:
            for trip in zone.trips:
                for instance in trip.instances:
                    instance.initialised = True

    def _poll(self, polls: dict[int, float], now: float) -> bool:
        changed = False
        for i in sorted(polls):
            if polls[i] <= now + 1e-12:
                zone = self.device.zones[i]
                changed = self.device.poll(zone, now) or changed
                polls[i] = zone.next_poll(now)
                if zone.quiet:
                    del polls[i]
        return changed

    def _state(self) -> _State:
        points, rates = self.device.points, self.device.rates
        if points not in self._states:
            if rates not in self._profiles:
                log = EventLog(self.flow.log.queues, 1, self.flow.log.op_spans)
                self._profiles[rates] = profile(self.bus, self.commands, rates, log, self.device.host)
            p = self._profiles[rates]
            cycle = p.latency_s if self.period_s is None else max(math.ceil(p.latency_s / self.period_s - 1e-9), 1) * self.period_s
            mode = self.device.mode(p.activity_s / cycle, p.effort_s / cycle, p.busy_s / cycle, p.bytes / cycle)
            self._states[points] = _State(p, cycle, mode)
        return self._states[points]
