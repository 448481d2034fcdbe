"""The heat side of a SoC file: the RC network, trip points and the power budget that a governor divides."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hetsched.soc_quantities import Figure, Name, Number, Strict, Watts, within


class ThermalNode(Strict):
    """A lump of heat capacity. Processors are named in ``processors``; ambient is implicit."""

    name: Name
    capacity_j_per_k: Annotated[Figure, within(1e-6, 1e9)]
    processors: tuple[Name, ...] = ()


class ThermalResistance(Strict):
    """A heat path; ``ambient`` may be one end."""

    between: tuple[Name, Name]
    k_per_w: Annotated[Figure, within(1e-6, 1e6)]


Gain = Annotated[Figure, within(0, 1e6)]


class PowerBudget(Strict):
    """Settings of ``power_allocator``; what is absent is estimated as the Linux kernel does. Gains in W/K: mW per millidegree there."""

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
    """Weight of what a processor asks for; 1 where absent."""


class Trip(Strict):
    """A trip point: above ``temperature_c`` of ``node`` the governor cools ``processors``."""

    node: Name
    temperature_c: Annotated[Figure, within(0, 500)]
    hysteresis_k: Annotated[Figure, within(0, 500)]
    polling_s: Annotated[Figure, within(1e-3, 1e4)]
    processors: tuple[Name, ...]
    governor: Literal["step_wise", "power_allocator"] = "step_wise"
    upper: Number = Field(default=1.0, gt=0, le=1)
    """Deepest state that it may ask for, as a share of a processor's states: the upper bound of the kernel's cooling map."""
    budget: PowerBudget | None = None
    """Of the trip whose temperature ``power_allocator`` controls: the hottest of its node."""

    @model_validator(mode="after")
    def _budget_is_used(self) -> Self:
        if self.budget is not None and self.governor != "power_allocator":
            raise ValueError(f"the trip on {self.node!r} has a budget, which only governor: power_allocator divides")
        return self


class Thermal(Strict):
    """RC network, sensors and trips."""

    nodes: tuple[ThermalNode, ...]
    resistances: tuple[ThermalResistance, ...]
    trips: tuple[Trip, ...] = ()

    @model_validator(mode="after")
    def _names_resolve(self) -> Self:
        names = {n.name for n in self.nodes}
        if len(names) < len(self.nodes) or "ambient" in names:
            raise ValueError("two thermal nodes share a name, or one is called 'ambient', which is implicit")
        for r in self.resistances:
            if not set(r.between) <= names | {"ambient"} or r.between[0] == r.between[1]:
                raise ValueError(f"thermal resistance {r.between} names a node that does not exist, or one twice")
        for t in self.trips:
            if t.node not in names:
                raise ValueError(f"trip on {t.node!r}, which is not a thermal node")
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
