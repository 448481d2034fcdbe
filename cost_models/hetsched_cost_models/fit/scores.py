"""How good predictions are: every model counts alike, however many rows it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetsched_cost_models.fit.dataset import Row
from hetsched_cost_models.fit.solving import model_weights
from hetsched_cost_models.work import FloatArray


@dataclass(frozen=True, slots=True)
class Score:
    """Errors are |predicted - measured| / measured; ``bias`` is the geometric mean of predicted over measured, less 1."""

    rows: int
    median: float
    mean: float
    p90: float
    within_quarter: float
    bias: float
    spearman: float

    def line(self) -> str:
        """As printed."""
        return (
            f"median {self.median:6.1%}  mean {self.mean:6.1%}  p90 {self.p90:6.1%}  within 25 % {self.within_quarter:4.0%}"
            f"  bias {self.bias:+6.1%}  rank {self.spearman:.3f}  ({self.rows} rows)"
        )


def weighted_quantile(values: FloatArray, weights: FloatArray, q: float) -> float:
    """The least value that at least the share ``q`` of the weights does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, q - 1e-12)), len(values) - 1)])


def score(rows: Sequence[Row], log_predicted: FloatArray) -> Score:
    """The score of predictions of ``rows``."""
    measured = np.log([r.seconds for r in rows])
    weights = model_weights(rows)
    off = np.expm1(log_predicted - measured)
    apart = np.abs(off)
    share = weights / weights.sum()
    return Score(
        len(rows), weighted_quantile(apart, weights, 0.5), float(share @ apart), weighted_quantile(apart, weights, 0.9),
        float(share @ (apart <= 0.25)), float(np.expm1(share @ (log_predicted - measured))), _rank_correlation(log_predicted, measured),
    )  # fmt: skip


def _rank_correlation(a: FloatArray, b: FloatArray) -> float:
    """Spearman's coefficient; equal values share their mean rank."""
    ranks = []
    for values in (a, b):
        _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2.0)[inverse])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
