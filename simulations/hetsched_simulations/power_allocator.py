"""The kernel's ``power_allocator`` thermal governor (IPA): a PID for the power, divided between the devices by what they ask.

As in Linux ``drivers/thermal/gov_power_allocator.c``, ``cpufreq_cooling.c`` and ``devfreq_cooling.c``: integer milliwatts and
millidegrees, gains as fixed point with 10 fractional bits (a gain in W/K is one in mW per millidegree). The lowest trip of a
zone switches it on, the highest one is the temperature that it controls, with the devices that it divides among. At every poll
over the switch-on trip::

    e      = T_control - T
    p      = (e < 0 ? k_po : k_pu) e
    i      = k_i sum(e), summed only while e < integral_cutoff and |k_i sum(e)| < the power of all devices at their top
    d      = k_d (e - previous e) / polling period in milliseconds
    budget = sustainable power + p + i + d, from 0 to the power of all devices at their top
    grant  = budget shared in the proportion weight x requested power, at most the power at the top;
             what is cut off there goes to the others in the proportion of what they lack to their top
    state  = the fastest operating point whose power at the present load is within the grant

Requested is the energy model's power at the present clock, times the load: the share of the time since the last division in
which the device worked. Where nobody asks for anything, everybody gets the top (kernels since 6.13). Below the switch-on trip
the sum is cleared and all devices are free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from hetsched.costs import FloatArray
from hetsched.soc_quantities import Figure
from hetsched.soc_thermal import PowerBudget
from hetsched_simulations.zones import Actors, Zone

FRAC_BITS = 10
ONE = 1 << FRAC_BITS


@dataclass(frozen=True, slots=True)
class Gains:
    """Sustainable power in mW, gains in fixed point, the cut-off of the integral in millidegrees."""

    sustainable_mw: int
    k_po: int
    k_pu: int
    k_i: int
    k_d: int
    cutoff_mc: int

    @classmethod
    def of(cls, budget: PowerBudget, control_mc: int, switch_on_mc: int | None, least_mw: int) -> Self:
        """What the SoC file says, else the kernel's estimates.

        Args:
            budget: of the SoC file.
            control_mc: the control temperature.
            switch_on_mc: the switch-on temperature; None: the zone has one trip.
            least_mw: power of all devices at the deepest state that the trip may ask for.
        """
        sustainable = least_mw if budget.sustainable_w is None else round(1000 * float(budget.sustainable_w))
        span = max(control_mc - (switch_on_mc or 0), 1)
        k_pu = _fixed(budget.k_pu_w_per_k, (2 * sustainable << FRAC_BITS) // span)
        return cls(
            sustainable,
            _fixed(budget.k_po_w_per_k, (sustainable << FRAC_BITS) // span),
            k_pu,
            _fixed(budget.k_i_w_per_k, max(k_pu // 10, 1)),
            1000 * _fixed(budget.k_d_ws_per_k, 0),
            0 if budget.integral_cutoff_k is None else round(1000 * float(budget.integral_cutoff_k)),
        )


def _fixed(given: Figure | None, default: int) -> int:
    return default if given is None else round(ONE * float(given))


@dataclass(slots=True)
class Pid:
    """The controller and its memory: the sum of errors and the last one, in fixed-point millidegrees."""

    gains: Gains
    period_ms: int
    integral: int = 0
    last: int = 0

    def budget_mw(self, control_mc: int, now_mc: int, most_mw: int) -> int:
        """Power for all devices together at this temperature; remembers the error."""
        g = self.gains
        error = (control_mc - now_mc) << FRAC_BITS
        p = _mul(g.k_po if error < 0 else g.k_pu, error)
        i = _mul(g.k_i, self.integral)
        if error < g.cutoff_mc << FRAC_BITS:
            more = i + _mul(g.k_i, error)
            if abs(more) < most_mw << FRAC_BITS:
                i = more
                self.integral += error
        d = _mul(g.k_d, error - self.last) // self.period_ms
        self.last = error
        return min(max(g.sustainable_mw + ((p + i + d) >> FRAC_BITS), 0), most_mw)

    def reset(self) -> None:
        """Forget the errors."""
        self.integral = self.last = 0


def _mul(x: int, y: int) -> int:
    return (x * y) >> FRAC_BITS


def divide(budget_mw: int, weighted_mw: Sequence[int], most_mw: Sequence[int]) -> list[int]:
    """Power granted to every device.

    Args:
        budget_mw: for all together.
        weighted_mw: per device, weight times requested power.
        most_mw: per device, what it can use.
    """
    total = sum(weighted_mw)
    if total == 0:
        return list(most_mw)
    asked = [_closest(w * budget_mw, total) for w in weighted_mw]
    granted = [min(a, m) for a, m in zip(asked, most_mw, strict=True)]
    lacking = [m - g for g, m in zip(granted, most_mw, strict=True)]
    room = sum(lacking)
    spare = min(sum(asked) - sum(granted), room)
    return granted if spare == 0 else [g + _closest(k * spare, room) for g, k in zip(granted, lacking, strict=True)]


def _closest(x: int, divisor: int) -> int:
    return (x + divisor // 2) // divisor


def state_within(granted_mw: int, load: int, power_mw: Sequence[int], upper: int) -> int:
    """The first state from the top whose power at this load (of 1024) is within the grant; at most ``upper``."""
    at_full_load = (granted_mw << FRAC_BITS) // max(load, 1)
    return next((k for k, p in enumerate(power_mw[: upper + 1]) if p <= at_full_load), upper)


@dataclass(slots=True)
class PowerAllocator(Zone):
    """A zone that divides a power budget between the devices of its highest trip."""

    budget: PowerBudget
    weights: Sequence[int]
    """Per device bound to the highest trip, in fixed point."""
    states: dict[int, int] = field(default_factory=dict)
    _pid: Pid | None = None
    _seen_s: float = 0.0
    _busy_s: FloatArray | None = None

    def __post_init__(self) -> None:
        self.trips.sort(key=lambda t: t.temperature_mc)

    @property
    def switch_on_mc(self) -> int | None:
        """Where control starts; None with a single trip: always."""
        return self.trips[0].temperature_mc if len(self.trips) > 1 else None

    @property
    def lowest_mc(self) -> int:
        """The switch-on trip."""
        return -1_000_000 if self.switch_on_mc is None else self.switch_on_mc - self.step_mc // 2

    @property
    def quiet(self) -> bool:
        """No trip has fired and the controller is off."""
        return self.switch_on_mc is not None and not any(t.fired for t in self.trips) and not self.states

    def update(self, now_mc: int, actors: Actors) -> None:
        """Divide the budget anew, or let go of everything below the switch-on trip."""
        control = self.trips[-1]
        bound, power = control.bound, actors.power_mw
        if self._pid is None:
            least = sum(power[d][upper] for d, upper in bound)
            gains = Gains.of(self.budget, control.temperature_mc, self.switch_on_mc, least)
            self._pid = Pid(gains, max(round(1000 * self.polling_s), 1))
        if self.switch_on_mc is not None and now_mc < self.switch_on_mc:
            self._pid.reset()
            self.states = {}
            return
        load = self._load(actors)
        requested = [power[d][actors.at[d]] * load[d] >> FRAC_BITS for d, _ in bound]
        weighted = [w * r >> FRAC_BITS for w, r in zip(self.weights, requested, strict=True)]
        most = [power[d][0] for d, _ in bound]
        granted = divide(self._pid.budget_mw(control.temperature_mc, now_mc, sum(most)), weighted, most)
        self.states = {d: state_within(g, load[d], power[d], upper) for g, (d, upper) in zip(granted, bound, strict=True)}

    def _load(self, actors: Actors) -> list[int]:
        """Per device: its load since the last division, of 1024."""
        before = np.zeros_like(actors.busy_s) if self._busy_s is None else self._busy_s
        share = (actors.busy_s - before) / max(actors.elapsed_s - self._seen_s, 1e-12)
        self._busy_s, self._seen_s = actors.busy_s.copy(), actors.elapsed_s
        return [int(v) for v in np.rint(ONE * np.clip(share, 0.0, 1.0))]

    def targets(self) -> Iterator[tuple[int, int]]:
        """(device, state) of every bound device while the controller is on."""
        return iter(self.states.items())

    def skipped(self, now_mc: int) -> None:
        """Polls below the switch-on trip change nothing."""
