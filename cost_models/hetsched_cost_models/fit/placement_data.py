"""Rows and operators of the placement check, as they lie in ``data/`` (:mod:`~hetsched_cost_models.fit.extract_placement` makes them)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_DATA = Path(__file__).parent.parent / "data"
ROWS_FILE, OPERATORS_FILE = _DATA / "placement.csv", _DATA / "placement_operators.csv"
#: In place of an operator: a tensor that the graph takes or gives.
INPUT, OUTPUT = "(input)", "(output)"
#: Forms of an operator: a convolution with a bias, one whose only reader is a Relu or a Clip, a MatMul with a constant, a Clip after a
#: convolution.
BIASED, ACTIVATED, WEIGHTED, BOUNDING = "biased", "activated", "weighted", "bounding"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row. ``unit`` is the accelerator with most layers; ``layers`` and ``cpu`` count the runtime's own layers."""

    use: str
    model: str
    precision: str
    runtime: str
    release: str
    chipset: str
    unit: str
    layers: int
    cpu: int

    @property
    def version(self) -> tuple[int, ...]:
        """The release as numbers."""
        return tuple(int(n) for n in self.release.lstrip("v").split("."))


@dataclass(frozen=True, slots=True)
class Operators:
    """Alike operators of a model; ``integers``: all that they write is; ``form``: one of the constants above, or empty."""

    operator: str
    rank: int
    integers: bool
    form: str
    count: int


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """All rows."""
    with ROWS_FILE.open(encoding="utf-8", newline="") as f:
        return tuple(
            Row(
                r["use"], r["model"], r["precision"], r["runtime"], r["release"], r["chipset"], r["unit"],
                int(r["layers"]), int(r["cpu_layers"]),
            )
            for r in csv.DictReader(f)
        )  # fmt: skip


@lru_cache(maxsize=1)
def operators() -> dict[str, tuple[Operators, ...]]:
    """Model -> its operators."""
    found: dict[str, list[Operators]] = {}
    with OPERATORS_FILE.open(encoding="utf-8", newline="") as f:
        for r in csv.DictReader(f):
            line = Operators(r["operator"], int(r["rank"]), r["integers"] == "1", r["form"], int(r["count"]))
            found.setdefault(r["model"], []).append(line)
    return {model: tuple(lines) for model, lines in found.items()}
