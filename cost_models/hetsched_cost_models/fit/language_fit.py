"""Decode and prefill of language models, fitted to public rates and cross-validated by model x chip.

    decode:  seconds a token = pace * ( (weights + cache) / (bandwidth * reach[family]) + 2 params / (ops * lanes) + layers * layer_s )
    prefill: seconds a token = pace * 2 params / (ops * gemm[family]) + start_s / prompt

*Weights* are bytes as stored; *ops* the peak (INT8 with integer weights on CPUs and NPUs, else float16); the lanes' term (unpacking
and multiplying one row) is a CPU's. Paces are the engines' by processor kind, and one for phone apps that measure themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.soc_files import load_soc
from hetsched_cost_models.fit.language_data import Rate
from hetsched_cost_models.work import FloatArray

FOLDS, _SOFT = 10, 2.0
#: Engines with fewer rows have no pace of their own.
_LEAST_ROWS = 5
#: Tokens of a prompt whose length is not said: that of llama.cpp's and LiteRT's benchmarks.
_USUAL_PROMPT = 512
#: Ridge of rates and of paces: paces of engines with few rows stay near 1.
_RATE_RIDGE, _PACE_RIDGE = 0.05, 0.08


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
        self.family, self.unit = np.array([p.family for p in places]), np.array([r.unit for r in rows])
        self.engine = np.array([f"{r.engine}/{r.unit}" for r in rows])
        self.app, self.coarse = np.array([r.app for r in rows]), np.array([r.bits > 8.5 for r in rows])
        self.params, self.layers = np.array([r.params for r in rows]), np.array([float(r.layers) for r in rows])
        self.bytes = self.params * np.array([r.bits for r in rows]) / 8.0 + np.array([r.kv_bytes * r.context for r in rows])
        integer = ~self.coarse & (self.unit != "gpu")
        self.ops = np.where(integer, [p.i8 for p in places], [p.f16 for p in places])
        self.half = np.array([p.f16 for p in places])
        self.bandwidth = np.array([p.bandwidth for p in places])
        self.groups = np.array([r.group for r in rows])
        self.prompt = np.array([float(r.prompt or _USUAL_PROMPT) for r in rows])

    def log_predicted(self, p: Mapping[str, float]) -> FloatArray:
        """Logarithms of seconds a token."""
        pace = np.log([p.get(f"pace/{e}", 1.0) for e in self.engine]) + np.where(self.app, np.log(p.get("pace/app", 1.0)), 0.0)
        if self.phase == "prefill":
            rate = np.array([p[f"gemm/{f}"] for f in self.family])
            start = np.array([p[f"start_s/{u}"] for u in self.unit]) / self.prompt
            return np.asarray(np.log(np.exp(pace) * 2.0 * self.params / (self.ops * rate) + start))
        pace = pace + np.where(self.app & self.coarse, np.log(p["pace/app/float"]), 0.0)
        reach = np.array([p[f"reach/{f}"] for f in self.family])
        lanes = np.where(self.unit == "cpu", 2.0 * self.params / (self.half * p["lanes"]), 0.0)
        layer = np.array([p[f"layer_s/{u}"] for u in self.unit])
        return np.asarray(pace + np.log(self.bytes / (self.bandwidth * reach) + lanes + self.layers * layer))


def priors(rows: Sequence[Rate], phase: str) -> dict[str, tuple[float, float]]:
    """Name -> (prior, ridge) of the parameters that ``rows`` bear on."""
    s = Language(rows, phase)
    engines = Counter(s.engine.tolist())
    found = {f"pace/{e}": (1.0, _PACE_RIDGE) for e in sorted(engines) if engines[e] >= _LEAST_ROWS}
    if s.app.any():
        found["pace/app"] = (1.0, _RATE_RIDGE)
    if phase == "prefill":
        starts = {f"start_s/{u}": (0.03, _RATE_RIDGE) for u in ("cpu", "gpu", "npu")}
        return {f"gemm/{f}": (0.1, _RATE_RIDGE) for f in sorted(set(s.family.tolist()))} | starts | found
    rates = {f"reach/{f}": (0.6, _RATE_RIDGE) for f in sorted(set(s.family.tolist()))}
    layers = {f"layer_s/{u}": (1e-4, _RATE_RIDGE) for u in ("cpu", "gpu", "npu")}
    return rates | layers | {"lanes": (0.05, _RATE_RIDGE), "pace/app/float": (1.0, _RATE_RIDGE)} | found


def fit(rows: Sequence[Rate], phase: str, names: Mapping[str, tuple[float, float]], start: FloatArray | None = None) -> FloatArray:
    """Logarithms of the parameters ``names``; every group counts alike."""
    from scipy.optimize import least_squares

    s, count = Language(rows, phase), Counter(r.group for r in rows)
    root = np.sqrt([1.0 / count[g] for g in s.groups.tolist()])
    prior, ridge = np.log([v for v, _ in names.values()]), np.array([w for _, w in names.values()])

    def residuals(x: FloatArray) -> FloatArray:
        error = s.log_predicted(parameters(names, x)) - s.log_measured
        return np.concatenate([root * np.arctan(_SOFT * error) / _SOFT, ridge * (x - prior)])

    begin, steps = (prior, 40) if start is None else (start, 8)
    # No more than the reachable bandwidth: what looks like more is a cache or a wrong figure of the chip.
    top = np.array([0.0 if n.startswith("reach/") else np.inf for n in names])
    least = np.array([0.0 if n.startswith("pace/") and phase == "decode" else -np.inf for n in names])
    inside = np.clip(begin, least + 1e-3, top - 1e-3)
    return np.asarray(least_squares(residuals, inside, bounds=(least, top), max_nfev=steps, xtol=1e-4, ftol=1e-4).x)


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


def fitted(rows: Sequence[Rate], phase: str) -> LanguageFit:
    """Fit on all rows of a phase, and on those of nine tenths of the groups in turn."""
    picked = [r for r in rows if getattr(r, phase) > 0]
    names = priors(picked, phase)
    x = fit(picked, phase, names)
    groups, errors = sorted({r.group for r in picked}), np.zeros(len(picked))
    for i in range(FOLDS):
        part = set(groups[i::FOLDS])
        out = [j for j, r in enumerate(picked) if r.group in part]
        p = parameters(names, fit([r for r in picked if r.group not in part], phase, names, x))
        s = Language([picked[j] for j in out], phase)
        errors[out] = np.abs(np.expm1(s.log_measured - s.log_predicted(p)))
    return LanguageFit(phase, tuple(picked), parameters(names, x), errors)
