"""What a simulated run returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hetsched.costs import FloatArray
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched_simulations.status import ThermalStatus


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of the whole run in joules. ``dynamic`` and ``leakage`` are by processor; leakage includes the idle power of what rests."""

    dynamic: dict[str, float]
    leakage: dict[str, float]
    dram: float
    base: float

    @property
    def total(self) -> float:
        """Everything the device drew."""
        return self.soc + self.base

    @property
    def soc(self) -> float:
        """Without the rest of the device (``base``)."""
        return sum(self.dynamic.values()) + sum(self.leakage.values()) + self.dram

    def to_dict(self) -> dict[str, float]:
        """Flat: ``dynamic/cpu, leakage/cpu, ..., dram, base``; the values add up to :attr:`total`."""
        parts = {f"dynamic/{k}": v for k, v in self.dynamic.items()} | {f"leakage/{k}": v for k, v in self.leakage.items()}
        return parts | {"dram": self.dram, "base": self.base}


@dataclass(frozen=True, slots=True)
class Throttling:
    """What the thermal governor did.

    ``steps`` counts changes of an operating point; ``seconds`` is the time with any cluster below what DVFS asks for;
    ``lowest_hz`` and ``mean_hz`` are by cluster; ``trips`` names the nodes whose trips fired, in order of the first time.
    """

    steps: int
    first_s: float | None
    seconds: float
    lowest_hz: dict[str, float]
    mean_hz: dict[str, float]
    trips: tuple[str, ...]

    @property
    def happened(self) -> bool:
        """Whether anything was slowed."""
        return self.steps > 0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Switched:
    """A switch of plans: when it began, from and to which level, and how long it took."""

    time_s: float
    before: int
    after: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Levelled:
    """What a policy did: its switches, seconds at every level that there is, and seconds spent switching; together the run."""

    switches: tuple[Switched, ...]
    seconds: dict[int, float]
    switching_s: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON: how often it switched, how long that took, seconds by level, and the first hundred switches."""
        return {
            "switches": len(self.switches), "switching_s": self.switching_s, "seconds": {str(k): v for k, v in self.seconds.items()},
            "first": [asdict(s) for s in self.switches[:100]],
        }  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class Simulation:
    """A simulated run. ``latencies_s`` has one entry per inference that finished."""

    trace: Trace
    latencies_s: FloatArray
    duration_s: float
    energy: Energy
    bytes_moved: float
    throttling: Throttling
    initial_temperatures_c: dict[str, float]
    final_temperatures_c: dict[str, float]
    peak_temperatures_c: dict[str, float]
    path: Literal["full", "multirate"]
    states: int
    """Distinct operating states that were simulated op by op."""
    levels: Levelled | None = None
    """Where a policy could switch between plans."""
    status: ThermalStatus | None = None
    """What the phone's system would tell an app; None where there is no skin to go by."""

    @property
    def energy_j(self) -> dict[str, float]:
        """Joules of the whole run by where they went; see :meth:`Energy.to_dict`."""
        return self.energy.to_dict()

    @property
    def throttled(self) -> dict[str, Any]:
        """What the governor did, for JSON."""
        return self.throttling.to_dict()

    @property
    def first_s(self) -> float:
        """Latency of the first inference."""
        return float(self.latencies_s[0])

    @property
    def median_s(self) -> float:
        """Median latency."""
        return float(np.median(self.latencies_s))

    @property
    def last_s(self) -> float:
        """Latency of the last inference."""
        return float(self.latencies_s[-1])

    @property
    def inferences(self) -> int:
        """How many inferences finished."""
        return len(self.latencies_s)

    @property
    def energy_per_inference_j(self) -> float:
        """Energy of the run, base included, over the inferences that finished."""
        return self.energy.total / self.inferences
