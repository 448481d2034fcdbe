"""The power level by the state of this machine: asked before each step, looked up about once a second.

Heat and charge are judged by the policies that simulated phones have (:mod:`hetsched.policies`): ``reactive`` for the trips of
thermal zones and the skin, ``battery-saver`` for the charge, each with its hysteresis. A forecast needs the thermal network of the
machine, which no sensor tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hetsched.language.power import LEVELS, PowerLevel, level_for
from hetsched.policies import SAVER, Level, Observation, Policy, Trip, policy_named
from hetsched.runtime.sensors import SYS, Readings, read_machine

#: Levels that a policy moves between. What each delivers is unknown and taken as the same: a level is for less heat, whatever it costs.
_OF_HEAT, _OF_CHARGE = (0, 1, 2, 3), (0, SAVER)
_SAME_S = 1.0
#: What is said of a clock that is slowed: how far, no zone tells.
_SLOWED = 0.5
_NOTE = "this machine shows no charge and no temperature at which it slows down: --power auto stays at normal"


@dataclass
class _Followed:
    """A policy, and the level that it put the machine at."""

    policy: Policy
    levels: tuple[Level, ...]
    level: int = 0
    since_s: float = 0.0

    def look(self, readings: Readings, now_s: float) -> int:
        wanted = self.policy.wanted(observation(readings, now_s, self.level, now_s - self.since_s, self.levels))
        if wanted != self.level:
            self.level, self.since_s = wanted, now_s
        return self.level


class PowerWatch:
    """Names the level for the machine's state. Call it before each step.

    Attributes:
        note: what the user should know; empty: nothing.
    """

    def __init__(
        self, levels: Mapping[str, PowerLevel] = LEVELS, root: Path = SYS, clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        """Watch a machine.

        Args:
            levels: normal, warm and critical.
            root: where the kernel shows the machine's state.
            clock: seconds.
        """
        self._levels, self._root, self._clock = levels, root, clock
        began_s = clock()
        self._followed = [
            _Followed(policy_named(name), tuple(Level(n, _SAME_S, ()) for n in numbers), since_s=began_s)
            for name, numbers in (("reactive", _OF_HEAT), ("battery-saver", _OF_CHARGE))
        ]
        self._period_s = max(f.policy.period_s for f in self._followed)
        self._next_s, self._name = began_s, level_for(0)
        first = read_machine(root)
        self.note = "" if first.battery is not None or any(z.trips_c or z.skin for z in first.zones) else _NOTE

    def __call__(self) -> PowerLevel:
        """The level to work at."""
        now_s = self._clock()
        if now_s >= self._next_s and not self.note:
            self._next_s, readings = now_s + self._period_s, read_machine(self._root)
            self._name = level_for(max(f.look(readings, now_s) for f in self._followed))
        return self._levels[self._name]


def observation(readings: Readings, now_s: float, level: int, since_s: float, levels: tuple[Level, ...]) -> Observation:
    """What a policy is shown of a real machine: no thermal network, so nothing is forecast and nothing known of watts."""
    zones = readings.zones
    trips = tuple(Trip(n, z.trips_c[0], z.trips_c[-1]) for n, z in enumerate(zones) if z.trips_c)
    temperatures = tuple(z.temperature_c for z in zones)
    slowed = any(temperatures[t.node] >= t.temperature_c for t in trips)
    skin = max((z for z in zones if z.skin), key=lambda z: z.temperature_c, default=None)
    return Observation(
        time_s=now_s, level=level, since_s=since_s, levels=levels, nodes=tuple(z.name for z in zones), temperatures_c=temperatures,
        skin_c=None if skin is None else skin.temperature_c, clock=_SLOWED if slowed else 1.0, trips=trips,
        battery=1.0 if readings.battery is None else readings.battery, loads=(), after=lambda heat, seconds: temperatures,
        critical_c=None if skin is None else skin.critical_c,
    )  # fmt: skip
