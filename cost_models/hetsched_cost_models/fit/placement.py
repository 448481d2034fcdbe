"""How many layers a runtime leaves on the CPU, and of which operators: ``python -m hetsched_cost_models.fit.placement [--rows]``.

Given the unit that a runtime chose, a layer stays on the CPU where the unit's list (``support/``) lacks its operator, a tensor has more
dimensions than the unit takes, a GPU, which stores floats, would have to write integers, or the runtime of that release did not know the
operator yet. The lists are those of now; releases of AI Hub differ, and the score says by how much that matters. Only what quantization
leaves through ONNX Runtime is fitted, to rows of ``use=fit`` (:mod:`~hetsched_cost_models.fit.placement_quantized`).
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hetsched_cost_models.fit import placement_data
from hetsched_cost_models.fit.dataset import families
from hetsched_cost_models.fit.placement_data import INPUT, OUTPUT, Operators, Row, rows
from hetsched_cost_models.fit.placement_quantized import Layers, concerns, fitted, left_alone
from hetsched_cost_models.support import DECOMPOSITIONS, SupportTable, support_table

GOAL = 0.8
#: Tables by unit and by how AI Hub calls the runtime. The others compile a whole graph or none (QNN).
_TABLES = {("npu", "tflite"): "hexagon-litert", ("npu", "onnx"): "hexagon-qnn", ("gpu", "tflite"): "gpu-litert"}
#: Depth to space in the order of PyTorch: rows and columns in tensors of six dimensions, between two changes of layout.
_CRD = (("Transpose", 4), ("Reshape", 6), ("Transpose", 6), ("Reshape", 6), ("Transpose", 4))
#: The first release whose TFLite files have no tensor of six dimensions: they have two layers more for it (rows of both kinds).
_NARROW_SINCE = (0, 40)
#: What ONNX Runtime's QNN provider learnt in May and June 2024 (microsoft/onnxruntime #20508; #21008: searches that give a graph's output
#: in 64 bits), and the first release of the rows after that of 2024-08-27, which still leaves the searches.
_LATER, _LATER_SINCE = frozenset({"HardSigmoid", "ArgMax", "ArgMin", "TopK"}), (0, 13)
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})


@dataclass(frozen=True, slots=True)
class Score:
    """Of ``rows``, how many are predicted to within one layer or a tenth, and how many would be if nothing ever fell back."""

    what: str
    rows: int
    right: float
    never: float


@lru_cache(maxsize=1)
def judged() -> Layers:
    """What quantization leaves, fitted on the rows of ``use=fit``."""
    return fitted(r for r in rows() if r.use == "fit")


def on_cpu(row: Row, layers: Layers | None = None) -> dict[str, int]:
    """Operators that the runtime of ``row`` is predicted to leave on the CPU, with the number of layers of each."""
    name = _TABLES.get((row.unit, row.runtime))
    if name is None:
        return {}
    table = support_table(name)
    limit = _most_dimensions(table)
    left = Counter(left_alone(row, judged() if layers is None else layers) if concerns(row) else {})
    for line in placement_data.operators()[row.model]:
        if line.operator in (INPUT, OUTPUT):
            continue
        refused = sum(rank > limit or not _listed(table, part) for part, rank in _written(line, row))
        if (line.integers and row.unit == "gpu") or _came_later(line, row):
            refused = max(refused, 1)
        if refused:
            left[line.operator] += refused * line.count
    return dict(left)


def _written(line: Operators, row: Row) -> Iterator[tuple[str, int]]:
    """The layers that the converter writes for an operator, each with its rank."""
    if line.operator != "DepthToSpace/CRD":
        yield line.operator, line.rank
    elif row.runtime == "tflite" and row.version < _NARROW_SINCE:
        yield from _CRD
    else:
        yield "DepthToSpace", line.rank


def _came_later(line: Operators, row: Row) -> bool:
    return row.runtime == "onnx" and row.version < _LATER_SINCE and line.operator in _LATER


def _most_dimensions(table: SupportTable) -> float:
    found = [c.limit for rule in table.everywhere for c in rule.conditions if (c.measure, c.relation) == ("rank", "<=")]
    return min(found, default=math.inf)


def _listed(table: SupportTable, operator: str, depth: int = 0) -> bool:
    """Whether the list has an operator, or all that converters write it as.

    Exported graphs have the error function as a part of a Gelu only.
    """
    if operator == "Erf" and "Gelu" in table.rules:
        operator = "Gelu"
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


def score(what: str, found: Iterable[Row], layers: Callable[[Row], Layers] | None = None) -> Score:
    """Judge the predictions of some rows, with what ``layers`` gives for each row instead of :func:`judged`; every row counts alike."""
    mine = list(found)
    right = sum(is_right(sum(on_cpu(r, layers(r) if layers else None).values()), r.cpu) for r in mine)
    return Score(what, len(mine), right / max(1, len(mine)), sum(is_right(0, r.cpu) for r in mine) / max(1, len(mine)))


def without_family() -> Callable[[Row], Layers]:
    """For each row what is fitted on all rows of the other families."""
    kept = {f: fitted(r for r in rows() if families()[r.model] != f) for f in sorted({families()[r.model] for r in rows()})}
    return lambda row: kept[families()[row.model]]


def scores() -> list[Score]:
    """All rows; those where something fell back, also of models not fitted, and each family by a fit without it; the others; runtimes."""
    fell_back = [r for r in rows() if r.cpu]
    runtimes, partial = (sorted({r.runtime for r in some}) for some in (rows(), fell_back))
    return [
        score("all rows", rows()),
        score("rows with CPU layers", fell_back),
        score("with CPU layers: models not fitted", (r for r in fell_back if r.use == "validate")),
        score("with CPU layers: family left out", fell_back, without_family()),
        score("rows without", (r for r in rows() if not r.cpu)),
        *(score(name, (r for r in rows() if r.runtime == name)) for name in runtimes),
        *(score(f"with CPU layers: {name}", (r for r in fell_back if r.runtime == name)) for name in partial),
    ]


def _print_rows() -> None:
    """Every kind of row with CPU layers: how many, what was measured, what is predicted of which operators."""
    kinds = Counter((r.runtime, r.unit, r.model, r.precision, r.release, r.layers, r.cpu, str(on_cpu(r))) for r in rows() if r.cpu)
    for kind, count in sorted(kinds.items()):
        print(f"{count:>3} x", *kind)


def main(arguments: Sequence[str]) -> int:
    """Print the scores, with ``--rows`` every kind of row; 1 if the goal is missed where something fell back."""
    table = scores()
    print(f"{'what':<36} {'rows':>5} {'right':>7} {'if never':>9}   (goal {GOAL:.0%})")
    for s in table:
        print(f"{s.what:<36} {s.rows:>5} {s.right:>7.1%} {s.never:>9.1%}")
    if "--rows" in arguments:
        _print_rows()
    return 0 if table[1].right >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
