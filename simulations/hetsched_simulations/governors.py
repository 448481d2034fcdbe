"""The kernel's ``step_wise`` thermal governor, over cooling devices that are the clusters' operating points.

As in Linux ``drivers/thermal/gov_step_wise.c`` and ``thermal_helpers.c``. State 0 of a cooling device is the top
operating point, state ``k`` the ``k``-th from the top. On every poll, for every trip of the zone and every bound device::

    throttle = T >= threshold                 # threshold = trip, less the hysteresis once it has fired
    first time:                 throttle ? cur + 1 : no target
    throttle and raising:       cur + 1, at most the upper bound of the cooling map
    no throttle and dropping:   cur at its lower bound ? no target : cur - 1
    otherwise:                  the previous target

A device obeys the deepest target of all its instances. Temperatures are compared in whole millidegrees, as there. A trip
with hysteresis is cleared below ``trip - hysteresis`` (kernels since 6.x).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hetsched.errors import SoCError
from hetsched.socs import SoC


@dataclass(slots=True)
class _Instance:
    """One trip bound to one device."""

    device: int
    upper: int
    target: int | None = None
    initialised: bool = False


@dataclass(slots=True)
class _Trip:
    temperature_mc: int
    hysteresis_mc: int
    instances: list[_Instance]
    fired: bool = False


@dataclass(slots=True)
class Zone:
    """A sensor with its trips, polled every ``polling_s`` on the grid ``k polling_s``."""

    node: int
    name: str
    polling_s: float
    trips: list[_Trip] = field(default_factory=list)
    last_mc: int | None = None

    @property
    def quiet(self) -> bool:
        """Whether a poll below the lowest trip would change nothing: no trip has fired, no device has a target."""
        return not any(t.fired or any(i.target is not None for i in t.instances) for t in self.trips)

    @property
    def lowest_mc(self) -> int:
        """The lowest trip, millidegrees."""
        return min(t.temperature_mc for t in self.trips)

    def next_poll(self, now_s: float) -> float:
        """The first time on the grid after ``now_s``."""
        k = int(now_s / self.polling_s + 1e-6) + 1
        return k * self.polling_s


@dataclass(frozen=True, slots=True)
class TripEvent:
    """A trip fired or cleared."""

    zone: str
    temperature_c: float
    trip_c: float
    fired: bool


class StepWise:
    """All zones of a SoC and the states of its cooling devices (one per cluster)."""

    def __init__(self, zones: Sequence[Zone], last_state: Sequence[int]) -> None:
        """``last_state[d]`` is the deepest state of device ``d``."""
        self.zones = list(zones)
        self.last_state = list(last_state)
        self.states = [0] * len(last_state)

    @classmethod
    def of(cls, soc: SoC, processor_of: Sequence[int], points: Sequence[int]) -> StepWise:
        """Zones from the SoC's trips: trips of one node with one polling period share a zone.

        Args:
            soc: the SoC.
            processor_of: per cluster, the index of its processor.
            points: per cluster, how many operating points it has.

        Raises:
            SoCError: a trip cools a processor that does not exist, or polls never.
        """
        names = [p.name for p in soc.processors]
        nodes = [n.name for n in soc.thermal.nodes]
        zones: dict[tuple[str, float], Zone] = {}
        for trip in soc.thermal.trips:
            unknown = [p for p in trip.processors if p not in names]
            if unknown or float(trip.polling_s) <= 0 or trip.node not in nodes:
                what = f"cools {unknown[0]!r}, which is not a processor" if unknown else "needs a node and a polling period above zero"
                raise SoCError(f"the trip of {soc.id} at {float(trip.temperature_c):g} °C on {trip.node!r} {what}")
            key = (trip.node, float(trip.polling_s))
            zone = zones.setdefault(key, Zone(nodes.index(trip.node), trip.node, float(trip.polling_s)))
            bound = [_Instance(d, _upper(trip.upper, points[d])) for d, p in enumerate(processor_of) if names[p] in trip.processors]
            zone.trips.append(_Trip(round(1000 * float(trip.temperature_c)), round(1000 * float(trip.hysteresis_k)), bound))
        return cls(list(zones.values()), [n - 1 for n in points])

    def poll(self, zone: Zone, temperature_c: float) -> list[TripEvent]:
        """One update of a zone; changes :attr:`states` and returns the trips that fired or cleared."""
        now = round(1000 * temperature_c)
        trend = 0 if zone.last_mc is None else (now > zone.last_mc) - (now < zone.last_mc)
        zone.last_mc = now
        events: list[TripEvent] = []
        for trip in zone.trips:
            throttle = now >= trip.temperature_mc - (trip.hysteresis_mc if trip.fired else 0)
            if throttle != trip.fired:
                trip.fired = throttle
                events.append(TripEvent(zone.name, temperature_c, trip.temperature_mc / 1000, throttle))
            for instance in trip.instances:
                self._step(instance, throttle, trend)
        self._arbitrate()
        return events

    def _step(self, instance: _Instance, throttle: bool, trend: int) -> None:
        current, upper = self.states[instance.device], instance.upper
        if not instance.initialised:
            instance.initialised = True
            instance.target = min(current + 1, upper) if throttle else None
        elif throttle and trend > 0:
            instance.target = min(current + 1, upper)
        elif not throttle and trend < 0:
            instance.target = None if current <= 0 else min(current - 1, upper)

    def _arbitrate(self) -> None:
        deepest = [0] * len(self.states)
        for zone in self.zones:
            for trip in zone.trips:
                for i in trip.instances:
                    if i.target is not None and i.target > deepest[i.device]:
                        deepest[i.device] = i.target
        self.states = deepest


def _upper(share: float, points: int) -> int:
    """The deepest state that a cooling map allows on a device with this many operating points; one, where it has any."""
    return min(max(round(share * (points - 1)), 1), points - 1)
