"""The verb *accuracy*: how far predictions are from the public measurements that ship with the project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.errors import OptionError

if TYPE_CHECKING:
    from hetsched_cost_models.accuracy import Group, Point
    from hetsched_cost_models.fit.placement import Score

#: The chip whose measurements anchor the others in the third table.
ANCHOR = "snapdragon-8-gen-3"
ANCHORED = f"Each prediction times measured over predicted of the same model, precision and runtime on the {ANCHOR}."
_BY_CHIP = ("chip", "unit")
_UNITS = {"cpu": "CPU", "gpu": "GPU", "npu": "NPU", "all": "all units"}


@dataclass(frozen=True, eq=False)
class Accuracy:
    """Every prediction beside its measurement, and the groups per chip x unit x precision x runtime x use."""

    points: tuple[Point, ...] = field(repr=False)
    groups: tuple[Group, ...]
    chips: tuple[Group, ...]
    anchored: tuple[Group, ...]
    """By chip and unit, every prediction corrected by what the same model took on :data:`ANCHOR`."""
    placement: tuple[Score, ...]
    """How often the number of layers that a runtime leaves on the CPU is right, over all chips."""
    parameters: str

    def summary(self) -> dict[str, Any]:
        """The stable keys of ``accuracy --json``."""
        return {
            "parameters": self.parameters,
            "rows": len(self.points),
            "models": len({p.model for p in self.points}),
            "chips": [g.as_dict() for g in self.chips],
            "anchored_on": ANCHOR,
            "chips_anchored": [g.as_dict() for g in self.anchored],
            "groups": [g.as_dict() for g in self.groups],
            "placement": [{"what": s.what, "rows": s.rows, "right": s.right, "right_if_never": s.never} for s in self.placement],
        }

    def page(self, path: str | Path) -> Path:
        """Write the tables and a plot of measured over predicted for every chip and unit.

        Raises:
            OptionError: jinja2 is not installed, or the file cannot be written.
        """
        from hetsched.files import check_destination
        from hetsched.reports import sheet

        target = Path(path)
        check_destination(target)
        plots = [p for p in (self._plot(g) for g in self.chips) if p is not None]
        sections = [
            sheet.Section("By chip", _HOW, _columns(), [_line(g) for g in self.chips]),
            sheet.Section("By chip, anchored", ANCHORED, _columns(), [_line(g) for g in self.anchored]),
            sheet.Section("Predicted and measured", "Each dot is one measurement; on the line the prediction is exact.", plots=plots),
            sheet.Section("By precision, runtime and use", _USE, _columns(), [_line(g) for g in self.groups]),
            self._fallback(),
            self._furthest(),
        ]
        lead = f"{len(self.points)} public measurements of {len({p.model for p in self.points})} models. Cost parameters {self.parameters}."
        return sheet.write(target, "How accurate are the predictions?", lead, sections)

    def _plot(self, group: Group) -> Any:
        from hetsched.reports import sheet

        mine = [p for p in self.points if (p.chip, p.unit) == (group.chip, group.unit)]
        dots = [sheet.Dot(f"{p.model} ({p.runtime}, {p.use})", p.precision, p.predicted_s, p.measured_s) for p in mine]
        return sheet.plot(f"{group.chip}, {_UNITS.get(group.unit, group.unit)}", dots)

    def _fallback(self) -> Any:
        from hetsched.reports import sheet

        columns = [sheet.Column(c, numeric=i > 0) for i, c in enumerate(FALLBACK_HEADS)]
        lines = [
            sheet.Line(tuple(sheet.Cell(t, n) for t, n in zip(fallback_cells(s), (0.0, s.rows, s.right, s.never), strict=True)))
            for s in self.placement
        ]
        return sheet.Section("Layers left on the CPU", FALLBACK, columns, lines)

    def _furthest(self) -> Any:
        from hetsched.reports import sheet
        from hetsched.reports.units import quantity
        from hetsched_cost_models.accuracy import furthest

        columns = [sheet.Column(c, numeric=i > 3) for i, c in enumerate(("model", "chip", "precision", "runtime", "predicted", "measured"))]
        lines = [
            sheet.Line(
                (
                    sheet.Cell(p.model), sheet.Cell(p.chip), sheet.Cell(p.precision), sheet.Cell(p.runtime),
                    sheet.Cell(quantity(p.predicted_s, "s"), p.predicted_s), sheet.Cell(quantity(p.measured_s, "s"), p.measured_s),
                )
            )
            for p in furthest(self.points, 20)
        ]  # fmt: skip
        return sheet.Section("Furthest off", "The worst measurement of each of the 20 models with the largest ratio.", columns, lines)


_HOW = "Errors are |predicted - measured| / measured; every model weighs alike. Predictions are not anchored."
_USE = (
    "fit: these rows were fitted, so their errors flatter; validate: same chip, models that were not; other chip: predicted from its "
    "published figures. Cross-validated figures are those of make fit."
)


def accuracy(chips: Sequence[str] = ()) -> Accuracy:
    """Compare predictions with every shipped measurement.

    Args:
        chips: ids of the SoCs to look at; empty: all that have measurements.

    Raises:
        OptionError: a chip has no measurements.
    """
    from hetsched_cost_models import parameter_version
    from hetsched_cost_models.accuracy import anchored, grouped, points
    from hetsched_cost_models.fit.placement import scores

    found = points()
    known = sorted({p.chip for p in found})
    strange = next((c for c in chips if c not in known), None)
    if strange is not None:
        raise OptionError(f"there are no measurements of {strange!r}: there are of {', '.join(known)}")
    kept = tuple(p for p in found if not chips or p.chip in chips)
    corrected = [p for p in anchored(found, ANCHOR) if not chips or p.chip in chips]
    groups, by_chip, anchored_by_chip = grouped(kept), grouped(kept, _BY_CHIP), grouped(corrected, _BY_CHIP)
    return Accuracy(kept, tuple(groups), tuple(by_chip), tuple(anchored_by_chip), tuple(scores()), parameter_version())


FALLBACK = (
    "Rows of Qualcomm AI Hub on all chips: right is within one layer or a tenth of what was measured; the last column is what "
    "predicting no layer would reach. The unit that a runtime chose is given, not predicted. What quantization leaves through ONNX "
    "Runtime is fitted to models with use=fit; with a family left out, to all other families."
)
FALLBACK_HEADS = ("rows", "count", "right", "right if never")


def fallback_cells(score: Score) -> list[str]:
    """A score as text, in the order of :data:`FALLBACK_HEADS`."""
    return [score.what, str(score.rows), f"{score.right:.1%}", f"{score.never:.1%}"]


HEADS = ("chip", "unit", "precision", "runtime", "use", "rows", "models", "median", "mean", "p90", "in 25 %", "bias", "in 80 %")


def cells(group: Group) -> list[str]:
    """A group as text, in the order of :data:`HEADS`."""
    covered = "-" if group.covered is None else f"{group.covered:.0%}"
    return [
        group.chip, _UNITS.get(group.unit, group.unit), group.precision, group.runtime, group.use, str(group.rows), str(group.models),
        _share(group.median), _share(group.mean), _share(group.p90), f"{group.within_quarter:.0%}", f"{group.bias:+.1%}", covered,
    ]  # fmt: skip


def _share(value: float) -> str:
    return f"{value:.1%}" if value < 1 else f"{value:.0%}"


def _columns() -> list[Any]:
    from hetsched.reports import sheet

    return [sheet.Column(c, numeric=i > 4) for i, c in enumerate(HEADS)]


def _line(group: Group) -> Any:
    from hetsched.reports import sheet

    numbers = [group.rows, group.models, group.median, group.mean, group.p90, group.within_quarter, group.bias, group.covered or 0.0]
    sorts = [0.0] * 5 + [float(n) for n in numbers]
    return sheet.Line(tuple(sheet.Cell(t, s) for t, s in zip(cells(group), sorts, strict=True)))
