"""Thermal governors: all zones of a SoC, and who wins where several hold down one device: the deepest state."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.errors import SoCError
from hetsched.soc_thermal import PowerBudget
from hetsched.soc_thermal import Trip as TripSpec
from hetsched.socs import SoC
from hetsched_simulations.power_allocator import ONE, PowerAllocator
from hetsched_simulations.step_wise import StepWise
from hetsched_simulations.zones import Actors, Trip, TripEvent, Zone


class Governors:
    """All zones of a SoC and the states of its cooling devices (one per cluster)."""

    def __init__(self, zones: Sequence[Zone], power_mw: Sequence[Sequence[int]]) -> None:
        """``power_mw[d][k]`` is the dynamic power of device ``d`` in state ``k`` at full load."""
        self.zones = list(zones)
        self.actors = Actors(power_mw)

    @classmethod
    def of(cls, soc: SoC, processor_of: Sequence[int], power_mw: Sequence[Sequence[int]]) -> Governors:
        """Zones from the SoC's trips: trips of one node with one polling period and one governor share a zone.

        Args:
            soc: the SoC.
            processor_of: per cluster, the index of its processor.
            power_mw: per cluster and state, from the top operating point down: dynamic power at full load.

        Raises:
            SoCError: a trip cools a processor that does not exist or polls never, or a budget is not with the trip that it controls.
        """
        names = [p.name for p in soc.processors]
        specs: dict[tuple[str, float, str], list[TripSpec]] = {}
        for trip in soc.thermal.trips:
            _check(soc, trip, names)
            specs.setdefault((trip.node, float(trip.polling_s), trip.governor), []).append(trip)
        nodes = [n.name for n in soc.thermal.nodes]
        states = [len(p) for p in power_mw]
        zones = [
            _zone(governor, nodes.index(node), polling_s, group, [names[p] for p in processor_of], states)
            for (node, polling_s, governor), group in specs.items()
        ]
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


def _check(soc: SoC, trip: TripSpec, names: Sequence[str]) -> None:
    unknown = [p for p in trip.processors if p not in names]
    if unknown or float(trip.polling_s) <= 0 or trip.node not in [n.name for n in soc.thermal.nodes]:
        what = f"cools {unknown[0]!r}, which is not a processor" if unknown else "needs a node and a polling period above zero"
        raise SoCError(f"the trip of {soc.id} at {float(trip.temperature_c):g} °C on {trip.node!r} {what}")


def _zone(governor: str, node: int, polling_s: float, specs: Sequence[TripSpec], processor: Sequence[str], states: Sequence[int]) -> Zone:
    """One zone; ``processor[d]`` is the processor of device ``d``, ``states[d]`` how many states it has."""
    trips = [
        Trip(
            round(1000 * float(s.temperature_c)),
            round(1000 * float(s.hysteresis_k)),
            tuple((d, _upper(s.upper, states[d])) for d, p in enumerate(processor) if p in s.processors),
        )
        for s in specs
    ]
    name = specs[0].node
    if governor == "step_wise":
        return StepWise(node, name, polling_s, trips)
    control = max(specs, key=lambda s: float(s.temperature_c))
    if any(s.budget for s in specs if s is not control):
        raise SoCError(f"the budget of power_allocator on {name!r} belongs to its hottest trip, which it controls: move it there")
    budget = control.budget or PowerBudget()
    weights = [round(ONE * float(budget.weights.get(p, 1.0))) for p in processor if p in control.processors]
    return PowerAllocator(node, name, polling_s, trips, budget, weights)


def _upper(share: float, states: int) -> int:
    """The deepest state that a cooling map allows on a device with this many; one, where it has any."""
    return min(max(round(share * (states - 1)), 1), states - 1)
