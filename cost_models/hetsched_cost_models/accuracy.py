"""Predicted beside measured: every shipped measurement of whole models that the cost model has an answer for.

A *provider* is a module with a function ``points()`` that yields :class:`Point`; :data:`PROVIDERS` lists them. All that they read
ships with the package, so anyone can check the figures: ``hetsched accuracy``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np

from hetsched_cost_models.work import FloatArray

PROVIDERS = tuple(f"hetsched_cost_models.accuracy_{part}" for part in ("npu", "processors", "language"))


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement and its prediction. ``use``: ``fit`` rows were fitted, ``validate`` rows and other chips were not."""

    chip: str
    unit: str  # cpu | gpu | npu | all, or with a phase of a language model: cpu decode, npu prefill
    precision: str
    runtime: str
    model: str
    use: str
    measured_s: float
    predicted_s: float
    interval_s: tuple[float, float] | None = None
    """80 % interval of the prediction."""


@dataclass(frozen=True, slots=True)
class Group:
    """How good the predictions of some points are: errors are |predicted - measured| / measured, every model weighing alike.

    ``bias`` is the geometric mean of predicted over measured, less 1; ``covered`` the share inside the 80 % interval.
    """

    chip: str
    unit: str
    precision: str
    runtime: str
    use: str
    rows: int
    models: int
    median: float
    mean: float
    p90: float
    within_quarter: float
    bias: float
    covered: float | None

    def as_dict(self) -> dict[str, object]:
        """The stable keys of a group of ``accuracy --json``."""
        return {
            "chip": self.chip, "unit": self.unit, "precision": self.precision, "runtime": self.runtime, "use": self.use,
            "rows": self.rows, "models": self.models, "median_error": self.median, "mean_error": self.mean, "p90_error": self.p90,
            "within_25_percent": self.within_quarter, "bias": self.bias, "interval_80_coverage": self.covered,
        }  # fmt: skip


def points(providers: Sequence[str] = PROVIDERS) -> list[Point]:
    """Every point of every provider, sorted."""
    found: list[Point] = []
    for name in providers:
        supply: Callable[[], Iterable[Point]] = import_module(name).points
        found.extend(supply())
    return sorted(found, key=lambda p: (p.unit, p.chip, p.precision, p.runtime, p.use, p.model, p.measured_s))


def anchored(found: Iterable[Point], chip: str) -> list[Point]:
    """The NPU points of other chips, corrected by what the same model took on ``chip`` (same precision and runtime).

    Intervals are those that a plan with such an anchor has. Points without a row on ``chip`` are left out.
    """
    from hetsched.soc_files import load_soc
    from hetsched_cost_models.anchoring import are_similar, calibrated, intervals, relation

    rows = [p for p in found if p.unit == "npu"]
    own = {(p.model, p.precision, p.runtime): p for p in rows if p.chip == chip}
    base, spans = load_soc(chip), {}
    for other in sorted({p.chip for p in rows} - {chip}):
        soc = load_soc(other)
        known = intervals().get(relation("", "", same_chip=False, similar=are_similar(base, soc)))
        spans[other] = (known.low, known.high) if known is not None and calibrated(base, soc) else None
    out = []
    for p in rows:
        a = own.get((p.model, p.precision, p.runtime))
        if p.chip != chip and a is not None:
            seconds, span = p.predicted_s * a.measured_s / a.predicted_s, spans[p.chip]
            interval = None if span is None else (seconds * span[0], seconds * span[1])
            out.append(replace(p, predicted_s=seconds, interval_s=interval))
    return out


def grouped(found: Iterable[Point], by: Sequence[str] = ("chip", "unit", "precision", "runtime", "use")) -> list[Group]:
    """A group for every combination of the fields ``by``, in order; other fields read ``all`` where they differ."""
    members: dict[tuple[str, ...], list[Point]] = {}
    for p in found:
        members.setdefault(tuple(getattr(p, field) for field in by), []).append(p)
    return [_group(mine) for mine in members.values()]


def _group(mine: Sequence[Point]) -> Group:
    weights = _model_weights(mine)
    ratio = np.array([p.predicted_s / p.measured_s for p in mine])
    apart = np.abs(ratio - 1.0)
    inside = [p.interval_s[0] <= p.measured_s <= p.interval_s[1] for p in mine if p.interval_s is not None]
    covered = float(weights @ np.array(inside)) if len(inside) == len(mine) else None
    chip, unit, precision, runtime, use = (_common(mine, f) for f in ("chip", "unit", "precision", "runtime", "use"))
    return Group(
        chip, unit, precision, runtime, use, len(mine), len({p.model for p in mine}), _quantile(apart, weights, 0.5),
        float(weights @ apart), _quantile(apart, weights, 0.9), float(weights @ (apart <= 0.25)),
        float(np.expm1(weights @ np.log(ratio))), covered,
    )  # fmt: skip


def _common(mine: Sequence[Point], field: str) -> str:
    values = {str(getattr(p, field)) for p in mine}
    return values.pop() if len(values) == 1 else "all"


def _model_weights(mine: Sequence[Point]) -> FloatArray:
    """[points] weights that sum to 1 and count every model alike."""
    count: dict[str, int] = {}
    for p in mine:
        count[p.model] = count.get(p.model, 0) + 1
    return np.array([1.0 / (count[p.model] * len(count)) for p in mine])


def _quantile(values: FloatArray, weights: FloatArray, q: float) -> float:
    """The least value that at least the share ``q`` of the weights does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][min(int(np.searchsorted(reached, q - 1e-12)), len(values) - 1)])


def furthest(found: Iterable[Point], count: int = 10) -> Iterator[Point]:
    """The points whose prediction is furthest off, as a ratio, each model once."""
    seen: set[str] = set()
    for p in sorted(found, key=lambda p: (-abs(np.log(p.predicted_s / p.measured_s)), p.model, p.chip, p.runtime)):
        if p.model not in seen and len(seen) < count:
            seen.add(p.model)
            yield p
