"""Jobs on the multi-rate path: a part op by op once a state, and between the thermal loop's steps a walk through the jobs.

The walk says how long each part runs until the end of a step, from the latency of every part at the present clocks. Stages of jobs
that last :data:`~hetsched_simulations.thermal_loop.MIN_STEP_S` or longer, such as the turns of a chat, and pauses of that length
have steps of their own, exact to the ripple within a token; what is shorter (frames at 30 a second) is averaged over a step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from hetsched.trace import Span
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.cycle import Step
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.flow import SOON_S, Split
from hetsched_simulations.history import Mode, mixed
from hetsched_simulations.jobs import Done, Job, JobLog, Jobs, Part, Piece, Script, Stage
from hetsched_simulations.part_states import PartState, PartStates
from hetsched_simulations.switching import Switching
from hetsched_simulations.thermal_loop import MIN_STEP_S, ThermalLoop
from hetsched_simulations.workload import Command

SHOWN = 16
"""Repetitions whose spans are kept at most."""


@dataclass(slots=True)
class _Place:
    """Where in its jobs a run is."""

    script: Script
    job: Job | None = None
    begin_s: float = 0.0
    """When the job begins, perhaps later than now."""
    idle_s: float = 0.0
    """Since when the phone waits for it."""
    stage: int = 0
    count: int = 0
    """Repetitions of the stage that are done."""
    phase_s: float = 0.0
    """Position in the next one, at the present clocks."""
    begun_s: float = 0.0
    """When that one began."""
    first_s: float = 0.0
    over: bool = False


@dataclass(slots=True)
class _Walk:
    """What happens until ``end_s``."""

    place: _Place
    end_s: float
    seconds: dict[Part | None, float] = field(default_factory=dict)
    """By part; None: idle."""
    done: list[Done] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    begun: list[tuple[Part, float]] = field(default_factory=list)
    ask: bool = False
    """It ends with a repetition after which the policy is due."""

    def spend(self, part: Part | None, seconds: float) -> None:
        """So long on a part."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        self.end_s += seconds


class Serving(ThermalLoop):
    """A long run of jobs on one device."""

    def __init__(self, device: Device, bus: Bus, jobs: Jobs, log: EventLog, duration_s: float, switching: Switching | None) -> None:
        super().__init__(device)
        self.log, self.duration_s, self.switching = log, duration_s, switching
        self.jobs, self._first_level = JobLog(), jobs.level
        self._place = _Place(copy.copy(jobs.script))
        self._walk = _Walk(self._place, 0.0)
        self.states = PartStates(device, bus, jobs.parts, log)
        self._shown: set[Hashable] = set()
        self._at: PartState | None = None
        """What is in flight."""
        self._naps = sorted({float(rest.after_s.value) for rests in bus.idle for rest in rests})
        """Seconds of rest after which some queue sleeps, or deeper."""
        self._ask = False
        self._last = Part()
        """What ran last."""
        self._pause: tuple[tuple[Command, ...], float, float] | None = None
        """The commands of a switch of plans, when it began and when it ends."""

    @property
    def level(self) -> int:
        """The throttle level that runs."""
        return self._first_level if self.switching is None else self.switching.level

    def left_s(self, now_s: float) -> float:
        """Seconds of the duration."""
        return self.duration_s - now_s

    def done(self, now_s: float) -> float:
        """Share of the duration."""
        return now_s / self.duration_s

    def clocks_changed(self, now_s: float) -> None:
        """What is in flight goes on where as much of its work is done at the new clocks."""
        place = self._place
        if self._pause is None and place.job is not None and self._at is not None and place.phase_s > 0:
            share = self._at.cycle.share_at(place.phase_s)
            place.phase_s = self._state(place.job.stages[place.stage].part).cycle.phase_at(share)

    def turn(self, now_s: float) -> bool:
        """Ask the policy at the end of a repetition, begin a switch, or end it."""
        switching = self.switching
        if switching is None:
            return False
        if self._pause is not None and self._pause[2] <= now_s + SOON_S:
            switching.finish(now_s)
            self._pause = None
            return True
        if not self._ask:
            return False
        self._ask = False
        part = self._last
        slowed = switching.slowed(self._state(part).each_s, part, self.states.commands(switching.level, part))
        if not switching.ask(now_s, slowed):
            return False
        commands = switching.begin(now_s)
        self._pause = (commands, now_s, now_s + self._switch_state(switching, commands).each_s)
        return True

    def step(self, now_s: float, limit_s: float) -> tuple[float, Mode | Step]:
        """Walk as far as the limit or the end of what lasts."""
        if self._pause is not None and self.switching is not None:
            commands, began_s, end_s = self._pause
            self._walk = _Walk(self._place, min(limit_s, end_s))
            found = self._switch_state(self.switching, commands)
            split = Split(now_s - began_s, self._walk.end_s - now_s, 0, 0.0)
            return self._walk.end_s, found.cycle.step(split, self._walk.end_s - now_s)
        phase_s = self._place.phase_s
        walk = self._walk = self._walked(now_s, limit_s)
        states = [self._state(part) for part in walk.seconds]
        if len(states) == 1:
            self.device.note_clocks(states[0].mode.hz)
            return walk.end_s, states[0].cycle.step(_split(phase_s, walk.end_s - now_s, states[0].each_s), walk.end_s - now_s)
        spent = np.array(list(walk.seconds.values()))
        mean = mixed(spent / spent.sum(), [s.mode for s in states])
        self.device.note_clocks(mean.hz)
        return walk.end_s, mean

    def passed(self, now_s: float, end_s: float) -> None:
        """What the walk foresaw has happened."""
        walk = self._walk
        self._place, self._ask = walk.place, walk.ask
        until = math.inf if end_s >= walk.end_s - SOON_S else end_s + SOON_S  # the battery may be empty before
        self.jobs.done += (d for d in walk.done if d.ended_s <= until)
        self.jobs.pieces += (p for p in walk.pieces if p.end_s <= until)
        for part, begun_s in walk.begun:
            self._show(part, begun_s)
        self._last = next((part for part in reversed(walk.seconds) if part is not None), self._last)
        job = self._place.job
        self._at = None if job is None else self._state(job.stages[self._place.stage].part)

    def finish(self) -> JobLog:
        """What became of all jobs."""
        self.jobs.dropped = self._place.script.dropped
        return self.jobs

    def _walked(self, now_s: float, limit_s: float) -> _Walk:
        place = copy.copy(self._place)
        walk = _Walk(place, now_s)
        while walk.end_s < limit_s - 1e-12 and not walk.ask:
            if place.job is None and not place.over:
                self._next(place, walk.end_s)
            if place.over:
                walk.spend(None, limit_s - walk.end_s)
            elif walk.end_s < place.begin_s - 1e-12:
                walk.spend(None, min(place.begin_s, limit_s) - walk.end_s)
                if place.begin_s - place.idle_s >= MIN_STEP_S:
                    break
            elif self._worked(walk, place, limit_s):
                break
        return walk

    def _next(self, place: _Place, now_s: float) -> None:
        if place.script is self._place.script:
            place.script = copy.copy(place.script)
        place.job = place.script.next(now_s, self.level)
        place.over = place.job is None
        if place.job is not None:
            place.job = self._woken(place.job, max(place.job.arrived_s - now_s, 0.0))
            place.idle_s, place.begin_s = now_s, max(now_s, place.job.arrived_s)
            place.stage, place.count, place.phase_s, place.begun_s = 0, 0, 0.0, place.begin_s

    def _woken(self, job: Job, rested_s: float) -> Job:
        """The job with a first repetition of its own where queues have to wake up for it."""
        slept = max((after for after in self._naps if after <= rested_s), default=0.0)
        if not slept:
            return job
        part, times = job.stages[0]
        rest = ((Stage(part, times - 1),) if times > 1 else ()) + job.stages[1:]
        return job._replace(stages=(Stage(part._replace(rested_s=slept)), *rest))

    def _worked(self, walk: _Walk, place: _Place, limit_s: float) -> bool:
        """Work on a stage until its end, the limit, or the next question to the policy; True: the step ends here."""
        job, now = place.job, walk.end_s
        assert job is not None
        part, repetitions = job.stages[place.stage]
        each = self._state(part).each_s
        due = math.inf if self.switching is None else self.switching.next_ask_s
        most = repetitions - place.count
        if now + most * each - place.phase_s >= due - SOON_S:
            most = min(max(math.ceil((due - now + place.phase_s - SOON_S) / each), 1), most)
        if place.count == 0 and place.phase_s == 0.0:
            walk.begun.append((part, now))
        seconds = min(most * each - place.phase_s, limit_s - now)
        whole = min(math.floor((place.phase_s + seconds) / each + 1e-9), most)
        walk.spend(part, seconds)
        left = max(place.phase_s + seconds - whole * each, 0.0) if whole < most else 0.0
        if whole:
            self._repeated(walk, place, part, whole, each, left)
        place.phase_s = left
        walk.ask = whole == most and walk.end_s >= due - SOON_S
        if place.count < repetitions:
            return False
        lasts = walk.end_s - place.begin_s >= MIN_STEP_S or self._left_s(place, job) >= MIN_STEP_S
        self._end_stage(walk, place, job)
        return lasts

    def _repeated(self, walk: _Walk, place: _Place, part: Part, whole: int, each_s: float, left_s: float) -> None:
        """So many repetitions have ended, the first of which may have begun at other clocks."""
        last = walk.end_s - left_s
        first = last - (whole - 1) * each_s
        if part.phase == "decode":
            walk.pieces.append(Piece(part, place.begun_s, first, 1))
            if whole > 1:
                walk.pieces.append(Piece(part, first, last, whole - 1))
        place.count, place.begun_s = place.count + whole, last

    def _end_stage(self, walk: _Walk, place: _Place, job: Job) -> None:
        if place.stage == 0:
            place.first_s = walk.end_s
        place.stage, place.count = place.stage + 1, 0
        if place.stage == len(job.stages):
            walk.done.append(Done(job, place.begin_s, place.first_s, walk.end_s, self.level))
            place.job = None

    def _left_s(self, place: _Place, job: Job) -> float:
        """Seconds of the stages after this one."""
        return sum(times * self._state(part).each_s for part, times in job.stages[place.stage + 1 :])

    def _state(self, part: Part | None) -> PartState:
        return self.states.of(self.level, part)

    def _switch_state(self, switching: Switching, commands: tuple[Command, ...]) -> PartState:
        return self.states.doing(("switch", switching.level, switching.target), commands)

    def _show(self, part: Part, begun_s: float) -> None:
        """Keep the spans of a part's first repetition in each state."""
        state = self._state(part)
        if state.key in self._shown or len(self._shown) >= min(self.log.iterations, SHOWN):
            return
        it = len(self._shown)
        self._shown.add(state.key)
        self.log.spans += [
            Span(s.queue, s.kind, s.name, begun_s + s.start_s, begun_s + s.end_s, s.segment, it, s.predicted_s)
            for s in state.cycle.profile.log.spans
            if begun_s + s.end_s <= self.duration_s
        ]


def _split(phase_s: float, seconds: float, each_s: float) -> Split:
    """A step from ``phase_s`` of a repetition as parts of repetitions back to back."""
    first = min(seconds, each_s - phase_s)
    if first <= 0 or each_s <= 0:
        return Split(phase_s, seconds, 0, 0.0)
    whole = math.floor((seconds - first) / each_s + 1e-9)
    rest = seconds - first - whole * each_s
    return Split(phase_s, first, whole, rest if rest > SOON_S else 0.0)


def serve(
    device: Device, bus: Bus, jobs: Jobs, log: EventLog, *,
    duration_s: float, switching: Switching | None, progress: Callable[[float], None] | None,
) -> tuple[JobLog, int]:  # fmt: skip
    """Run the jobs that begin within the duration; what became of them, and how many states were simulated op by op."""
    run = Serving(device, bus, jobs, log, duration_s, switching)
    run.loop(duration_s, progress)
    return run.finish(), len(run.states.profiles)
