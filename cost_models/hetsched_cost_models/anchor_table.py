"""Makes the shipped data of anchors: ``python -m hetsched_cost_models.anchor_table [MEASUREMENTS [GRAPHS [OUT]]]``.

- ``anchors.csv``: structural hash, chip, runtime, precision -> latency, from ``npu_snapdragon_aihub.csv`` and the graphs that its
  rows were measured on; rows of one release that ran wholly on the NPU. Left as it is where those data are absent.
- ``anchor_intervals.csv``: how far off a prediction is that is anchored on another public row, by what anchor and plan share: the
  10 % and 90 % quantile of measured over corrected, every model weighted alike. From what ships (:mod:`hetsched_cost_models.accuracy`).

It is run again when the measurements or the parameters of the cost model change.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import exp, log
from pathlib import Path

from hetsched.graph import Graph
from hetsched.graph_hash import graph_hash
from hetsched.soc_files import list_socs, load_soc
from hetsched_cost_models import accuracy_npu
from hetsched_cost_models.accuracy import Point
from hetsched_cost_models.anchoring import are_similar, relation
from hetsched_cost_models.fit.dataset import CHIPS, RELEASE, RUNTIMES, SISTERS, model_of
from hetsched_cost_models.parameters import FITTED

PRECISIONS = ("float", "w8a8", "w8a16")
#: README of the measurements: latencies of one model on one chip differ by 7.6 % (median) between versions of the tools.
#: Of a normal distribution the 80 % interval is 1.28 / 0.674 = 1.9 times the median distance.
_VERSIONS = 1.9 * 0.076


@dataclass(frozen=True, slots=True)
class Measured:
    """One latency of the table; ``model`` is the stem of its graph's file."""

    model: str
    chip: str
    runtime: str
    precision: str
    latency_s: float
    source: str


def measured_rows(rows: Iterable[Mapping[str, str]], has: Callable[[str], bool]) -> list[Measured]:
    """Rows of the release that ran wholly on the NPU, one a (model, chip, runtime, precision): the geometric mean of several."""
    found: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    sources: dict[tuple[str, str, str, str], str] = {}
    for row in rows:
        whole = row["layers_cpu"] == "0" and row["layers_gpu"] == "0" and row["shared_job"] == "0"
        if row["release"] != RELEASE or not whole or row["chipset"] not in CHIPS or row["precision"] not in PRECISIONS:
            continue
        model = model_of(row, has)
        if row["runtime"] not in RUNTIMES or model is None:
            continue
        key = (model, CHIPS[row["chipset"]], RUNTIMES[row["runtime"]], row["precision"])
        found[key].append(float(row["inference_time_ms"]) / 1e3)
        sources[key] = f"AI Hub {RELEASE}, {row['device']}"
    return [Measured(*key, exp(sum(map(log, v)) / len(v)), sources[key]) for key, v in sorted(found.items())]


class Graphs:
    """The graphs of a folder after the standard passes, each loaded once."""

    def __init__(self, folder: Path) -> None:
        # The public face, by name: this stands above all floors.
        self._load: Callable[[Path], Graph] = importlib.import_module("hetsched.app.inputs").load
        self._folder = folder
        self._hashes: dict[str, str] = {}

    def has(self, model: str) -> bool:
        """Whether the folder has the graph of a model."""
        return (self._folder / f"{model}.onnx").is_file()

    def hash(self, model: str) -> str:
        """Structural hash of a model."""
        if model not in self._hashes:
            self._hashes[model] = graph_hash(self._load(self._folder / f"{model}.onnx"))
        return self._hashes[model]


def misses(points: Iterable[Point], similar: Callable[[str, str], bool]) -> dict[str, dict[str, list[float]]]:
    """Relation -> model -> measured over corrected, of every ordered pair of points of one model and precision.

    The points share the chip or the runtime; ``similar`` says of two chips whether they are ``similar-chip`` or ``other-chip``.
    """
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for p in points:
        groups[p.model, p.precision].append(p)
    out: dict[str, dict[str, list[float]]] = {}
    for (model, _), group in groups.items():
        for a, b in permutations(group, 2):
            if (a.chip == b.chip) == (a.runtime == b.runtime):
                continue
            kind = relation(a.runtime, b.runtime, same_chip=a.chip == b.chip, similar=similar(a.chip, b.chip))
            corrected = b.predicted_s * a.measured_s / a.predicted_s
            out.setdefault(kind, {}).setdefault(model, []).append(b.measured_s / corrected)
    return out


def quantile(by_model: Mapping[str, Sequence[float]], q: float) -> float:
    """Quantile of all values, every model weighing the same."""
    pairs = sorted((v, 1.0 / len(values)) for values in by_model.values() for v in values)
    reached, total = 0.0, float(len(by_model))
    for value, weight in pairs:
        reached += weight
        if reached >= q * total - 1e-12:
            return value
    return pairs[-1][0]


def _write(path: Path, note: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    import io

    text = io.StringIO()
    text.write(f"# {note}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    files = importlib.import_module("hetsched.files")
    files.write_atomically(path, text.getvalue().encode())


def write_anchors(rows: Sequence[Measured], graphs: Graphs, path: Path) -> None:
    """Write ``anchors.csv``."""
    note = (
        "Latencies of known networks on NPUs, by structural hash (hetsched.graph_hash); made by "
        "'python -m hetsched_cost_models.anchor_table' from the perf.yaml files of Qualcomm AI Hub Models: the minimum of repeated runs in "
        "burst mode on random data."
    )
    lines = [(graphs.hash(r.model), r.model, r.chip, r.runtime, r.precision, f"{r.latency_s * 1e3:.6g}", r.source) for r in rows]
    _write(path, note, ("graph", "model", "chip", "runtime", "precision", "latency_ms", "source"), lines)


def write_intervals(found: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Write ``anchor_intervals.csv``."""
    low, high = exp(-_VERSIONS), exp(_VERSIONS)
    fitted = f"hexagon-judged.yaml {hashlib.sha256((FITTED / 'hexagon-judged.yaml').read_bytes()).hexdigest()[:8]}"
    basis = "estimated: spread between tool versions, 7.6 % median, times 1.9"
    lines: list[tuple[object, ...]] = [("same-chip", f"{low:.3f}", f"{high:.3f}", 0, 0, basis)]
    for shared, by_model in sorted(found.items()):
        pairs = sum(map(len, by_model.values()))
        bounds = (min(1.0, quantile(by_model, 0.1)), max(1.0, quantile(by_model, 0.9)))
        said = f"quantiles of measured / corrected, parameters {fitted}"
        lines.append((shared, f"{bounds[0]:.3f}", f"{bounds[1]:.3f}", pairs, len(by_model), said))
    note = "80 % intervals of anchored predictions, as factors; made by 'python -m hetsched_cost_models.anchor_table'."
    _write(path, note, ("relation", "low", "high", "pairs", "models", "basis"), lines)


def main(arguments: Sequence[str]) -> int:
    """Write the files; 0."""
    folders = [Path(a) for a in arguments]
    measurements = folders[0] if folders else Path("../shared/measurements")
    graphs = Graphs(folders[1] if len(folders) > 1 else measurements.parent / "models" / "aihub")
    out = folders[2] if len(folders) > 2 else Path(__file__).parent / "data"
    table = measurements / "npu_snapdragon_aihub.csv"
    if table.is_file():
        with table.open(encoding="utf-8", newline="") as f:
            rows = [r for r in measured_rows(csv.DictReader(f), graphs.has) if r.chip in list_socs()]
        write_anchors(rows, graphs, out / "anchors.csv")
        print(f"{len(rows)} anchors of {len({r.model for r in rows})} networks on {len({r.chip for r in rows})} chips")
    else:
        print(f"{table} is absent: anchors.csv stays as it is")
    told = {CHIPS[c] for c in SISTERS}
    points = [p for p in accuracy_npu.points() if p.unit == "npu" and p.chip not in told]
    chips = {c: load_soc(c) for c in sorted({p.chip for p in points})}
    found = misses(points, lambda a, b: are_similar(chips[a], chips[b]))
    write_intervals(found, out / "anchor_intervals.csv")
    for shared, by_model in sorted(found.items()):
        print(f"{shared}: measured / corrected {quantile(by_model, 0.1):.2f} to {quantile(by_model, 0.9):.2f} in 80 % of cases")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
