"""What a study varies, and how that is laid out: one axis by colour, the others in panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.scenarios import Scalar
from hetsched.studies.results import Row, values_of, varying
from hetsched.studies.words import shown_choice

#: Colours that can be told apart.
COLOURS = 6
#: Axes that are compared by colour where they vary, in this order.
COMPARED = ("policy", "variant", "case", "charging")
#: Inputs that others may only accompany.
LEADING = ("variant", "model", "soc")


@dataclass(frozen=True)
class Axes:
    """Names of inputs: all that vary by themselves, the one shown by colour (None: too many values), and the rest."""

    all: tuple[str, ...]
    colour: str | None

    @property
    def rest(self) -> tuple[str, ...]:
        """Axes that are not shown by colour."""
        return tuple(a for a in self.all if a != self.colour)


def axes_of(rows: Sequence[Row]) -> Axes:
    """The axes of a study. An input that only accompanies a variant, a model or a SoC is none."""
    names = varying(rows)
    own = [n for n in names if not any(_follows(rows, n, by) for by in LEADING if by in names and by != n)]
    few = [n for n in own if len(values_of(rows, n)) <= COLOURS]
    colour = next((n for n in COMPARED if n in few), few[-1] if few else None)
    return Axes(tuple(own), colour)


def _follows(rows: Sequence[Row], name: str, leader: str) -> bool:
    """Whether an input has one value for every value of ``leader``."""
    seen: dict[Scalar, Scalar] = {}
    return all(seen.setdefault(r.inputs.get(leader), r.inputs.get(name)) == r.inputs.get(name) for r in rows)


def label(row: Row, names: Sequence[str]) -> str:
    """The values of some inputs, as a label."""
    return " · ".join(shown_choice(n, row.inputs.get(n)) for n in names) or "all"


def panels(rows: Sequence[Row], axes: Axes) -> dict[str, list[Row]]:
    """Rows by what does not vary by colour."""
    out: dict[str, list[Row]] = {}
    for r in rows:
        out.setdefault(label(r, axes.rest), []).append(r)
    return out


def colours(rows: Sequence[Row], axes: Axes) -> dict[str, int]:
    """Number of the colour of every value of the coloured axis, by its label."""
    if axes.colour is None:
        return {"all": 0}
    return {shown_choice(axes.colour, v): k for k, v in enumerate(values_of(rows, axes.colour))}


def colour_of(row: Row, axes: Axes) -> str:
    """The label by which a row finds its colour."""
    return "all" if axes.colour is None else shown_choice(axes.colour, row.inputs.get(axes.colour))
