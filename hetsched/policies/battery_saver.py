"""``battery-saver``: the deepest level while the battery is nearly empty."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.policies.observation import Observation


@dataclass(frozen=True, slots=True)
class BatterySaver:
    """Level ``level`` below ``low``, back to 0 once the battery has been charged to ``charged``."""

    low: float = 0.10
    charged: float = 0.15
    """Above ``low``, so that a battery at the edge does not switch back and forth."""
    level: int = 3
    period_s: float = 10.0

    def wanted(self, seen: Observation) -> int:
        """The saving level, 0, or between the two thresholds the present one."""
        if seen.battery < self.low:
            return self.level
        return 0 if seen.battery >= self.charged else seen.level
