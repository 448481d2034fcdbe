"""The battery of a phone, as a SoC file or the table of classes describes it: capacity, voltage, resistance, charging."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from hetsched.soc_quantities import Figure, Name, Number, Strict, check_origin, within
from hetsched.soc_thermal import PowerBudget


class OpenCircuit(Strict):
    """Voltage without current at some states of charge, straight lines between them."""

    charge: tuple[Annotated[Number, Field(ge=0, le=1)], ...] = Field(min_length=2, max_length=256)
    """From 0 to 1, ascending."""
    v: tuple[Annotated[Number, Field(ge=0.5, le=100)], ...]
    source: str | None = None
    estimated: str | None = None

    @model_validator(mode="after")
    def _curve(self) -> Self:
        check_origin(self.source, self.estimated, "the open-circuit voltage needs")
        ascending = all(a < b for a, b in zip(self.charge, self.charge[1:], strict=False))
        if not ascending or self.charge[0] != 0 or self.charge[-1] != 1 or len(self.v) != len(self.charge):
            raise ValueError("the open-circuit voltage needs states of charge from 0 to 1, ascending, and as many voltages")
        if any(a > b for a, b in zip(self.v, self.v[1:], strict=False)):
            raise ValueError("the open-circuit voltage must not fall while the charge rises")
        return self


class ChargeStep(Strict):
    """Constant current until the terminals reach a voltage, then that voltage until the next step takes more."""

    c_rate: Annotated[Figure, within(0, 20)]
    """Current as a multiple of what empties the battery in an hour."""
    until_v: Annotated[Figure, within(0.5, 100)]


class HotCharging(Strict):
    """A controller that leaves the battery less power while the phone is warm: a ``vendor_pid`` of one device, the charger."""

    node: Name
    """A thermal node or a sensor."""
    from_c: Annotated[Figure, within(0, 500)]
    """It works from here on."""
    control_c: Annotated[Figure, within(0, 500)]
    hysteresis_k: Annotated[Figure, within(0, 500)]
    polling_s: Annotated[Figure, within(1e-3, 1e4)]
    budget: PowerBudget

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.budget.sustainable_w is None:
            raise ValueError("the budget of hot charging needs sustainable_w")
        if self.from_c.value >= self.control_c.value:
            raise ValueError(
                f"hot charging is controlled to {self.control_c.value:g} °C from {self.from_c.value:g} °C on: it must begin below"
            )
        return self


class Battery(Strict):
    """A battery and its charger. The state of charge is the share of the energy that it holds."""

    capacity_wh: Annotated[Figure, within(1e-3, 1e5)]
    open_circuit_v: OpenCircuit
    resistance_ohm: Annotated[Figure, within(0, 10)]
    charge: tuple[ChargeStep, ...] = Field(min_length=1, max_length=64)
    """By rising voltage and falling current; the last voltage is what a full battery is held at."""
    charger_efficiency: Annotated[Figure, within(0.01, 1)]
    """Of what comes over the cable, the share that the phone and its battery get; the rest heats the charger."""
    hot: HotCharging | None = None
    """None: heat does not slow charging down."""

    @model_validator(mode="after")
    def _steps_descend(self) -> Self:
        for a, b in zip(self.charge, self.charge[1:], strict=False):
            if a.until_v.value >= b.until_v.value or a.c_rate.value < b.c_rate.value:
                raise ValueError("the steps of charge must rise in voltage and not in current")
        return self
