"""What streams do in one state of the clocks, and a part of a chat beside them: one period of their pattern, op by op.

The part repeats back to back meanwhile, so that what a token takes is a mean over all moments at which the streams' inputs arrive. A
prompt comes once: what it takes is the mean of some that begin at moments of their own, each on a phone that has had the streams alone.
It repeats at that pace, and wakes up what would have rested, so that all that one does is counted once.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from math import ceil, lcm
from typing import Any

import numpy as np
from simpy import Environment
from simpy.events import Event

from hetsched.costs import FloatArray
from hetsched.trace import Trace
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.device import Device
from hetsched_simulations.flow import SOON_S
from hetsched_simulations.history import Mode
from hetsched_simulations.jobs import Part
from hetsched_simulations.machine import Intervals, Machine, Observer
from hetsched_simulations.streams import SharedQueues, Stream, StreamOutcome, Talk, arrive, repeat
from hetsched_simulations.workload import Command

FEWEST, MOST, PERIODS = 50, 200, 20
"""A pattern is looked at for as many repetitions as make so many inferences, and one that does not repeat within so many
inferences of all streams, or periods of the slowest, is taken to be that long."""
SLOWEST = 64
"""A part that takes more than so many times as long as alone has starved."""
STARTS = 8
"""Prompts that a mean is of."""
COMPILED_FROM = 5000
"""Pieces of work in a pattern from which on it is worth it to load the compiled machine: there will be more patterns."""
STARVED_S = 1e9
"""What a repetition of such a part takes: longer than any run."""
Cores = Sequence[Collection[int]]


@dataclass(frozen=True, eq=False, slots=True)
class Pattern:
    """One period: means per queue ([q]) and of bytes a second, what became of the streams, what a repetition of the part takes."""

    seconds: float
    activity: FloatArray
    effort: FloatArray
    busy: FloatArray
    flow_bytes_s: float
    cached_bytes_s: float
    outcomes: tuple[StreamOutcome, ...]
    trace: Trace
    each_s: float
    """Infinite: there is no part."""

    @property
    def on_time_s(self) -> float:
        """Seconds an inference of any stream that is done in time; repetitions of the part count as such."""
        return 1.0 / max(sum(len(o.latencies_s) - o.late for o in self.outcomes) / self.seconds + 1.0 / self.each_s, 1e-3 / self.seconds)

    def mode(self, device: Device) -> Mode:
        """What holds on average, at the clocks of the device."""
        return device.mode(self.activity, self.effort, self.busy, self.flow_bytes_s, self.cached_bytes_s)


@dataclass(slots=True)
class _Meter:
    """Sums over a while: queues' activity, effort and being busy in seconds, and bytes of the DRAM and of the system cache."""

    sums: FloatArray
    moved: float = field(default=0.0)
    cached: float = field(default=0.0)

    def __call__(self, passed: Intervals) -> None:
        self.sums = self.sums + np.stack([passed.seconds @ v for v in (passed.activity, passed.effort, passed.busy)])
        self.moved += float(passed.seconds @ passed.flow_bytes_s)
        self.cached += float(passed.seconds @ passed.cached_bytes_s)


class Patterns:
    """Those of all levels on one device, each simulated once."""

    def __init__(self, device: Device, bus: Bus, streams: Mapping[int, Sequence[Stream]], cores: Cores, talk: Talk | None = None) -> None:
        """``streams`` by level."""
        self.device, self.bus, self.streams, self.cores, self.talk = device, bus, streams, cores, talk
        self.found: dict[Hashable, Pattern] = {}
        self._modes: dict[Hashable, Mode] = {}

    def now(self, level: int, part: Part | None = None) -> Pattern:
        """At the clocks of now."""
        return self.at(level, part, self.device.rates)

    def mode(self, level: int, part: Part | None = None) -> Mode:
        """What holds on average at the clocks of now."""
        key = (level, part, self.device.state)
        if key not in self._modes:
            self._modes[key] = self.now(level, part).mode(self.device)
        return self._modes[key]

    def at(self, level: int, part: Part | None, rates: Sequence[float]) -> Pattern:
        """At these rates of the queues, of which only those count that have work."""
        rested_s, commands = (0.0, ()) if part is None else (part.rested_s, self._commands(level, part))
        used = sorted({c.queue for c in (*commands, *(c for s in self.streams[level] for c in s.commands))})
        key = (level, part, self.device.other_bytes_s, tuple(rates[q] for q in used))
        if key not in self.found:
            once = part is not None and part.phase == "prefill"
            self.found[key] = self._simulated(self.streams[level], commands, rates, rested_s + SOON_S if once else None)
        return self.found[key]

    def _commands(self, level: int, part: Part) -> tuple[Command, ...]:
        assert self.talk is not None
        return self.talk.jobs.parts(level, part._replace(rested_s=0.0))

    def _simulated(
        self, streams: Sequence[Stream], commands: tuple[Command, ...], rates: Sequence[float], rested_s: float | None
    ) -> Pattern:
        """``rested_s``: of what comes once, how long its queues have rested unless the streams use them."""
        once = rested_s is not None
        expected_s = self._pace(streams, commands, rates, rested_s) if commands else STARVED_S
        period = period_of(streams, None if expected_s == STARVED_S else expected_s)
        meter = _Meter(np.zeros((3, len(rates))))
        env, queues = self._mounted(streams, rates, meter, _pieces(streams, commands, period, expected_s) > COMPILED_FROM)
        outcomes, arrivals = arrive(queues, 2 * period, period)
        ends: list[float] = []
        if commands:
            every_s = expected_s if once and expected_s < STARVED_S else 0.0
            env.process(repeat(queues, len(streams), commands, ends, 2 * period, every_s=every_s, rested_s=rested_s or 0.0))
        env.run(until=period)
        queues.machine.settle()
        sums, moved, cached = meter.sums, meter.moved, meter.cached
        env.run(until=2 * period)
        queues.machine.settle()
        activity, effort, busy = (meter.sums - sums) / period
        moved, cached = (meter.moved - moved) / period, (meter.cached - cached) / period
        env.run(until=env.all_of(arrivals))
        inside = [t for t in ends if period * (1 - 1e-9) <= t <= 2 * period * (1 + 1e-9)]
        each = (inside[-1] - inside[0]) / (len(inside) - 1) if len(inside) > 1 and not once else expected_s
        return Pattern(period, activity, effort, busy, moved, cached, outcomes, queues.trace, each if commands else np.inf)

    def _pace(self, streams: Sequence[Stream], commands: tuple[Command, ...], rates: Sequence[float], rested_s: float | None) -> float:
        """About what a repetition takes beside the streams: the mean of two back to back or, of what comes once, of some starts."""
        alone, begins_s, ends_s = sum(c.seconds for c in commands) / min(rates), list[float](), list[float]()
        grid_s = max((s.period_s for s in streams), default=0.0)
        shots = STARTS if rested_s is not None and streams else 2
        work = _pieces(streams, commands, shots * (alone + 2 * grid_s) / 2, alone)
        env, queues = self._mounted(streams, rates, lambda passed: None, work > COMPILED_FROM)

        def starts() -> Generator[Event, Any, None]:
            for k in range(shots):
                if rested_s is not None:
                    yield env.timeout(rested_s)
                    whole = ceil(float(env.now) / grid_s) + 1 if streams else 0
                    yield env.timeout(max(grid_s * (whole + (k + 0.5) / STARTS) - float(env.now), 0.0))
                begins_s.append(float(env.now))
                yield queues.submit(len(streams), k, commands).wait()
                ends_s.append(float(env.now))

        most = STARTS * (SLOWEST * alone + 3 * grid_s + (rested_s or 0.0))
        arrive(queues, most)
        env.run(until=env.any_of([env.process(starts()), env.timeout(most)]))
        return sum(e - b for b, e in zip(begins_s, ends_s, strict=False)) / len(ends_s) if len(ends_s) > 1 else STARVED_S

    def _mounted(
        self, streams: Sequence[Stream], rates: Sequence[float], observer: Observer, compiled: bool
    ) -> tuple[Environment, SharedQueues]:
        env = Environment()
        machine = Machine(env, self.bus, rates, observer, self.device.host, compiled)
        machine.set_other(self.device.other_bytes_s)
        trace = Trace("simulated", "", "", tuple(q.name for q in self.device.table.lanes))
        return env, SharedQueues(env, machine, [*streams, *([] if self.talk is None else [self.talk])], trace, self.cores)


def _pieces(streams: Sequence[Stream], commands: tuple[Command, ...], period_s: float, each_s: float) -> float:
    """About how many pieces of work are simulated in two periods."""
    loops = [(s.commands, s.period_s) for s in streams] + [(commands, each_s)]
    return sum(2 * period_s / every_s * sum(len(c.work) for c in made) for made, every_s in loops)


def period_of(streams: Sequence[Stream], each_s: float | None = None) -> float:
    """Seconds after which the arrivals of all streams have repeated often enough, or an approximation that is not too long.

    ``each_s``: what repeats beside them takes about so long.
    """
    periods = [s.period_s for s in streams] + ([] if each_s is None else [each_s])
    if not periods:
        return 1.0
    slowest, rate = max(periods), sum(1.0 / p for p in periods)
    arriving = (Fraction(s.period_s).limit_denominator(100_000) for s in streams)
    whole = float(reduce(_common, arriving)) if streams else slowest
    least = slowest if each_s is None else max(slowest, 2 * each_s)
    often = max(ceil(FEWEST / (rate * whole)), ceil(least / whole - 1e-9), 1)
    return min(often * whole, PERIODS * slowest, max(MOST / rate, least))


def _common(a: Fraction, b: Fraction) -> Fraction:
    """The least time that both divide."""
    return Fraction(lcm(a.numerator * b.denominator, b.numerator * a.denominator), a.denominator * b.denominator)
