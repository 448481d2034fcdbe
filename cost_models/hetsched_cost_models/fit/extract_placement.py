"""Makes the data of the placement check: ``python -m hetsched_cost_models.fit.extract_placement [MEASUREMENTS [GRAPHS]]``.

From AI Hub's rows those that ran on an accelerator at least in part, and from the weightless graphs of their models the operators by type,
rank and whether they write integers.
"""

from __future__ import annotations

import csv
import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from hetsched_cost_models.fit.extract import GRAPHS, MEASUREMENTS
from hetsched_cost_models.fit.placement import OPERATORS_FILE, ROWS_FILE
from hetsched_cost_models.fit.rows_file import write_rows

_FILES = ("npu_snapdragon_aihub.csv", "cpu_gpu_mixed_snapdragon_aihub.csv")
_ROW_FIELDS = ("model", "precision", "runtime", "release", "chipset", "unit", "layers", "cpu_layers", "source")
_OPERATOR_FIELDS = ("model", "operator", "rank", "integers", "count")


def rows_of(measurements: Path, models: set[str]) -> Iterator[dict[str, str]]:
    """Each row once that gave the NPU or the GPU a layer; where both files have it, the first counts."""
    seen: set[tuple[str, ...]] = set()
    for name in _FILES:
        with (measurements / name).open(encoding="utf-8", newline="") as f:
            for row in csv.DictReader(f):
                part = f"{row['model']}__{row['component']}"
                model = part if part in models else row["model"]
                layers = {unit: int(row[f"layers_{unit}"] or 0) for unit in ("npu", "gpu", "cpu")}
                key = (model, *(row[k] for k in ("precision", "runtime", "release", "device", "chipset")))
                if model not in models or key in seen or not layers["npu"] + layers["gpu"]:
                    continue
                seen.add(key)
                yield {
                    "model": model, "precision": row["precision"], "runtime": row["runtime"], "release": row["release"],
                    "chipset": row["chipset"], "unit": "npu" if layers["npu"] >= layers["gpu"] else "gpu",
                    "layers": row["layers_total"], "cpu_layers": str(layers["cpu"]), "source": row["source_path"],
                }  # fmt: skip


def operators_of(path: Path) -> Iterator[dict[str, str]]:
    """The operators of a model as they stand in its file, with constants folded."""
    inputs = importlib.import_module("hetsched.app.inputs")  # by name: this program stands above all floors
    passes = importlib.import_module("hetsched.passes")
    undo = importlib.import_module("hetsched.passes.undo")
    graph = undo.undo_where(passes.standard(inputs.load(path)), lambda _: True)
    found: Counter[tuple[str, int, int]] = Counter()
    for op in graph.ops:
        name = f"{op.type}/CRD" if op.type == "DepthToSpace" and op.attr_str("mode", "DCR") == "CRD" else op.type
        moving = [graph.tensors[n] for n in (*op.inputs, *op.outputs) if n and not graph.tensors[n].is_constant]
        integers = all(not graph.tensors[n].dtype.is_float for n in op.outputs if n)
        found[name, max((len(t.shape) for t in moving), default=0), int(integers)] += 1
    for (name, rank, whole), count in sorted(found.items()):
        yield {"model": path.stem, "operator": name, "rank": str(rank), "integers": str(whole), "count": str(count)}


def main(arguments: Sequence[str]) -> int:
    """Write both files; 2 without the measurements."""
    folders = [Path(a) for a in arguments]
    measurements = folders[0] if folders else MEASUREMENTS
    graphs = folders[1] if len(folders) > 1 else GRAPHS
    if not measurements.is_dir() or not graphs.is_dir():
        print(f"no data: {measurements} and {graphs} must be folders; give them as arguments", file=sys.stderr)
        return 2
    paths = sorted(graphs.glob("*.onnx"))
    rows = sorted(rows_of(measurements, {p.stem for p in paths}), key=lambda r: tuple(r.values()))
    write_rows(OPERATORS_FILE, _OPERATOR_FIELDS, (line for p in paths for line in operators_of(p)))
    write_rows(ROWS_FILE, _ROW_FIELDS, rows)
    print(f"{len(rows)} rows, {len(paths)} graphs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
