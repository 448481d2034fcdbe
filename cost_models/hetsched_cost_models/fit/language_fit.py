"""Decode and prefill of language models, fitted to public rates and cross-validated by model x chip.

    decode:  seconds a token = pace * ( (weights + cache) / (bandwidth * reach) + 2 params * unpack / (ops * lanes) + layers * layer_s )
    prefill: seconds a token = pace * 2 params / (ops * gemm) + start_s / prompt

*Weights* are bytes as stored; *ops* the peak (INT8 with integer weights on CPUs and NPUs, else float16); the lanes' term (multiplying one
row, and *unpacking* llama.cpp's k-quants) is a CPU's. A pace of decode is an engine's on a kind of processor, times that engine's on one
chip, times that of phone apps that measure themselves; of prefill an engine's on a family of processors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.soc_files import load_soc
from hetsched_cost_models.fit.language_data import Rate
from hetsched_cost_models.work import FloatArray

FOLDS = 10
#: How soon errors stop counting, step by step: far ones pull first, so that the minimum does not depend on where a fit starts.
_SOFT = (0.5, 1.5, 3.0)
UNITS = ("cpu", "gpu", "npu")
#: Bits of llama.cpp's k-quants, as :mod:`hetsched_cost_models.fit.extract_language` writes them.
K_BITS = (3.35, 3.91, 4.58, 4.85, 5.69, 6.56)
#: Weights of at most so many bits are integers.
_INTEGER = 8.5
#: Fewer groups have no pace of their own.
_LEAST = 3
#: Tokens of a prompt whose length is not said: that of llama.cpp's and LiteRT's benchmarks.
_USUAL_PROMPT = 512
#: Ridge of rates and of paces, by phase: paces of few groups stay near 1.
_RATE_RIDGE, _PACE_RIDGE = 0.05, {"decode": 0.2, "prefill": 0.1}


@dataclass(frozen=True, slots=True)
class _Place:
    family: str
    bandwidth: float
    f16: float
    i8: float


def _place(rate: Rate, known: dict[tuple[str, str, int], _Place]) -> _Place:
    key = (rate.chip, rate.unit, rate.threads)
    if key not in known:
        p = next(p for p in load_soc(rate.chip).processors if p.kind == rate.unit)
        peak = {q: sum(c.peak_ops_s[q].value for c in p.clusters if q in c.peak_ops_s) for c in p.clusters for q in c.peak_ops_s}
        cores = sum(len(c.cores) for c in p.clusters)
        share = min(1.0, rate.threads / cores) if rate.threads and cores else 1.0
        one = p.core_bandwidth_bytes_s.value if p.core_bandwidth_bytes_s else p.bandwidth_bytes_s.value
        width = min(p.bandwidth_bytes_s.value, rate.threads * one) if rate.threads else p.bandwidth_bytes_s.value
        half = peak.get("f16") or peak.get("i8") or max(peak.values())
        known[key] = _Place(p.family or p.kind, width, share * half, share * peak.get("i8", half))
    return known[key]


class Language:
    """Rows as arrays, and what both forms share; ``phase`` is ``decode`` or ``prefill``."""

    def __init__(self, rows: Sequence[Rate], phase: str) -> None:
        known: dict[tuple[str, str, int], _Place] = {}
        places = [_place(r, known) for r in rows]
        self.phase, self.rows = phase, tuple(rows)
        self.log_measured = -np.log([getattr(r, phase) for r in rows])
        self.unit, self.bits = np.array([r.unit for r in rows]), np.array([r.bits for r in rows])
        self.params, self.layers = np.array([r.params for r in rows]), np.array([float(r.layers) for r in rows])
        self.bytes = self.params * self.bits / 8.0 + np.array([r.kv_bytes * r.context for r in rows])
        integer = (self.bits <= _INTEGER) & (self.unit != "gpu")
        self.ops = np.where(integer, [p.i8 for p in places], [p.f16 for p in places])
        self.half = np.array([p.f16 for p in places])
        self.bandwidth = np.array([p.bandwidth for p in places])
        self.unpacked = np.array([r.engine == "llama.cpp" and r.bits in K_BITS for r in rows])
        self.groups = np.array([r.group for r in rows])
        self.prompt = np.array([float(r.prompt or _USUAL_PROMPT) for r in rows])
        self.paces = [_paces(r, p, phase) for r, p in zip(rows, places, strict=True)]
        self.names = sorted({n for own in self.paces for n in own})
        self.has = np.array([[float(n in own) for n in self.names] for own in self.paces])

    def log_predicted(self, p: Mapping[str, float]) -> FloatArray:
        """Logarithms of seconds a token."""
        pace = self.has @ np.log([p.get(n, 1.0) for n in self.names])
        if self.phase == "prefill":
            work = 2.0 * self.params / (self.ops * self._of_unit(p, "gemm"))
            return np.asarray(np.log(np.exp(pace) * work + self._of_unit(p, "start_s") / self.prompt))
        unpack = np.where(self.unpacked, p["unpack"], 1.0)
        lanes = np.where(self.unit == "cpu", 2.0 * self.params * unpack / (self.half * p["lanes"]), 0.0)
        read = self.bytes / (self.bandwidth * p["reach"])
        return np.asarray(pace + np.log(read + lanes + self.layers * self._of_unit(p, "layer_s")))

    def _of_unit(self, p: Mapping[str, float], what: str) -> FloatArray:
        return np.asarray(np.select([self.unit == u for u in UNITS], [p[f"{what}/{u}"] for u in UNITS]))


def _paces(r: Rate, place: _Place, phase: str) -> tuple[str, ...]:
    """Names of the paces of a row; those that are not fitted are 1."""
    if phase == "prefill":
        return (f"pace/{r.engine}/{place.family}",)
    app = ("pace/app", "pace/app/float") if r.bits > _INTEGER else ("pace/app",)
    return (f"pace/{r.engine}/{r.unit}", f"pace/{r.engine}/{r.unit}/{r.chip}", *(app if r.app else ()))


def priors(rows: Sequence[Rate], phase: str) -> dict[str, tuple[float, float]]:
    """Name -> (prior, ridge) of the parameters that ``rows`` bear on."""
    s = Language(rows, phase)
    seen: dict[str, set[str]] = {}
    for r, names in zip(rows, s.paces, strict=True):
        for n in names:
            seen.setdefault(n, set()).add(r.group)
    # An engine that was seen on one chip has no pace on it beside its own.
    own = {n for n in seen if n.count("/") < 3 or seen[n] != seen[n.rpartition("/")[0]]}
    ridge = _PACE_RIDGE[phase]
    found = {n: (1.0, _RATE_RIDGE if n.startswith("pace/app") else ridge) for n in sorted(own) if len(seen[n]) >= _LEAST}
    if phase == "prefill":
        return {f"gemm/{u}": (0.1, _RATE_RIDGE) for u in UNITS} | {f"start_s/{u}": (0.03, _RATE_RIDGE) for u in UNITS} | found
    shared = {"reach": (0.8, _RATE_RIDGE), "lanes": (0.05, _RATE_RIDGE), "unpack": (1.0, ridge)}
    return shared | {f"layer_s/{u}": (1e-4, _RATE_RIDGE) for u in UNITS} | found


def fit(rows: Sequence[Rate], phase: str, names: Mapping[str, tuple[float, float]]) -> FloatArray:
    """Logarithms of the parameters ``names``, from their priors; every group counts alike."""
    from scipy.optimize import least_squares

    s, count = Language(rows, phase), Counter(r.group for r in rows)
    root = np.sqrt([1.0 / count[g] for g in s.groups.tolist()])
    prior, ridge = np.log([v for v, _ in names.values()]), np.array([w for _, w in names.values()])

    def residuals(x: FloatArray, soft: float) -> FloatArray:
        error = s.log_predicted(parameters(names, x)) - s.log_measured
        return np.concatenate([root * np.arctan(soft * error) / soft, ridge * (x - prior)])

    # No more than the reachable bandwidth: what looks like more is a cache or a wrong figure of the chip.
    top = np.array([0.0 if n == "reach" else np.inf for n in names])
    x = prior
    for soft in _SOFT:
        x = least_squares(residuals, np.minimum(x, top - 1e-3), bounds=(-np.inf, top), args=(soft,), max_nfev=25, xtol=1e-4, ftol=1e-4).x
    return np.asarray(x)


def parameters(names: Mapping[str, tuple[float, float]], x: FloatArray) -> dict[str, float]:
    """By name."""
    return dict(zip(names, np.exp(x).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class LanguageFit:
    """A phase's shipped parameters and what fits without a row's group predict."""

    phase: str
    rows: tuple[Rate, ...]
    shipped: dict[str, float]
    errors: FloatArray
    """|predicted - measured| / measured tokens a second."""

    @property
    def by_group(self) -> list[float]:
        """Median error of every model x chip."""
        groups = np.array([r.group for r in self.rows])
        return [float(np.median(self.errors[groups == g])) for g in sorted(set(groups.tolist()))]


def repeat_spread(rows: Sequence[Rate], phase: str) -> tuple[float, int]:
    """Median distance of a row from the median of rows of one model, bits, chip, processor, engine and harness; and their number."""
    found: dict[tuple[object, ...], list[float]] = {}
    for r in rows:
        if getattr(r, phase) > 0:
            found.setdefault((r.group, r.bits, r.engine, r.unit, r.app), []).append(getattr(r, phase))
    apart = [abs(v / np.median(mine) - 1.0) for mine in found.values() if len(mine) > 1 for v in mine]
    return float(np.median(apart)), len(apart)


def fitted(rows: Sequence[Rate], phase: str) -> LanguageFit:
    """Fit on all rows of a phase, and on those of nine tenths of the groups in turn."""
    picked = [r for r in rows if getattr(r, phase) > 0]
    names = priors(picked, phase)
    x = fit(picked, phase, names)
    groups, errors = sorted({r.group for r in picked}), np.zeros(len(picked))
    for i in range(FOLDS):
        part = set(groups[i::FOLDS])
        out = [j for j, r in enumerate(picked) if r.group in part]
        rest = [r for r in picked if r.group not in part]
        p = parameters(names, fit(rest, phase, names))
        s = Language([picked[j] for j in out], phase)
        errors[out] = np.abs(np.expm1(s.log_measured - s.log_predicted(p)))
    return LanguageFit(phase, tuple(picked), parameters(names, x), errors)
