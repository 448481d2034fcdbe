"""``predictive``: forecasts the temperatures of the next seconds and moves before the governor has to slow anything.

The heat of the next seconds is that of the last ones, an exponential mean over the load history. What another level would put
into the nodes is its own heat times the ratio of the heat that was seen to what the present level's plan alone would make
(arrivals that pause, leakage, other work). The phone's thermal network, with its own time constants, turns heat into
temperatures at every horizon; between them a node moves one way, or its fastest part is over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetsched.policies.observation import LOSS, Heat, Level, Observation

DEEPEST = 0.04
"""Share of its power that the governor leaves a level at the deepest, at a fifth of the clock (estimated: the lowest operating points)."""


@dataclass(frozen=True, slots=True)
class Predictive:
    """The shallowest level whose forecast stays below every trip of the governor, if it delivers as much as the others would.

    What the others would is forecast too: a level that the governor has to slow delivers less, but perhaps more than a cooler one.
    """

    horizons_s: tuple[float, ...] = (0.1, 1.0, 10.0)
    """A block, the package, and the skin's sensor react within these (100 ms to 10 s)."""
    lasting_s: float = 600.0
    """What levels deliver is compared for so long (a phone's case has settled by then)."""
    margin_k: float = 0.5
    """How far below a trip a forecast must stay (estimated: one step of the ripple within an inference)."""
    hysteresis_k: float = 1.9
    """How much further below before going back: the hysteresis of the Pixel 8's skin trips."""
    memory_s: float = 2.0
    """Time constant of the mean over the load history (estimated: longer than an inference, shorter than the package's own)."""
    period_s: float = 0.5
    settle_s: float = 1.0
    """A level is given this long before a deeper one is tried: the first load of its own must have been seen."""
    hold_s: float = 30.0
    """A level is kept at least this long before going back (estimated: a user bears two changes a minute)."""

    def wanted(self, seen: Observation) -> int:
        """A level that stays cool, or one step back, or the present level."""
        oldest = seen.time_s - 5.0 * self.memory_s
        loads = [v for v in seen.loads if v.level == seen.level and v.end_s > oldest]
        if not seen.trips or not loads or (seen.since_s < self.settle_s and seen.level != 0):
            return seen.level
        heat = self._mean([(seen.time_s - v.end_s, v.seconds, v.heat_w) for v in loads])
        by_number = {v.number: v for v in seen.levels}
        present = by_number[seen.level]
        if not self._stays_cool(seen, heat, self.margin_k):
            others = [n for n in seen.ladder if n > seen.level or (n < seen.level and seen.since_s >= self.hold_s)]
            heats = {seen.level: heat} | {n: _scaled(heat, present, by_number[n]) for n in others}
            lasting = {n: self._lasting(seen, by_number[n], heats[n]) for n in sorted(heats)}
            good = [n for n, rate in lasting.items() if rate >= (1.0 - LOSS) * max(lasting.values())]
            return next((n for n in good if self._stays_cool(seen, heats[n], self.margin_k)), good[-1])
        back = seen.shallower()
        if back != seen.level and seen.since_s >= self.hold_s:
            room = self.margin_k + self.hysteresis_k
            if self._stays_cool(seen, _scaled(heat, present, by_number[back]), room):
                return back
        return seen.level

    def _lasting(self, seen: Observation, level: Level, heat: Heat) -> float:
        """Inferences a second that a level delivers for long, once the governor has slowed it to what the trips allow.

        Its heat has to shrink to a share ``f``; power goes about with the square of the clock (the voltage falls less than it), so
        that the rate falls to the root of ``f``, which is :data:`DEEPEST` at least: where the air is too warm for every level, all are
        slowed that far, and the fastest still delivers most. What it was seen to deliver counts where that is less, and of
        the level that is slowed now, alone. Where trips come in stages the last counts: the first ones slow little.
        """
        if level.number == seen.level and seen.throttled:
            return seen.delivers(level.number)
        cold, warm = seen.after([0.0] * len(heat), self.lasting_s), seen.after(heat, self.lasting_s)
        share = 1.0
        for t in seen.trips:
            held_c = t.temperature_c if t.deepest_c is None else t.deepest_c
            room, rise = held_c - self.margin_k - cold[t.node], warm[t.node] - cold[t.node]
            share = min(share, max(room / rise, DEEPEST) if rise > 0 else 1.0)
        slowed = math.sqrt(share) / level.latency_s
        return min(slowed, seen.delivers(level.number))

    def _mean(self, loads: list[tuple[float, float, Heat]]) -> Heat:
        weights = [seconds * math.exp(-age / self.memory_s) for age, seconds, _ in loads]
        total = sum(weights)
        return tuple(sum(w * h for w, h in zip(weights, node, strict=True)) / total for node in zip(*(h for _, _, h in loads), strict=True))

    def _stays_cool(self, seen: Observation, heat: Heat, margin_k: float) -> bool:
        """Whether every node stays this far below its trip at every horizon."""
        for horizon in self.horizons_s:
            after = seen.after(heat, horizon)
            if any(after[t.node] > t.temperature_c - margin_k for t in seen.trips):
                return False
        return True


def _scaled(heat: Heat, present: Level, other: Level) -> Heat:
    """The heat of another level under the same circumstances; the same heat where it is unknown."""
    if not present.heat_w or not other.heat_w or sum(present.heat_w) <= 0:
        return heat
    ratio = sum(heat) / sum(present.heat_w)
    return tuple(ratio * h for h in other.heat_w)
