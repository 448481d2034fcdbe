"""The heat side of a SoC file: the RC network, sensors, trip points and the power budget that a governor divides."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hetsched.soc_quantities import Figure, Name, Number, Strict, Watts, check_origin, within

#: What heats a node beside processors: the DRAM, the DMA engine, the rest of the device, and parts of it.
OTHER_SOURCES = ("dram", "dma", "base", "display", "modem", "battery", "charger")
#: What phones tell their apps: Android's thermal status from LIGHT on, Apple's thermal state from fair on.
ANDROID_LEVELS = ("LIGHT", "MODERATE", "SEVERE", "CRITICAL", "EMERGENCY", "SHUTDOWN")
IOS_LEVELS = ("fair", "serious", "critical")


class ThermalNode(Strict):
    """A lump of heat capacity. What heats it is named in ``processors`` (``OTHER_SOURCES`` too); ambient is implicit."""

    name: Name
    capacity_j_per_k: Annotated[Figure, within(1e-6, 1e9)]
    processors: tuple[Name, ...] = ()


class ThermalResistance(Strict):
    """A heat path; ``ambient`` may be one end."""

    between: tuple[Name, Name]
    k_per_w: Annotated[Figure, within(1e-6, 1e6)]


class Sensor(Strict):
    """What governors and the system read in place of a node: a weighted mean of nodes that lags behind, is sampled and comes in steps."""

    name: Name
    weights: dict[Name, Annotated[Number, Field(ge=-10, le=10)]] = Field(min_length=1)
    """Node -> its share in the mean."""
    offset_k: Number = Field(default=0.0, ge=-100, le=100)
    lag_s: Number = Field(default=0.0, ge=0, le=1e5)
    """Time constant of its first-order delay."""
    sampling_s: Number = Field(default=0.0, ge=0, le=1e4)
    """It is read every so often, at multiples of this; what is asked in between gets the last sample. 0: always fresh."""
    step_k: Number = Field(default=0.0, ge=0, le=100)
    """Readings are rounded to multiples of this; 0: not at all."""
    skin: bool = False
    """It counts for the thermal status that apps are told; the hottest of several does."""
    source: str | None = None
    estimated: str | None = None

    @model_validator(mode="after")
    def _origin(self) -> Self:
        check_origin(self.source, self.estimated, "a sensor needs")
        return self


Gain = Annotated[Figure, within(0, 1e6)]


class PowerBudget(Strict):
    """Settings of ``power_allocator`` and ``vendor_pid``. Gains in W/K: mW per millidegree in the kernel.

    What is absent ``power_allocator`` estimates as the Linux kernel does; ``vendor_pid`` needs ``sustainable_w``, and takes no gain
    for zero.
    """

    sustainable_w: Watts | None = None
    """Dynamic power of the cooled processors that the device can shed for ever; None: what they draw at the deepest state allowed."""
    k_po_w_per_k: Gain | None = None
    """Above the control temperature."""
    k_pu_w_per_k: Gain | None = None
    """Below it."""
    k_i_w_per_k: Gain | None = None
    """Of the sum of errors, one a poll."""
    k_d_ws_per_k: Gain | None = None
    """Of the change of the error; None: zero."""
    integral_cutoff_k: Gain | None = None
    """Errors are summed from this far below the control temperature on; None: only above it."""
    weights: dict[Name, Annotated[Figure, within(0, 1e3)]] = Field(default_factory=dict)
    """Weight of what a processor asks for, or of its share in the budget of ``vendor_pid``; 1 where absent."""
    least_w: Watts | None = None
    """``vendor_pid``: the budget is never smaller; None: 0."""
    most_w: Watts | None = None
    """``vendor_pid``: it is never larger; None: without limit."""
    integral_most_w: Watts | None = None
    """``vendor_pid``: what the sum of errors adds or takes at most; None: without limit."""


class Trip(Strict):
    """A trip point: above ``temperature_c`` of ``node``, a node or a sensor, the governor cools ``processors``.

    ``processors`` names whole ones (``cpu``) or clusters (``cpu:prime``). Trips of the same nodes with one polling period, governor and
    ``zone`` belong together.
    """

    node: Name
    also: tuple[Name, ...] = Field(default=(), max_length=64)
    """More nodes and sensors that it reads: the hottest of all counts, as in zones of several sensors."""
    temperature_c: Annotated[Figure, within(0, 500)]
    hysteresis_k: Annotated[Figure, within(0, 500)]
    polling_s: Annotated[Figure, within(1e-3, 1e4)]
    processors: tuple[Name, ...]
    governor: Literal["step_wise", "power_allocator", "vendor_pid", "cap"] = "step_wise"
    """``vendor_pid``: a phone's own controller of a power budget; ``cap``: straight to the deepest state that the trip allows."""
    zone: Name | None = None
    """Which of several controllers of one node it belongs to."""
    upper: Number = Field(default=1.0, gt=0, le=1)
    """Deepest state that it may ask for, as a share of a processor's states: the upper bound of the kernel's cooling map."""
    deepest: dict[Name, Annotated[Figure, within(0, 1000)]] = Field(default_factory=dict)
    """The same as a number of states, for processors or clusters whose table counts so; others have ``upper``."""
    budget: PowerBudget | None = None
    """Of the trip whose temperature is controlled: with ``power_allocator`` the hottest of its node, with ``vendor_pid`` any."""

    @property
    def read(self) -> tuple[str, ...]:
        """All nodes and sensors that it reads."""
        return (self.node, *self.also)

    @model_validator(mode="after")
    def _budget_is_used(self) -> Self:
        if self.budget is None:
            return self
        if self.governor not in ("power_allocator", "vendor_pid"):
            raise ValueError(f"the trip on {self.node!r} has a budget, which only governor: power_allocator and vendor_pid divide")
        limits = (self.budget.least_w, self.budget.most_w, self.budget.integral_most_w)
        if self.governor == "power_allocator" and any(v is not None for v in limits):
            raise ValueError(f"the budget of the trip on {self.node!r} has least_w, most_w or integral_most_w, which only vendor_pid knows")
        if self.governor == "vendor_pid" and self.budget.sustainable_w is None:
            raise ValueError(f"the budget of the vendor_pid trip on {self.node!r} needs sustainable_w")
        return self


class StatusLevel(Strict):
    """From which skin temperature on a phone tells its apps a level, and how far below it stops."""

    name: Literal["LIGHT", "MODERATE", "SEVERE", "CRITICAL", "EMERGENCY", "SHUTDOWN", "fair", "serious", "critical"]
    from_c: Annotated[Figure, within(0, 500)]
    hysteresis_k: Annotated[Figure, within(0, 500)]


class Thermal(Strict):
    """RC network, sensors and trips."""

    nodes: tuple[ThermalNode, ...]
    resistances: tuple[ThermalResistance, ...]
    sensors: tuple[Sensor, ...] = Field(default=(), max_length=64)
    trips: tuple[Trip, ...] = ()
    status: tuple[StatusLevel, ...] = Field(default=(), max_length=6)
    """The phone's own thresholds, all of Android's or all of Apple's levels; empty: the simulator's."""

    @property
    def points(self) -> tuple[str, ...]:
        """Everything that has a temperature: nodes, then sensors."""
        return (*(n.name for n in self.nodes), *(s.name for s in self.sensors))

    @property
    def outer(self) -> tuple[int, ...]:
        """The nodes next to ambient, by number."""
        ends = {n for r in self.resistances if "ambient" in r.between for n in r.between}
        return tuple(i for i, n in enumerate(self.nodes) if n.name in ends)

    @property
    def skin(self) -> tuple[int, ...]:
        """The points whose hottest is the skin to apps and policies: the skin sensors or, without any, the nodes next to ambient."""
        marked = tuple(len(self.nodes) + i for i, s in enumerate(self.sensors) if s.skin)
        return marked or self.outer

    @model_validator(mode="after")
    def _status_is_whole(self) -> Self:
        names = tuple(v.name for v in self.status)
        if names and names not in (ANDROID_LEVELS, IOS_LEVELS):
            raise ValueError(
                f"status has the levels {', '.join(names)}: it must have {', '.join(ANDROID_LEVELS)}, or {', '.join(IOS_LEVELS)}"
            )
        if any(a.from_c.value >= b.from_c.value for a, b in zip(self.status, self.status[1:], strict=False)):
            raise ValueError("the levels of status must begin at ever higher temperatures")
        return self

    @model_validator(mode="after")
    def _names_resolve(self) -> Self:
        names = {n.name for n in self.nodes}
        if len(set(self.points)) < len(self.points) or "ambient" in self.points:
            raise ValueError("two thermal nodes or sensors share a name, or one is called 'ambient', which is implicit")
        strange = next(((s.name, n) for s in self.sensors for n in s.weights if n not in names), None)
        if strange is not None:
            raise ValueError(f"the sensor {strange[0]!r} weighs {strange[1]!r}, which is not a thermal node")
        for r in self.resistances:
            if not set(r.between) <= names | {"ambient"} or r.between[0] == r.between[1]:
                raise ValueError(f"thermal resistance {r.between} names a node that does not exist, or one twice")
        for t in self.trips:
            strangers = [n for n in t.read if n not in self.points]
            if strangers:
                raise ValueError(f"trip on {strangers[0]!r}, which is not a thermal node or a sensor")
        lonely = names - self._cooled()
        if lonely:
            raise ValueError(f"the thermal node {min(lonely)!r} has no path of resistances to 'ambient', so it would only get hotter")
        return self

    def _cooled(self) -> set[str]:
        """Nodes that resistances join to ambient."""
        found, new = {"ambient"}, True
        while new:
            ends = {n for r in self.resistances if set(r.between) & found for n in r.between}
            new = not ends <= found
            found |= ends
        return found
