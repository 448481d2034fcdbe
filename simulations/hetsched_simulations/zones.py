"""Thermal zones: a sensor (or the hottest of several) with its trips, polled by a governor that sets targets for cooling devices.

A cooling device is a cluster; its state 0 is the top operating point, state ``k`` the ``k``-th from the top. Temperatures are
compared in whole millidegrees, as in Linux. A trip with hysteresis is cleared below ``trip - hysteresis`` (kernels since 6.x).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from hetsched.costs import FloatArray


@dataclass(slots=True)
class Trip:
    """A trip point and the devices bound to it, each with the deepest state that it may ask for there."""

    temperature_mc: int
    hysteresis_mc: int
    bound: tuple[tuple[int, int], ...]
    """(device, deepest state)"""
    fired: bool = False

    def crossed(self, now_mc: int) -> bool:
        """Take note of a temperature; True if the trip fired or cleared."""
        above = now_mc >= self.temperature_mc - (self.hysteresis_mc if self.fired else 0)
        changed, self.fired = above != self.fired, above
        return changed


@dataclass(frozen=True, slots=True)
class TripEvent:
    """A trip fired or cleared."""

    zone: str
    temperature_c: float
    trip_c: float
    fired: bool


@dataclass(slots=True)
class Actors:
    """What governors know of the cooling devices (``d`` of them)."""

    power_mw: Sequence[Sequence[int]]
    """Per device and state: dynamic power at full load, the kernel's energy model."""
    states: list[int] = field(default_factory=list)
    """Where the governors hold every device."""
    at: list[int] = field(default_factory=list)
    """Where every device is: as deep as the governors hold it, or deeper where DVFS asks for less."""
    elapsed_s: float = 0.0
    busy_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """[d] seconds at work since the start, as shares of the whole device."""

    def __post_init__(self) -> None:
        self.states, self.at = [0] * len(self.power_mw), [0] * len(self.power_mw)
        self.busy_s = np.zeros(len(self.power_mw))

    def advance(self, dt_s: float, active: FloatArray) -> None:
        """Let ``dt_s`` pass with these shares ([d]) at work."""
        self.elapsed_s += dt_s
        self.busy_s += active * dt_s


@dataclass(slots=True)
class Zone(ABC):
    """A sensor with its trips, polled every ``polling_s`` on the grid ``k polling_s``."""

    node: int
    """Of the points that have a temperature: nodes, then sensors."""
    name: str
    polling_s: float
    trips: list[Trip]
    step_mc: int = field(default=0, kw_only=True)
    """Readings come in steps of up to this; 0: in none."""
    also: tuple[int, ...] = field(default=(), kw_only=True)
    """More points: the hottest of all counts."""

    @property
    def points(self) -> list[int]:
        """All that it reads."""
        return [self.node, *self.also]

    def next_poll(self, now_s: float) -> float:
        """The first time on the grid after ``now_s``."""
        k = int(now_s / self.polling_s + 1e-6) + 1
        return k * self.polling_s

    def poll(self, temperature_c: float, actors: Actors) -> list[TripEvent]:
        """One update: set the targets and return the trips that fired or cleared."""
        now = round(1000 * temperature_c)
        crossed = [t for t in self.trips if t.crossed(now)]
        self.update(now, actors)
        return [TripEvent(self.name, temperature_c, t.temperature_mc / 1000, t.fired) for t in crossed]

    @property
    def quiet(self) -> bool:
        """Whether a poll below :attr:`lowest_mc` would change nothing: no trip has fired, no device is held down."""
        return not any(t.fired for t in self.trips) and not any(state for _, state in self.targets())

    @property
    def lowest_mc(self) -> int:
        """The temperature from which on polls matter, millidegrees."""
        return min(t.temperature_mc for t in self.trips) - self.step_mc // 2

    @abstractmethod
    def update(self, now_mc: int, actors: Actors) -> None:
        """Set the targets at this temperature."""

    @abstractmethod
    def targets(self) -> Iterator[tuple[int, int]]:
        """(device, state) of everything that is asked for now."""

    @abstractmethod
    def skipped(self, now_mc: int) -> None:
        """Do what polls would have done that were left out because the zone was quiet and cool; the last one saw this temperature."""
