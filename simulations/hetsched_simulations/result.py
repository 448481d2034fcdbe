"""What a simulated run returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hetsched.costs import FloatArray
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched_simulations.background import Background
    from hetsched_simulations.jobs import JobLog
    from hetsched_simulations.status import ThermalStatus
    from hetsched_simulations.surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of the whole run in joules. ``dynamic`` and ``leakage`` are by processor; leakage includes the idle power of what rests.

    ``loads`` is what was drawn beside the base, by name. What batteries and chargers lose is in :class:`BatteryUse`.
    """

    dynamic: dict[str, float]
    leakage: dict[str, float]
    dram: float
    base: float
    loads: dict[str, float] = field(default_factory=dict)
    dma: float = 0.0
    """Of the DMA engine."""

    @property
    def total(self) -> float:
        """Everything the device drew."""
        return self.soc + self.base + sum(self.loads.values())

    @property
    def soc(self) -> float:
        """Without the rest of the device (``base``, ``loads``)."""
        return sum(self.dynamic.values()) + sum(self.leakage.values()) + self.dram + self.dma

    def to_dict(self) -> dict[str, float]:
        """Flat: ``dynamic/cpu, leakage/cpu, ..., dram, base, load/display, ...``; the values add up to :attr:`total`."""
        parts = {f"dynamic/{k}": v for k, v in self.dynamic.items()} | {f"leakage/{k}": v for k, v in self.leakage.items()}
        shared = {"dram": self.dram, "base": self.base} | ({"dma": self.dma} if self.dma else {})
        return parts | shared | {f"load/{k}": v for k, v in self.loads.items()}


@dataclass(frozen=True, slots=True)
class BatteryUse:
    """What a run did to the battery: ``store_j`` is what it gave (less than nothing: took), its losses among it."""

    capacity_wh: float
    start: float
    """State of charge, 0 to 1."""
    end: float
    store_j: float
    loss_j: float
    """In the battery."""
    input_j: float
    """Over the cable."""
    conversion_j: float
    """Lost in the charger."""
    seconds: float
    empty_s: float | None
    """When the battery was empty, and the run over."""

    @property
    def to_empty_s(self) -> float | None:
        """How much longer it lasts at the mean power of the run; None while it is charged."""
        return self.end * self.capacity_wh * 3600.0 * self.seconds / self.store_j if self.store_j > 0 else None

    def to_dict(self) -> dict[str, float | None]:
        """For JSON, in percent of the capacity."""
        return {
            "capacity_wh": self.capacity_wh, "start_percent": 100 * self.start, "end_percent": 100 * self.end,
            "used_percent": 100 * (self.start - self.end), "time_to_empty_s": self.to_empty_s, "empty_s": self.empty_s,
            "loss_j": self.loss_j, "input_j": self.input_j, "conversion_loss_j": self.conversion_j,
        }  # fmt: skip


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
    battery: BatteryUse | None = None
    """Where a state of charge to begin with was given."""
    surroundings: Surroundings | None = None
    background: Background | None = None
    """Another app, whose energy is in the figures too."""
    background_energy: Energy | None = None
    """What of it is that app's."""
    jobs: JobLog | None = None
    """What became of the jobs of a run that had some."""

    def phone(self) -> dict[str, Any]:
        """For JSON: how the phone lay, what its battery did, and what else ran."""
        return {
            "background": None if self.background is None else self.background.model_dump(mode="json", exclude_none=True),
            "background_energy_j": None if self.background_energy is None else self.background_energy.to_dict(),
            "case": None if self.surroundings is None else self.surroundings.to_dict(),
            "battery": None if self.battery is None else self.battery.to_dict(),
        }

    @property
    def plan_j(self) -> float:
        """Joules that the plan took of the SoC: without another app's, and without the rest of the device."""
        return self.energy.soc - (0.0 if self.background_energy is None else self.background_energy.soc)

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
