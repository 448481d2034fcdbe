"""Fits chassis to runs on a grid, and leaves runs out to judge it.

Set points and governors step, so a run's rate jumps where a parameter changes little: a grid of round values, all of it tried,
needs no derivatives and no start, and gives the same result everywhere. A run is simulated once for each set of the parameters that
bear on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

from hetsched.soc_files import load_soc
from hetsched.socs import SoC
from hetsched_simulations.chassis.forms import Parameters, bearing, in_phone
from hetsched_simulations.chassis.loop import Played, first_quarter_down, play
from hetsched_simulations.chassis.runs import Run

GRID: dict[str, tuple[float, ...]] = {
    "film_w_per_m2k": (9, 10, 11, 12, 13, 14),
    "google_c": (44, 48, 52, 56, 60),
    "other_c": (44, 48, 52, 56, 60),
    "npu_draw": (1.0, 1.5, 2.0),
}
"""Physical ranges: still air and radiation 8-12, hands and draughts more; packages above the skin's limit and well under the junction's."""
RATIO_GOAL, TIME_GOAL = 0.12, 0.35
_CAP = 3.0
"""No run counts for more than this many times a goal: one that cannot be met should not decide."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated run beside what was measured."""

    run: Run
    ratio: float
    quarter_s: float | None
    watts: float
    """Mean power while steady."""

    @property
    def points(self) -> float:
        """How far the steady-to-peak ratio is off, simulated less measured."""
        return self.ratio - self.run.ratio

    @property
    def late(self) -> float | None:
        """How much later than measured the rate is a quarter down, as a share; infinite: never; None: no time was measured."""
        if self.run.quarter_s is None:
            return None
        return math.inf if self.quarter_s is None else self.quarter_s / self.run.quarter_s - 1.0

    @property
    def loss(self) -> float:
        """What a fit makes small: squares of errors in units of the goals."""
        late = self.late
        times = 0.0 if late is None else min(abs(math.log1p(late)) / math.log1p(TIME_GOAL), _CAP) ** 2
        return min(abs(self.points) / RATIO_GOAL, _CAP) ** 2 + times / 2


@dataclass(frozen=True, slots=True)
class Left:
    """A run that was left out of a fit, and that fit."""

    outcome: Outcome
    fit: Parameters


@dataclass
class Bench:
    """Runs, and what was simulated of them so far."""

    runs: Sequence[Run]
    socs: dict[str, SoC] = field(default_factory=dict)
    _known: dict[tuple[str, tuple[float, ...]], Outcome] = field(default_factory=dict)

    def outcome(self, run: Run, p: Parameters) -> Outcome:
        """A run with these parameters."""
        key = (run.name, tuple(p[n] for n in bearing(run)))
        if key not in self._known:
            self._known[key] = _outcome(run, self.played(run, p))
        return self._known[key]

    def played(self, run: Run, p: Parameters) -> Played:
        """The same over time."""
        if run.soc not in self.socs:
            self.socs[run.soc] = load_soc(run.soc)
        return play(run, in_phone(self.socs[run.soc], run.phone, p), p["npu_draw"] if run.queue == "npu" else 1.0)

    def loss(self, runs: Sequence[Run], p: Parameters) -> float:
        """Of all these runs."""
        return sum(self.outcome(r, p).loss for r in runs)

    def fit(self, runs: Sequence[Run]) -> dict[str, float]:
        """The best parameters of the whole grid; the first of several."""
        points = (dict(zip(GRID, values, strict=True)) for values in product(*GRID.values()))
        return min(points, key=lambda p: self.loss(runs, p))

    def left_out(self, of: Callable[[Run], str]) -> list[Left]:
        """Every run by a fit without it and all others of its group."""
        fits = {g: self.fit([r for r in self.runs if of(r) != g]) for g in dict.fromkeys(map(of, self.runs))}
        return [Left(self.outcome(r, fits[of(r)]), fits[of(r)]) for r in self.runs]


def _outcome(run: Run, played: Played) -> Outcome:
    steady = run.steady_from_s, run.steady_to_s
    return Outcome(run, played.mean(played.rate, *steady), first_quarter_down(played), played.mean(played.power_w, *steady))
