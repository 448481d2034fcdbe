"""How far predictions are from public measurements: ``python -m hetsched_cost_models.benchmark [MEASUREMENTS [GRAPHS]]``.

First the NPU model's figures from the data in the project (models, families and chips that a fit had not seen), then whole cost tables
of the shipped parameters against the files of MEASUREMENTS, where those lie at hand.

MEASUREMENTS is a folder with ``npu_snapdragon_aihub.csv``, ``cpu_gpu_ncnn.csv`` and ``apple_and_other_vision.csv``; GRAPHS one with
the weightless ONNX files of the models and their ``graphs.csv``. Prints what | goal | measured | ok and a summary line; the exit
code is 1 if a goal is missed. A model that the data do not have is not counted.
"""

from __future__ import annotations

import csv
import importlib
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsched.costs import CostTable
from hetsched.graph import Graph
from hetsched.segments import schedule
from hetsched.soc_files import load_soc
from hetsched.socs import SoC
from hetsched_cost_models.fit.accuracy import Figure
from hetsched_cost_models.table import build_table

#: Where the data lie beside a checkout.
MEASUREMENTS, GRAPHS = Path("../shared/measurements"), Path("../shared/models/aihub")
_RELEASE = "v0.47.0"
_RUNTIMES = {"tflite": "litert", "onnx": "ort", "precompiled_qnn_onnx": "ort", "qnn_dlc": "qnn", "qnn_context_binary": "qnn"}
#: (use, precision) of AI Hub rows -> largest median of the absolute relative errors.
_GOALS = {("fit", "float"): 0.10, ("validate", "float"): 0.10, ("fit", "w8a8"): 0.15, ("validate", "w8a8"): 0.15}
#: Its float rows are in fp16, which plans for CPUs do not offer: only integer rows compare like with like.
_NCNN = {"squeezenet_int8": "squeezenet1_1"}
_SINGLE_GOAL = 0.35


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result: errors are |predicted - measured| / measured."""

    what: str
    goal: float
    errors: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median error."""
        return statistics.median(self.errors)

    def line(self) -> str:
        """As printed."""
        n = len(self.errors)
        p90 = sorted(self.errors)[min(n - 1, round(0.9 * (n - 1)))]
        measured = f"{self.median:4.0%} of {n} (mean {statistics.mean(self.errors):.0%}, p90 {p90:.0%})" if n > 1 else f"{self.median:4.0%}"
        return f"{self.what:<52} {self.goal:>5.0%}  {measured:<36} {'yes' if self.median <= self.goal else 'NO'}"


def on_queue(table: CostTable, name: str) -> float:
    """Seconds of a whole model on one queue, with the CPU's where it is refused; conversions, launches and signals included."""
    queue = table.queue_index(name)
    alternative = [next((a for a in r if table.alt_queue[a] == queue), r[0]) for r in map(table.alternatives, range(len(table.op_names)))]
    return schedule(table, range(len(table.op_names)), alternative).latency_s


class _Predictions:
    """Predicted seconds of a model of the graphs' folder; graphs are loaded once."""

    def __init__(self, folder: Path) -> None:
        # The public face, by name: a benchmark stands above all floors.
        inputs = importlib.import_module("hetsched.app.inputs")
        self._load: Callable[[Path], Graph] = inputs.load
        self._targeted: Callable[[Graph, SoC], Graph] = inputs.targeted
        self._folder = folder
        self._graphs: dict[str, Graph] = {}

    def has(self, model: str) -> bool:
        return (self._folder / f"{model}.onnx").is_file()

    def seconds(self, model: str, soc: str, queue: str, precision: str, runtime: str = "default") -> float:
        if model not in self._graphs:
            self._graphs[model] = self._load(self._folder / f"{model}.onnx")
        chip = load_soc(soc)
        graph = self._targeted(self._graphs[model], chip)
        return on_queue(build_table(graph, chip, precision=precision, runtime=runtime), queue)


def _rows(folder: Path, name: str) -> Iterator[dict[str, str]]:
    path = folder / name
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as f:
            yield from csv.DictReader(f)


def aihub(measurements: Path, predictions: _Predictions) -> Iterator[Row]:
    """Whole models on the NPU of the 8 Gen 3, end to end, all runtimes."""
    errors: dict[tuple[str, str], list[float]] = {key: [] for key in _GOALS}
    for row in _rows(measurements, "npu_snapdragon_aihub.csv"):
        key = (row["use"], row["precision"])
        model = f"{row['model']}__{row['component']}" if predictions.has(f"{row['model']}__{row['component']}") else row["model"]
        if row["release"] != _RELEASE or row["chipset"] != "qualcomm-snapdragon-8gen3" or key not in errors:
            continue
        if row["runtime"] not in _RUNTIMES or not predictions.has(model):
            continue
        seconds = predictions.seconds(model, "snapdragon-8-gen-3", "npu", row["precision"], _RUNTIMES[row["runtime"]])
        measured = float(row["inference_time_ms"]) / 1e3
        errors[key].append(abs(seconds - measured) / measured)
    for (use, precision), found in errors.items():
        if found:
            yield Row(f"8 Gen 3 NPU, {precision}, {use} models (AI Hub)", _GOALS[use, precision], tuple(found))


def ncnn(measurements: Path, predictions: _Predictions) -> Iterator[Row]:
    """Vision models on four big cores of the Dimensity 9300, the median of the published repeats."""
    times: dict[str, list[float]] = {name: [] for name in _NCNN}
    for row in _rows(measurements, "cpu_gpu_ncnn.csv"):
        big = row["processor"] == "CPU" and row["num_threads"] == "4" and row["powersave"] == "2"
        if big and "Dimensity 9300" in row["device"] and row["model"] in times:
            times[row["model"]].append(float(row["min_ms"]) / 1e3)
    for name, found in times.items():
        if not found or not predictions.has(_NCNN[name]):
            continue
        seconds = predictions.seconds(_NCNN[name], "dimensity-9300", "cpu", "w8a8", "ncnn")
        measured = statistics.median(found)
        yield Row(
            f"Dimensity 9300 CPU, {name}, {1e3 * seconds:.2f} / {1e3 * measured:.2f} ms", _SINGLE_GOAL, (abs(seconds / measured - 1.0),)
        )


def coreml(measurements: Path, predictions: _Predictions) -> Iterator[Row]:
    """MobileNetV2 on the Neural Engine of the A17 Pro."""
    for row in _rows(measurements, "apple_and_other_vision.csv"):
        precision = {"quantization: Float16": "float", "quantization: Weight & activation": "w8a8"}.get(row["precision"])
        if row["soc"] != "Apple A17 Pro" or row["model"] != "MobileNetv2-1.0" or precision is None or not predictions.has("mobilenet_v2"):
            continue
        seconds, measured = predictions.seconds("mobilenet_v2", "apple-a17-pro", "npu", precision), float(row["latency_ms"]) / 1e3
        what = f"A17 Pro NPU, MobileNetV2 {precision}, {1e3 * seconds:.2f} / {1e3 * measured:.2f} ms"
        yield Row(what, _SINGLE_GOAL, (abs(seconds / measured - 1.0),))


def main(arguments: Sequence[str]) -> int:
    """Print the table; 0 if every goal is met, 1 if not, 2 if the folders given do not exist."""
    folders = [Path(a) for a in arguments]
    measurements = folders[0] if folders else MEASUREMENTS
    graphs = folders[1] if len(folders) > 1 else measurements.parent / "models" / "aihub" if folders else GRAPHS
    if folders and not (measurements.is_dir() and graphs.is_dir()):
        print(f"no data: {measurements} and {graphs} must be folders", file=sys.stderr)
        return 2
    judged = [f.met for f in fitted_figures() if f.met is not None]
    if not measurements.is_dir() or not graphs.is_dir():
        print(f"{sum(judged)} of {len(judged)} goals met (whole tables are not compared: no {measurements})")
        return 0 if all(judged) else 1
    predictions = _Predictions(graphs)
    print(f"{'what (median error of latency; predicted / measured)':<52} {'goal':>5}  {'measured':<36} ok")
    rows = []
    for part in (aihub, ncnn, coreml):
        for row in part(measurements, predictions):
            rows.append(row)
            print(row.line(), flush=True)
    judged += [row.median <= row.goal for row in rows]
    print(f"{sum(judged)} of {len(judged)} goals met")
    return 0 if all(judged) else 1


def fitted_figures() -> Iterator[Figure]:
    """The figures of the NPU fit, printed as they are found."""
    from hetsched_cost_models.fit.__main__ import show
    from hetsched_cost_models.fit.accuracy import figures, fitted
    from hetsched_cost_models.fit.dataset import BASE

    for found in figures(fitted(BASE)):
        show(found)
        yield found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
