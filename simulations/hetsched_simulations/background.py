"""Another app beside the plan: shares of processors, and what it asks of the memory, all the time or on and off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from hetsched.costs import FloatArray
from hetsched.errors import OptionError
from hetsched.quantities import BYTES_A_SECOND, SECONDS, pairs, written_in
from hetsched.soc_quantities import Number, Strict
from hetsched.socs import SoC
from hetsched_simulations.clocks import Clusters

_Seconds = Annotated[Number, written_in(SECONDS), Field(ge=0.01, le=86400)]


class Background(Strict):
    """A load of another app. Its work takes the share of a processor's time that it says, at whatever clock that is."""

    shares: dict[Annotated[str, Field(max_length=64)], Annotated[Number, Field(gt=0, le=0.95)]] = Field(default_factory=dict)
    """Share of every core (or of the GPU, the NPU) that it takes, by processor or kind."""
    dram: Annotated[Number, written_in(BYTES_A_SECOND), Field(ge=0, le=1e12)] = 0.0
    """Bytes a second."""
    on: _Seconds | None = None
    """How long it runs at a time, on average; None: all the time."""
    off: _Seconds | None = None
    """How long it pauses, on average."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """``cpu=0.3,gpu=0.2,dram=5GB/s,on=10s,off=20s`` as fields; a mapping with names of processors among the fields likewise."""
        value = pairs(value)
        if not isinstance(value, dict) or "shares" in value:
            return value
        own = {k: v for k, v in value.items() if k in cls.model_fields}
        shares = {k: v for k, v in value.items() if k not in cls.model_fields}
        return own | ({"shares": {k: _number(v) for k, v in shares.items()}} if shares else {})

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.on is None) != (self.off is None):
            raise ValueError("a background load that comes and goes needs both on=TIME and off=TIME")
        if not self.shares and self.dram == 0:
            raise ValueError("a background load needs a share of a processor (cpu=0.3) or bandwidth (dram=5GB/s)")
        return self

    def of_clusters(self, soc: SoC, clusters: Clusters) -> FloatArray:
        """[c] the share of each cluster that it takes.

        Raises:
            OptionError: the SoC has no such processor.
        """
        known = {n for p in soc.processors for n in (p.name, p.kind)}
        for name in self.shares:
            if name not in known:
                names = ", ".join([*sorted(known), "dram", "on", "off", "seed"])
                raise OptionError(f"the background load names {name!r}, which {soc.id} does not have: use {names}")
        by_processor = [self.shares.get(p.name, self.shares.get(p.kind, 0.0)) for p in soc.processors]
        return np.array([by_processor[p] for p in clusters.processor])

    def toggles(self) -> Iterator[float]:
        """When it stops and starts again, in turn; it begins at 0 and runs and pauses for times that are exponentially distributed."""
        if self.on is None or self.off is None:
            return
        rng, now = np.random.default_rng(self.seed), 0.0
        while True:
            for mean in (self.on, self.off):
                now += float(rng.exponential(mean))
                yield now


def _number(value: Any) -> Any:
    try:
        return float(value[:-1]) / 100 if isinstance(value, str) and value.endswith("%") else float(value)
    except (TypeError, ValueError):
        return value
