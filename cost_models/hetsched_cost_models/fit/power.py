"""CPU power against frequency: dynamic C V^2 f above a floor that an awake cluster draws, fitted over chips, each left out in turn.

    watts = floor * l^D + c * m^D * work^a * (nm / 7)^b * f * V^2,    V = 1 + s * (f / 2.5 GHz * (7 / nm) * (7 / work))^2

*work* is what a core does in a cycle (CoreMark a MHz), *nm* the process, *f* in GHz, V relative to its floor: no Snapdragon has a published
voltage. Wide cores and old processes have larger capacitances; narrow cores need their high voltages at lower frequencies, and so do
new processes, whose floors are lower. *D* is 1 for cores in one cluster around a shared L3 cache (DynamIQ: the Cortex-A55 and
all that came with or after it), whose fabric is awake with any of them, 0 for older ones. The exponents 2 and -1 are fixed: fitted
they come out at 1.7 and -1.0, and fixed they predict chips left out better.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hetsched_cost_models.work import BoolArray, FloatArray

POINTS_FILE = Path(__file__).parent.parent / "data" / "cpu_power.csv"
#: Name -> (prior, what it is). Exponents may be negative, so that values are fitted as they are.
PRIORS = {
    "c": (-1.8, "logarithm of the milliwatts of a core of one CoreMark a MHz, a GHz"), "a": (3.2, "exponent of the work in a cycle"),
    "b": (2.5, "exponent of the process, capacitance"), "s": (0.1, "logarithm of the rise of the voltage"),
    "floor": (3.1, "logarithm of the milliwatts of an awake cluster"), "l": (0.9, "logarithm of what a shared L3 makes of the floor"),
    "m": (-0.3, "logarithm of what cores around a shared L3 make of the capacitance"),
}  # fmt: skip
#: Chips of the data that have a SoC file.
FILED = {"sm8350": "snapdragon-888", "gs101": "tensor-g1", "zuma": "tensor-g3"}
_SOFT = 2.0


@dataclass(frozen=True, eq=False)
class Points:
    """Measured operating points of one core each: chip, cluster, GHz, CoreMark a MHz, process in nm, 1 with a shared L3, milliwatts."""

    chip: npt.NDArray[np.str_]
    cluster: npt.NDArray[np.str_]
    ghz: FloatArray
    work: FloatArray
    nm: FloatArray
    shared: FloatArray
    milliwatts: FloatArray

    def pick(self, where: BoolArray) -> Points:
        """Those where ``where`` is true."""
        return Points(*(getattr(self, f.name)[where] for f in fields(self)))


@lru_cache(maxsize=1)
def points() -> Points:
    """All points of the data."""
    with POINTS_FILE.open(encoding="utf-8", newline="") as f:
        table = list(csv.DictReader(line for line in f if not line.startswith("#")))
    numbers = (np.array([float(r[c]) for r in table]) for c in ("ghz", "coremark_per_mhz", "nm", "dynamiq", "milliwatts"))
    return Points(np.array([r["chip"] for r in table]), np.array([f"{r['chip']}:{r['cpu']}" for r in table]), *numbers)


def log_milliwatts(q: Points, p: Mapping[str, float]) -> FloatArray:
    """Logarithms of the predicted milliwatts."""
    process, work = q.nm / 7.0, q.work / 7.0
    volts = 1.0 + np.exp(p["s"]) * (q.ghz / 2.5 / process / work) ** 2
    capacitance = np.exp(p["c"] + p["m"] * q.shared) * q.work ** p["a"] * process ** p["b"]
    return np.asarray(np.log(np.exp(p["floor"] + p["l"] * q.shared) + capacitance * q.ghz * volts**2))


def fit(q: Points) -> FloatArray:
    """Values of :data:`PRIORS`, from the priors; every cluster counts alike."""
    from scipy.optimize import least_squares

    _, index, count = np.unique(q.cluster, return_inverse=True, return_counts=True)
    root, measured = np.sqrt(1.0 / count[index]), np.log(q.milliwatts)

    def residuals(x: FloatArray) -> FloatArray:
        return np.asarray(root * np.arctan(_SOFT * (log_milliwatts(q, named(x)) - measured)) / _SOFT)

    return np.asarray(least_squares(residuals, [v for v, _ in PRIORS.values()], max_nfev=60).x)


def named(x: FloatArray) -> dict[str, float]:
    """Values by name."""
    return dict(zip(PRIORS, map(float, x), strict=True))


def left_out(q: Points) -> FloatArray:
    """|predicted - measured| / measured of every point, by a fit without its chip."""
    errors = np.zeros(len(q.ghz))
    for chip in np.unique(q.chip):
        own = q.chip == chip
        p = named(fit(q.pick(~own)))
        errors[own] = np.abs(np.expm1(log_milliwatts(q.pick(own), p) - np.log(q.milliwatts[own])))
    return errors


def by_cluster(q: Points, errors: FloatArray) -> Iterator[float]:
    """The median error of every cluster."""
    for cluster in np.unique(q.cluster):
        yield float(np.median(errors[q.cluster == cluster]))
