"""``reactive``: a level deeper when the phone is already throttled or its skin too warm, back when it has cooled."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.policies.observation import LOSS, Observation


@dataclass(frozen=True, slots=True)
class Reactive:
    """Levels by trips that have fired and by the temperature of the skin.

    It goes one step deeper when the governor has slowed what the level uses, and to level ``k`` at the ``k``-th skin temperature,
    or to the last step before it, where that delivers what the present level does under the heat. It comes back one step when nothing
    is slowed, the skin is ``hysteresis_k`` below the temperature of the level that it leaves, and every node is as far below the trip
    of the governor; or when the level before delivered more.
    """

    skin_c: tuple[float, ...] = (39.0, 43.0, 45.0)
    """Skin temperatures of levels 1, 2, 3: LIGHT, MODERATE and SEVERE of the Pixel 8's thermal HAL."""
    hysteresis_k: float = 1.9
    """Of the same HAL."""
    period_s: float = 1.0
    """Android's thermal service samples the skin once a second."""
    settle_s: float = 7.0
    """A level is given this long before a deeper one is tried: one poll of the Pixel 8's skin sensor while it is warm."""
    hold_s: float = 30.0
    """A level is kept at least this long before going back (estimated: a user bears two changes a minute)."""

    def wanted(self, seen: Observation) -> int:
        """One step deeper or back, or the present level."""
        by_skin = seen.deeper(self._by_skin(seen, 0.0))
        if by_skin > seen.level:
            return by_skin
        if seen.since_s >= self.settle_s and (best := self._better(seen)) is not None:
            return best
        if seen.throttled:
            return seen.deeper() if seen.since_s >= self.settle_s or seen.level == 0 else seen.level
        if seen.since_s >= self.hold_s and self._by_skin(seen, self.hysteresis_k) < seen.level and self._cooled(seen):
            return seen.shallower()
        return seen.level

    def _better(self, seen: Observation) -> int | None:
        """A shallower level that delivered more when it last ran, under the heat that drove the phone from it."""
        tried = [v.number for v in seen.levels if v.number < seen.level and v.seen_s is not None]
        best = max(tried, key=seen.delivers, default=None)
        return None if best is None or seen.delivers(best) * (1.0 - LOSS) <= seen.delivers(seen.level) else best

    def _by_skin(self, seen: Observation, margin_k: float) -> int:
        return 0 if seen.skin_c is None else sum(seen.skin_c >= t - margin_k for t in self.skin_c)

    def _cooled(self, seen: Observation) -> bool:
        return all(seen.temperatures_c[t.node] < t.temperature_c - self.hysteresis_k for t in seen.trips)
