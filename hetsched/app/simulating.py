"""The verb *simulate*: a plan in a phone at some temperature, for one inference or for minutes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.app.language import PlannedLanguage
from hetsched.app.language_simulating import SimulatedLanguage, simulate_language
from hetsched.app.planned import Planned
from hetsched.app.sessions import open_session
from hetsched.errors import OptionError
from hetsched.graph import Graph
from hetsched.soc_words import power_basis
from hetsched.socs import SoC
from hetsched.trace import Trace

if TYPE_CHECKING:
    from hetsched_simulations import Simulation

MAX_DURATION_S = 24 * 3600.0


@dataclass(frozen=True, eq=False)
class Simulated:
    """A simulated run and what it was a run of."""

    planned: Planned
    outcome: Simulation = field(repr=False)
    ambient_c: float

    @property
    def trace(self) -> Trace:
        """What happened when."""
        return self.outcome.trace

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``simulate --json``."""
        import numpy as np

        lat = self.outcome.latencies_s
        return {
            "model": self.planned.graph.name,
            "soc": self.planned.soc.id,
            "ambient_c": self.ambient_c,
            "duration_s": self.outcome.duration_s,
            "inferences": len(lat),
            "latency_ms": {
                "first": float(lat[0]) * 1e3,
                "mean": float(np.mean(lat)) * 1e3,
                "median": float(np.median(lat)) * 1e3,
                "p99": float(np.percentile(lat, 99)) * 1e3,
                "last": float(lat[-1]) * 1e3,
            },
            "predicted_ms": self.planned.plan.prediction.latency_s * 1e3,
            "energy_j": {k: float(v) for k, v in sorted(self.outcome.energy_j.items())},
            "average_power_w": float(sum(self.outcome.energy_j.values())) / self.outcome.duration_s if self.outcome.duration_s else 0.0,
            "power_basis": power_basis(self.planned.soc),
            "final_temperatures_c": {k: float(v) for k, v in sorted(self.outcome.final_temperatures_c.items())},
            "throttled": self.outcome.throttled,
        }


def simulate(
    target: str | Path | Graph | Planned,
    soc: str | Path | SoC | None = None,
    *,
    duration_s: float | None = None,
    ambient_c: float = 25.0,
    policy: str = "static",
    period_s: float | None = None,
    contention: bool = True,
    progress: Callable[[float], None] | None = None,
    **plan_options: Any,
) -> Simulated | SimulatedLanguage:
    """Simulate a plan (or plan a model first).

    Args:
        target: a plan file, a model file, a graph, or a :class:`Planned`.
        soc: where to plan, if ``target`` is a model.
        duration_s: repeat the inference for this long; None: once.
        ambient_c: temperature around the phone, degrees Celsius.
        policy: thermal policy; ``static`` keeps the plan whatever happens.
        period_s: an inference arrives every so often; None: back to back.
        contention: concurrent segments share the memory bandwidth.
        progress: called with the share done, 0..1.
        **plan_options: passed to :func:`hetsched.app.planning.plan` if ``target`` is a model.

    Raises:
        OptionError: a value outside what makes sense.
    """
    from hetsched_simulations import simulate as run_simulation

    if duration_s is not None and not 0 < duration_s <= MAX_DURATION_S:
        raise OptionError(f"a duration of {duration_s:g} s makes no sense: use more than 0 and at most 24 hours")
    if not -40 <= ambient_c <= 85:
        raise OptionError(f"an ambient temperature of {ambient_c:g} °C makes no sense: use -40 to 85")
    if policy != "static":
        raise OptionError(f"no policy is called {policy!r}: use static")
    planned = open_session(target, soc, **plan_options)
    if isinstance(planned, PlannedLanguage):
        if duration_s is not None or period_s is not None:
            raise OptionError(
                f"the plan of {planned.graph.name!r} is a prompt and its answer, which are simulated once: leave --duration and --period "
                "out, or plan one phase with --dim past=N"
            )
        return simulate_language(planned, ambient_c, contention, progress)
    order, alternative = planned.placement
    outcome = run_simulation(
        planned.table, planned.soc, order, alternative,
        duration_s=duration_s, ambient_c=ambient_c, period_s=period_s, contention=contention, progress=progress,
    )  # fmt: skip
    outcome.trace.model = planned.graph.name
    return Simulated(planned, outcome, ambient_c)
