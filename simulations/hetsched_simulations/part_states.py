"""What each part of a job does in each state of the clocks: its repetitions as a cycle, simulated op by op once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from hetsched_simulations.bandwidth import Bus
from hetsched_simulations.cycle import Cycle
from hetsched_simulations.device import Device
from hetsched_simulations.engine import EventLog
from hetsched_simulations.flow import Profile, periodic, profile
from hetsched_simulations.history import Mode
from hetsched_simulations.jobs import Part, Parts
from hetsched_simulations.workload import Command


@dataclass(frozen=True, eq=False, slots=True)
class PartState:
    """A part (or a switch of plans, or nothing) at the clocks of now: its repetitions back to back, and their mean."""

    key: Hashable
    cycle: Cycle
    mode: Mode

    @property
    def each_s(self) -> float:
        """Seconds of a repetition."""
        return self.cycle.latency_s


class PartStates:
    """The states of all parts on one device."""

    def __init__(self, device: Device, bus: Bus, parts: Parts, log: EventLog) -> None:
        self.device, self.bus, self.parts, self.log = device, bus, parts, log
        self.profiles: dict[Hashable, Profile] = {}
        """Those simulated op by op."""
        self._idle = Profile.idle(len(device.rates))
        self._states: dict[Hashable, PartState] = {}
        self._now: Hashable = None
        """Level and clocks that ``_here`` is for."""
        self._here: dict[Part | None, PartState] = {}

    def of(self, level: int, part: Part | None) -> PartState:
        """What a part does at the clocks of now; None: nothing."""
        now = (level, self.device.state)
        if now != self._now:
            self._now, self._here = now, {}
        if part not in self._here:
            commands, rested_s = ((), 0.0) if part is None else (self.commands(level, part), part.rested_s)
            self._here[part] = self.doing((level, part), commands, rested_s)
        return self._here[part]

    def commands(self, level: int, part: Part) -> tuple[Command, ...]:
        """Those of a part, however long its queues have rested."""
        return self.parts(level, part._replace(rested_s=0.0))

    def doing(self, what: Hashable, commands: tuple[Command, ...], rested_s: float = 0.0) -> PartState:
        """What commands do at the clocks of now, back to back or, once, after a rest."""
        key = (what, self.device.state)
        if key not in self._states:
            p = self._profile(what, commands, rested_s)
            each = p.latency_s or 1.0
            self._states[key] = PartState(key, Cycle(key, self.device, p, each), self.device.mode(*p.means(each)))
        return self._states[key]

    def _profile(self, what: Hashable, commands: tuple[Command, ...], rested_s: float) -> Profile:
        """At clocks that do not change within a repetition; only those of queues at work count."""
        if not commands:
            return self._idle
        device, rates = self.device, self.device.rates
        used = (what, device.other_bytes_s, tuple(rates[q] for q in sorted({c.queue for c in commands})))
        if used not in self.profiles:
            log = EventLog(self.log.queues, 1, self.log.op_spans)
            args = self.bus, commands, rates, log, device.host, device.other_bytes_s
            self.profiles[used] = profile(*args, [rested_s] * len(rates)) if rested_s else periodic(*args, None)
        return self.profiles[used]
