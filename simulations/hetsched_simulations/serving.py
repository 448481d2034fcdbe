"""Jobs on the multi-rate path: a part op by op once a state, and between the thermal loop's steps a walk through the jobs.

The walk (:mod:`hetsched_simulations.job_walk`) says how long each part runs until the end of a step, from the latency of every part at
the present clocks. Stages that end one have steps of their own, exact to the ripple within a token; what is shorter (frames at 30 a
second) is averaged over a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

import numpy as np

from hetsched.trace import Span
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.cycle import Step
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.flow import SOON_S, Split
from hetsched_simulations.history import Mode, mixed
from hetsched_simulations.job_walk import JobWalk, Walk, naps
from hetsched_simulations.jobs import JobLog, Jobs, Part
from hetsched_simulations.part_states import PartState, PartStates
from hetsched_simulations.switching import Switching
from hetsched_simulations.thermal_loop import ThermalLoop
from hetsched_simulations.workload import Command

SHOWN = 16
"""Repetitions whose spans are kept at most."""


class Serving(ThermalLoop):
    """A long run of jobs on one device."""

    def __init__(self, device: Device, bus: Bus, jobs: Jobs, log: EventLog, duration_s: float, switching: Switching | None) -> None:
        super().__init__(device)
        self.log, self.duration_s, self.switching = log, duration_s, switching
        self.jobs, self._first_level = JobLog(), jobs.level
        self._ahead = JobWalk(jobs.script, lambda part: self._state(part).each_s, naps(bus))
        self._walk = Walk(self._ahead.place, 0.0)
        self.states = PartStates(device, bus, jobs.parts, log)
        self._shown: set[Hashable] = set()
        self._at: PartState | None = None
        """What is in flight."""
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
        place = self._ahead.place
        if self._pause is None and place.part is not None and self._at is not None and place.phase_s > 0:
            share = self._at.cycle.share_at(place.phase_s)
            place.phase_s = self._state(place.part).cycle.phase_at(share)

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
            self._walk = Walk(self._ahead.place, min(limit_s, end_s))
            found = self._switch_state(self.switching, commands)
            split = Split(now_s - began_s, self._walk.end_s - now_s, 0, 0.0)
            return self._walk.end_s, found.cycle.step(split, self._walk.end_s - now_s)
        phase_s = self._ahead.place.phase_s
        due_s = math.inf if self.switching is None else self.switching.next_ask_s
        walk = self._walk = self._ahead.ahead(now_s, limit_s, self.level, due_s)
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
        self._ahead.place, self._ask = walk.place, walk.ask
        until = math.inf if end_s >= walk.end_s - SOON_S else end_s + SOON_S  # the battery may be empty before
        self.jobs.done += (d for d in walk.done if d.ended_s <= until)
        self.jobs.pieces += (p for p in walk.pieces if p.end_s <= until)
        for part, begun_s in walk.begun:
            self._show(part, begun_s)
        self._last = next((part for part in reversed(walk.seconds) if part is not None), self._last)
        self._at = None if walk.place.part is None else self._state(walk.place.part)

    def finish(self) -> JobLog:
        """What became of all jobs."""
        self.jobs.dropped = self._ahead.place.script.dropped
        return self.jobs

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
