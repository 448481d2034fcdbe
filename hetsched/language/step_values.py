"""The run-time values of a step, and parts of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from hetsched.language.run_values import Value, View

Array = npt.NDArray[Any]
#: Most new tokens of a step of few: a decode step, or one that checks guesses. Attention goes page by page there.
FEW_TOKENS = 16
#: New tokens; position of the first; tokens with them; the last rows whose scores are computed, and the first of these.
ROWS, POSITION, LENGTH, SCORED, FIRST_SCORED = "rows", "position", "length", "scored", "first scored"
#: New tokens that stay in float16, too: the first of these, and how many; position from which all before them are there.
FIRST_NEWEST, NEWEST, FRESH_FROM = "first newest", "newest", "fresh from"


def variables(parts: int) -> tuple[str, ...]:
    """Names of the run-time values of a program whose rows are split into ``parts``."""
    return (ROWS, POSITION, LENGTH, SCORED, FIRST_SCORED, *(f"{w} {p}" for p in range(parts) for w in ("begin", "count", "position")))


def values(parts: int, rows: int, position: int, scored: int) -> dict[str, int]:
    """The values of a step."""
    out = {ROWS: rows, POSITION: position, LENGTH: position + rows, SCORED: scored, FIRST_SCORED: rows - scored}
    for p in range(parts):
        begin, end = p * rows // parts, (p + 1) * rows // parts
        out |= {f"begin {p}": begin, f"count {p}": end - begin, f"position {p}": position + begin}
    return out


def window_value(own: int) -> Value:
    """What a layer whose window is ``own`` (0: none) sees."""
    return Value(f"window {own}")


def window_values(windows: tuple[int, ...], most: int) -> dict[str, int]:
    """The values of layers' windows where a token sees at most ``most`` others (0: as the layers say)."""
    return {window_value(w).variable: min((n for n in (w, most) if n), default=0) for w in windows}


def newest_values(rows: int, position: int, fresh: int, page: int) -> dict[str, int]:
    """The values of the newest tokens, where ``fresh`` of those before are there."""
    return {FIRST_NEWEST: max(rows - page, 0), NEWEST: min(rows, page), FRESH_FROM: position - fresh}


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a step.

    Attributes:
        first: variable with the first row; empty: row 0.
        count: variable with their number.
        position: variable with the position of the first row.
    """

    first: str
    count: str
    position: str = POSITION

    @property
    def begin(self) -> Value | int:
        """The first row."""
        return Value(self.first) if self.first else 0

    @property
    def rows(self) -> Value:
        """The number of rows."""
        return Value(self.count)

    def of(self, array: Array, width: int, sized: bool = False) -> View:
        """These rows of a matrix; ``sized``: not longer than they are."""
        start = Value(self.first, width) if self.first else None
        return View(array, start, Value(self.count, width) if sized else None)

    def times(self, many: int) -> Value:
        """``many`` times the number of rows."""
        return Value(self.count, many)


def parts_of(count: int) -> tuple[Part, ...]:
    """The rows of a step in ``count`` parts."""
    return (Part("", ROWS),) if count == 1 else tuple(Part(f"begin {p}", f"count {p}", f"position {p}") for p in range(count))


SCORES = Part("", SCORED)
