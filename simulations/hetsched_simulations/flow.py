"""Inferences as a flow: one is simulated op by op at constant clocks, and repeats until something changes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from simpy import Environment

from hetsched.costs import FloatArray
from hetsched.trace import Span
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.engine import Engine, EventLog
from hetsched_simulations.history import Mode
from hetsched_simulations.machine import Host, Machine
from hetsched_simulations.workload import Command


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
class State:
    """A profile as a flow of inferences, one per cycle."""

    key: Hashable
    profile: Profile
    cycle_s: float
    mode: Mode


def cycle_of(latency_s: float, period_s: float | None) -> float:
    """Seconds from one inference to the next: its latency, or as many periods of arrival as it takes."""
    return latency_s if period_s is None else max(math.ceil(latency_s / period_s - 1e-9), 1) * period_s


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
        self._ended = False
        """Whether what passed last was an inference, to its end."""
        self._shown: set[Hashable] = set()

    def changed(self) -> None:
        """The state changed: an inference in flight belongs to no single one."""
        self._whole = self._fraction < 1e-9

    def until(self, count: int, cycle_s: float) -> float:
        """Seconds until ``count`` inferences have finished, at this state's pace."""
        return (count - self.count - self._fraction) * cycle_s

    def advance(self, now_s: float, dt_s: float, state: State) -> None:
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
            self._show(begun, 0, state)
            first = latency
        elif n > 1:
            self._show(begun + state.cycle_s, 1, state)
        self.chunks.append((begun + state.cycle_s - idle, 1, first))
        if n > 1:
            self.chunks.append((begun + 2 * state.cycle_s - idle, n - 1, latency))
        self.count += n
        self._fraction = max(reached - n, 0.0)
        self._latency_s = self._fraction * latency
        self._whole = self._ended = True

    def next_end(self, now_s: float, after_s: float, state: State) -> float:
        """When the first inference that ends at ``after_s`` or later does, at this state's pace."""
        idle = state.cycle_s - state.profile.latency_s
        ahead = math.ceil((max(after_s, now_s) - now_s + idle) / state.cycle_s + self._fraction - 1e-9)
        return now_s + (max(ahead, 0 if self._ended else 1) - self._fraction) * state.cycle_s - idle

    def cut(self, now_s: float, state: State) -> None:
        """Something else follows the inference that has just ended, so that none is in flight."""
        if self._fraction > 1e-8:
            latency = self._latency_s + (1.0 - self._fraction) * state.profile.latency_s
            if self._whole:
                self._show(now_s - latency, 0, state)
            self.chunks.append((now_s, 1, latency))
            self.count += 1
        self._fraction, self._latency_s, self._whole, self._ended = 0.0, 0.0, True, False

    def latencies(self) -> FloatArray:
        """The latency of every finished inference."""
        return np.repeat(np.array([v for _, _, v in self.chunks]), [n for _, n, _ in self.chunks])

    def _show(self, begun: float, ahead: int, state: State) -> None:
        if state.key in self._shown or len(self._shown) >= self.limit:
            return
        self._shown.add(state.key)
        it, source = self.count + ahead, state.profile.log
        self.log.spans += [
            Span(s.queue, s.kind, s.name, begun + s.start_s, begun + s.end_s, s.segment, it, s.predicted_s) for s in source.spans
        ]
        self.log.fences += [replace(f, time_s=begun + f.time_s, detail=f"iteration {it}") for f in source.fences]
