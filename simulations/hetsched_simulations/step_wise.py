"""The kernel's ``step_wise`` thermal governor: one operating point a poll.

As in Linux ``drivers/thermal/gov_step_wise.c`` and ``thermal_helpers.c``. On every poll, for every trip of the zone and
every bound device::

    throttle = T >= threshold                 # threshold = trip, less the hysteresis once it has fired
    first time:                 throttle ? cur + 1 : no target
    throttle and raising:       cur + 1, at most the upper bound of the cooling map
    no throttle and dropping:   cur at its lower bound ? no target : cur - 1
    otherwise:                  the previous target
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hetsched_simulations.zones import Actors, Trip, Zone


@dataclass(slots=True)
class _Instance:
    """One trip bound to one device."""

    trip: Trip
    device: int
    upper: int
    target: int | None = None
    initialised: bool = False

    def step(self, current: int, trend: int) -> None:
        """Move the target, at this state of the device and this trend of the temperature."""
        throttle = self.trip.fired
        if not self.initialised:
            self.initialised = True
            self.target = min(current + 1, self.upper) if throttle else None
        elif throttle and trend > 0:
            self.target = min(current + 1, self.upper)
        elif not throttle and trend < 0:
            self.target = None if current <= 0 else min(current - 1, self.upper)


@dataclass(slots=True)
class StepWise(Zone):
    """A zone that goes one state deeper while it is too warm and raising, and one back while it is cool and dropping."""

    instances: list[_Instance] = field(init=False)
    last_mc: int | None = None

    def __post_init__(self) -> None:
        self.instances = [_Instance(t, device, upper) for t in self.trips for device, upper in t.bound]

    def update(self, now_mc: int, actors: Actors) -> None:
        """One step of every instance."""
        trend = 0 if self.last_mc is None else (now_mc > self.last_mc) - (now_mc < self.last_mc)
        self.last_mc = now_mc
        for instance in self.instances:
            instance.step(actors.states[instance.device], trend)

    def targets(self) -> Iterator[tuple[int, int]]:
        """(device, state) of every instance with a target."""
        return ((i.device, i.target) for i in self.instances if i.target is not None)

    @property
    def quiet(self) -> bool:
        """No trip has fired and no instance has a target, not even state 0."""
        return not any(t.fired for t in self.trips) and not any(True for _ in self.targets())

    def skipped(self, now_mc: int) -> None:
        """Polls below the trips only note the temperature and initialise the instances, with no target."""
        self.last_mc = now_mc
        if now_mc < self.lowest_mc:
            for instance in self.instances:
                instance.initialised = True
