"""Thermal governors: all zones of a SoC, and who wins where several hold down one device: the deepest state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from hetsched.errors import SoCError
from hetsched.soc_quantities import Figure
from hetsched.soc_thermal import PowerBudget
from hetsched.soc_thermal import Trip as TripSpec
from hetsched.socs import SoC
from hetsched_simulations.power_allocator import ONE, PowerAllocator
from hetsched_simulations.step_wise import StepWise
from hetsched_simulations.vendor_pid import Cap, VendorPid
from hetsched_simulations.zones import Actors, Trip, TripEvent, Zone

V = TypeVar("V")
W = TypeVar("W")
_ONCE = Figure(value=1.0, estimated="weight where the table has none")


class Governors:
    """All zones of a SoC and the states of its cooling devices (one per cluster)."""

    def __init__(self, zones: Sequence[Zone], power_mw: Sequence[Sequence[int]]) -> None:
        """``power_mw[d][k]`` is the dynamic power of device ``d`` in state ``k`` at full load."""
        self.zones = list(zones)
        self.actors = Actors(power_mw)

    @classmethod
    def of(cls, soc: SoC, processor_of: Sequence[int], power_mw: Sequence[Sequence[int]]) -> Governors:
        """Zones from the SoC's trips: trips of the same nodes with one polling period, one governor and one zone belong together.

        Args:
            soc: the SoC.
            processor_of: per cluster, the index of its processor.
            power_mw: per cluster and state, from the top operating point down: dynamic power at full load.

        Raises:
            SoCError: a trip cools a processor that does not exist or polls never, or a budget is not with the trip that it controls.
        """
        specs: dict[tuple[tuple[str, ...], float, str, str | None], list[TripSpec]] = {}
        for trip in soc.thermal.trips:
            _check(soc, trip)
            specs.setdefault((trip.read, float(trip.polling_s), trip.governor, trip.zone), []).append(trip)
        points = soc.thermal.points
        steps_mc = [0] * len(soc.thermal.nodes) + [round(1000 * s.step_k) for s in soc.thermal.sensors]
        devices = [Device(called, len(power_mw[d])) for d, called in enumerate(_called(soc, processor_of))]
        zones = []
        for group in specs.values():
            zone = _zone(points.index(group[0].node), group, devices)
            zone.also = tuple(points.index(n) for n in group[0].also)
            zone.step_mc = max(steps_mc[p] for p in zone.points)
            zones.append(zone)
        return cls(zones, power_mw)

    @property
    def states(self) -> list[int]:
        """Per device, the state that it is held at."""
        return self.actors.states

    def poll(self, zone: Zone, temperature_c: float) -> list[TripEvent]:
        """One update of a zone; changes :attr:`states` and returns the trips that fired or cleared."""
        events = zone.poll(temperature_c, self.actors)
        deepest = [0] * len(self.actors.states)
        for device, state in (target for z in self.zones for target in z.targets()):
            deepest[device] = max(deepest[device], state)
        self.actors.states = deepest
        return events


class Device(NamedTuple):
    """A cooling device: its processor's and its cluster's name, and how many states it has."""

    called: tuple[str, str]
    states: int

    def of(self, values: Mapping[str, V], otherwise: W) -> V | W:
        """What is said of the cluster, else of the processor, else ``otherwise``."""
        return next((values[name] for name in reversed(self.called) if name in values), otherwise)


def _called(soc: SoC, processor_of: Sequence[int]) -> list[tuple[str, str]]:
    """Per cluster: the name of its processor and its own, ``cpu`` and ``cpu:prime``."""
    seen: Counter[int] = Counter()
    found = []
    for p in processor_of:
        processor = soc.processors[p]
        found.append((processor.name, f"{processor.name}:{processor.clusters[seen[p]].name}"))
        seen[p] += 1
    return found


def _check(soc: SoC, trip: TripSpec) -> None:
    names = {n for p in soc.processors for n in (p.name, *(f"{p.name}:{c.name}" for c in p.clusters))}
    unknown = [p for p in trip.processors if p not in names]
    if unknown or float(trip.polling_s) <= 0 or not set(trip.read) <= set(soc.thermal.points):
        what = f"cools {unknown[0]!r}, which is not a processor" if unknown else "needs a node and a polling period above zero"
        raise SoCError(f"the trip of {soc.id} at {float(trip.temperature_c):g} °C on {trip.node!r} {what}")


def _zone(node: int, specs: Sequence[TripSpec], devices: Sequence[Device]) -> Zone:
    """One zone of the trips ``specs``."""
    specs = sorted(specs, key=lambda s: float(s.temperature_c)) if specs[0].governor == "vendor_pid" else specs
    trips = [
        Trip(round(1000 * float(s.temperature_c)), round(1000 * float(s.hysteresis_k)), tuple((d, _deepest(s, devices[d])) for d in bound))
        for s, bound in ((s, _bound(s, devices)) for s in specs)
    ]
    governor, name, polling_s = specs[0].governor, specs[0].zone or specs[0].node, float(specs[0].polling_s)
    if governor == "step_wise":
        return StepWise(node, name, polling_s, trips)
    if governor == "cap":
        return Cap(node, name, polling_s, trips)
    if governor == "vendor_pid":
        return _vendor_pid(node, name, polling_s, trips, specs, devices)
    control = max(specs, key=lambda s: float(s.temperature_c))
    if any(s.budget for s in specs if s is not control):
        raise SoCError(f"the budget of power_allocator on {name!r} belongs to its hottest trip, which it controls: move it there")
    budget = control.budget or PowerBudget()
    weights = [round(ONE * float(devices[d].of(budget.weights, _ONCE))) for d in _bound(control, devices)]
    return PowerAllocator(node, name, polling_s, trips, budget, weights)


def _vendor_pid(
    node: int, name: str, polling_s: float, trips: list[Trip], specs: Sequence[TripSpec], devices: Sequence[Device]
) -> VendorPid:  # fmt: skip
    if all(s.budget is None for s in specs):
        raise SoCError(f"the controller {name!r} has no set point: give one of its trips a budget")
    weights = [{d: float(devices[d].of(s.budget.weights if s.budget else {}, _ONCE)) for d in _bound(s, devices)} for s in specs]
    if any(s.budget and not sum(w.values()) > 0 for s, w in zip(specs, weights, strict=True)):
        raise SoCError(f"the controller {name!r} has nobody to give its budget to: its trips need processors with weights above zero")
    return VendorPid(node, name, polling_s, trips, [s.budget for s in specs], weights)


def _bound(spec: TripSpec, devices: Sequence[Device]) -> list[int]:
    return [d for d, device in enumerate(devices) if set(device.called) & set(spec.processors)]


def _deepest(spec: TripSpec, device: Device) -> int:
    """The deepest state that a cooling map allows: a number of states, or a share of them (one, where the device has any)."""
    listed = device.of(spec.deepest, None)
    if listed is not None:
        return min(round(float(listed)), device.states - 1)
    return min(max(round(spec.upper * (device.states - 1)), 1), device.states - 1)
