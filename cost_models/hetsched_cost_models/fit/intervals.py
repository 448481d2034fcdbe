"""80 % intervals: conformal on predictions of families that the fit had not seen.

A row's *score* is how far its measurement lies from the prediction, as a logarithm. Rows of one family err together, so the interval is
calibrated by family: every family counts alike, within it every model. The half-width of a precision is shrunk towards that of all
precisions, as if :data:`_SHRINK` families more had been seen, because few families were measured in integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hetsched_cost_models.fit.dataset import Row
from hetsched_cost_models.fit.scores import weighted_quantile
from hetsched_cost_models.work import FloatArray

COVERAGE, _RISKY = 0.8, 0.95
_SHRINK = 4.0
PRECISIONS = ("float", "w8a8", "w8a16")


def family_weights(rows: Sequence[Row]) -> FloatArray:
    """[rows] weights that count every family alike, in it every model, in that every row."""
    models = Counter(r.model for r in rows)
    in_family = {f: len({r.model for r in rows if r.family == f}) for f in {r.family for r in rows}}
    return np.array([1.0 / (models[r.model] * in_family[r.family]) for r in rows])


def half_widths(rows: Sequence[Row], log_predicted: FloatArray) -> dict[str, float]:
    """Half-width of the interval in the logarithm of seconds, by precision and for ``all``."""
    apart = np.abs(log_predicted - np.log([r.seconds for r in rows]))
    weights = family_weights(rows)
    level = _level(len({r.family for r in rows}))
    out = {"all": weighted_quantile(apart, weights, level)}
    for precision in PRECISIONS:
        inside = [i for i, r in enumerate(rows) if r.precision == precision]
        families = len({rows[i].family for i in inside})
        own = weighted_quantile(apart[inside], family_weights([rows[i] for i in inside]), level) if inside else out["all"]
        out[precision] = (families * own + _SHRINK * out["all"]) / (families + _SHRINK)
    return out


def _level(families: int) -> float:
    """The conformal quantile of so many exchangeable families."""
    return min(1.0, COVERAGE * (families + 1) / families)


def slow_path(rows: Sequence[Row], log_predicted: FloatArray) -> float:
    """Half-width where operators appear that no graph of the fit had: what holds 95 % instead of 80 %."""
    apart = np.abs(log_predicted - np.log([r.seconds for r in rows]))
    return weighted_quantile(apart, family_weights(rows), _RISKY)


def other_chips(predicted: Sequence[tuple[Sequence[Row], FloatArray]]) -> float:
    """Half-width on a chip that only published figures describe: the median chip's quantile over its families.

    The median, since some of the rows' devices are boards whose clocks nobody states.
    """
    return float(np.median([half_widths(rows, log_predicted)["all"] for rows, log_predicted in predicted]))


def coverage(rows: Sequence[Row], log_predicted: FloatArray) -> float:
    """Share of families inside intervals that were calibrated on the other families."""
    measured, weights = np.log([r.seconds for r in rows]), family_weights(rows)
    inside = np.zeros(len(rows))
    for family in sorted({r.family for r in rows}):
        mine = np.array([r.family == family for r in rows])
        others = [r for r in rows if r.family != family]
        widths = half_widths(others, log_predicted[~mine])
        width = np.array([widths[r.precision] for r in rows])
        inside[mine] = (np.abs(log_predicted - measured) <= width)[mine]
    return float(inside @ weights / weights.sum())
