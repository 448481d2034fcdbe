"""The measured runs, from ``data/runs.csv`` and ``data/series.csv`` (written by :mod:`hetsched_simulations.chassis.extract`)."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

DATA = Path(__file__).parent / "data"
RUNS_FILE, SERIES_FILE, LEFT_OUT_FILE = DATA / "runs.csv", DATA / "series.csv", DATA / "left_out.csv"
QUARTER = 0.75
"""The rate whose first time is judged, as a fraction of the peak."""

Series = tuple[tuple[float, float], ...]
"""(seconds, fraction of the peak rate)"""


@dataclass(frozen=True, slots=True)
class Phone:
    """A phone as a lump that cools: its maker's name for the class, and its size."""

    name: str
    maker: str
    area_m2: float
    mass_kg: float


@dataclass(frozen=True, slots=True)
class Run:
    """One workload that repeats for minutes on one phone."""

    name: str
    phone: Phone
    soc: str
    queue: str
    """What of the SoC works: a processor, or ``processor:cores``."""
    workload: str
    seconds: float
    rest_s: float
    """How long at the start it works only for :data:`rest_share` of the time."""
    rest_share: float
    ambient_c: float
    start_c: float
    traffic_bytes_s: float
    """DRAM traffic at the peak rate."""
    steady_from_s: float
    steady_to_s: float
    ratio: float
    """Steady rate over peak rate."""
    quarter_s: float | None
    """When the rate first was a quarter under the peak; None: not known, or never."""
    power_w: float | None
    """Mean of the run, by the battery."""
    tier: str
    source: str
    series: Series


@lru_cache(maxsize=1)
def runs() -> tuple[Run, ...]:
    """All runs that are used, in the order of the file."""
    series: dict[str, list[tuple[float, float]]] = {}
    for r in rows(SERIES_FILE):
        series.setdefault(r["run"], []).append((float(r["t_s"]), float(r["fraction"])))
    return tuple(_run(r, tuple(series.get(r["run"], ()))) for r in rows(RUNS_FILE))


def left_out() -> tuple[tuple[str, str, str], ...]:
    """(device, workload, why) of the rows that are no run."""
    return tuple((r["device"], r["workload"], r["reason"]) for r in rows(LEFT_OUT_FILE))


def rows(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a CSV file by column; lines that begin with # are remarks."""
    with path.open(encoding="utf-8", newline="") as f:
        yield from csv.DictReader(line for line in f if not line.startswith("#"))


def first_below(series: Sequence[tuple[float, float]], fraction: float) -> float | None:
    """When a series first falls to a fraction, between samples by a straight line; None: it starts there, or never gets there."""
    if not series or series[0][1] <= fraction:
        return None
    for (t0, a), (t1, b) in pairwise(series):
        if b <= fraction:
            return t0 + (t1 - t0) * (a - fraction) / (a - b)
    return None


def _run(r: dict[str, str], series: Series) -> Run:
    def number(key: str) -> float | None:
        return float(r[key]) if r[key] else None

    return Run(
        r["run"], Phone(r["phone"], r["maker"], float(r["area_m2"]), float(r["mass_kg"])), r["soc"], r["queue"], r["workload"],
        float(r["seconds"]), float(r["rest_s"]), float(r["rest_share"]), float(r["ambient_c"]), float(r["start_c"]),
        float(r["traffic_bytes_s"]), float(r["steady_from_s"]), float(r["steady_to_s"]), float(r["ratio"]), number("quarter_s"),
        number("power_w"), r["tier"], r["source"], series,
    )  # fmt: skip
