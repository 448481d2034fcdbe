"""Several models at once for minutes, with heat: streams under clocks that the governor changes.

On the multi-rate path the streams are simulated op by op for one period of their pattern in every state of the clocks, after another
period in which it settles. Between changes of clocks their outcomes and their power are a flow with that pattern's means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from math import ceil, floor, lcm
from typing import Literal

import numpy as np
from simpy import Environment

from hetsched.costs import CostTable
from hetsched.errors import OptionError
from hetsched.policies import Level
from hetsched.socs import SoC
from hetsched.trace import Trace
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.conditions import Conditions
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.flow import SOON_S, profile
from hetsched_simulations.full import mounted
from hetsched_simulations.history import Mode
from hetsched_simulations.machine import Intervals, Machine
from hetsched_simulations.result import Simulation
from hetsched_simulations.simulation import result_of
from hetsched_simulations.streams import Stream, StreamOutcome, submit
from hetsched_simulations.switching import WORKING, LevelPlan, Levels, Switching
from hetsched_simulations.thermal_loop import ThermalLoop

FEWEST, MOST, PERIODS = 50, 200, 20
"""A pattern is looked at for as many repetitions as make so many inferences, and one that does not repeat within so many
inferences of all streams, or periods of the slowest, is taken to be that long."""
_Cores = Sequence[Collection[int]]
FULL_LIMIT = 600
"""``auto`` takes the full path up to this many inferences."""


@dataclass(frozen=True, eq=False, slots=True)
class SharedSimulation:
    """A shared run: its trace, heat and energy (``device``; latencies are those of the first stream), and an outcome a stream."""

    device: Simulation
    streams: tuple[StreamOutcome, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Pattern:
    """One period of the streams' pattern: what holds on average, and what became of them."""

    seconds: float
    mode: Mode
    outcomes: tuple[StreamOutcome, ...]
    trace: Trace

    @property
    def on_time_s(self) -> float:
        """Seconds an inference of any stream that is done in time."""
        return self.seconds / max(sum(len(o.latencies_s) - o.late for o in self.outcomes), 1e-3)


@dataclass(slots=True)
class _Spent:
    pattern: Pattern
    seconds: float = 0.0


@dataclass(slots=True)
class _Meter:
    """Sums over a while: queues' activity, effort and being busy in seconds, and bytes of the DRAM and of the system cache."""

    sums: np.ndarray
    moved: float = field(default=0.0)
    cached: float = field(default=0.0)

    def __call__(self, passed: Intervals) -> None:
        self.sums = self.sums + np.stack([passed.seconds @ v for v in (passed.activity, passed.effort, passed.busy)])
        self.moved += float(passed.seconds @ passed.flow_bytes_s)
        self.cached += float(passed.seconds @ passed.cached_bytes_s)


def period_of(streams: Sequence[Stream]) -> float:
    """Seconds after which the arrivals of all streams have repeated often enough, or an approximation that is not too long."""
    slowest = max(s.period_s for s in streams)
    whole = reduce(_common, (Fraction(s.period_s).limit_denominator(100_000) for s in streams))
    rate = sum(1.0 / s.period_s for s in streams)
    often = max(ceil(FEWEST / (rate * float(whole))), 1)
    return min(often * float(whole), PERIODS * slowest, max(MOST / rate, slowest))


def _common(a: Fraction, b: Fraction) -> Fraction:
    """The least time that both divide."""
    return Fraction(lcm(a.numerator * b.denominator, b.numerator * a.denominator), a.denominator * b.denominator)


class SharedSwitching(Switching):
    """Which level all models run at; a policy sees what arrives and is done in time as one."""

    def __init__(
        self, levels: Levels, first: LevelPlan, device: Device, bus: Bus, streams: Mapping[int, Sequence[Stream]], cores: _Cores
    ) -> None:
        """``streams`` by level; the plans of ``levels`` and ``first`` are those of any of the models."""
        self.streams, self.cores = streams, cores
        super().__init__(levels, first, device, bus, None)

    def _known_level(self, number: int, bus: Bus, period_s: float | None) -> Level:
        device = self.device
        self.hold(number)
        found = pattern(device, bus, self.streams[number], self.cores)
        self._used[number] = np.asarray((device.clusters.share[found.mode.busy >= WORKING] > 0).any(axis=0))
        return Level(number, found.on_time_s, tuple(device.heat_w(found.mode).tolist()) if device.thermal else ())


class SharedRun(ThermalLoop):
    """A long run of streams on one device."""

    def __init__(
        self, device: Device, bus: Bus, streams: Mapping[int, Sequence[Stream]], cores: _Cores, duration_s: float,
        switching: SharedSwitching | None,
    ) -> None:  # fmt: skip
        """``streams`` by level; without ``switching`` there is one."""
        super().__init__(device)
        self.bus, self.streams, self.cores, self.duration_s, self.switching = bus, streams, cores, duration_s, switching
        self.spent: dict[Hashable, _Spent] = {}
        self._level = next(iter(streams))
        self._pause: tuple[Mode, float] | None = None
        """What holds during a switch of plans, and when it ends."""
        self._paused_s = 0.0

    def left_s(self, now_s: float) -> float:
        """Seconds of the duration."""
        return self.duration_s - now_s

    def turn(self, now_s: float) -> bool:
        """Ask the policy, or end a switch."""
        switching = self.switching
        if switching is None:
            return False
        if self._pause is not None:
            if now_s < self._pause[1] - SOON_S:
                return False
            switching.finish(now_s)
            self._level, self._pause = switching.level, None
            return True
        if now_s < switching.next_ask_s - SOON_S:
            return False
        if not switching.ask(now_s, switching.slowed(self._at_clocks().pattern.on_time_s)):
            return False
        p = profile(self.bus, switching.begin(now_s), self.device.rates, EventLog((), 0), self.device.host)
        self._pause = (self.device.mode(*p.means(p.latency_s or 1.0)), now_s + p.latency_s)
        return True

    def done(self, now_s: float) -> float:
        """Share of the duration."""
        return now_s / self.duration_s

    def step(self, now_s: float, limit_s: float) -> tuple[float, Mode]:
        """As far as the next question to the policy, in the pattern of the clocks of now, or through a switch."""
        if self._pause is not None:
            return min(limit_s, self._pause[1]), self._pause[0]
        found = self._at_clocks()
        self.device.note_clocks(found.pattern.mode.hz)
        due = math.inf if self.switching is None else self.switching.next_ask_s
        return min(limit_s, due), found.pattern.mode

    def passed(self, now_s: float, end_s: float) -> None:
        """The pattern has gone on, or the switch."""
        if self._pause is None:
            self._at_clocks().seconds += end_s - now_s
        else:
            self._paused_s += end_s - now_s

    def clocks_changed(self, now_s: float) -> None:
        """The next step looks the pattern up."""

    def outcomes(self) -> tuple[StreamOutcome, ...]:
        """What became of every stream, as many times as its patterns have gone on; what arrives during a switch is dropped."""
        out = tuple(_total(list(self.spent.values()), k) for k in range(len(self.streams[self._level])))
        for stream, outcome in zip(self.streams[self._level], out, strict=True):
            outcome.dropped += round(self._paused_s / stream.period_s)
        return out

    def _at_clocks(self) -> _Spent:
        key = (self._level, self.device.state)
        if key not in self.spent:
            self.spent[key] = _Spent(pattern(self.device, self.bus, self.streams[self._level], self.cores))
        return self.spent[key]


def pattern(device: Device, bus: Bus, streams: Sequence[Stream], cores: _Cores) -> Pattern:
    """The pattern of streams at the clocks of now."""
    period, env = period_of(streams), Environment()
    meter = _Meter(np.zeros((3, len(device.rates))))
    machine = Machine(env, bus, device.rates, meter, device.host)
    machine.set_other(device.other_bytes_s)
    trace = Trace("simulated", "", "", tuple(q.name for q in device.table.queues))
    outcomes, arrivals = submit(env, machine, streams, 2 * period, trace, cores, period)
    env.run(until=period)
    machine.settle()
    sums, moved, cached = meter.sums, meter.moved, meter.cached
    env.run(until=2 * period)
    machine.settle()
    activity, effort, busy = (meter.sums - sums) / period
    mode = device.mode(activity, effort, busy, (meter.moved - moved) / period, (meter.cached - cached) / period)
    env.run(until=env.all_of(arrivals))
    return Pattern(period, mode, outcomes, trace)


def _total(spent: Sequence[_Spent], stream: int) -> StreamOutcome:
    """Whole inferences; what is left over of one pattern counts in the next."""
    out, late, dropped, done = StreamOutcome(), 0.0, 0.0, 0.0
    for v in spent:
        o, times = v.pattern.outcomes[stream], v.seconds / v.pattern.seconds
        late, dropped, done = late + o.late * times, dropped + o.dropped * times, done + len(o.latencies_s) * times
        count = floor(done + 0.5) - len(out.latencies_s)
        if o.latencies_s and count > 0:
            out.latencies_s += np.resize(o.latencies_s, count).tolist()
    out.late, out.dropped = round(late), round(dropped)
    return out


def simulate_streams(
    table: CostTable, soc: SoC, streams: Sequence[Stream], conditions: Conditions, *, duration_s: float, cores: _Cores = (),
    levels: Levels | None = None, others: Mapping[int, Sequence[Stream]] | None = None, first: LevelPlan | None = None,
    path: Literal["auto", "full", "multirate"] = "auto", progress: Callable[[float], None] | None = None,
) -> SharedSimulation:  # fmt: skip
    """Run streams side by side on a phone that warms.

    Args:
        table: of any of the models, for its queues.
        soc: the SoC that the tables were made for.
        streams: what arrives.
        conditions: what surrounds the run.
        duration_s: for how long.
        cores: of each queue; those that have some in common do not run at once.
        levels: plans of other throttle levels of one of the models, and the policy that switches all of them; multi-rate only.
        others: the streams of those levels.
        first: the plan of that model that ``streams`` hold.
        path: as for :func:`hetsched_simulations.simulate`.
        progress: called now and then with the share that is done.

    Raises:
        OptionError: no inference of the first stream finishes, or the full path is asked for under a policy.
    """
    if path == "full" and levels is not None:
        raise OptionError("several plans under a policy are not simulated op by op throughout: leave --exact or --policy out")
    device = Device(soc, table, conditions)
    bus = Bus.of(soc, table.queues, table.bandwidth_bytes_s.tolist(), conditions.contention, table.cache_bytes_s)
    log = EventLog(tuple(q.name for q in table.queues), 1)
    switching = None
    by_level = {0: streams}
    if first is not None:
        device.hold(first.clocks)
    if levels is not None and first is not None:
        by_level = {levels.level: streams, **(others or {})}
        switching = SharedSwitching(levels, first, device, bus, by_level, cores)
    few = duration_s * sum(1.0 / s.period_s for s in streams) <= FULL_LIMIT
    full = switching is None and (path == "full" or (path == "auto" and few))
    if full:
        env, machine = mounted(device, bus)
        trace = Trace("simulated", "", soc.id, log.queues)
        outcomes, _ = submit(env, machine, streams, duration_s, trace, cores)
        env.run(until=duration_s)
        machine.settle()
        states = sum(len(o.latencies_s) for o in outcomes)
    else:
        run = SharedRun(device, bus, by_level, cores, duration_s, switching)
        run.loop(duration_s, progress)
        outcomes, states = run.outcomes(), len(run.spent)
        trace = next(iter(run.spent.values())).pattern.trace
    log.spans += trace.spans
    took = np.array(outcomes[0].latencies_s)
    found = result_of(device, log, [], took, "full" if full else "multirate", states, duration_s, switching)
    found.trace.model = " + ".join(s.name for s in streams)
    found.trace.instants = sorted([*found.trace.instants, *trace.instants], key=lambda i: i.time_s)
    return SharedSimulation(found, outcomes)
