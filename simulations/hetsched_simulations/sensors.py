"""When sensors are sampled, and in which steps they come."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hetsched.costs import FloatArray
from hetsched.soc_thermal import Thermal


@dataclass(frozen=True, eq=False, slots=True)
class Sampling:
    """Of everything that has a temperature, nodes (always fresh) and sensors: [n + s]."""

    every_s: tuple[float, ...]
    step_k: tuple[float, ...]

    @classmethod
    def of(cls, thermal: Thermal) -> Sampling:
        """Of a SoC file."""
        fresh = [0.0] * len(thermal.nodes)
        return cls((*fresh, *(s.sampling_s for s in thermal.sensors)), (*fresh, *(s.step_k for s in thermal.sensors)))

    def last(self, point: int, now_s: float) -> float:
        """When a point was last sampled."""
        every = self.every_s[point] if self.every_s else 0.0
        if every <= 0:
            return now_s
        last = math.floor(now_s / every + 1e-9) * every
        return now_s if now_s - last < 1e-9 else last

    def shown(self, point: int, value: float) -> float:
        """A temperature in the steps of a point, of which it is a whole number in millidegrees."""
        step_mc = round(1000 * self.step_k[point]) if self.step_k else 0
        return round(round(1000 * value) / step_mc) * step_mc / 1000 if step_mc else value

    def seen(self, point: int, times_s: FloatArray, asked_s: FloatArray, values: FloatArray) -> FloatArray:
        """What a point showed at the times it was asked, of its temperatures over time."""
        every, step = self.every_s[point], self.step_k[point]
        at = np.floor(asked_s / every + 1e-9) * every if every > 0 else asked_s
        shown = np.interp(at, times_s, values)
        return np.round(shown / step) * step if step > 0 else shown
