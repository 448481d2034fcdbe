"""What feeds a run, its battery and perhaps a cable: which nodes they heat, what they gave, and what is left."""

from __future__ import annotations

from math import inf

import numpy as np

from hetsched.costs import FloatArray
from hetsched.socs import SoC
from hetsched.trace import Instant, Trace
from hetsched_simulations.battery import ChargeZone, Flow, Store, charge_zone
from hetsched_simulations.history import Columns, write_points, write_rate
from hetsched_simulations.power import entry
from hetsched_simulations.result import BatteryUse
from hetsched_simulations.thermal import Network


class Supply:
    """The battery of a run, with its flows since the start, one an interval of the history."""

    def __init__(self, soc: SoC, store: Store) -> None:
        self.store = store
        self.zone: ChargeZone | None = charge_zone(soc, store.battery) if store.charging_w > 0 else None
        self._began_j = store.held_j
        self._into = np.stack([entry(soc, "battery"), entry(soc, "charger")])
        self._flows: list[Flow] = []
        self._held_j: list[float] = []
        self.empty_s: float | None = None

    @property
    def charge(self) -> float:
        """State of charge, 0 to 1."""
        return self.store.charge

    def polled(self) -> None:
        """The controller of charging has looked at the temperature."""
        if self.zone is not None:
            self.store.limit_w = self.zone.limit_w

    def feed(
        self, drawn_w: float, start_s: float, end_s: float, node_c: tuple[FloatArray, FloatArray], network: Network | None
    ) -> tuple[float, FloatArray]:  # fmt: skip
        """Feed a device that draws so much, as long as the battery lasts.

        Args:
            drawn_w: by the device.
            start_s: of the interval.
            end_s: of the interval.
            node_c: temperatures at both, [n] each, without what losses add.
            network: of the device; None: temperatures stay.

        Returns:
            when the interval ended, and the temperatures then.
        """
        flow = self.store.flow(drawn_w)
        before, after = node_c
        lasts = self.store.lasts_s(flow) if flow.store_w > 0 else inf
        emptied = start_s + lasts <= end_s
        if emptied:
            after = before + (after - before) * (lasts / (end_s - start_s))
            end_s = start_s + lasts
        if network is not None:
            after = after + network.rise(np.array([flow.loss_w, flow.conversion_w]) @ self._into, end_s - start_s)
        self._flows.append(flow)
        self._held_j.append(self.store.held_j)
        self.store.pass_time(flow, end_s - start_s)
        if emptied:
            self.store.held_j, self.empty_s = 0.0, end_s
        return end_s, after

    def heat_j(self, first: int, seconds: FloatArray) -> FloatArray:
        """[n] joules that losses put into each node in the intervals from ``first`` on, of these lengths."""
        lost = np.array([(f.loss_w, f.conversion_w) for f in self._flows[first:]]).reshape(-1, 2)
        return np.asarray(seconds @ lost @ self._into)

    def use(self, columns: Columns) -> BatteryUse:
        """What the run took from the battery and from the cable."""
        store, loss, taken, lost = (float(v) for v in columns.seconds @ np.array(self._flows))
        capacity = self.store.capacity_j
        return BatteryUse(
            capacity / 3600, self._began_j / capacity, self.charge, store, loss, taken, lost, float(columns.seconds.sum()), self.empty_s
        )

    def write(self, trace: Trace, columns: Columns) -> None:
        """Add the charge, what the battery gives (less than nothing: takes) and what comes over the cable to a trace."""
        end_s = float(columns.start_s[-1] + columns.seconds[-1])
        charge = np.array([*self._held_j, self.store.held_j]) / self.store.capacity_j
        write_points(trace, "battery/charge", "1", np.append(columns.start_s, end_s), charge)
        flows = np.array(self._flows)
        write_rate(trace, "power/battery", "W", columns.start_s, flows[:, 0], end_s)
        if self.store.charging_w > 0:
            write_rate(trace, "power/cable", "W", columns.start_s, flows[:, 2], end_s)
        if self.empty_s is not None:
            trace.instants.append(Instant("battery", "empty", self.empty_s, "the phone goes off"))
