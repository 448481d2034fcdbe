"""Makes the data of the placement check: ``python -m hetsched_cost_models.fit.extract_placement [MEASUREMENTS [GRAPHS]]``.

From AI Hub's rows those that ran on an accelerator at least in part, and from the weightless graphs of their models the operators by type,
rank, whether they write integers, and form (:mod:`~hetsched_cost_models.fit.placement_data`).
"""

from __future__ import annotations

import csv
import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from hetsched.graph import Graph, Op
from hetsched_cost_models.fit.dataset import model_of
from hetsched_cost_models.fit.extract import GRAPHS, MEASUREMENTS
from hetsched_cost_models.fit.placement_data import ACTIVATED, BIASED, BOUNDING, INPUT, OPERATORS_FILE, OUTPUT, ROWS_FILE, WEIGHTED
from hetsched_cost_models.fit.rows_file import write_rows

_FILES = ("npu_snapdragon_aihub.csv", "cpu_gpu_mixed_snapdragon_aihub.csv")
_ROW_FIELDS = ("use", "model", "precision", "runtime", "release", "chipset", "unit", "layers", "cpu_layers", "source")
_OPERATOR_FIELDS = ("model", "operator", "rank", "integers", "form", "count")
_FILTERS = ("Conv", "ConvTranspose")


def rows_of(measurements: Path, models: set[str]) -> Iterator[dict[str, str]]:
    """Each row once that gave the NPU or the GPU a layer; where both files have it, the first counts."""
    seen: set[tuple[str, ...]] = set()
    for name in _FILES:
        with (measurements / name).open(encoding="utf-8", newline="") as f:
            for row in csv.DictReader(f):
                model = model_of(row, models.__contains__)
                if model is None:
                    continue
                layers = {unit: int(row[f"layers_{unit}"] or 0) for unit in ("npu", "gpu", "cpu")}
                key = (model, *(row[k] for k in ("precision", "runtime", "release", "device", "chipset")))
                if key in seen or not layers["npu"] + layers["gpu"]:
                    continue
                seen.add(key)
                yield {
                    "use": row["use"], "model": model, "precision": row["precision"], "runtime": row["runtime"], "release": row["release"],
                    "chipset": row["chipset"], "unit": "npu" if layers["npu"] >= layers["gpu"] else "gpu",
                    "layers": row["layers_total"], "cpu_layers": str(layers["cpu"]), "source": row["source_path"],
                }  # fmt: skip


def operators_of(path: Path) -> Iterator[dict[str, str]]:
    """The operators of a model as they stand in its file, with constants folded."""
    inputs = importlib.import_module("hetsched.app.inputs")  # by name: this program stands above all floors
    passes = importlib.import_module("hetsched.passes")
    undo = importlib.import_module("hetsched.passes.undo")
    graph = undo.undo_where(passes.standard(inputs.load(path)), lambda _: True)
    found: Counter[tuple[str, int, int, str]] = Counter()
    for op in graph.ops:
        name = f"{op.type}/CRD" if op.type == "DepthToSpace" and op.attr_str("mode", "DCR") == "CRD" else op.type
        moving = [graph.tensors[n] for n in (*op.inputs, *op.outputs) if n and not graph.tensors[n].is_constant]
        integers = all(not graph.tensors[n].dtype.is_float for n in op.outputs if n)
        found[name, max((len(t.shape) for t in moving), default=0), int(integers), form_of(graph, op)] += 1
    for name, edges in ((INPUT, graph.inputs), (OUTPUT, graph.outputs)):
        found.update((name, len(graph.tensors[n].shape), int(not graph.tensors[n].dtype.is_float), "") for n in edges)
    for (name, rank, whole, form), count in sorted(found.items()):
        yield {"model": path.stem, "operator": name, "rank": str(rank), "integers": str(whole), "form": form, "count": str(count)}


def form_of(graph: Graph, op: Op) -> str:
    """What quantization makes of an operator: see the constants in :mod:`~hetsched_cost_models.fit.placement_data`."""
    if op.type in _FILTERS and len(op.inputs) > 2 and op.inputs[2]:
        readers = [graph.ops[i].type for i in graph.consumers.get(op.outputs[0], ())]
        return ACTIVATED if readers in (["Relu"], ["Clip"]) else BIASED
    if op.type == "MatMul" and any(graph.tensors[n].is_constant for n in op.inputs):
        return WEIGHTED
    maker = graph.producer.get(op.inputs[0]) if op.type == "Clip" else None
    return BOUNDING if maker is not None and graph.ops[maker].type in _FILTERS else ""


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
