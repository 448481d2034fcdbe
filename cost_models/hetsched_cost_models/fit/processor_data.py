"""Rows, chips and graphs of the CPU, GPU and Neural Engine fits, as they lie in ``data/``."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from hetsched.soc_files import list_socs, load_soc
from hetsched_cost_models.work import FloatArray

_DATA = Path(__file__).parent.parent / "data"
ROWS_FILE, GRAPHS_FILE = _DATA / "processor_latency.csv", _DATA / "processor_graphs.npz"
CHIPS_FILE, PUBLISHED_FILE = _DATA / "processor_chips.csv", _DATA / "published_models.csv"
ROW_FIELDS = ("model", "chip", "engine", "unit", "precision", "threads", "cores", "seconds", "source")
#: Columns of a graph's table: class and kind by number, MACs, matrix dimensions, activation elements, weights, and 1 where Winograd
#: kernels apply.
COLUMNS = ("cls", "kind", "macs", "n", "k", "elements", "weights", "winograd")


@dataclass(frozen=True, slots=True)
class Row:
    """One measured latency.

    ``unit``: cpu, gpu or npu; ``threads`` 0: as many as ``cores`` (``big, little, all``) has; ``mix``: float with quantized storage.
    """

    model: str
    chip: str
    engine: str
    unit: str
    precision: str
    threads: int
    cores: str
    seconds: float
    source: str


@dataclass(frozen=True, slots=True, order=True)
class Core:
    """Operations per second of one core by precision; ``little``: an in-order core; ``sme``: its cluster has a matrix unit."""

    f32: float
    f16: float
    i8: float
    little: bool
    sme: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """A GPU or a Neural Engine: operations per second, bytes per second."""

    family: str
    f16: float
    i8: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Chip:
    """What the fits know of a chip: from its SoC file, else from ``processor_chips.csv``. Cores come fastest first."""

    name: str
    cores: tuple[Core, ...]
    family: str
    bandwidth: float
    onchip: float
    gpu: Unit | None
    npu: Unit | None
    has_file: bool


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """All rows, in the file's order."""
    with ROWS_FILE.open(encoding="utf-8", newline="") as f:
        return tuple(
            Row(
                r["model"],
                r["chip"],
                r["engine"],
                r["unit"],
                r["precision"],
                int(r["threads"] or 0),
                r["cores"],
                float(r["seconds"]),
                r["source"],
            )
            for r in csv.DictReader(f)
        )


@lru_cache(maxsize=1)
def graphs() -> dict[str, FloatArray]:
    """Model -> [operators, columns]."""
    with np.load(GRAPHS_FILE) as stored:
        return {name: stored[name].astype(np.float64) for name in stored.files}


@lru_cache(maxsize=1)
def published() -> dict[str, tuple[float, float]]:
    """Model -> (MACs, weights) as its authors publish them, for networks without a graph here."""
    with PUBLISHED_FILE.open(encoding="utf-8", newline="") as f:
        return {r["model"]: (1e9 * float(r["gmacs"]), 1e6 * float(r["mparams"])) for r in csv.DictReader(f)}


@lru_cache(maxsize=1)
def chips() -> dict[str, Chip]:
    """Name -> chip: all SoC files, and older chips that have none."""
    found = {name: _of_file(name) for name in list_socs() if not name.startswith("generic")}
    with CHIPS_FILE.open(encoding="utf-8", newline="") as f:
        table = list(csv.DictReader(f))
    for name in dict.fromkeys(r["chip"] for r in table):
        found.setdefault(name, _of_table(name, [r for r in table if r["chip"] == name]))
    return found


def _of_file(name: str) -> Chip:
    soc = load_soc(name)
    cpu = next(p for p in soc.processors if p.kind == "cpu")
    cores: list[Core] = []
    for cluster in cpu.clusters:
        count = max(1, len(cluster.cores))
        peak = {q: f.value / count for q, f in cluster.peak_ops_s.items()}
        sme = cluster.isa is not None and "sme" in cluster.isa.value
        cores += [Core(peak["f32"], peak.get("f16", peak["f32"]), peak.get("i8", peak["f32"]), False, sme)] * count
    units: dict[str, Unit | None] = {"gpu": None, "npu": None}
    for p in soc.processors:
        if p.kind != "cpu":
            peaks = {q: sum(c.peak_ops_s[q].value for c in p.clusters if q in c.peak_ops_s) for c in p.clusters for q in c.peak_ops_s}
            half = peaks.get("f16") or peaks.get("f32") or max(peaks.values())
            units[p.kind] = Unit(p.family or p.kind, half, peaks.get("i8", half), p.bandwidth_bytes_s.value)
    return Chip(
        name, tuple(sorted(cores, reverse=True)), cpu.family or "cortex", cpu.bandwidth_bytes_s.value, cpu.onchip_bytes.value,
        units["gpu"], units["npu"], True,
    )  # fmt: skip


def _of_table(name: str, table: list[dict[str, str]]) -> Chip:
    cores: list[Core] = []
    gpu = None
    for r in table:
        hz, count = 1e9 * float(r["ghz"] or 0), int(r["count"] or 0)
        if r["what"] == "gpu":
            gpu = Unit(r["core"], 1e9 * float(r["f16"]), 1e9 * float(r["f16"]), 1e9 * float(r["bandwidth_gbps"]))
        else:
            cores += [Core(hz * float(r["f32"]), hz * float(r["f16"]), hz * float(r["i8"]), r["core"] in ("a53", "a55"))] * count
    first = table[0]
    return Chip(
        name,
        tuple(sorted(cores, reverse=True)),
        "cortex",
        1e9 * float(first["bandwidth_gbps"]),
        1e6 * float(first["onchip_mb"]),
        gpu,
        None,
        False,
    )
