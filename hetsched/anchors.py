"""Anchors: a measured whole-model latency, here or on another chip, that corrects a prediction.

The corrected prediction of chip B is ``prediction_B x (measured_A / prediction_A)``: what the model of costs gets wrong about a
network it mostly gets wrong on every chip, so a ratio of two predictions is better than either (``docs/measurements.md``).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from hetsched.soc_quantities import Name

Unit = Literal["cpu", "gpu", "npu", "all"]
#: A latency outside is a slip of units.
_Seconds = Annotated[float, Field(ge=1e-7, le=1e5)]


class Anchor(BaseModel):
    """A measured latency and what was predicted for the same chip, runtime, precision and unit, as a plan file keeps them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    chip: Name
    latency_s: _Seconds
    predicted_s: _Seconds
    runtime: Annotated[str, Field(max_length=40)] = "default"
    precision: Annotated[str, Field(max_length=40)] = "float"
    unit: Unit = "npu"
    source: Annotated[str, Field(max_length=500)] = ""
    """Where a public measurement comes from; empty: the user's own."""
    interval: tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(ge=1, le=100)]] | None = None
    """80 % interval of what it corrects, as factors; None: not known to be narrower than without it."""
    basis: Annotated[str, Field(max_length=500)] = ""
    """What ``interval`` was calibrated on."""

    @property
    def factor(self) -> float:
        """Measured over predicted."""
        return self.latency_s / self.predicted_s

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of processors that it corrects."""
        return ("cpu", "gpu", "npu") if self.unit == "all" else (self.unit,)

    def describe(self) -> str:
        """``1.58 ms on snapdragon-8-gen-3 (qnn, float)``."""
        unit = "" if self.unit == "npu" else f", {self.unit if self.unit != 'all' else 'all units'}"
        return f"{self.latency_s * 1e3:.3g} ms on {self.chip} ({self.runtime}, {self.precision}{unit})"


def counting(anchors: Iterable[Anchor], chip: str) -> dict[str, tuple[Anchor, ...]]:
    """Kind of processor -> the anchors that correct it, kinds in order of name: those of the chip itself alone where there are any."""
    found: dict[str, list[Anchor]] = {}
    for a in anchors:
        for kind in a.kinds:
            found.setdefault(kind, []).append(a)
    return {kind: tuple([a for a in v if a.chip == chip] or v) for kind, v in sorted(found.items())}


def factors(anchors: Iterable[Anchor], chip: str) -> dict[str, float]:
    """Factor of each processor kind of a chip: the geometric mean of the anchors that count there.

    Examples:
        >>> a = Anchor(chip="a", latency_s=2e-3, predicted_s=1e-3)
        >>> b = Anchor(chip="b", latency_s=2e-3, predicted_s=4e-3)
        >>> factors([a, b], "c"), factors([a, b], "b")
        ({'npu': 1.0}, {'npu': 0.5})
    """
    return {kind: exp(sum(log(a.factor) for a in v) / len(v)) for kind, v in counting(anchors, chip).items()}
