"""A phone's own thermal controllers, as tables in its SoC file give them: a PID for a power budget, and hard caps by temperature.

``vendor_pid`` is that of Pixel phones (LineageOS ``android_hardware_google_pixel``, ``thermal_throttling.cpp``). Its trips are
the thresholds of one sensor; those with a budget are set points, each with its own gains. While ``k >= 1`` trips have fired, at
every poll, the set point is the first one above the ``k``-th trip, or the last one, and::

    e      = T_set - T
    p      = (e < 0 ? k_po : k_pu) e
    i      = i + k_i e, only while e < integral_cutoff, from -integral_most to +integral_most
    d      = k_d (e - previous e) / polling period
    budget = sustainable power + p + i + d, from least to most
    share  = budget x weight / sum of weights; a device that is free and draws less than its share leaves the rest to the others
    state  = the fastest operating point whose power at full load is within the share, at most the deepest one of the ``k``-th trip

With no trip fired the sum is forgotten and all devices are free. The phone's controller also follows what its power rails measure
with a delay of its own; here rails show at once what a device draws. ``cap`` holds devices at the deepest state that the hottest
trip which has fired allows (``LimitInfo`` there).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from hetsched.costs import FloatArray
from hetsched.soc_quantities import Figure
from hetsched.soc_thermal import PowerBudget
from hetsched_simulations.zones import Actors, Zone


@dataclass(slots=True)
class BudgetPid:
    """The sum of errors, in watts, and the last error, in kelvin."""

    period_s: float
    integral_w: float = 0.0
    last_k: float | None = None

    def budget_w(self, budget: PowerBudget, set_c: float, now_c: float) -> float:
        """Power for all devices together at this temperature; remembers the error."""
        error = set_c - now_c
        p = _given(budget.k_po_w_per_k if error < 0 else budget.k_pu_w_per_k) * error
        if error < _given(budget.integral_cutoff_k):
            most = _given(budget.integral_most_w, np.inf)
            self.integral_w = min(max(self.integral_w + _given(budget.k_i_w_per_k) * error, -most), most)
        d = 0.0 if self.last_k is None else _given(budget.k_d_ws_per_k) * (error - self.last_k) / self.period_s
        self.last_k = error
        whole = _given(budget.sustainable_w) + p + self.integral_w + d
        return min(max(whole, _given(budget.least_w)), _given(budget.most_w, np.inf))

    def reset(self) -> None:
        """Forget the errors."""
        self.integral_w, self.last_k = 0.0, None


def _given(figure: Figure | None, otherwise: float = 0.0) -> float:
    return otherwise if figure is None else float(figure)


@dataclass(slots=True)
class VendorPid(Zone):
    """A zone that keeps its devices within the budget of the PID."""

    budgets: Sequence[PowerBudget | None]
    """Per trip, in the order of their temperatures; None: no set point."""
    weights: Sequence[dict[int, float]]
    """Per trip: device -> weight."""
    states: dict[int, int] = field(default_factory=dict)
    pid: BudgetPid = field(init=False)
    _seen_s: float = 0.0
    _busy_s: FloatArray | None = None

    def __post_init__(self) -> None:
        self.pid = BudgetPid(self.polling_s)

    @property
    def fired(self) -> int:
        """How many trips have fired."""
        return sum(t.fired for t in self.trips)

    def budget_w(self, now_mc: int) -> float | None:
        """The budget now; None while no trip has fired."""
        if not self.fired:
            self.pid.reset()
            return None
        at = self._set_point()
        budget = self.budgets[at]
        assert budget is not None  # a set point is a trip with a budget
        return self.pid.budget_w(budget, self.trips[at].temperature_mc / 1000, now_mc / 1000)

    def _set_point(self) -> int:
        above = [k for k, b in enumerate(self.budgets) if b is not None and k >= self.fired]
        return above[0] if above else max(k for k, b in enumerate(self.budgets) if b is not None)

    def update(self, now_mc: int, actors: Actors) -> None:
        """Divide the budget anew, or let go of everything."""
        budget = self.budget_w(now_mc)
        load = self._load(actors)
        if budget is None:
            self.states = {}
            return
        k = self.fired - 1
        granted = self._shares(budget, self.weights[self._set_point()], load, actors)
        deepest = dict(self.trips[k].bound)
        self.states = {
            d: min(next((s for s, mw in enumerate(actors.power_mw[d]) if mw / 1000 <= w), len(actors.power_mw[d]) - 1), deepest.get(d, 0))
            for d, w in granted.items()
        }

    def _shares(self, budget_w: float, weights: dict[int, float], load: FloatArray, actors: Actors) -> dict[int, float]:
        """Device -> its share of the budget, in watts; free devices that draw less get the power of their top."""
        total = sum(weights.values())
        draws = {d: actors.power_mw[d][actors.at[d]] / 1000 * float(load[d]) for d in weights}
        idle = [d for d, w in weights.items() if draws[d] < budget_w * w / total and not self.states.get(d, 0)]
        left_w, left = budget_w - sum(draws[d] for d in idle), total - sum(weights[d] for d in idle)
        return {d: actors.power_mw[d][0] / 1000 if d in idle else max(left_w, 0.0) * w / left for d, w in weights.items()}

    def _load(self, actors: Actors) -> FloatArray:
        """[d] the share of the time since the last poll at work."""
        before = np.zeros_like(actors.busy_s) if self._busy_s is None else self._busy_s
        share = (actors.busy_s - before) / max(actors.elapsed_s - self._seen_s, 1e-12)
        self._busy_s, self._seen_s = actors.busy_s.copy(), actors.elapsed_s
        return np.asarray(np.clip(share, 0.0, 1.0))

    def targets(self) -> Iterator[tuple[int, int]]:
        """(device, state) of every device while the controller is on."""
        return iter(self.states.items())

    def skipped(self, now_mc: int) -> None:
        """Polls below the first trip change nothing."""


@dataclass(slots=True)
class Cap(Zone):
    """A zone that holds devices at fixed states while its trips have fired."""

    states: dict[int, int] = field(default_factory=dict)

    def update(self, now_mc: int, actors: Actors) -> None:
        """Take the deepest state of all trips that have fired."""
        self.states = {}
        for device, state in (b for t in self.trips if t.fired for b in t.bound):
            self.states[device] = max(self.states.get(device, 0), state)

    def targets(self) -> Iterator[tuple[int, int]]:
        """(device, state) of every device that is held."""
        return iter(self.states.items())

    def skipped(self, now_mc: int) -> None:
        """Polls below the first trip change nothing."""
