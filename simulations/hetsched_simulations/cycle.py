"""One inference after another in one state: what they draw within an inference, and what that does to the temperatures, exactly.

An inference is cut into bins of equal length. Power is constant within a bin, so a mode of the thermal network (rate ``r``)
that is at ``z`` at the start of an inference is at ``z exp(-r t) + G(t)`` after ``t``, where ``G`` is tabulated once at the bins' edges.
Any number of whole inferences is a geometric sum of ``G``, so that a step of any length costs the same and ends at the very
temperatures of that moment: the ripple within an inference is not averaged away. Only leakage, which depends on the temperature, is
taken as constant over a step: at the mean temperature of the time in which each cluster leaks, as if power were the same throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hetsched.costs import FloatArray
from hetsched_simulations.device import Device
from hetsched_simulations.flow import Profile, Split, next_arrival
from hetsched_simulations.history import Mode

BIN_S, FEWEST, MOST = 0.5e-3, 16, 1024
"""Bins are about this long, and so many an inference."""


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """What a step makes: temperatures at its end ([n]), mean static power ([c]), the mean of what holds, and the hottest that nodes get."""

    node_c: FloatArray
    static_w: FloatArray
    mode: Mode
    hottest_c: FloatArray
    """At least what any moment of the step has."""
    moved_k: float
    """By how much the node that moves most does, ripple apart."""
    within: Callable[[], tuple[FloatArray, FloatArray]] | None = None
    """The hottest that every node gets within it ([n]), and how long after its start; None: at an end."""


class Cycle:
    """Inferences of one state, one every ``cycle_s``, on one device."""

    def __init__(
        self, key: Hashable, device: Device, profile: Profile, cycle_s: float, period_s: float | None = None, mode: Mode | None = None
    ) -> None:  # fmt: skip
        """Tabulate one.

        Args:
            key: names the state.
            device: at the clocks of the state.
            profile: the inference.
            cycle_s: from the start of an inference to the next.
            period_s: the grid of arrivals; None: the next begins as long after the end of an inference as ``cycle_s`` says.
            mode: what holds on average, instead of the profile's pieces (clocks that follow the load have no single state).
        """
        self.key, self.profile, self.cycle_s, self._device, self._period_s = key, profile, cycle_s, device, period_s
        self.latency_s = profile.latency_s
        self._c, self._q = len(device.hz), len(profile.busy_s)
        self._leakage_25_w = device.leakage_25_w if mode is None else mode.leakage_25_w / np.maximum(mode.active, 1e-12)
        now = device if mode is None else mode
        self.hz, self._throttled, self._other = now.hz, now.throttled, now.other
        self._tabulate(_columns(device, profile) if mode is None else _constant(mode, cycle_s), mode is None)
        self._heat(device)

    def _tabulate(self, pieces: tuple[FloatArray, FloatArray], rests: bool) -> None:
        """Sums of every column at the bins' edges, and the rates while nothing runs."""
        end_s, rates = pieces
        length = float(end_s[-1]) if len(end_s) else 0.0
        bins = int(np.clip(np.ceil(length / BIN_S), FEWEST, MOST)) if rests else 1
        self._bin_s = max(length, 1e-12) / bins
        self._length_s = length
        at = np.concatenate([[0.0], end_s])
        sums = np.vstack([np.zeros(rates.shape[1]), np.cumsum(rates * np.diff(at)[:, None], axis=0)])
        edges = np.linspace(0.0, length, bins + 1)
        k = np.clip(np.searchsorted(at, edges, side="right") - 1, 0, max(len(at) - 2, 0))
        inner = rates[k] if len(rates) else np.zeros((bins + 1, rates.shape[1]))
        self._sums = sums[k] + inner * (edges - at[k])[:, None]
        self._rest = np.zeros(rates.shape[1])
        if rests:
            device, c = self._device, self._c
            self._rest[:c], self._rest[c : 2 * c] = device.dynamic_w * device.taken, device.taken
            self._rest[2 * c : 3 * c], self._rest[-1] = 1.0 - device.taken, device.other_bytes_s

    def _heat(self, device: Device) -> None:
        """Tabulate ``G`` for what is fixed and per cluster for leakage at 25 degrees, and the periodic ripple."""
        network, power, c = device.network, device.power, self._c
        self.ripple_c = np.zeros(len(device.node_c))
        if network is None:
            return
        self._modes = network.modes()
        into, of_cluster = self._modes.into, power.heat[:, :c]
        per_column = np.zeros((self._sums.shape[1], len(device.node_c)))
        per_column[:c] = of_cluster.T
        per_column[2 * c : 3 * c] = (of_cluster * power.idle_w).T
        per_column[-1] = power.heat[:, c] * power.j_per_byte
        per_column[3 * c + self._q - 1] = device.dma_w * device.dma_heat
        rates = np.diff(self._sums, axis=0) / self._bin_s
        always = device.base_heat_w @ into.T
        fixed = rates @ per_column @ into.T + always
        leaking = (rates[:, c : 2 * c] * self._leakage_25_w)[:, None] * (into @ of_cluster)[None]
        self._power = np.concatenate([fixed[:, :, None], leaking], axis=2)
        resting = self._rest @ per_column @ into.T + always
        self._resting = np.concatenate([resting[:, None], self._rest[c : 2 * c] * self._leakage_25_w * (into @ of_cluster)], axis=1)
        # A mode that loses nothing at all may as well lose next to nothing.
        self._rates_per_s = np.maximum(self._modes.rates_per_s, 1e-12)
        self._per_rate = -1.0 / self._rates_per_s
        decay, gain = self._lapse(self._bin_s)
        self._g = _running(self._power * gain[:, None], decay[:, None])
        self._whole_g = self._at(self.cycle_s)
        self._ripple(device)

    def _ripple(self, device: Device) -> None:
        """How far from its mean each node is at the bins' edges once the same inference has repeated for long."""
        power, c = device.power, self._c
        factors = np.concatenate([[1.0], power.leaks_more(power.sense @ device.node_c)])
        rates = np.maximum(self._rates_per_s, 1e-9)
        start = (self._whole_g @ factors) / -np.expm1(-rates * self.cycle_s)
        total = self._power.sum(axis=0) * self._bin_s + self._resting * (self.cycle_s - self._length_s)
        self._mean_z = total @ factors / (self.cycle_s * rates)
        self._start_z, self._ripple_factors = start, factors
        times = np.linspace(0.0, self._length_s, len(self._g))
        z = np.exp(-np.outer(times, self._rates_per_s)) * start + self._g @ factors
        nodes = (z - self._mean_z) @ self._modes.out.T
        self.ripple_c, self._ripples = np.maximum(nodes.max(axis=0), 0.0), nodes
        active = np.diff(self._sums[:, c : 2 * c], axis=0)
        middle = (nodes[1:] + nodes[:-1]) / 2 @ power.sense.T
        warm = np.vstack([np.zeros(c), np.cumsum(active * middle, axis=0)])
        self._sums, self._rest = np.hstack([self._sums, warm]), np.append(self._rest, np.zeros(c))

    def share_at(self, phase_s: float) -> float:
        """The share of the work of an inference that is done at ``phase_s`` of it."""
        return float(np.interp(phase_s / self.latency_s, *self.profile.progress)) if self.latency_s > 0 else 1.0

    def phase_at(self, share: float) -> float:
        """When so much of the work of an inference is done, in seconds from its start."""
        times, done = self.profile.progress
        return self.latency_s * float(np.interp(share, done, times))

    def after(self, end_s: float) -> float:
        """When the next inference begins, of one that ends at ``end_s``."""
        return end_s + self.cycle_s - self.latency_s if self._period_s is None else next_arrival(end_s, self._period_s)

    def _lapse(self, dt_s: float) -> tuple[FloatArray, FloatArray]:
        """[m] what a while leaves of every mode, and what it makes of one watt into it."""
        lost = np.expm1(self._rates_per_s * -dt_s)
        return lost + 1.0, lost * self._per_rate

    def _bin(self, phase_s: float) -> tuple[int, float]:
        """The bin that holds a moment within the inference, and how far into it that is."""
        j = min(int(phase_s / self._bin_s), len(self._sums) - 2)
        return j, phase_s - j * self._bin_s

    def _at(self, phase_s: float) -> FloatArray:
        """[m, 1 + c] what the power from the start of an inference to ``phase_s`` of it has left in every mode by then."""
        inside = min(phase_s, self._length_s)
        j, dt = self._bin(inside)
        decay, gain = self._lapse(dt)
        g: FloatArray = self._g[j] * decay[:, None] + self._power[j] * gain[:, None]
        if phase_s > inside:
            decay, gain = self._lapse(phase_s - inside)
            g = g * decay[:, None] + self._resting * gain[:, None]
        return g

    def _sum(self, phase_s: float) -> FloatArray:
        """The tabulated sums from the start of an inference to ``phase_s`` of it."""
        inside = min(phase_s, self._length_s)
        j, dt = self._bin(inside)
        inner = self._sums[j] + (self._sums[j + 1] - self._sums[j]) * (dt / self._bin_s)
        return inner if phase_s <= inside else np.asarray(inner + self._rest * (phase_s - inside))

    def _over(self, split: Split) -> FloatArray:
        """The tabulated sums over a step."""
        total = np.zeros(len(self._rest))
        if split.first_s > 0:
            total = self._sum(split.phase_s + split.first_s) - self._sum(split.phase_s)
        if split.whole:
            total = total + split.whole * (self._sums[-1] + self._rest * (self.cycle_s - self._length_s))
        return total + self._sum(split.rest_s) if split.rest_s > 0 else total

    def slow_c(self, node_c: FloatArray, phase_s: float) -> FloatArray:
        """[n] temperatures without the ripple of ``phase_s``."""
        if self._device.network is None:
            return node_c
        if phase_s > self._length_s:
            z = self._start_z * self._lapse(phase_s)[0] + self._at(phase_s) @ self._ripple_factors - self._mean_z
            return np.asarray(node_c - self._modes.out @ z)
        j, dt = self._bin(phase_s)
        return np.asarray(node_c - self._ripples[j] - (self._ripples[j + 1] - self._ripples[j]) * (dt / self._bin_s))

    def step(self, split: Split, seconds: float) -> Step:
        """Let a step pass from the device's present temperatures; changes nothing."""
        device, c, q = self._device, self._c, self._q
        s = self._over(split) / seconds
        active, leak = s[c : 2 * c], self._leakage_25_w * s[c : 2 * c]
        idle = device.power.idle_w * s[2 * c : 3 * c]
        cached, flow, warmth = float(s[3 * c + q]), float(s[3 * c + q + 1]), s[3 * c + q + 2 :]
        heat = device.power.heat[:, : c + 1] @ np.append(s[:c], flow * device.power.j_per_byte) + device.base_heat_w
        busy, dram = s[3 * c : 3 * c + q], flow * device.power.j_per_byte
        if device.dma_w:
            heat = heat + device.copying_w(busy) * device.dma_heat
        mode = Mode(s[:c], active, leak, flow, dram, busy, self.hz, self._throttled, heat, cached, self._other)
        if device.network is None:
            return Step(device.node_c, leak * device.power.leaks_more(device.power.sense @ device.node_c) + idle, mode, device.node_c, 0.0)
        end_s = split.rest_s if split.whole or split.rest_s > 0 else split.phase_s + split.first_s
        warm = warmth / np.maximum(active, 1e-12)
        slow = after = mean = self.slow_c(device.node_c, split.phase_s)
        decay, fed = self._passing(split)
        left = self._modes.to @ (device.node_c - self._modes.rest_c) * decay
        for again in (False, True):
            mean = self._modes.mean_c(slow, after, seconds) if again else mean
            factors = device.power.leaks_more(device.power.sense @ mean + warm)
            weights = np.concatenate([[1.0], factors])
            node_c = np.asarray(self._modes.rest_c + self._modes.out @ (left + fed @ weights))
            after = self.slow_c(node_c, end_s)
        hottest = np.maximum(np.maximum(device.node_c, node_c), np.maximum(slow, after) + self.ripple_c)
        moved_k = float(np.abs(after - slow).max())
        return Step(node_c, leak * factors + idle, mode, hottest, moved_k, partial(self._within, split, weights))

    def _within(self, split: Split, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The hottest that every node gets ([n]) within a step from the device's present temperatures, and how long after its start.

        Looked at at the bins' edges of what is left of the inference, of the last whole one and of the one after it.
        """
        start, parts = self._device.node_c, [(Split(split.phase_s, 0.0, 0, 0.0), split.phase_s, split.first_s)]
        if split.whole:
            parts.append((replace(split, whole=split.whole - 1, rest_s=0.0), 0.0, self.cycle_s))
        if split.rest_s > 0:
            parts.append((replace(split, rest_s=0.0), 0.0, split.rest_s))
        edges = np.arange(len(self._g)) * self._bin_s
        times: list[FloatArray] = [np.zeros(1)]
        nodes: list[FloatArray] = [start[None]]
        for before, phase_s, length_s in parts:
            z = self._passed(before, start, weights) - self._at(phase_s) @ weights
            here = np.flatnonzero((edges >= phase_s) & (edges <= phase_s + length_s))
            modes = np.exp(-np.outer(edges[here] - phase_s, self._rates_per_s)) * z + self._g[here] @ weights
            times.append(np.asarray(before.first_s + before.whole * self.cycle_s + edges[here] - phase_s, dtype=np.float64))
            nodes.append(self._modes.rest_c + modes @ self._modes.out.T)
        all_s, all_c = np.concatenate(times), np.concatenate(nodes)
        hottest = all_c.argmax(axis=0)
        return all_c.max(axis=0), all_s[hottest]

    def _passed(self, split: Split, node_c: FloatArray, weights: FloatArray) -> FloatArray:
        """[m] the modes after a step from these temperatures."""
        decay, fed = self._passing(split)
        return np.asarray(self._modes.to @ (node_c - self._modes.rest_c) * decay + fed @ weights)

    def _passing(self, split: Split) -> tuple[FloatArray, FloatArray]:
        """[m] what a step leaves of every mode, and [m, 1 + c] what it adds: what is fixed, and each cluster's leakage at 25 degrees."""
        decay, fed = np.ones(len(self._rates_per_s)), np.zeros((len(self._rates_per_s), 1 + self._c))
        if split.first_s > 0:
            decay, _ = self._lapse(split.first_s)
            fed = self._at(split.phase_s + split.first_s) - self._at(split.phase_s) * decay[:, None]
        if split.whole:
            many, gain = self._lapse(split.whole * self.cycle_s)
            sums = gain / self._lapse(self.cycle_s)[1]
            decay, fed = decay * many, fed * many[:, None] + self._whole_g * sums[:, None]
        if split.rest_s > 0:
            rest, _ = self._lapse(split.rest_s)
            decay, fed = decay * rest, fed * rest[:, None] + self._at(split.rest_s)
        return decay, fed


def _columns(device: Device, profile: Profile) -> tuple[FloatArray, FloatArray]:
    """Ends of a profile's pieces [k] and their rates [k, 3 c + q + 2]: dynamic power, activity, gated, busy, bytes/s of cache and DRAM."""
    p = profile.pieces
    active, worked = device.loaded(p.activity, p.effort)
    gated = np.clip(1.0 - active, 0.0, 1.0)
    flow = p.flow_bytes_s[:, None] + device.other_bytes_s
    return p.end_s, np.concatenate([device.dynamic_w * worked, active, gated, p.busy, p.cached_bytes_s[:, None], flow], axis=1)


def _constant(mode: Mode, cycle_s: float) -> tuple[FloatArray, FloatArray]:
    """The same of a mean that always holds."""
    gated = np.clip(1.0 - mode.active, 0.0, 1.0)
    moved = [mode.cached_bytes_s, mode.flow_bytes_s]
    return np.array([cycle_s]), np.concatenate([mode.dynamic_w, mode.active, gated, mode.busy, moved])[None]


def _running(gained: FloatArray, decay: FloatArray) -> FloatArray:
    """[j + 1, m, k] from ``G[0] = 0``, ``G[j + 1] = decay G[j] + gained[j]``, by doubling."""
    g, reach, power = gained.copy(), 1, decay.copy()
    while reach < len(g):
        g[reach:] += power * g[:-reach].copy()
        reach, power = 2 * reach, power * power
    return np.concatenate([np.zeros((1, *g.shape[1:])), g])
