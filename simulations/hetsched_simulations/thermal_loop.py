"""The thermal loop of multi-rate runs: steps under constant or mean power, the polls of governors, and nothing op by op.

Steps end at every poll that can matter, and sooner while temperatures still move: leakage is evaluated at the start of each.
A zone below its lowest trip with nothing to undo is not polled; when a step would carry it over the trip, the step is taken
again poll by poll.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from hetsched.costs import FloatArray
from hetsched_simulations.cycle import Step
from hetsched_simulations.device import Device
from hetsched_simulations.history import Mode

MIN_STEP_S, MAX_STEP_S = 0.05, 4.0
"""Steps of the thermal loop without polls: the first after a change, and the longest in runs of up to half a day."""
MAX_STEPS = 40_000
"""Longer runs take this many steps at their longest."""
EVEN_K = 0.5
"""A step doubles while no node moves further than this within it, ripple apart: leakage is that of the mean temperature."""

NEAR_K = 0.05
"""How exactly peaks within a step are known."""


class ThermalLoop(ABC):
    """A long run on one device; subclasses say what it does meanwhile."""

    scales = True
    """Whether clocks that follow the load change between steps; False: the steps themselves know what they settle to."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._scale_s = math.inf
        """When they will be changed, as far as is known."""
        self._lowest = [(z.points, z.lowest_mc) for z in device.zones]

    @abstractmethod
    def left_s(self, now_s: float) -> float:
        """Seconds until the end of the run; infinite: not known yet."""

    @abstractmethod
    def turn(self, now_s: float) -> bool:
        """Do what is due now; True if something else is done from now on."""

    @abstractmethod
    def step(self, now_s: float, limit_s: float) -> tuple[float, Mode | Step]:
        """When the step from now ends, at ``limit_s`` or sooner, and what it makes, or what holds throughout."""

    @abstractmethod
    def passed(self, now_s: float, end_s: float) -> None:
        """The last step that was asked for has passed."""

    @abstractmethod
    def clocks_changed(self, now_s: float) -> None:
        """The governor has changed a clock."""

    @abstractmethod
    def done(self, now_s: float) -> float:
        """Share of the run that is done."""

    def loop(self, duration_s: float | None, progress: Callable[[float], None] | None) -> float:
        """Run to the end; when that was."""
        now, reported = 0.0, 0.0
        if self.scales:
            self.device.scale()
        step, longest = MIN_STEP_S, max(MAX_STEP_S, (duration_s or 0.0) / MAX_STEPS)
        polls: dict[int, float] = {}
        while not self.device.off and (left := self.left_s(now)) > 1e-12:
            if self.turn(now):
                step = MIN_STEP_S
                continue
            end, taken = self.step(now, min([now + min(left, step), self.device.next_toggle_s, self._scale_s, *polls.values()]))
            if isinstance(taken, Mode):
                taken = _even(self.device, taken, end - now)
            if self._wake(polls, taken.hottest_c, now, end) or self._scaling(taken.mode, now, end):
                continue
            pace_k_s = taken.moved_k / (end - now)
            if taken.within is not None and (taken.hottest_c > self.device.peak_c + NEAR_K).any():
                hottest_c, after_s = taken.within()
                self.device.saw(hottest_c, now + after_s)
            self.device.advance(now, end, taken.mode, (taken.node_c, taken.static_w))
            end = self.device.history.end_s
            self.passed(now, end)
            now = end
            step = _next_step(step, longest, pace_k_s)
            if self._poll(polls, now) | self._toggle(now) | self._scale(now):
                step = MIN_STEP_S
                self.clocks_changed(now)
            if progress is not None and self.done(now) >= reported + 0.01:
                reported = self.done(now)
                progress(min(reported, 1.0))
        return now

    def _toggle(self, now: float) -> bool:
        """Let a background load stop or start again when it does; True if it did."""
        due = self.device.next_toggle_s <= now + 1e-12
        if due:
            self.device.toggle()
        return due

    def _scaling(self, mode: Mode, now: float, end: float) -> bool:
        """Note when the load of a step changes the clocks that follow it; True if that is within the step."""
        if not self.scales or self.device.schedutil is None:
            return False
        busiest = self.device.busiest(mode.active)
        self._scale_s = self.device.schedutil.next_change_s(self.device.base, busiest, mode.hz, now)
        return self._scale_s < end - 1e-12

    def _scale(self, now: float) -> bool:
        """Let the clocks follow the load when it is time; True if any changed."""
        if now < self._scale_s - 1e-12:
            return False
        self._scale_s = math.inf
        return self.device.scale()

    def _wake(self, polls: dict[int, float], node_c: FloatArray, now: float, end: float) -> bool:
        """Start polling the quiet zones that this step would carry over a trip; True if one is due within the step."""
        again = False
        for i, (points, lowest_mc) in enumerate(self._lowest):
            if i not in polls and round(1000 * float(node_c[points].max())) >= lowest_mc:
                zone = self.device.zones[i]
                polls[i] = zone.next_poll(now)
                zone.skipped(round(1000 * float(self.device.node_c[points].max())))
                again = again or polls[i] < end - 1e-12
        return again

    def _poll(self, polls: dict[int, float], now: float) -> bool:
        changed = False
        for i in sorted(polls):
            if polls[i] <= now + 1e-12:
                zone = self.device.zones[i]
                changed = self.device.poll(zone, now) or changed
                polls[i] = zone.next_poll(now)
                if zone.quiet:
                    del polls[i]
        return changed


def _even(device: Device, mode: Mode, seconds: float) -> Step:
    """A step throughout which the same holds; leakage is that of its mean temperatures."""
    node_c, static_w = device.preview(mode, seconds, grid=True)
    if device.network is not None:
        mean_c = device.network.modes().mean_c(device.node_c, node_c, seconds)
        node_c, static_w = device.preview(mode, seconds, True, mean_c)
    moved = np.abs(node_c - device.node_c)
    return Step(node_c, static_w, mode, np.maximum(device.node_c, node_c), float(moved.max()))


def _next_step(step_s: float, longest_s: float, pace_k_s: float) -> float:
    """Twice as long while the fastest node stays even, half as long once it does not."""
    if 2.0 * step_s * pace_k_s <= EVEN_K:
        return min(2.0 * step_s, longest_s)
    return max(step_s / 2.0, MIN_STEP_S) if step_s * pace_k_s > EVEN_K else step_s
