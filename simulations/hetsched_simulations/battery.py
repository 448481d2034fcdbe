"""The battery of a run: what it gives, what it takes, and what that costs in heat.

A voltage source of ``V(charge)`` behind a resistance. With ``P`` at its terminals the current ``I`` solves ``P = V I - R I^2``
(discharging) or ``P = V I + R I^2`` (charging); the store changes by ``V I`` watts, and ``R I^2`` heats it. The charge is the share
of the energy that is left, so that what the store loses is what was drawn and the losses, exactly.

With a charger the phone runs from the cable first. What is left goes into the battery, as far as its charging steps (constant
current, then constant voltage) and, while the phone is hot, the budget of its controller allow. The converter between loses a share
of what comes in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hetsched import plain_yaml
from hetsched.errors import OptionError, SoCError
from hetsched.soc_battery import Battery
from hetsched.soc_quantities import Figure
from hetsched.socs import SoC
from hetsched_simulations.vendor_pid import VendorPid
from hetsched_simulations.zones import Actors, Trip

PHONES = Path(__file__).with_name("phones.yaml")
HELD = ("mid", "premium", "flagship")
"""Tiers of the market whose devices have the battery of a phone unless their files say otherwise."""


@cache
def phones() -> dict[str, Any]:
    """The table of what phones have."""
    found: dict[str, Any] = plain_yaml.load(PHONES.read_text(encoding="utf-8"))
    return found


def battery_of(soc: SoC) -> Battery | None:
    """The battery of a SoC's device: the file's own, that of a phone, or none."""
    if soc.battery is not None:
        return soc.battery
    if soc.market is None or soc.market.tier not in HELD:
        return None
    raw = dict(phones()["battery"])
    if soc.vendor == "Apple":
        raw["capacity_wh"] = phones()["apple_capacity_wh"]
    return Battery.model_validate(raw)


class Flow(NamedTuple):
    """What holds during an interval, in watts."""

    store_w: float
    """What the store gives; less than nothing: takes."""
    loss_w: float
    """What heats the battery."""
    input_w: float
    """What comes in over the cable."""
    conversion_w: float
    """What heats the charger."""


class Store:
    """The battery of one run."""

    def __init__(self, battery: Battery, charge: float, charging_w: float = 0.0) -> None:
        """``charging_w``: what the cable can give."""
        self.battery, self.charging_w = battery, charging_w
        self.capacity_j = 3600.0 * float(battery.capacity_wh)
        self.held_j = charge * self.capacity_j
        self.limit_w = math.inf
        """Of what goes into the battery."""
        self._v = np.array(battery.open_circuit_v.v)
        self._charges = np.array(battery.open_circuit_v.charge)
        self._r = float(battery.resistance_ohm)
        mean_v = float(np.sum(np.diff(self._charges) * (self._v[1:] + self._v[:-1]) / 2))
        hour_a = float(battery.capacity_wh) / mean_v
        self._steps = [(float(s.c_rate) * hour_a, float(s.until_v)) for s in battery.charge]
        self.efficiency = float(battery.charger_efficiency)

    @property
    def charge(self) -> float:
        """State of charge, 0 to 1."""
        return self.held_j / self.capacity_j

    def open_v(self) -> float:
        """Voltage without current."""
        return float(np.interp(self.charge, self._charges, self._v))

    def flow(self, device_w: float) -> Flow:
        """What flows while the device draws so much.

        Raises:
            SoCError: no current makes so much power.
        """
        v, r = self.open_v(), self._r
        spare_w = self.efficiency * self.charging_w - device_w
        if spare_w < 0:
            drawn = -spare_w
            inner = v * v - 4.0 * r * drawn
            if inner < 0:
                raise SoCError(f"the battery cannot give {drawn:.3g} W: at {v:.3g} V and {r:g} ohm it gives {v * v / 4 / r:.3g} W at most")
            amperes = 2.0 * drawn / (v + math.sqrt(inner))
            loss, into = r * amperes * amperes, 0.0
            store = drawn + loss
        else:
            amperes = self._accepted_a(v, min(spare_w, self.limit_w))
            loss = r * amperes * amperes
            into = v * amperes + loss
            store = -v * amperes
        supplied = min(device_w, self.efficiency * self.charging_w) + into
        taken = supplied / self.efficiency
        return Flow(store, loss, taken, taken - supplied)

    def _accepted_a(self, v: float, most_w: float) -> float:
        """Current into the battery from ``most_w`` watts: at most what the charging steps allow at this voltage."""
        amperes = 2.0 * most_w / (v + math.sqrt(v * v + 4.0 * self._r * most_w))
        by_voltage = [min(a, (until - v) / self._r if self._r > 0 else math.inf) for a, until in self._steps if until > v]
        return min(amperes, max(by_voltage, default=0.0)) if self.held_j < self.capacity_j else 0.0

    def lasts_s(self, flow: Flow) -> float:
        """Seconds until the battery is empty or, charging, full, if this goes on."""
        if flow.store_w > 0:
            return self.held_j / flow.store_w
        return (self.capacity_j - self.held_j) / -flow.store_w if flow.store_w < 0 else math.inf

    def pass_time(self, flow: Flow, seconds: float) -> None:
        """Let an interval pass."""
        self.held_j = min(max(self.held_j - flow.store_w * seconds, 0.0), self.capacity_j)


@dataclass(slots=True)
class ChargeZone(VendorPid):
    """The controller that limits charging while the phone is hot; it cools no processor."""

    limit_w: float = math.inf

    def update(self, now_mc: int, actors: Actors) -> None:
        """Set the limit of what goes into the battery."""
        budget = self.budget_w(now_mc)
        self.limit_w = math.inf if budget is None else budget


def charge_zone(soc: SoC, battery: Battery) -> ChargeZone | None:
    """The controller of a battery's charging; None where heat does not slow it down."""
    hot = battery.hot
    points = soc.thermal.points
    if hot is None or not points:
        return None
    point = points.index(hot.node) if hot.node in points else next(iter(soc.thermal.skin), None)
    if point is None:
        return None
    spans = [(float(hot.from_c), float(hot.hysteresis_k)), (float(hot.control_c), float(hot.hysteresis_k))]
    trips = [Trip(round(1000 * c), round(1000 * k), ()) for c, k in spans]
    return ChargeZone(point, "charging", float(hot.polling_s), trips, [None, hot.budget], [{}, {}])


def stored(soc: SoC, charge: float | None, charging_w: float) -> Store | None:
    """The battery of a run that begins with this charge; None: the run has none.

    Raises:
        OptionError: something is to be charged that has no battery.
    """
    battery = battery_of(soc)
    if battery is not None and charge is not None:
        return Store(battery, charge, charging_w)
    if charging_w > 0:
        what = (
            f"{soc.name} has no battery to charge: describe one in its file"
            if battery is None
            else "charging needs a state of charge to begin with"
        )
        raise OptionError(f"{what} (docs/soc_files.md)" if battery is None else f"{what}: give --battery")
    return None


def display_w(nits: float) -> float:
    """What a phone's display draws at a brightness."""
    table = phones()["display"]
    return float(Figure.model_validate(table["on_w"])) + nits * float(Figure.model_validate(table["w_per_nit"]))
