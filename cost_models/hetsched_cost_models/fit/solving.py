"""Least squares over models, with a ridge that holds parameters near their priors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from hetsched_cost_models.fit.dataset import Row
from hetsched_cost_models.fit.form import Chip, Problem
from hetsched_cost_models.fit.priors import FITTED, FIXED
from hetsched_cost_models.work import FloatArray

#: Errors beyond this count less than squared (pseudo-Huber); in the logarithm of seconds.
_SOFT = 0.15
_STEPS, _MORE_STEPS = 60, 8
_SPREAD = np.array([spread for _, spread, _ in FITTED.values()])


def parameters(x: FloatArray) -> dict[str, float]:
    """Parameters by name from the logarithms of fitted ones over their priors."""
    fitted = {name: float(prior * np.exp(v)) for (name, (prior, _, _)), v in zip(FITTED.items(), x, strict=True)}
    return {**{name: value for name, (value, _) in FIXED.items()}, **fitted}


def model_weights(rows: Sequence[Row]) -> FloatArray:
    """[rows] weights that count every model alike."""
    count = Counter(r.model for r in rows)
    return np.array([1.0 / count[r.model] for r in rows])


def fit(rows: Sequence[Row], chip: Chip, start: FloatArray | None = None, centre: FloatArray | None = None) -> FloatArray:
    """Logarithms of the fitted parameters over their priors.

    Args:
        rows: what is fitted.
        chip: where they were measured.
        start: from an earlier fit to most of the rows.
        centre: what the ridge holds the parameters near, instead of the priors: another chip's fit.
    """
    from scipy.optimize import least_squares

    problem, root = Problem(rows, chip), np.sqrt(model_weights(rows))
    middle = np.zeros(len(FITTED)) if centre is None else centre
    begin, steps = (middle, _STEPS) if start is None else (start, _MORE_STEPS)

    def residuals(x: FloatArray) -> FloatArray:
        error = problem.log_predicted(parameters(x)) - problem.log_measured
        soft = np.sqrt(2.0 * (np.sqrt(1.0 + (error / _SOFT) ** 2) - 1.0)) * np.sign(error)
        return np.concatenate([root * soft, (x - middle) / _SPREAD])

    found = least_squares(residuals, begin, max_nfev=steps, xtol=1e-4, ftol=1e-4)
    return np.asarray(found.x)


def without(rows: Sequence[Row], chip: Chip, start: FloatArray, centres: Mapping[str, FloatArray] | None = None) -> dict[str, FloatArray]:
    """Family -> a fit to the rows of all other families; ``centres``: the same of another chip."""
    return {
        family: fit([r for r in rows if r.family != family], chip, start, (centres or {}).get(family))
        for family in sorted({r.family for r in rows})
    }


def left_out(rows: Sequence[Row], chip: Chip, fits: Mapping[str, FloatArray]) -> FloatArray:
    """[rows] logarithm of predictions, each by the fit without its family."""
    out = np.zeros(len(rows))
    for family, x in fits.items():
        inside = np.array([r.family == family for r in rows])
        out[inside] = Problem([r for r in rows if r.family == family], chip).log_predicted(parameters(x))
    return out
