"""Several models at once for minutes, with heat: streams, and perhaps a chat, under clocks that the governor changes.

On the multi-rate path the streams are simulated op by op for one period of their pattern in every state of the clocks, after another
period in which it settles, and beside every part of the chat. Between changes of clocks their outcomes and their power are a flow with
that pattern's means, and the chat walks through its turns at the pace that the pattern leaves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Literal

import numpy as np

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
from hetsched_simulations.full import mounted, run_until
from hetsched_simulations.history import Mode, mixed
from hetsched_simulations.job_trace import write_jobs
from hetsched_simulations.job_walk import JobWalk, Walk, naps
from hetsched_simulations.jobs import JobLog, Part
from hetsched_simulations.patterns import Cores, Pattern, Patterns
from hetsched_simulations.result import Simulation
from hetsched_simulations.scripts import Arrivals
from hetsched_simulations.simulation import result_of
from hetsched_simulations.streams import SharedQueues, Stream, StreamOutcome, Talk, arrive, converse
from hetsched_simulations.switching import WORKING, LevelPlan, Levels, Switching
from hetsched_simulations.thermal_loop import ThermalLoop

FULL_LIMIT = 600
"""``auto`` takes the full path up to this many inferences."""


@dataclass(frozen=True, eq=False, slots=True)
class SharedSimulation:
    """A shared run: its trace, heat and energy (``device``; latencies are those of the first stream), and an outcome a stream.

    ``device.jobs`` is what became of the chat, if there was one.
    """

    device: Simulation
    streams: tuple[StreamOutcome, ...]


@dataclass(slots=True)
class _Spent:
    pattern: Pattern
    seconds: float = 0.0


class SharedSwitching(Switching):
    """Which level all models run at; a policy sees what arrives and is done in time as one, a token of a chat as an inference."""

    def __init__(self, levels: Levels, first: LevelPlan, device: Device, bus: Bus, patterns: Patterns) -> None:
        """The plans of ``levels`` and ``first`` are those of any of the models."""
        self.patterns = patterns
        super().__init__(levels, first, device, bus, None)

    def _known_level(self, number: int, bus: Bus, period_s: float | None) -> Level:
        device, talk = self.device, self.patterns.talk
        self.hold(number)
        part = None if talk is None else talk.usual
        found, mode = self.patterns.now(number, part), self.patterns.mode(number, part)
        self._used[number] = np.asarray((device.clusters.share[mode.busy >= WORKING] > 0).any(axis=0))
        return Level(number, found.on_time_s, tuple(device.heat_w(mode).tolist()) if device.thermal else ())

    def slowed_now(self, part: Part | None) -> float:
        """By how much what is done in time takes longer than at the level's clocks, beside a part of the chat."""
        at_its_clocks = self.patterns.at(self.level, part, self.device.rates_at(self.device.base))
        return self.patterns.now(self.level, part).on_time_s / at_its_clocks.on_time_s


class SharedRun(ThermalLoop):
    """A long run of streams, and perhaps a chat, on one device."""

    def __init__(
        self, device: Device, bus: Bus, patterns: Patterns, level: int, duration_s: float, switching: SharedSwitching | None
    ) -> None:
        """``level``: at which the run begins."""
        super().__init__(device)
        self.bus, self.patterns, self.duration_s, self.switching = bus, patterns, duration_s, switching
        self.spent: dict[Hashable, _Spent] = {}
        self.jobs = JobLog()
        self._level = level
        script = Arrivals(()) if patterns.talk is None else patterns.talk.jobs.script
        self._ahead = JobWalk(script, lambda part: patterns.now(self._level, part).each_s, naps(bus))
        self._walk = Walk(self._ahead.place, 0.0)
        self._each_s = 0.0
        """What a repetition of the part in flight takes, at the clocks and the level that its place counts in."""
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
            self.clocks_changed(now_s)
            return True
        if now_s < switching.next_ask_s - SOON_S:
            return False
        place = self._ahead.place
        if not switching.ask(now_s, switching.slowed_now(place.part if place.begin_s <= now_s else None)):
            return False
        p = profile(self.bus, switching.begin(now_s), self.device.rates, EventLog((), 0), self.device.host)
        self._pause = (self.device.mode(*p.means(p.latency_s or 1.0)), now_s + p.latency_s)
        return True

    def done(self, now_s: float) -> float:
        """Share of the duration."""
        return now_s / self.duration_s

    def step(self, now_s: float, limit_s: float) -> tuple[float, Mode]:
        """As far as the next question to the policy or the end of what the chat does, or through a switch."""
        if self._pause is not None:
            return min(limit_s, self._pause[1]), self._pause[0]
        due = math.inf if self.switching is None else self.switching.next_ask_s
        walk = self._walk = self._ahead.ahead(now_s, min(limit_s, due), self._level)
        modes = [self.patterns.mode(self._level, part) for part in walk.seconds]
        spent = np.array(list(walk.seconds.values()))
        mode = modes[0] if len(modes) == 1 else mixed(spent / spent.sum(), modes)
        self.device.note_clocks(mode.hz)
        return walk.end_s, mode

    def passed(self, now_s: float, end_s: float) -> None:
        """What the walk foresaw has happened, or a switch."""
        if self._pause is not None:
            self._paused_s += end_s - now_s
            return
        walk = self._walk
        whole = end_s >= walk.end_s - SOON_S  # the battery may be empty before
        share, until = (1.0, math.inf) if whole else ((end_s - now_s) / (walk.end_s - now_s), end_s + SOON_S)
        for part, seconds in walk.seconds.items():
            key = (self._level, part, self.device.state)
            if key not in self.spent:
                self.spent[key] = _Spent(self.patterns.now(self._level, part))
            self.spent[key].seconds += share * seconds
        self.jobs.done += (d for d in walk.done if d.ended_s <= until)
        self.jobs.pieces += (p for p in walk.pieces if p.end_s <= until)
        self._ahead.place = walk.place
        if walk.place.part is not None:
            self._each_s = self.patterns.now(self._level, walk.place.part).each_s

    def clocks_changed(self, now_s: float) -> None:
        """What the chat has in flight goes on where as much of it is done; the streams' next step looks their pattern up."""
        place = self._ahead.place
        if self._pause is None and place.part is not None and place.phase_s > 0:
            before, self._each_s = self._each_s, self.patterns.now(self._level, place.part).each_s
            place.phase_s *= self._each_s / before

    def outcomes(self) -> tuple[StreamOutcome, ...]:
        """What became of every stream, as many times as its patterns have gone on; what arrives during a switch is dropped."""
        streams = self.patterns.streams[self._level]
        out = tuple(_total(list(self.spent.values()), k) for k in range(len(streams)))
        for stream, outcome in zip(streams, out, strict=True):
            outcome.dropped += round(self._paused_s / stream.period_s)
        return out


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
    table: CostTable, soc: SoC, streams: Sequence[Stream], conditions: Conditions, *, duration_s: float, cores: Cores = (),
    talk: Talk | None = None, levels: Levels | None = None, others: Mapping[int, Sequence[Stream]] | None = None,
    first: LevelPlan | None = None, path: Literal["auto", "full", "multirate"] = "auto",
    progress: Callable[[float], None] | None = None,
) -> SharedSimulation:  # fmt: skip
    """Run streams side by side on a phone that warms.

    Args:
        table: of any of the models, for its queues.
        soc: the SoC that the tables were made for.
        streams: what arrives.
        conditions: what surrounds the run.
        duration_s: for how long.
        cores: of each queue; those that have some in common do not run at once.
        talk: a chat beside them, with parts at every level.
        levels: plans of other throttle levels of one of the models, and the policy that switches all of them; multi-rate only.
        others: the streams of those levels.
        first: the plan of that model that ``streams`` hold.
        path: as for :func:`hetsched_simulations.simulate`.
        progress: called now and then with the share that is done.

    Raises:
        OptionError: nothing finishes, or the full path is asked for under a policy.
    """
    if path == "full" and levels is not None:
        raise OptionError("several plans under a policy are not simulated op by op throughout: leave --exact or --policy out")
    device = Device(soc, table, conditions)
    bus = Bus.of_table(soc, table, conditions.contention)
    log = EventLog(tuple(q.name for q in table.lanes), 1)
    if first is not None:
        device.hold(first.clocks)
    level = levels.level if levels is not None else 0 if talk is None else talk.jobs.level
    patterns = Patterns(device, bus, {level: streams, **(others or {})}, cores, talk)
    switching = None if levels is None or first is None else SharedSwitching(levels, first, device, bus, patterns)
    if switching is None and (path == "full" or (path == "auto" and _inferences(streams, talk, duration_s) <= FULL_LIMIT)):
        outcomes, jobs, trace = _op_by_op(device, bus, streams, cores, talk, duration_s)
        ran: tuple[Literal["full", "multirate"], int] = "full", sum(len(o.latencies_s) for o in outcomes) + jobs.tokens
    else:
        run = SharedRun(device, bus, patterns, level, duration_s, switching)
        run.loop(duration_s, progress)
        outcomes, jobs, ran = run.outcomes(), run.jobs, ("multirate", len(patterns.found))
        trace = next(iter(run.spent.values())).pattern.trace
    log.spans += trace.spans
    took = next((np.array(o.latencies_s) for o in outcomes if o.latencies_s), jobs.latencies_s())
    found = result_of(device, log, [], took, *ran, duration_s, switching)
    found.trace.model = " + ".join([*(s.name for s in streams), *([] if talk is None else [talk.name])])
    found.trace.instants = sorted([*found.trace.instants, *trace.instants], key=lambda i: i.time_s)
    if talk is None:
        return SharedSimulation(found, outcomes)
    write_jobs(found.trace, jobs, talk.jobs, duration_s)
    return SharedSimulation(replace(found, jobs=jobs), outcomes)


def _inferences(streams: Sequence[Stream], talk: Talk | None, duration_s: float) -> float:
    """About how many there are, tokens among them."""
    token_s = math.inf if talk is None else sum(c.seconds for c in talk.jobs.parts(talk.jobs.level, talk.usual))
    return duration_s * (sum(1.0 / s.period_s for s in streams) + 1.0 / token_s)


def _op_by_op(
    device: Device, bus: Bus, streams: Sequence[Stream], cores: Cores, talk: Talk | None, duration_s: float
) -> tuple[tuple[StreamOutcome, ...], JobLog, Trace]:
    env, machine = mounted(device, bus)
    trace, jobs = Trace("simulated", "", device.soc.id, tuple(q.name for q in device.table.lanes)), JobLog()
    queues = SharedQueues(env, machine, [*streams, *([] if talk is None else [talk])], trace, cores)
    outcomes, _ = arrive(queues, duration_s)
    if talk is not None:
        env.process(converse(queues, len(streams), talk, jobs))
    run_until(env, machine, device, duration_s)
    jobs.done = [d for d in jobs.done if d.ended_s <= device.off_s + 1e-9]
    jobs.pieces = [p for p in jobs.pieces if p.end_s <= device.off_s + 1e-9]
    return outcomes, jobs, trace
