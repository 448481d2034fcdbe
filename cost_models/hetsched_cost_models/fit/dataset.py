"""The rows and the graphs of the fit, as they lie in ``data/``."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from hetsched_cost_models.work import FloatArray

_DATA = Path(__file__).parent.parent / "data"
ROWS_FILE, GRAPHS_FILE, FAMILIES_FILE = _DATA / "npu_latency.csv", _DATA / "npu_graphs.npz", _DATA / "npu_families.csv"
OPERATORS_FILE = _DATA / "npu_operators.csv"
#: Columns of a graph's table; ``count``: how many operators are alike.
COLUMNS = (
    "kind", "macs", "elems", "other_bytes", "written", "once", "functions", "weights", "weight_bytes", "heads", "tokens", "count",
)  # fmt: skip
#: Release of headline figures.
RELEASE = "v0.47.0"
#: An earlier one, for models that the headline release does not have.
EARLIER = "v0.46.1"
#: AI Hub's chipsets -> SoC files. A proxy device has the silicon that its name says; QCS8450 is the Snapdragon 8 Gen 1's.
CHIPS = {
    "qualcomm-snapdragon-8gen3": "snapdragon-8-gen-3",
    "qualcomm-qcs8550-proxy": "qcs8550",
    "qualcomm-snapdragon-8-elite-for-galaxy": "snapdragon-8-elite",
    "qualcomm-snapdragon-x-elite": "snapdragon-x-elite",
    "qualcomm-qcs9075": "qcs9075",
    "qualcomm-sa8775p": "sa8775p",
    "qualcomm-qcs8450-proxy": "snapdragon-8-gen-1",
    "qualcomm-sa8295p": "sa8295p",
}
BASE = "qualcomm-snapdragon-8gen3"
#: One silicon whose float rate each takes from the other's rows: their errors say little about a chip that nobody has measured.
SISTERS = frozenset({"qualcomm-qcs9075", "qualcomm-sa8775p"})
#: What AI Hub calls runtimes -> as plans name them.
RUNTIMES = {"tflite": "litert", "onnx": "ort", "precompiled_qnn_onnx": "ort", "qnn_dlc": "qnn", "qnn_context_binary": "qnn"}


def model_of(row: Mapping[str, str], has: Callable[[str], bool]) -> str | None:
    """The graph that a row of AI Hub's table was measured on: its component's, else its model's; None where there is neither.

    Examples:
        >>> row = {"model": "whisper", "component": "encoder"}
        >>> model_of(row, {"whisper__encoder", "whisper"}.__contains__), model_of(row, {"whisper"}.__contains__)
        ('whisper__encoder', 'whisper')
    """
    names = (f"{row['model']}__{row['component']}", row["model"])
    return next((name for name in names if has(name)), None)


@dataclass(frozen=True, slots=True)
class Row:
    """One measured latency. ``runtime`` is named as in plans; ``copies``: its partition converts layouts (not a precompiled one's)."""

    use: str
    model: str
    family: str
    precision: str
    runtime: str
    copies: bool
    chipset: str
    release: str
    seconds: float

    @property
    def key(self) -> tuple[str, str, str, bool]:
        """What is the same on another chip."""
        return self.model, self.precision, self.runtime, self.copies


@dataclass(frozen=True, eq=False)
class GraphWork:
    """A graph's operators, [n, len(COLUMNS)], and the elements of its inputs and outputs."""

    table: FloatArray
    inputs: float
    outputs: float


@lru_cache(maxsize=1)
def graphs() -> dict[str, GraphWork]:
    """The work of every graph by name."""
    with np.load(GRAPHS_FILE, allow_pickle=False) as data:
        names = [n for n in data.files if not n.endswith("/io")]
        return {n: GraphWork(data[n].astype(float), float(data[f"{n}/io"][0]), float(data[f"{n}/io"][1])) for n in names}


@lru_cache(maxsize=1)
def families() -> dict[str, str]:
    """Model -> family: models with one design, which are left out together."""
    with FAMILIES_FILE.open(encoding="utf-8", newline="") as f:
        return {row["model"]: row["family"] for row in csv.DictReader(f)}


@lru_cache(maxsize=1)
def operators() -> dict[str, tuple[str, ...]]:
    """Model -> types of its operators on a Snapdragon's NPU."""
    found: dict[str, list[str]] = {}
    with OPERATORS_FILE.open(encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f):
            found.setdefault(row["model"], []).append(row["operator"])
    return {model: tuple(types) for model, types in found.items()}


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """All rows."""
    family = families()
    with ROWS_FILE.open(encoding="utf-8", newline="") as f:
        return tuple(
            Row(
                r["use"], r["model"], family[r["model"]], r["precision"], RUNTIMES[r["runtime"]], r["runtime"] == "onnx", r["chipset"],
                r["release"], float(r["ms"]) / 1e3,
            )
            for r in csv.DictReader(f)
        )  # fmt: skip


def of_chip(chipset: str, release: str = RELEASE) -> tuple[Row, ...]:
    """Rows of one chip and release."""
    return tuple(r for r in rows() if r.chipset == chipset and r.release == release)
