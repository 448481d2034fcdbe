"""What lies between a prompt and its answer: weights that both phases hold, caches that move, and what packing anew would take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from hetsched.app.planned import Planned
from hetsched.partition.memory import held_weights
from hetsched.plans import Switch
from hetsched.sizes import size


@dataclass(frozen=True, slots=True)
class Between:
    """Bytes and seconds between the prefill and the decode steps, as they are planned."""

    weight_bytes: int
    """Weights that the phases hold together, each once a processor and width."""
    one_copy_bytes: int
    """Those of the phase that holds more."""
    pack_bytes: int
    """What the decode steps hold and the prefill does not: packed anew in every answer, unless both are kept."""
    pack_s: float
    state_bytes: int
    """Caches that the decode steps keep on another processor than the prefill."""
    handover_s: float

    @property
    def second_copy_bytes(self) -> int:
        """What keeping the weights of both phases costs."""
        return self.weight_bytes - self.one_copy_bytes

    def as_dict(self) -> dict[str, float]:
        """The stable keys of ``between_phases`` in ``plan --json``."""
        return {**asdict(self), "second_copy_bytes": self.second_copy_bytes}

    def sentences(self) -> Iterator[str]:
        """What a user should know of it."""
        if self.second_copy_bytes:
            yield (
                f"the phases hold weights on different processors, {size(self.weight_bytes)} together where one alone holds"
                f" {size(self.one_copy_bytes)} (--memory-limit keeps both within what the phone has); without the second copy every answer"
                f" would begin with packing {size(self.pack_bytes)}, about {self.pack_s * 1e3:.3g} ms"
            )
        else:
            yield f"both phases use the same {size(self.weight_bytes)} of weights: going from prompt to answer packs nothing"
        if self.state_bytes:
            moved = f"{size(self.state_bytes)} of caches move to another processor"
            yield f"from prompt to answer {moved}, about {self.handover_s * 1e3:.3g} ms"


def between(prefill: Planned, decode: Planned, switch: Switch) -> Between:
    """What lies between two phases of a model; ``switch`` is the one from the prefill to the decode steps."""
    first, second = (held_weights(p.graph, p.table, p.placement[1]) for p in (prefill, decode))
    return Between(
        sum((first | second).values()), max(sum(first.values()), sum(second.values())),
        switch.weight_bytes, switch.pack_s, switch.state_bytes, switch.handover_s,
    )  # fmt: skip
