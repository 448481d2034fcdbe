"""What surrounds a simulated run, and what feeds and loads the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hetsched_simulations.background import Background
from hetsched_simulations.clocks import Dvfs
from hetsched_simulations.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Conditions:
    """Of one run."""

    ambient_c: float = 25.0
    """What the surface sees; with ``surroundings`` theirs counts."""
    initial_c: float | Mapping[str, float] | None = None
    contention: bool = True
    thermal: bool = True
    governor: Dvfs | None = None
    surroundings: Surroundings | None = None
    battery: float | None = None
    """State of charge at the start, 0 to 1; None: the battery is left out."""
    charging_w: float = 0.0
    """What a cable can give."""
    loads_w: Mapping[str, float] = field(default_factory=dict)
    """What is drawn beside the SoC file's base, by name."""
    background: Background | None = None
