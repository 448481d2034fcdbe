"""Measured times of single operators that take the place of the cost model's: what a plan file keeps of a profile."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_Text = Annotated[str, Field(max_length=4096)]


class MeasuredOp(BaseModel):
    """The time of one op on one queue; an empty ``precision`` means every precision there."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    op: _Text
    queue: Annotated[str, Field(max_length=64)]
    """A kind (``npu``): its queues with most cores; or the name of a queue."""
    precision: Annotated[str, Field(max_length=40)] = ""
    seconds: Annotated[float, Field(ge=0, le=1e5)]
    by: Literal["name", "shape"] = "name"
    """How the op was found in the profile: by its name, or by its type and the shape of its output."""


class Measured(BaseModel):
    """Measured times and where they come from. ``ops`` are those of the plan's graph that were found."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    source: Annotated[str, Field(max_length=500)]
    """Name of the file and its format."""
    total: Annotated[int, Field(ge=0)]
    """Ops of the plan's graph."""
    ops: tuple[MeasuredOp, ...] = ()

    def describe(self) -> str:
        """One sentence: how many operators were found, and how."""
        names = len({o.op for o in self.ops if o.by == "name"})
        found = len({o.op for o in self.ops})
        how = "by name" if names == found else f"{names} by name, {found - names} by type and shape"
        return (
            f"times of {found} of {self.total} operators ({found / max(1, self.total):.0%}; {how}) are those measured in {self.source}; "
            "the others are the model's, not scaled"
        )
