"""The kernel's ``schedutil`` DVFS governor: a clock in proportion to the load.

As in Linux ``kernel/sched/cpufreq_schedutil.c``: the lowest operating point of at least ``1.25 x utilisation x f_top`` (the tipping
point is at 80 %), decided anew every 10 ms, up and down alike (the kernel's cap on its default rate limit). Utilisation is that of
``kernel/sched/pelt.c``: the share of the time at work, scaled by ``f / f_top``, as a mean that forgets with a half-life of 32 ms; that
of a cluster is that of its busiest core. The kernel lowers no clock of a core that has not rested since the last look; such a core's
utilisation asks for no less here either. Boosts after waiting for storage, clamps and the estimate that outlasts a pause
(``util_est``) are left out. All clusters follow it here, the GPU's and the NPU's too, whose vendors' governors are not published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetsched.costs import FloatArray
from hetsched.socs import Cluster

HALF_LIFE_S = 0.032
MARGIN = 1.25
PERIOD_S = 0.01


class Schedutil:
    """Utilisation of every cluster ([c]), and the operating points that follow from it."""

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        self._levels = [np.array([p.hz / c.top.hz for p in c.operating_points]) for c in clusters]
        self._top_hz = np.array([c.top.hz for c in clusters])
        self.utilisation: FloatArray = np.zeros(len(clusters))

    def load(self, active: FloatArray, hz: FloatArray) -> FloatArray:
        """[c] work done by busiest cores that are so long at work, relative to working all the time at the top clock."""
        return np.asarray(np.minimum(active, 1.0) * hz / self._top_hz)

    def advance(self, dt_s: float, active: FloatArray, hz: FloatArray) -> None:
        """Let ``dt_s`` pass with the busiest core of clusters at work for these shares of it, at these clocks ([c])."""
        kept = 0.5 ** (dt_s / HALF_LIFE_S)
        self.utilisation = kept * self.utilisation + (1.0 - kept) * self.load(active, hz)

    def next_change_s(self, points: Sequence[int], active: FloatArray, hz: FloatArray, now_s: float) -> float:
        """When other operating points than these will be asked for, if clusters go on as they do; infinite: never."""
        after_s = math.inf
        for levels, k, u, to in zip(self._levels, points, self.utilisation.tolist(), self.load(active, hz).tolist(), strict=True):
            low = levels[k - 1] / MARGIN if k else -math.inf
            high = levels[k] / MARGIN if k < len(levels) - 1 else math.inf
            if not low < u * (1 - 1e-12) <= high:
                after_s = 0.0
            elif to > high:
                after_s = min(after_s, HALF_LIFE_S * math.log2((to - u) / (to - high)))
            elif to < low:
                after_s = min(after_s, HALF_LIFE_S * math.log2((u - to) / (low - to)))
        if after_s == math.inf:
            return after_s
        return PERIOD_S * max(math.ceil((now_s + after_s) / PERIOD_S - 1e-6), math.floor(now_s / PERIOD_S + 1e-6) + 1)

    def points(self) -> tuple[int, ...]:
        """The operating points for the present utilisation."""
        wanted = MARGIN * self.utilisation
        return tuple(min(int(np.searchsorted(v, u * (1 - 1e-12))), len(v) - 1) for v, u in zip(self._levels, wanted.tolist(), strict=True))
