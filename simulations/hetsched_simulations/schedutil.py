"""The kernel's ``schedutil`` DVFS governor: a clock in proportion to the load.

As in Linux ``kernel/sched/cpufreq_schedutil.c``: the lowest operating point of at least ``1.25 x utilisation x f_top``, decided
anew every 10 ms (the kernel's cap on its default rate limit). Utilisation is that of ``kernel/sched/pelt.c``: the share of the
time at work, scaled by ``f / f_top``, as a mean that forgets with a half-life of 32 ms. All clusters follow it here, the GPU's and
the NPU's too, whose vendors' governors are not published.
"""

from __future__ import annotations

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
        """[c] work done, relative to working all the time at the top clock."""
        return np.asarray(np.minimum(active, 1.0) * hz / self._top_hz)

    def advance(self, dt_s: float, active: FloatArray, hz: FloatArray) -> None:
        """Let ``dt_s`` pass with these shares of the clusters at work, at these clocks ([c])."""
        kept = 0.5 ** (dt_s / HALF_LIFE_S)
        self.utilisation = kept * self.utilisation + (1.0 - kept) * self.load(active, hz)

    def points(self) -> tuple[int, ...]:
        """The operating points for the present utilisation."""
        wanted = MARGIN * self.utilisation
        return tuple(min(int(np.searchsorted(v, u * (1 - 1e-12))), len(v) - 1) for v, u in zip(self._levels, wanted.tolist(), strict=True))
