"""The figures that the NPU model is judged by, as rows of (what, goal, measured)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hetsched_cost_models.fit import intervals
from hetsched_cost_models.fit.dataset import BASE, CHIPS, EARLIER, SISTERS, Row, of_chip
from hetsched_cost_models.fit.form import Chip, Problem
from hetsched_cost_models.fit.scores import Score, score
from hetsched_cost_models.fit.solving import fit, left_out, parameters, without
from hetsched_cost_models.work import FloatArray

_GEN2, _ELITE = "qualcomm-qcs8550-proxy", "qualcomm-snapdragon-8-elite-for-galaxy"
#: Chips whose own rows are fitted and judged, and which must be predicted from published figures.
JUDGED = {BASE: "8 Gen 3", _GEN2: "8 Gen 2", _ELITE: "8 Elite"}
#: Validation on rows of models that were not fitted; leave-one-family-out over all models.
_VALIDATION = (0.10, 0.80, 0.97, 0.05)
_FAMILIES = (0.11, 0.16, 0.32)
_ANCHORED, _POINTS = 0.07, 0.03
_COVERAGE = (0.72, 0.88)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; ``met`` is None where there is no goal."""

    what: str
    goal: str
    measured: str
    met: bool | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """A chip's rows and the fits to them: those of ``use=fit``, all, and all without a family (by its name)."""

    chip: str
    rows: tuple[Row, ...]
    judged: FloatArray
    shipped: FloatArray
    without: dict[str, FloatArray]

    @cached_property
    def without_family(self) -> FloatArray:
        """Logarithms of predicted seconds by fits without a row's family."""
        return left_out(self.rows, Chip.of(self.chip), self.without)

    @cached_property
    def predicted(self) -> FloatArray:
        """Logarithms of predicted seconds by the shipped parameters."""
        return Problem(self.rows, Chip.of(self.chip)).log_predicted(parameters(self.shipped))


def fitted(chip: str, base: Fitted | None = None) -> Fitted:
    """Fit a chip: on the rows of ``use=fit``, on all, and on all without one family after another.

    With ``base`` the parameters are held near those that the base chip's same rows gave (its published figures do the rest).
    """
    rows, figures = of_chip(chip), Chip.of(chip)
    judged = fit([r for r in rows if r.use == "fit"], figures, centre=base.judged if base else None)
    shipped = fit(rows, figures, judged, base.shipped if base else None)
    fits = without(rows, figures, shipped, base.without if base else None)
    return Fitted(chip, rows, judged, shipped, fits)


def validation(f: Fitted) -> Iterator[Figure]:
    """Models that were not fitted, by the judged parameters."""
    rows = tuple(r for r in f.rows if r.use == "validate")
    s = score(rows, Problem(rows, Chip.of(f.chip)).log_predicted(parameters(f.judged)))
    name, (median, share, rank, bias) = f"{JUDGED[f.chip]}, validate", _VALIDATION
    yield _at_most(f"{name}: median error", median, s.median)
    yield Figure(f"{name}: within 25 %", f">= {share:.0%}", f"{s.within_quarter:.1%}", s.within_quarter >= share)
    yield Figure(f"{name}: rank correlation", f">= {rank:.2f}", f"{s.spearman:.3f}", s.spearman >= rank)
    yield Figure(f"{name}: bias", f"+-{bias:.0%}", f"{s.bias:+.1%}", abs(s.bias) <= bias)


def families_left_out(f: Fitted) -> Iterator[Figure]:
    """Every model by a fit without its family."""
    name = f"{JUDGED[f.chip]}, family left out"
    yield from _three(name, score(f.rows, f.without_family), f.chip == BASE)
    covered = intervals.coverage(f.rows, f.without_family)
    low, high = _COVERAGE
    yield Figure(f"{name}: coverage of 80 % intervals", f"{low:.0%}-{high:.0%}", f"{covered:.1%}", low <= covered <= high)


def all_models(base: Fitted) -> Iterator[Figure]:
    """The same with the models that only an earlier release has: all that were measured on the base chip."""
    chip = Chip.of(base.chip)
    rows = (*base.rows, *of_chip(base.chip, EARLIER))
    start = fit(rows, chip, base.shipped)
    name = f"{JUDGED[base.chip]}, family left out, all {len({r.model for r in rows})} graphs"
    yield from _three(name, score(rows, left_out(rows, chip, without(rows, chip, start))), True)


def _three(name: str, s: Score, judged: bool) -> Iterator[Figure]:
    for what, goal, value in zip(("median error", "mean error", "90th percentile"), _FAMILIES, (s.median, s.mean, s.p90), strict=True):
        yield _at_most(f"{name}: {what}", goal, value) if judged else Figure(f"{name}: {what}", "", f"{value:.1%}")


def other_predictions(base: Fitted) -> list[tuple[tuple[Row, ...], FloatArray]]:
    """Rows of every other chip that only published figures describe, and logarithms of their predictions."""
    p = parameters(base.shipped)
    return [(of_chip(c), Problem(of_chip(c), Chip.of(c)).log_predicted(p)) for c in CHIPS if c != base.chip and c not in SISTERS]


def chip_left_out(base: Fitted, chip: str) -> Iterator[Figure]:
    """A chip from its published figures by the base chip's parameters: alone, and on the base chip's latency of the same model."""
    rows, name = of_chip(chip), JUDGED.get(chip, CHIPS[chip])
    plain = Problem(rows, Chip.of(chip)).log_predicted(parameters(base.shipped))
    known = {r.key: (np.log(r.seconds), p) for r, p in zip(base.rows, base.predicted.tolist(), strict=True)}
    shared = [i for i, r in enumerate(rows) if r.key in known]
    picked = [rows[i] for i in shared]
    measured = np.array([known[r.key][0] for r in picked])
    anchored = measured + plain[shared] - np.array([known[r.key][1] for r in picked])
    constant = measured + float(np.median(np.log([r.seconds for r in picked]) - measured))
    unanchored, own = score(rows, plain), score(base.rows, base.without_family)
    goals = chip in JUDGED
    basis = "published figures and its sister's rows" if chip in SISTERS else "published figures"
    yield _line(f"{name} from {basis}", unanchored, own.median + _POINTS if goals else None)
    found, ratio = score(picked, anchored), score(picked, constant)
    yield _line(f"{name} anchored on the 8 Gen 3", found, _ANCHORED if goals else None)
    better = found.median < ratio.median if goals else None
    text = f"{found.median:.1%}" if goals else f"{found.median:.1%}, ratio {ratio.median:.1%}"
    yield Figure(f"{name} anchored, against one ratio fitted to its rows", f"< {ratio.median:.1%}" if goals else "", text, better)


def figures(base: Fitted) -> Iterator[Figure]:
    """The whole table; the other judged chips are fitted on the way."""
    for chip in JUDGED:
        f = base if chip == base.chip else fitted(chip, base)
        yield from validation(f)
        yield from families_left_out(f)
    yield from all_models(base)
    for chip in CHIPS:
        if chip != base.chip:
            yield from chip_left_out(base, chip)


def _at_most(what: str, goal: float, value: float) -> Figure:
    return Figure(what, f"<= {goal:.1%}", f"{value:.1%}", value <= goal)


def _line(what: str, s: Score, goal: float | None) -> Figure:
    text = f"{s.median:.1%} (mean {s.mean:.1%}, bias {s.bias:+.1%}, {s.rows} rows)"
    return Figure(f"{what}: median error", "" if goal is None else f"<= {goal:.1%}", text, None if goal is None else s.median <= goal)
