"""Makes the data of the fit: ``python -m hetsched_cost_models.fit.extract [MEASUREMENTS [GRAPHS]]``.

From ``npu_snapdragon_aihub.csv`` the rows that ran wholly on the NPU, and from the weightless graphs of the models their tiled work as the
cost model counts it for a Snapdragon, one line for each distinct operator.
"""

from __future__ import annotations

import csv
import importlib
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hetsched.soc_files import load_soc
from hetsched.states import resident
from hetsched_cost_models.features import features_of
from hetsched_cost_models.fit.dataset import COLUMNS, EARLIER, GRAPHS_FILE, OPERATORS_FILE, RELEASE, ROWS_FILE, model_of
from hetsched_cost_models.fit.rows_file import write_rows
from hetsched_cost_models.work import FloatArray

#: Where the data lie beside a checkout.
MEASUREMENTS, GRAPHS = Path("../shared/measurements"), Path("../shared/models/aihub")
_PRECISIONS = ("float", "w8a8", "w8a16")
_RELEASES = (EARLIER, RELEASE)  # earlier ones hold a broken conversion (README of the measurements)


def work_of_file(path: Path) -> tuple[FloatArray, tuple[float, float], tuple[str, ...]]:
    """[distinct ops, columns] work of a model on a Snapdragon's NPU, elements of its inputs and outputs, types of its operators."""
    inputs = importlib.import_module("hetsched.app.inputs")  # by name: this program stands above all floors
    chip = load_soc("snapdragon-8-gen-3")
    graph = inputs.targeted(inputs.load(path), chip)
    features, fusions = features_of(graph), chip.by_name["npu"].fusions
    apart, tiles = features.apart(graph, fusions), features.tiles(graph, fusions)
    work = apart.work
    constants = work.weight_float_elems + work.weight_quant_elems + work.weight_packed_elems
    columns = {
        "kind": tiles.kind, "macs": tiles.macs, "elems": work.float_elems + work.quant_elems, "other_bytes": work.other_bytes,
        "written": tiles.written, "once": tiles.once, "functions": tiles.functions, "weights": constants,
        "weight_bytes": work.weight_fixed_bytes, "heads": tiles.heads, "tokens": tiles.tokens,
    }  # fmt: skip
    table, count = np.unique(np.stack([columns[c] for c in COLUMNS[:-1]], axis=1), axis=0, return_counts=True)
    stay = resident(graph)
    sizes = [sum(graph.tensors[n].elements for n in names if n not in stay) for names in (graph.inputs, graph.outputs)]
    types = tuple(sorted({op.type for op in apart.parts.example}))
    return np.column_stack([table, count]), (float(sizes[0]), float(sizes[1])), types


def rows_of(measurements: Path, models: set[str]) -> list[dict[str, str]]:
    """One row a model, precision, runtime and chip of each release: the median of repeats."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    source: dict[tuple[str, ...], str] = {}
    with (measurements / "npu_snapdragon_aihub.csv").open(encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f):
            model = model_of(row, models.__contains__)
            if model is None or row["precision"] not in _PRECISIONS or row["release"] not in _RELEASES:
                continue
            key = (row["use"], model, row["precision"], row["runtime"], row["chipset"], row["release"])
            found[key].append(float(row["inference_time_ms"]))
            source[key] = row["source_path"]
    names = ("use", "model", "precision", "runtime", "chipset", "release")
    return [{**dict(zip(names, k, strict=True)), "ms": f"{statistics.median(v):g}", "source": source[k]} for k, v in sorted(found.items())]


def main(arguments: Sequence[str]) -> int:
    """Write both files; 2 without the measurements."""
    folders = [Path(a) for a in arguments]
    measurements = folders[0] if folders else MEASUREMENTS
    graphs = folders[1] if len(folders) > 1 else measurements.parent / "models" / "aihub" if folders else GRAPHS
    if not measurements.is_dir() or not graphs.is_dir():
        print(f"no data: {measurements} and {graphs} must be folders; give them as arguments", file=sys.stderr)
        return 2
    arrays: dict[str, FloatArray] = {}
    operators: list[dict[str, str]] = []
    for path in sorted(graphs.glob("*.onnx")):
        table, sizes, types = work_of_file(path)
        arrays[path.stem] = table
        arrays[f"{path.stem}/io"] = np.array(sizes)
        operators += [{"model": path.stem, "operator": t} for t in types]
    rows = rows_of(measurements, {name for name in arrays if not name.endswith("/io")})
    np.savez_compressed(GRAPHS_FILE, **arrays)  # type: ignore[arg-type]
    write_rows(ROWS_FILE, list(rows[0]), rows)
    write_rows(OPERATORS_FILE, list(operators[0]), operators)
    print(f"{len(rows)} rows, {len(arrays) // 2} graphs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
