"""How many layers a runtime leaves on the CPU, predicted from the operator lists: ``python -m hetsched_cost_models.fit.placement``.

Nothing is fitted. Given the unit that a runtime chose, a layer stays on the CPU where the unit's list (``support/``) lacks its
operator, a tensor has more dimensions than the unit takes, or a GPU, which stores floats, would have to write integers.
The lists are those of now; releases of AI Hub differ, and the score says by how much that matters.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hetsched_cost_models.support import DECOMPOSITIONS, SupportTable, support_table

_DATA = Path(__file__).parent.parent / "data"
ROWS_FILE, OPERATORS_FILE = _DATA / "placement.csv", _DATA / "placement_operators.csv"
GOAL = 0.8
#: Tables by unit and by how AI Hub calls the runtime. The others compile a whole graph or none (QNN).
_TABLES = {("npu", "tflite"): "hexagon-litert", ("npu", "onnx"): "hexagon-qnn", ("gpu", "tflite"): "gpu-litert"}
#: Depth to space in the order of PyTorch: rows and columns in tensors of six dimensions, between two changes of layout.
_CRD = (("Transpose", 4), ("Reshape", 6), ("Transpose", 6), ("Reshape", 6), ("Transpose", 4))
#: The first release whose TFLite files have no tensor of six dimensions: they have two layers more for it (rows of both kinds).
_NARROW_SINCE = (0, 40)
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row. ``unit`` is the accelerator with most layers; ``layers`` and ``cpu`` count the runtime's own layers."""

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
    """Alike operators of a model; ``integers``: all that they write is."""

    operator: str
    rank: int
    integers: bool
    count: int


@dataclass(frozen=True, slots=True)
class Score:
    """Of ``rows``, how many are predicted to within one layer or a tenth, and how many would be if nothing ever fell back."""

    what: str
    rows: int
    right: float
    never: float


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """All rows."""
    with ROWS_FILE.open(encoding="utf-8", newline="") as f:
        return tuple(
            Row(r["model"], r["precision"], r["runtime"], r["release"], r["chipset"], r["unit"], int(r["layers"]), int(r["cpu_layers"]))
            for r in csv.DictReader(f)
        )


@lru_cache(maxsize=1)
def operators() -> dict[str, tuple[Operators, ...]]:
    """Model -> its operators."""
    found: dict[str, list[Operators]] = {}
    with OPERATORS_FILE.open(encoding="utf-8", newline="") as f:
        for r in csv.DictReader(f):
            found.setdefault(r["model"], []).append(Operators(r["operator"], int(r["rank"]), r["integers"] == "1", int(r["count"])))
    return {model: tuple(lines) for model, lines in found.items()}


def on_cpu(row: Row) -> dict[str, int]:
    """Operators that the runtime of ``row`` is predicted to leave on the CPU, with the number of layers of each."""
    name = _TABLES.get((row.unit, row.runtime))
    if name is None:
        return {}
    table = support_table(name)
    limit = _most_dimensions(table)
    left: dict[str, int] = {}
    for line in operators()[row.model]:
        wide = sum(rank > limit or not _listed(table, part) for part, rank in _written(line, row))
        refused = wide if not (line.integers and row.unit == "gpu") else max(wide, 1)
        if refused:
            left[line.operator] = left.get(line.operator, 0) + refused * line.count
    return left


def _written(line: Operators, row: Row) -> Iterator[tuple[str, int]]:
    """The layers that the converter writes for an operator, each with its rank."""
    if line.operator != "DepthToSpace/CRD":
        yield line.operator, line.rank
    elif row.runtime == "tflite" and row.version < _NARROW_SINCE:
        yield from _CRD
    else:
        yield "DepthToSpace", line.rank


def _most_dimensions(table: SupportTable) -> int:
    found = [int(c.removeprefix("rank<=")) for rule in table.everywhere for c in rule.conditions if c.startswith("rank<=")]
    return min(found, default=99)


def _listed(table: SupportTable, operator: str, depth: int = 0) -> bool:
    """Whether the list has an operator, or all that converters write it as."""
    if operator in table.rules:
        rule = table.rules[operator]
        return rule.f16 or rule.w8a8
    if operator in _VIEWS:
        return True
    parts = DECOMPOSITIONS.get(operator, ())
    return bool(parts) and depth < 3 and all(_listed(table, p, depth + 1) for p in parts)


def is_right(predicted: int, measured: int) -> bool:
    """Within one layer or a tenth of what was measured."""
    return abs(predicted - measured) <= max(1.0, 0.1 * measured)


def score(what: str, found: Iterable[Row]) -> Score:
    """Judge the predictions of some rows; every row counts alike."""
    mine = list(found)
    right = sum(is_right(sum(on_cpu(r).values()), r.cpu) for r in mine)
    return Score(what, len(mine), right / max(1, len(mine)), sum(is_right(0, r.cpu) for r in mine) / max(1, len(mine)))


def scores() -> list[Score]:
    """All rows, those where something fell back, those where nothing did, and every runtime."""
    runtimes = sorted({r.runtime for r in rows()})
    return [
        score("all rows", rows()),
        score("rows with CPU layers", (r for r in rows() if r.cpu)),
        score("rows without", (r for r in rows() if not r.cpu)),
        *(score(name, (r for r in rows() if r.runtime == name)) for name in runtimes),
    ]


def main() -> int:
    """Print the scores and the worst groups of rows; 1 if the goal is missed where something fell back."""
    table = scores()
    print(f"{'what':<32} {'rows':>5} {'right':>7} {'if never':>9}   (goal {GOAL:.0%})")
    for s in table:
        print(f"{s.what:<32} {s.rows:>5} {s.right:>7.1%} {s.never:>9.1%}")
    return 0 if table[1].right >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
