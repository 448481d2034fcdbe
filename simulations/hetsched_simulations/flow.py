"""Inferences as a flow: one is simulated op by op at constant clocks, and repeats until something changes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

import numpy as np
from simpy import Environment

from hetsched.costs import FloatArray
from hetsched.trace import Span
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.engine import Engine, EventLog
from hetsched_simulations.machine import Host, Intervals, Machine
from hetsched_simulations.workload import Command

SOON_S = 1e-9
"""What is so close is now."""


@dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """The intervals of one inference in which everything is constant: when they end ([k]), and per queue ([k, q]) what holds."""

    end_s: FloatArray
    activity: FloatArray
    effort: FloatArray
    busy: FloatArray
    flow_bytes_s: FloatArray  # [k]
    cached_bytes_s: FloatArray  # [k]

    @classmethod
    def none(cls, queues: int) -> Pieces:
        """Those of nothing."""
        empty = np.zeros((0, queues))
        return cls(np.zeros(0), empty, empty, empty, np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False, slots=True)
class Profile:
    """One inference in one state: seconds, per-queue seconds of activity, effort and being busy, bytes of the DRAM, spans from time 0."""

    latency_s: float
    activity_s: FloatArray
    effort_s: FloatArray
    busy_s: FloatArray
    bytes: float
    log: EventLog
    pieces: Pieces
    progress: tuple[FloatArray, FloatArray] = field(default_factory=lambda: (np.array([0.0, 1.0]), np.array([0.0, 1.0])))
    """Moments, as shares of the latency, and the share of all work that is done by then."""
    cached_bytes: float = 0.0
    """What the system cache serves."""

    @classmethod
    def idle(cls, queues: int) -> Profile:
        """Nothing, for no time."""
        nothing = np.zeros(queues)
        return cls(0.0, nothing, nothing, nothing, 0.0, EventLog((), 0), Pieces.none(queues))

    def means(self, cycle_s: float) -> tuple[FloatArray, FloatArray, FloatArray, float, float]:
        """Activity, effort, being busy per queue ([q]), bytes a second of DRAM and system cache: means over one every ``cycle_s``."""
        moved = self.bytes / cycle_s, self.cached_bytes / cycle_s
        return self.activity_s / cycle_s, self.effort_s / cycle_s, self.busy_s / cycle_s, *moved


def profile(
    bus: Bus, commands: Sequence[Command], rates: Sequence[float], log: EventLog, host: Host, other_bytes_s: float = 0.0,
    idle_s: Sequence[float] = (),
) -> Profile:  # fmt: skip
    """Simulate one inference at constant clocks.

    Args:
        bus: the memory system.
        commands: of the inference.
        rates: of computation, by queue.
        log: is written.
        host: who submits and waits.
        other_bytes_s: what something else asks of the memory.
        idle_s: by queue, since when it has had nothing to do; empty: it was at work until now.
    """
    env = Environment()
    passed: list[Intervals] = []
    machine = Machine(env, bus, rates, passed.append, host, idle_s=idle_s)
    machine.set_other(other_bytes_s)
    full = EventLog(log.queues or ("",) * len(rates), 1)
    engine = Engine(env, machine, commands, full)
    env.run(until=env.process(engine.inference(0)))
    machine.settle()
    latency = float(env.now)
    if not passed:
        return replace(Profile.idle(len(rates)), log=_shown(full, log))
    pieces = Pieces(*(np.concatenate([getattr(p, f.name) for p in passed]) for f in fields(Pieces)))
    seconds = np.diff(pieces.end_s, prepend=0.0)
    return Profile(
        latency, seconds @ pieces.activity, seconds @ pieces.effort, seconds @ pieces.busy, float(seconds @ pieces.flow_bytes_s),
        _shown(full, log), pieces, _progress(full.spans, latency), float(seconds @ pieces.cached_bytes_s),
    )  # fmt: skip


def periodic(
    bus: Bus, commands: Sequence[Command], rates: Sequence[float], log: EventLog, host: Host, other_bytes_s: float, period_s: float | None
) -> Profile:  # fmt: skip
    """The same of one of many: its queues have rested since the last, a period ago."""
    first = profile(bus, commands, rates, EventLog(log.queues, log.iterations, log.op_spans), host, other_bytes_s)
    cycle = cycle_of(first.latency_s, period_s)
    ends = [float(first.pieces.end_s[on].max(initial=0.0)) for on in (first.pieces.busy > 0).T]
    idle = [cycle - end for end in ends]
    if any(rest and rested >= rest[0].after_s.value for rest, rested in zip(bus.idle, idle, strict=True)):
        return profile(bus, commands, rates, log, host, other_bytes_s, idle)
    log.spans += first.log.spans
    log.fences += first.log.fences
    return replace(first, log=log)


def _shown(full: EventLog, log: EventLog) -> EventLog:
    """What ``log`` asks for of all that was recorded."""
    if log.iterations:
        log.spans += [s for s in full.spans if log.op_spans or s.kind in ("wait", "segment")]
        log.fences += full.fences
    return log


def _progress(spans: Sequence[Span], latency_s: float) -> tuple[FloatArray, FloatArray]:
    """The share of the work that is done at every start and end of a piece: its seconds alone, spread over the time that it takes."""
    work = [(s.start_s, s.end_s, s.predicted_s or 0.0) for s in spans if s.kind not in ("wait", "segment") and s.end_s > s.start_s]
    if not work or latency_s <= 0:
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    start, end, weight = np.array(work).T
    times = np.unique(np.concatenate([[0.0], start, end, [latency_s]]))
    slope = np.zeros(len(times))
    np.add.at(slope, np.searchsorted(times, start), weight / (end - start))
    np.add.at(slope, np.searchsorted(times, end), -weight / (end - start))
    # Waits are worth a little, so that a moment within one is found again.
    seconds = np.diff(times)
    done = np.concatenate([[0.0], np.cumsum((np.maximum(np.cumsum(slope)[:-1], 0.0) + 1e-6) * seconds)])
    return times / latency_s, done / done[-1]


def cycle_of(latency_s: float, period_s: float | None) -> float:
    """Seconds from one inference to the next: its latency, or as many periods of arrival as it takes."""
    return latency_s if period_s is None else max(math.ceil(latency_s / period_s - 1e-9), 1) * period_s


def next_arrival(now_s: float, period_s: float) -> float:
    """The next arrival on the grid ``k period_s``; arrivals during an inference are missed."""
    return max(math.ceil(now_s / period_s - 1e-9), 1) * period_s


@dataclass(frozen=True, slots=True)
class Split:
    """A step that begins at ``phase_s`` of an inference: ``first_s`` of that, ``whole`` inferences after it, ``rest_s`` of another."""

    phase_s: float
    first_s: float
    whole: int
    rest_s: float


class State(Protocol):
    """What the flow has to know of a state in which inferences repeat."""

    key: Hashable
    profile: Profile
    latency_s: float
    cycle_s: float
    """From the start of an inference to the next."""

    def share_at(self, phase_s: float) -> float:
        """The share of the work of an inference that is done at ``phase_s`` of it."""
        ...

    def phase_at(self, share: float) -> float:
        """When so much of the work is done."""
        ...

    def after(self, end_s: float) -> float:
        """When the next inference begins, of one that ends at ``end_s``."""
        ...


class Flow:
    """Inferences in progress: where the current one is, when the next begins, finished ones, and which were kept as spans."""

    def __init__(self, log: EventLog, limit: int) -> None:
        self.log, self.limit = log, limit
        self.chunks: list[tuple[float, int, float]] = []
        """(time of the first, how many, latency)"""
        self.count = 0
        self.phase_s = 0.0
        """Position in the current inference or, past its end, in the rest until the next."""
        self.begun_s = 0.0
        self.next_s = 0.0
        """When the next inference begins."""
        self._whole = True
        self._ended_s = -math.inf
        self._shown: set[Hashable] = set()

    def begin(self, now_s: float, state: State) -> None:
        """An inference begins now."""
        self.phase_s, self.begun_s, self.next_s, self._whole = 0.0, now_s, now_s + state.cycle_s, True

    def changed(self, now_s: float, old: State, new: State) -> None:
        """The state changed: the inference in flight goes on where as much of its work is done in the new one."""
        if self.phase_s < old.latency_s - SOON_S:
            self._whole = self.phase_s < SOON_S
            self.phase_s = new.phase_at(old.share_at(self.phase_s))
            self.next_s = new.after(now_s + new.latency_s - self.phase_s)
        else:
            self.phase_s += new.latency_s - old.latency_s

    def split(self, now_s: float, end_s: float, state: State) -> Split:
        """A step from now as parts of inferences."""
        rest = end_s - self.next_s
        if rest <= SOON_S:
            return Split(self.phase_s, end_s - now_s, 0, 0.0)
        whole = math.floor(rest / state.cycle_s + 1e-9)
        rest -= whole * state.cycle_s
        return Split(self.phase_s, self.next_s - now_s, whole, rest if rest > SOON_S else 0.0)

    def advance(self, now_s: float, end_s: float, state: State) -> None:
        """Let the time until ``end_s`` pass."""
        split, latency = self.split(now_s, end_s, state), state.latency_s
        if self.phase_s < latency - SOON_S <= self.phase_s + split.first_s:
            end = now_s + latency - self.phase_s
            self._finished(end, 1, end - self.begun_s, self.begun_s, state)
        self.phase_s += split.first_s
        if end_s < self.next_s - SOON_S:
            return
        start, self._whole = self.next_s, True
        if split.whole:
            self._finished(start + latency, split.whole, latency, start, state)
        self.begun_s = start + split.whole * state.cycle_s
        self.phase_s, self.next_s = split.rest_s, self.begun_s + state.cycle_s
        if split.rest_s >= latency - SOON_S:
            self._finished(self.begun_s + latency, 1, latency, self.begun_s, state)
        elif split.whole:
            self._ended_s = self.begun_s - state.cycle_s + latency

    def _finished(self, first_s: float, count: int, latency_s: float, begun_s: float, state: State) -> None:
        self.chunks.append((first_s, count, latency_s))
        if self._whole:
            self._show(begun_s, state)
        self.count += count
        self._ended_s = first_s

    def until(self, count: int, now_s: float, state: State) -> float:
        """Seconds until ``count`` inferences have finished, at this state's pace."""
        more = count - self.count
        if more > 0 and self.phase_s < state.latency_s - SOON_S:
            if more == 1:
                return state.latency_s - self.phase_s
            more -= 1
        return self.next_s + (more - 1) * state.cycle_s + state.latency_s - now_s if more > 0 else 0.0

    def next_end(self, now_s: float, after_s: float, state: State) -> float:
        """When the first inference that ends at ``after_s`` or later does, at this state's pace; now, if one has just ended."""
        after = max(after_s, now_s)
        if after - self._ended_s <= SOON_S:
            return now_s
        end = now_s + state.latency_s - self.phase_s
        if self.phase_s < state.latency_s - SOON_S and end >= after - SOON_S:
            return end
        first = self.next_s + state.latency_s
        return first + max(math.ceil((after - first) / state.cycle_s - 1e-9), 0) * state.cycle_s

    def cut(self) -> None:
        """Something else follows the inference that has just ended."""
        self._ended_s = -math.inf

    def latencies(self) -> FloatArray:
        """The latency of every finished inference."""
        return np.repeat(np.array([v for _, _, v in self.chunks]), [n for _, n, _ in self.chunks])

    def _show(self, begun_s: float, state: State) -> None:
        if state.key in self._shown or len(self._shown) >= self.limit:
            return
        self._shown.add(state.key)
        it, source = self.count, state.profile.log
        self.log.spans += [
            Span(s.queue, s.kind, s.name, begun_s + s.start_s, begun_s + s.end_s, s.segment, it, s.predicted_s) for s in source.spans
        ]
        self.log.fences += [replace(f, time_s=begun_s + f.time_s, detail=f"iteration {it}") for f in source.fences]
