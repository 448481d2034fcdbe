"""What a policy is shown, and the shape of a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

SAVER = 4
"""The level for a nearly empty battery: two cores of the CPU. A step of the ladder too where it heats less than those before it."""
WORTH = 0.1
"""What a deeper level must save of the heat of the one before it (estimated: less is lost in what the model knows of power)."""
LOSS = 0.02
"""What a level may deliver less and still count as delivering as much (estimated: nobody sees a fiftieth)."""
Heat = tuple[float, ...]
"""Watts that enter each thermal node, in the order of :attr:`Observation.nodes`."""


@dataclass(frozen=True, slots=True)
class Level:
    """A level that there is a plan for: 0 is the plan for a cool phone, deeper ones heat it less."""

    number: int
    latency_s: float
    """Of one inference at the clocks that the level asks for."""
    heat_w: Heat
    """What it puts into each node at those clocks and the pace that is asked of the phone; empty: unknown."""
    seen_s: float | None = None
    """What an inference took when the level last ran, slowed by the governor or not; None: it has not run."""


@dataclass(frozen=True, slots=True)
class Trip:
    """The lowest temperature of a node at which the governor slows clocks down."""

    node: int
    temperature_c: float
    deepest_c: float | None = None
    """Where trips of the node come in stages, the last of them: there everything may be slowed; None: here."""


@dataclass(frozen=True, slots=True)
class Load:
    """What heated the phone for a while: means over ``seconds``, up to ``end_s``."""

    end_s: float
    seconds: float
    level: int
    heat_w: Heat


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known at the end of an inference. Without a thermal network there are no nodes."""

    time_s: float
    level: int
    """The level that runs now."""
    since_s: float
    """For how long it has."""
    levels: tuple[Level, ...]
    """Those that there are, ascending."""
    nodes: tuple[str, ...]
    temperatures_c: tuple[float, ...]
    skin_c: float | None
    """The hottest node that touches the surroundings."""
    clock: float
    """The lowest share of a clock asked for that the governor leaves, of the clusters that do a tenth of the work or more.

    1: not throttled.
    """
    trips: tuple[Trip, ...]
    battery: float
    """State of charge, 0 to 1."""
    loads: tuple[Load, ...]
    """The last minute, oldest first."""
    after: Callable[[Sequence[float], float], tuple[float, ...]]
    """``after(heat_w, seconds)``: temperatures of the nodes if so much heat enters them for so long from now on."""
    critical_c: float | None = None
    """Skin temperature from which on the phone tells its apps that the heat is critical; None: it has no thermal network."""
    asked_s: float | None = None
    """Seconds from one inference that is asked for to the next; None: as many as the phone can."""

    @property
    def throttled(self) -> bool:
        """Whether the governor has slowed something that the level uses."""
        return self.clock < 1.0 - 1e-9

    @property
    def ladder(self) -> tuple[int, ...]:
        """The levels that are worth a step: each heats the phone at least :data:`WORTH` less than the one before it.

        A plan without the NPU may draw more than one with it, slowed: such a level cools nothing.
        """
        steps = [self.levels[0]]
        for v in self.levels[1:]:
            if not v.heat_w or sum(v.heat_w) <= (1.0 - WORTH) * sum(steps[-1].heat_w):
                steps.append(v)
        return tuple(v.number for v in steps)

    def delivers(self, number: int) -> float:
        """Inferences a second that a level delivers: as many as it did under the heat when it last ran, else as its plan says.

        No more than are asked for.
        """
        level = next(v for v in self.levels if v.number == number)
        return 1.0 / max(level.seen_s or level.latency_s, self.asked_s or 0.0)

    def pays(self, number: int) -> bool:
        """Whether a level delivers what the present one does, or about: cooling alone is no reason to go there."""
        return self.delivers(number) >= (1.0 - LOSS) * self.delivers(self.level)

    def deeper(self, most: int | None = None) -> int:
        """The next step down the ladder that pays or, with ``most``, the last one that is no deeper; the present level if there is none."""
        below = [n for n in self.ladder if n > self.level and (most is None or n <= most) and self.pays(n)]
        return self.level if not below else below[0] if most is None else below[-1]

    def shallower(self) -> int:
        """The next step up the ladder; the present level if there is none."""
        return max((n for n in self.ladder if n < self.level), default=self.level)

    def nearest(self, wanted: int) -> int:
        """The deepest level there is that is no deeper than ``wanted``."""
        return max((v.number for v in self.levels if v.number <= wanted), default=self.levels[0].number)


class Policy(Protocol):
    """Asked at the end of an inference, at most once every ``period_s``."""

    @property
    def period_s(self) -> float:
        """Seconds between two questions."""
        ...

    def wanted(self, seen: Observation) -> int:
        """The level to be at; where there is no plan for it, the deepest one before it is taken."""
        ...
