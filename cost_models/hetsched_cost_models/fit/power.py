"""CPU power against frequency: dynamic C V^2 f above a floor that an awake cluster draws, fitted over chips, each left out in turn.

    watts = floor + c * work^a * (nm / 7)^b * f * V^2,    V = 1 + s * (f / 2.5 GHz * (nm / 7)^d * (work / 7)^e)^g

*work* is what a core does in a cycle (CoreMark a MHz), *nm* the process, *f* in GHz, V relative to its floor: no Snapdragon has a published
voltage. Wide cores and old processes have larger capacitances; narrow cores need their high voltages at lower frequencies.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hetsched_cost_models.work import FloatArray

POINTS_FILE = Path(__file__).parent.parent / "data" / "cpu_power.csv"
#: Name -> (prior, what it is). Exponents may be negative, so that values are fitted as they are.
PRIORS = {
    "c": (-3.5, "logarithm of the milliwatts of a core of one CoreMark a MHz, a GHz"), "a": (3.7, "exponent of the work in a cycle"),
    "b": (3.0, "exponent of the process, capacitance"), "s": (0.5, "logarithm of the rise of the voltage"),
    "g": (0.28, "logarithm of its exponent"),
    "floor": (3.8, "logarithm of the milliwatts of an awake cluster"), "d": (-1.4, "exponent of the process, voltage"),
    "e": (-1.4, "exponent of the work in a cycle, voltage"),
}  # fmt: skip
#: Chips of the data that have a SoC file.
FILED = {"sm8350": "snapdragon-888", "gs101": "tensor-g1", "zuma": "tensor-g3"}
_SOFT = 2.0


@dataclass(frozen=True, eq=False)
class Points:
    """Measured operating points of one core each: chip, cluster, GHz, CoreMark a MHz, process in nm, milliwatts."""

    chip: npt.NDArray[np.str_]
    cluster: npt.NDArray[np.str_]
    ghz: FloatArray
    work: FloatArray
    nm: FloatArray
    milliwatts: FloatArray

    def pick(self, where: npt.NDArray[np.bool_]) -> Points:
        """Those where ``where`` is true."""
        return Points(*(getattr(self, name)[where] for name in ("chip", "cluster", "ghz", "work", "nm", "milliwatts")))


@lru_cache(maxsize=1)
def points() -> Points:
    """All points of the data."""
    with POINTS_FILE.open(encoding="utf-8", newline="") as f:
        table = list(csv.DictReader(line for line in f if not line.startswith("#")))
    numbers = (np.array([float(r[c]) for r in table]) for c in ("ghz", "coremark_per_mhz", "nm", "milliwatts"))
    return Points(np.array([r["chip"] for r in table]), np.array([f"{r['chip']}:{r['cpu']}" for r in table]), *numbers)


def log_milliwatts(q: Points, p: Mapping[str, float]) -> FloatArray:
    """Logarithms of the predicted milliwatts."""
    process, work = q.nm / 7.0, q.work / 7.0
    volts = 1.0 + np.exp(p["s"]) * (q.ghz / 2.5 * process ** p["d"] * work ** p["e"]) ** np.exp(p["g"])
    return np.asarray(np.log(np.exp(p["floor"]) + np.exp(p["c"]) * q.work ** p["a"] * process ** p["b"] * q.ghz * volts**2))


def fit(q: Points, start: FloatArray | None = None) -> FloatArray:
    """Values of :data:`PRIORS`; every cluster counts alike."""
    from scipy.optimize import least_squares

    _, index, count = np.unique(q.cluster, return_inverse=True, return_counts=True)
    root, measured = np.sqrt(1.0 / count[index]), np.log(q.milliwatts)

    def residuals(x: FloatArray) -> FloatArray:
        return np.asarray(root * np.arctan(_SOFT * (log_milliwatts(q, named(x)) - measured)) / _SOFT)

    begin = np.array([v for v, _ in PRIORS.values()]) if start is None else start
    return np.asarray(least_squares(residuals, begin, max_nfev=60).x)


def named(x: FloatArray) -> dict[str, float]:
    """Values by name."""
    return dict(zip(PRIORS, map(float, x), strict=True))


def left_out(q: Points, start: FloatArray) -> FloatArray:
    """|predicted - measured| / measured of every point, by a fit without its chip."""
    errors = np.zeros(len(q.ghz))
    for chip in np.unique(q.chip):
        own = q.chip == chip
        p = named(fit(q.pick(~own), start))
        errors[own] = np.abs(np.expm1(log_milliwatts(q.pick(own), p) - np.log(q.milliwatts[own])))
    return errors


def by_cluster(q: Points, errors: FloatArray) -> Iterator[float]:
    """The median error of every cluster."""
    for cluster in np.unique(q.cluster):
        yield float(np.median(errors[q.cluster == cluster]))
