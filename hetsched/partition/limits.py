"""Limits on a plan beside its objective: latency, energy, power while it runs, accuracy lost, number of segments.

Accuracy lost is the sum over ops of what their alternatives lose (``CostTable.loss``), the usual first-order model of
mixed precision. Power is the plan's energy over its latency: what the phone must carry away while the model runs back to back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

from hetsched.errors import OptionError

if TYPE_CHECKING:
    from hetsched.partition.timing import Figures

#: Sums of a thousand figures may differ by this share between two orders of adding.
SLACK = 1e-9
_WORDS = {"latency_s": "latency", "energy_j": "energy", "power_w": "power", "loss": "accuracy loss", "segments": "number of segments"}


@dataclass(frozen=True)
class Limits:
    """The most that a plan may have of each; None: no limit."""

    latency_s: float | None = None
    energy_j: float | None = None
    power_w: float | None = None
    loss: float | None = None
    segments: int | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            given = getattr(self, f.name)
            least = 1 if f.name == "segments" else 0
            if given is not None and not (given >= least if f.name in ("segments", "loss") else given > 0):
                what = {"segments": "a plan has at least one segment", "loss": "give 0 or more"}.get(f.name, "give a positive number")
                raise OptionError(f"the limit on the {_WORDS[f.name]} is {given}: {what}")

    @cached_property
    def given(self) -> dict[str, float]:
        """Name -> limit, of those that there are."""
        every = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: float(limit) for name, limit in every.items() if limit is not None}

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return bool(self.given)

    def __contains__(self, f: Figures) -> bool:
        """Whether a timed plan is within every limit."""
        return next(self.broken(f), None) is None

    def broken(self, f: Figures) -> Iterator[tuple[str, float]]:
        """Names of the limits that a timed plan breaks, each with the plan's figure."""
        power = f.energy_j / f.latency_s if f.latency_s > 0 else 0.0
        found = {"latency_s": f.latency_s, "energy_j": f.energy_j, "power_w": power, "loss": f.loss, "segments": f.segments}
        for name, limit in self.given.items():
            if found[name] > limit * (1 + SLACK):
                yield name, found[name]

    def exceeded(self, f: Figures) -> Iterator[str]:
        """The limits that a timed plan breaks, in words."""
        for name, value in self.broken(f):
            yield f"{_WORDS[name]} {value:.4g}{_unit(name)} of at most {getattr(self, name):.4g}{_unit(name)}"


def _unit(name: str) -> str:
    unit = {"latency_s": "s", "energy_j": "J", "power_w": "W"}.get(name)
    return f" {unit}" if unit else ""


UNLIMITED = Limits()
