"""Cases: how the surface of a phone sees its surroundings, in a pocket, in a hand, on a table, in a case, in the wind.

The SoC file says how heat leaves a phone that lies on a table. Another case gives its surface other ways out, side by side, each
with a share of the area, a conductance and a temperature at its end. Together they are one conductance, some times that of the
table, to one mean temperature; for a linear network that is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from hetsched import plain_yaml, wrong_fields
from hetsched.errors import OptionError
from hetsched.soc_quantities import Figure, Name, Strict, within
from hetsched.socs import SoC

TABLE = "table"
SHIPPED = Path(__file__).with_name("cases.yaml")
MAX_BYTES = 1 << 20
NOT_HELD = ("laptop", "automotive")
"""Tiers of the market whose devices nobody pockets."""


class HeatPath(Strict):
    """A way out of a surface: through a layer, then on."""

    name: Name
    share: Annotated[Figure, within(1e-6, 1)]
    """Of the surface."""
    layer_m2k_per_w: Annotated[Figure, within(0, 100)] | None = None
    """Thermal resistance of cloth or plastic on it; None: it is bare."""
    passes_w_per_m2k: Annotated[Figure, within(1e-3, 1e5)]
    """Convection and radiation, or contact, behind the layer."""
    temperature_c: Annotated[Figure, within(0, 100)] | None = None
    """What is at the end of the way; None: the ambient air."""

    @property
    def conductance_w_per_m2k(self) -> float:
        """Per square metre of the whole surface."""
        layer = 0.0 if self.layer_m2k_per_w is None else float(self.layer_m2k_per_w)
        return float(self.share) / (layer + 1.0 / float(self.passes_w_per_m2k))


class Case(Strict):
    """A set of ways out that share a surface."""

    says: str = Field(min_length=1, max_length=200)
    paths: tuple[HeatPath, ...] = Field(min_length=1, max_length=16)

    @model_validator(mode="after")
    def _whole_surface(self) -> Self:
        total = sum(float(p.share) for p in self.paths)
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"the shares of the paths add up to {total:g}: they must be the whole surface, 1")
        return self

    @property
    def conductance_w_per_m2k(self) -> float:
        """Of all paths together."""
        return sum(p.conductance_w_per_m2k for p in self.paths)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a case makes of an ambient temperature."""

    case: str = TABLE
    ambient_c: float = 25.0
    """Of the room."""
    seen_c: float = 25.0
    """Mean temperature of what the surface gives its heat to; a phone that rests there has it."""
    cooling: float = 1.0
    """How many times as well as on a table heat leaves."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.case, "seen_c": self.seen_c, "cooling": self.cooling}


def surroundings(case: str, ambient_c: float, soc: SoC | None = None) -> Surroundings:
    """The surroundings of a phone.

    Args:
        case: a name of the shipped table, or the path of a YAML file with one case.
        ambient_c: temperature of the air.
        soc: whose device it is.

    Raises:
        OptionError: there is no such case, the file is not one, or the device is nothing to put into a pocket.

    Examples:
        >>> surroundings("table", 35.0)
        Surroundings(case='table', ambient_c=35.0, seen_c=35.0, cooling=1.0)
        >>> warm = surroundings("pocket", 20.0)
        >>> round(warm.seen_c, 2), round(warm.cooling, 2)
        (29.53, 0.68)
    """
    if case == TABLE:
        return Surroundings(case, ambient_c, ambient_c)
    if soc is not None and soc.market is not None and soc.market.tier in NOT_HELD:
        raise OptionError(f"{soc.name} is no phone: leave --case {case} out")
    name, found = _case(case)
    whole = found.conductance_w_per_m2k
    ends = ((p, ambient_c if p.temperature_c is None else float(p.temperature_c)) for p in found.paths)
    seen = sum(p.conductance_w_per_m2k * end for p, end in ends) / whole
    return Surroundings(name, ambient_c, seen, whole / shipped()[TABLE].conductance_w_per_m2k)


def _case(case: str) -> tuple[str, Case]:
    if case.endswith((".yaml", ".yml")):
        path = Path(case)
        raw = _read(path)
        return path.stem, _validated(raw, str(path))
    known = shipped()
    if case not in known:
        raise OptionError(f"no case is called {case!r}: use {', '.join(known)}, or the path of a YAML file with one")
    return case, known[case]


@cache
def shipped() -> dict[str, Case]:
    """The cases that ship with hetsched, by name."""
    return {name: _validated(raw, f"{SHIPPED.name}: {name}") for name, raw in _read(SHIPPED).items()}


def _read(path: Path) -> Any:
    if not path.exists():
        raise OptionError(f"there is no file {path} with a case: use one of {', '.join(shipped())}, or write one")
    return plain_yaml.read(path, "the case", MAX_BYTES)


def _validated(raw: Any, where: str) -> Case:
    try:
        return Case.model_validate(raw)
    except ValidationError as e:
        raise OptionError(f"{where} is not a case: {wrong_fields.fault(e, Case, raw)}") from e
