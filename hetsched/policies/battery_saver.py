"""``battery-saver``: two cores of the CPU, or what draws even less, while the battery is nearly empty or the phone critically hot."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.policies.observation import LOSS, SAVER, Observation


@dataclass(frozen=True, slots=True)
class BatterySaver:
    """Below ``low``, or with a skin that is critically hot, the saving level; back to 0 once charged and cooled.

    A plan file without that level has the deepest one that there is in its place. Another level that draws less at the pace that is asked
    comes first: an NPU that does a frame now and then and rests takes less than two cores that are always at it.
    """

    low: float = 0.10
    charged: float = 0.15
    """Above ``low``, so that a battery at the edge does not switch back and forth."""
    hysteresis_k: float = 1.4
    """How far below critical the skin must have cooled: that of CRITICAL in the Pixel 8's thermal HAL."""
    period_s: float = 1.0
    """Android's thermal service samples the skin once a second."""
    hold_s: float = 30.0
    """The saving level is kept at least this long (estimated: a user bears two changes a minute)."""

    def wanted(self, seen: Observation) -> int:
        """The saving level, 0, or between the thresholds the present one."""
        if seen.battery < self.low or self._hot(seen, 0.0):
            return self._saving(seen)
        recovered = seen.battery >= self.charged and not self._hot(seen, self.hysteresis_k)
        return 0 if recovered and seen.since_s >= self.hold_s else seen.level

    def _saving(self, seen: Observation) -> int:
        watts = {v.number: sum(v.heat_w) for v in seen.levels if v.heat_w}
        least = min(watts.values(), default=0.0)
        deepest = seen.nearest(SAVER)
        return SAVER if watts.get(deepest, 0.0) <= (1.0 + LOSS) * least else min(n for n, w in watts.items() if w == least)

    def _hot(self, seen: Observation, margin_k: float) -> bool:
        return seen.skin_c is not None and seen.critical_c is not None and seen.skin_c >= seen.critical_c - margin_k
