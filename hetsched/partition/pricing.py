"""The price of a limit: raised while the limit is broken, then brought down to the least that keeps it."""

from __future__ import annotations

from dataclasses import dataclass

RAISE = 4.0
NEAR = 0.01
"""A price that would change by a smaller share stays."""


@dataclass
class Price:
    """What a unit of a limited figure costs. ``low`` was too little; ``high`` (infinite: not known yet) is enough."""

    first: float
    """The first price above nothing."""
    value: float = 0.0
    low: float = 0.0
    high: float = float("inf")

    @property
    def enough(self) -> bool:
        """Whether some price has kept the limit."""
        return self.high < float("inf")

    def broken(self) -> bool:
        """The limit is broken at this price: try a higher one. Whether there is one."""
        self.low = self.value
        return self._to((self.low * self.high) ** 0.5 if self.enough and self.low > 0 else self.value * RAISE or self.first)

    def kept(self) -> bool:
        """The limit is kept at this price: try a lower one. Whether there is one."""
        if self.value == 0:
            return False
        self.high = self.value
        return self._to((max(self.low, self.high / RAISE**2) * self.high) ** 0.5)

    def _to(self, value: float) -> bool:
        before, self.value = self.value, value
        return abs(value - before) > NEAR * value
