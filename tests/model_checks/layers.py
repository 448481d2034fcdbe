"""Fused operators against the layers that converters report for the AI Hub graphs (``aihub/graphs.csv``, from AI Hub's profiles).

Twice: counted as the converter counts (:mod:`model_checks.converter_layers`), which must agree, and as the plan counts them, which says
how much of the distance to a converter's count is its way of counting.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from model_checks.converter_layers import Style, layers
from model_checks.corpus import Refusal, load_any

from hetsched.graph import Graph
from hetsched.passes import for_soc, standard
from hetsched.soc_files import load_soc

#: Column of the list -> whose converter counted.
_COLUMNS: tuple[tuple[str, Style], ...] = (("aihub_layers_tflite", "tflite"), ("aihub_layers_qnn", "qnn_dlc"))
#: Largest median difference on networks of convolutions; transformers are reported.
_GOAL = 0.15
#: Differences that are listed one by one.
_LISTED = 0.15


def against_converters(root: Path) -> Iterator[tuple[str, float | None, list[float], tuple[str, ...]]]:
    """What is compared, the goal (None: reported), relative differences, and those that are large with both counts."""
    rows = _rows(root)
    graphs = {row["file"]: g for row in rows if not isinstance(g := load_any(root / "aihub" / row["file"]), Refusal)}
    for column, style in _COLUMNS:
        for convolutional, goal in ((True, _GOAL), (False, None)):
            errors, notes = [], []
            for row in rows:
                graph = graphs.get(row["file"])
                if graph is None or not row[column] or is_convolutional(graph) != convolutional:
                    continue
                ours, theirs = layers(graph, style), int(float(row[column]))
                errors.append(abs(ours / theirs - 1))
                if errors[-1] > _LISTED:
                    notes.append(f"{row['file']}: {ours} layers where {theirs} are reported ({ours / theirs - 1:+.0%})")
            kind = "convolutional nets" if convolutional else "transformers"
            if errors:
                yield f"layers as {style} counts them, {kind}", goal, errors, tuple(notes)


def of_the_plan(root: Path, soc: str) -> Iterator[tuple[str, list[float], tuple[str, ...]]]:
    """What is compared, relative differences of the operators that are planned on ``soc``, and both counts of each graph."""
    rows = _rows(root)
    chip = load_soc(soc)
    loaded = {row["file"]: load_any(root / "aihub" / row["file"]) for row in rows}
    ours = {file: len(for_soc(standard(g), chip).ops) for file, g in loaded.items() if not isinstance(g, Refusal)}
    for column, style in _COLUMNS:
        pairs = [(row["file"], ours[row["file"]], int(float(row[column]))) for row in rows if row["file"] in ours and row[column]]
        if pairs:
            notes = tuple(f"{file}: {planned} operators where {theirs} layers are reported" for file, planned, theirs in pairs)
            yield f"operators of a plan on {soc}, layers as {style}", [abs(a / b - 1) for _, a, b in pairs], notes


def _rows(root: Path) -> list[dict[str, str]]:
    path = root / "aihub" / "graphs.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def is_convolutional(graph: Graph) -> bool:
    """Whether convolutions are most of the matrix products."""
    kinds = Counter(op.type for op in graph.ops)
    return kinds["Conv"] + kinds["ConvTranspose"] >= kinds["MatMul"] + kinds["Gemm"] and kinds["Softmax"] <= 2
