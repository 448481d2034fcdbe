"""The multi-rate path: one inference op by op per distinct operating state, only the thermal loop in between.

In one state every inference takes the same time and draws the same power, piece by piece, so inferences become a flow. One
during which a clock changes goes on where as much of its work is done in the new state, as it does in the full path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.cycle import Cycle, Step
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.flow import Flow, Profile, Split, cycle_of, next_arrival, periodic
from hetsched_simulations.steady import Settling
from hetsched_simulations.switching import Switching
from hetsched_simulations.thermal_loop import ThermalLoop
from hetsched_simulations.workload import Command


class MultiRate(ThermalLoop):
    """A long run on one device, of one plan or, with ``switching``, of plans that take turns."""

    scales = False

    def __init__(
        self, device: Device, bus: Bus, commands: Sequence[Command], log: EventLog, period_s: float | None, switching: Switching | None
    ) -> None:  # fmt: skip
        super().__init__(device)
        self.bus, self.period_s, self.switching = bus, period_s, switching
        self.flow = Flow(log, log.iterations)
        self._idle = Profile.idle(len(device.rates))
        self._profiles: dict[Hashable, Profile] = {}
        self._states: dict[Hashable, Cycle] = {}
        self._settling = Settling(bus, log, period_s)
        self._doing: Hashable = switching.level if switching else 0
        """The level whose inferences run, or the switch, or the level at which the phone waits for an arrival after one."""
        self._commands = tuple(commands)
        self._pause_end_s: float | None = None
        """When what is no inference ends."""
        self._pause_phase_s = 0.0
        self._duration_s: float | None = None
        self._iterations = 1
        self._now_state = self._state()
        self.flow.begin(0.0, self._now_state)

    @property
    def states(self) -> int:
        """Distinct states simulated op by op."""
        return len(self._profiles)

    def run(self, duration_s: float | None, iterations: int, progress: Callable[[float], None] | None) -> None:
        """Run for so long or, without a duration, for so many inferences."""
        self._duration_s, self._iterations = duration_s, iterations
        self.loop(duration_s, progress)

    def left_s(self, now_s: float) -> float:
        """Seconds of the duration, or until so many inferences have finished; without end during a pause."""
        if self._duration_s is not None:
            return self._duration_s - now_s
        if self._pause_end_s is not None and self.flow.count < self._iterations:
            return math.inf
        return self.flow.until(self._iterations, now_s, self._now_state)

    def step(self, now_s: float, limit_s: float) -> tuple[float, Step]:
        """As far as the next question to the policy, or the end of the pause."""
        end = min(limit_s, self._next_event(now_s))
        paused = self._pause_end_s is not None
        split = Split(self._pause_phase_s, end - now_s, 0, 0.0) if paused else self.flow.split(now_s, end, self._now_state)
        return end, self._now_state.step(split, end - now_s)

    def passed(self, now_s: float, end_s: float) -> None:
        """Inferences go on, except during a pause."""
        if self._pause_end_s is None:
            self.flow.advance(now_s, end_s, self._now_state)
        else:
            self._pause_phase_s += end_s - now_s

    def clocks_changed(self, now_s: float) -> None:
        """What is in flight goes on at the new clocks."""
        old, new = self._now_state, self._state()
        if new is old:
            return
        if self._pause_end_s is None:
            self.flow.changed(now_s, old, new)
        else:
            self._pause_phase_s = new.phase_at(old.share_at(self._pause_phase_s))
        self._now_state = new

    def done(self, now_s: float) -> float:
        """Of the duration, or of the inferences."""
        return now_s / self._duration_s if self._duration_s else self.flow.count / self._iterations

    def turn(self, now_s: float) -> bool:
        """Ask the policy, or end a pause, when it is time."""
        if self._next_event(now_s) > now_s + 1e-9:
            return False
        self._turn(now_s)
        return True

    def _next_event(self, now: float) -> float:
        """When the pause ends, or the first inference after which the policy is due."""
        if self.switching is None or self._pause_end_s is not None:
            return math.inf if self._pause_end_s is None else self._pause_end_s
        due = self.switching.next_ask_s
        return due if math.isinf(due) else self.flow.next_end(now, due, self._now_state)

    def _turn(self, now: float) -> None:
        """Ask the policy at the end of an inference, or end a pause: switch, then idle until the next arrival, then run."""
        switching = self.switching
        assert switching is not None
        if self._pause_end_s is None:
            if switching.ask(now, switching.slowed(self._now_state.latency_s)):
                self.flow.cut()
                self._pause(("switch", switching.level, switching.target), switching.begin(now))
                self._pause_end_s = now + self._now_state.latency_s
            return
        if switching.level != switching.target:
            switching.finish(now)
            if self.period_s is not None:
                self._pause(("idle", switching.level), ())
                self._pause_end_s = next_arrival(now, self.period_s)
                return
        self._doing, self._commands, self._pause_end_s = switching.level, switching.commands[switching.level], None
        self._now_state = self._state()
        self.flow.begin(now, self._now_state)

    def _pause(self, doing: Hashable, commands: tuple[Command, ...]) -> None:
        self._doing, self._commands, self._pause_end_s, self._pause_phase_s = doing, commands, math.inf, 0.0
        self._now_state = self._state()

    def _state(self) -> Cycle:
        """What is done now at the clocks of now."""
        key = (self._doing, self.device.state)
        if key not in self._states:
            follows_load = self.device.schedutil is not None and self._pause_end_s is None
            self._states[key] = self._settled(key) if follows_load else self._constant(key)
        self.device.note_clocks(self._states[key].hz)
        return self._states[key]

    def _constant(self, key: Hashable) -> Cycle:
        """At clocks that do not change within an inference."""
        device, period = self.device, None if self._pause_end_s is not None else self.period_s
        used = (self._doing, device.other_bytes_s, tuple(device.rates[q] for q in sorted({c.queue for c in self._commands})))
        if self._commands and used not in self._profiles:
            log = EventLog(self.flow.log.queues, 1, self.flow.log.op_spans)
            self._profiles[used] = periodic(self.bus, self._commands, device.rates, log, device.host, device.other_bytes_s, period)
        p = self._profiles.get(used, self._idle)
        return Cycle(key, self.device, p, cycle_of(p.latency_s, period) or 1.0, period)

    def _settled(self, key: Hashable) -> Cycle:
        """At clocks that follow the load."""
        found = self._settling.settled(self.device, self._commands)
        self._profiles[key] = found.profile
        return Cycle(key, self.device, found.profile, found.cycle_s, mode=found.mode)
