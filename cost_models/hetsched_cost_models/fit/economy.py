"""How few parameters the fits have: at least eight distinct (model, precision, chip) for each, over all rows that may be fitted.

A chip counts once, whichever of its processors were measured. Placement counts the layers that are not zero and the releases where they
change, language models the paces that are not 1. CPU power has no models: its parameters stand against clusters. Choices between forms,
intervals and figures of SoC files are no parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hetsched_cost_models.fit import dataset, placement, placement_data, power, processor_data
from hetsched_cost_models.fit.accuracy import Figure
from hetsched_cost_models.fit.language_data import rates
from hetsched_cost_models.fit.placement_quantized import SPANS, concerns
from hetsched_cost_models.fit.priors import FITTED
from hetsched_cost_models.fit.processor_fit import KINDS
from hetsched_cost_models.language_rates import shipped

#: Distinct cases a parameter.
GOAL = 8

_JUDGED = ("Snapdragon NPUs", "all fits")

#: Model, precision (bits of the weights of language models), chip.
Case = tuple[str, str, str]


@dataclass(frozen=True)
class Count:
    """The parameters of some fits, and the cases that bear on them."""

    what: str
    parameters: int
    cases: frozenset[Case]

    @property
    def each(self) -> float:
        """Cases a parameter."""
        return len(self.cases) / self.parameters


def counts() -> list[Count]:
    """Snapdragon NPUs; CPUs, GPUs and Neural Engines; language models; placement; all of them, each case once."""
    latencies = [r for r in dataset.rows() if r.use == "fit"]
    layers = [r for r in placement_data.rows() if r.use == "fit" and concerns(r)]
    found = [
        Count("Snapdragon NPUs", len(FITTED), frozenset((r.model, r.precision, r.chipset) for r in latencies)),
        Count(
            "CPU, GPU, Neural Engine",
            sum(len(k.priors) for k in KINDS.values()),
            frozenset((r.model, r.precision, r.chip) for r in processor_data.rows()),
        ),
        Count(
            "language models",
            sum(len(p) for p in shipped().parameters.values()),
            frozenset((r.model, f"{r.bits:g}", r.chip) for r in rates() if r.decode + r.prefill > 0),
        ),
        Count(
            "placement",
            len(placement.judged()) + len(SPANS) - 1,
            frozenset((r.model, r.precision, r.chipset) for r in layers),
        ),
    ]
    return [*found, Count("all fits", sum(c.parameters for c in found), frozenset().union(*(c.cases for c in found)))]


def figures() -> Iterator[Figure]:
    """A line for each count; the goal is for the NPUs, and for all fits together."""
    for c in counts():
        met = c.each >= GOAL if c.what in _JUDGED else None
        text = f"{len(c.cases)} / {c.parameters} = {c.each:.1f}"
        yield Figure(f"{c.what}: cases a fitted parameter", f">= {GOAL}" if met is not None else "", text, met)
    points = power.points()
    clusters = len(set(zip(points.chip.tolist(), points.cluster.tolist(), strict=True)))
    yield Figure("CPU power: clusters a fitted parameter", "", f"{clusters} / {len(power.PRIORS)} = {clusters / len(power.PRIORS):.1f}")
