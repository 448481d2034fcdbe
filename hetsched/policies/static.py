"""``static``: the plan stays whatever happens."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.policies.observation import Observation


@dataclass(frozen=True, slots=True)
class Static:
    """Stay at the level of the beginning."""

    period_s: float = float("inf")

    def wanted(self, seen: Observation) -> int:
        """The present level."""
        return seen.level
