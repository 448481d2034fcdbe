"""What the operators of a language model's step take on this machine, where a session computes them: measured, kept in plan files."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from hetsched.soc_quantities import Strict

_Number: TypeAlias = Annotated[float, Field(ge=0, le=1e18)]
#: Seconds of operators of one kind: (rows, work of a row, seconds).
Points: TypeAlias = Annotated[tuple[tuple[_Number, _Number, _Number], ...], Field(min_length=1, max_length=1024)]


class StepTimes(Strict):
    """Times by kind of operator (:mod:`hetsched_cost_models.session_steps`), size and rows, on so many threads.

    Two programs compute steps: one of ``few`` rows at most, and one of ``most``, by which longer prompts are computed piece by piece.
    """

    precision: Annotated[str, Field(max_length=40)]
    """How activations meet the weights: ``w4a8`` or ``w4a16``."""
    few: Annotated[int, Field(ge=1, le=1 << 20)]
    most: Annotated[int, Field(ge=1, le=1 << 24)]
    wide: Annotated[tuple[str, ...], Field(max_length=1 << 16)] = ()
    """Weights that meet 16 bits at ``w4a8``, too."""
    spread: Annotated[float, Field(ge=0)] = 0.0
    """How much slower than the fastest run the typical one was: 0 on a quiet machine."""
    teams: Annotated[dict[int, Annotated[dict[str, Points], Field(max_length=1024)]], Field(min_length=1, max_length=64)]
    """By the number of threads."""

    def of(self, threads: int) -> dict[str, Points]:
        """The times on ``threads`` threads, or on the largest team that was measured and is not larger."""
        return self.teams[max((n for n in self.teams if n <= threads), default=min(self.teams))]
