"""The multi-rate path: one inference op by op per distinct operating state, only the thermal loop in between.

In one state every inference takes the same time and draws the same mean power, so inferences become a flow: they
progress at ``1 / cycle`` and an inference during which a clock changes goes on at the new state's rate, as it does in the
full path. Steps end at every poll that can matter, and sooner while temperatures still move: leakage is evaluated at the start
of each. A zone below its lowest trip with nothing to undo is not polled; when a step would carry it over the trip, the step is
taken again poll by poll.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from hetsched.costs import FloatArray
from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.flow import Flow, Profile, State, cycle_of, profile
from hetsched_simulations.full import next_arrival
from hetsched_simulations.steady import Settling
from hetsched_simulations.switching import Switching
from hetsched_simulations.workload import Command

MIN_STEP_S, MAX_STEP_S = 0.05, 1.0
"""Steps of the thermal loop without polls: the first after a change, and the longest in runs of up to half a day."""
MAX_STEPS = 40_000
"""Longer runs take this many steps at their longest."""
EVEN_K = 0.05
"""A step doubles while no node moves further than this within it: leakage changes by about a thousandth."""


class MultiRate:
    """A long run on one device, of one plan or, with ``switching``, of plans that take turns."""

    def __init__(
        self, device: Device, bus: Bus, commands: Sequence[Command], log: EventLog, period_s: float | None, switching: Switching | None
    ) -> None:  # fmt: skip
        self.device, self.bus, self.period_s, self.switching = device, bus, period_s, switching
        self.flow = Flow(log, log.iterations)
        nothing = np.zeros(len(device.rates))
        self._idle = Profile(0.0, nothing, nothing, nothing, 0.0, EventLog((), 0))
        self._profiles: dict[Hashable, Profile] = {}
        self._states: dict[Hashable, State] = {}
        self._settling = Settling(bus, log, period_s)
        self._doing: Hashable = switching.level if switching else 0
        """The level whose inferences run, or the switch, or the level at which the phone waits for an arrival after one."""
        self._commands = tuple(commands)
        self._lowest = [(z.node, z.lowest_mc) for z in device.zones]
        self._pause_end_s: float | None = None
        """When what is no inference ends."""

    @property
    def states(self) -> int:
        """Distinct states simulated op by op."""
        return len(self._profiles)

    def run(self, duration_s: float | None, iterations: int, progress: Callable[[float], None] | None) -> None:
        """Run to the end."""
        now, state = 0.0, self._state()
        polls: dict[int, float] = {}
        reported, step, longest = 0.0, MIN_STEP_S, max(MAX_STEP_S, (duration_s or 0.0) / MAX_STEPS)
        while True:
            left = self._until(iterations, state) if duration_s is None else duration_s - now
            if left <= 1e-12:
                break
            event = self._next_event(now, state)
            if event <= now + 1e-9:
                self._turn(now, state)
                if self._state() is not state:
                    state, step = self._state(), MIN_STEP_S
                continue
            end = min([now + min(left, step), event, *polls.values()])
            preview = self.device.preview(state.mode, end - now, grid=True)
            if self._wake(polls, preview[0], now, end):
                continue
            pace_k_s = float(np.abs(preview[0] - self.device.node_c).max()) / (end - now)
            self.device.advance(now, end, state.mode, preview)
            if self._pause_end_s is None:
                self.flow.advance(now, end - now, state)
            now = end
            step = _next_step(step, longest, pace_k_s)
            if self._poll(polls, now):
                state, step = self._state(), MIN_STEP_S
                self.flow.changed()
            done = now / duration_s if duration_s else self.flow.count / iterations
            if progress is not None and done >= reported + 0.01:
                reported = done
                progress(min(done, 1.0))

    def _until(self, iterations: int, state: State) -> float:
        """Seconds until so many inferences have finished; without end during a pause."""
        if self._pause_end_s is not None and self.flow.count < iterations:
            return math.inf
        return self.flow.until(iterations, state.cycle_s)

    def _next_event(self, now: float, state: State) -> float:
        """When the pause ends, or the first inference after which the policy is due."""
        if self.switching is None or self._pause_end_s is not None:
            return math.inf if self._pause_end_s is None else self._pause_end_s
        due = self.switching.next_ask_s
        return due if math.isinf(due) else self.flow.next_end(now, due, state)

    def _turn(self, now: float, state: State) -> None:
        """Ask the policy at the end of an inference, or end a pause: switch, then idle until the next arrival, then run."""
        switching = self.switching
        assert switching is not None
        if self._pause_end_s is None:
            if switching.ask(now):
                self.flow.cut(now, state)
                self._pause(("switch", switching.level, switching.target), switching.begin(now), math.inf)
                self._pause_end_s = now + self._state().profile.latency_s
            return
        if switching.level != switching.target:
            switching.finish(now)
            if self.period_s is not None:
                self._pause(("idle", switching.level), (), next_arrival(now, self.period_s))
                return
        self._doing, self._commands, self._pause_end_s = switching.level, switching.commands[switching.level], None

    def _pause(self, doing: Hashable, commands: tuple[Command, ...], end_s: float) -> None:
        self._doing, self._commands, self._pause_end_s = doing, commands, end_s

    def _wake(self, polls: dict[int, float], node_c: FloatArray, now: float, end: float) -> bool:
        """Start polling the quiet zones that this step would carry over a trip; True if one is due within the step."""
        again = False
        for i, (node, lowest_mc) in enumerate(self._lowest):
            if i not in polls and round(1000 * float(node_c[node])) >= lowest_mc:
                zone = self.device.zones[i]
                polls[i] = zone.next_poll(now)
                zone.skipped(round(1000 * float(self.device.node_c[zone.node])))
                again = again or polls[i] < end - 1e-12
        return again

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

    def _state(self) -> State:
        """What is done now at the clocks of now."""
        key = (self._doing, self.device.points)
        if key not in self._states:
            follows_load = self.device.schedutil is not None and self._pause_end_s is None
            self._states[key] = self._settled(key) if follows_load else self._constant(key)
        self.device.note_clocks(self._states[key].mode.hz)
        return self._states[key]

    def _constant(self, key: Hashable) -> State:
        """At clocks that do not change within an inference."""
        rates = self.device.rates
        used = (self._doing, tuple(rates[q] for q in sorted({c.queue for c in self._commands})))
        if self._commands and used not in self._profiles:
            log = EventLog(self.flow.log.queues, 1, self.flow.log.op_spans)
            self._profiles[used] = profile(self.bus, self._commands, rates, log, self.device.host)
        p = self._profiles.get(used, self._idle)
        cycle = cycle_of(p.latency_s, None if self._pause_end_s is not None else self.period_s) or 1.0
        mode = self.device.mode(p.activity_s / cycle, p.effort_s / cycle, p.busy_s / cycle, p.bytes / cycle)
        return State(key, p, cycle, mode)

    def _settled(self, key: Hashable) -> State:
        """At clocks that follow the load."""
        found = self._settling.settled(self.device, self._commands)
        self._profiles[key] = found.profile
        return State(key, found.profile, found.cycle_s, found.mode)


def _next_step(step_s: float, longest_s: float, pace_k_s: float) -> float:
    """Twice as long while the fastest node stays even, half as long once it does not."""
    if 2.0 * step_s * pace_k_s <= EVEN_K:
        return min(2.0 * step_s, longest_s)
    return max(step_s / 2.0, MIN_STEP_S) if step_s * pace_k_s > EVEN_K else step_s
