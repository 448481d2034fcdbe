"""Fit, write the parameter files, print the figures: ``python -m hetsched_cost_models.fit [--check]``.

``--check`` writes nothing, and its exit code is 1 if a goal is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hetsched_cost_models.fit import intervals
from hetsched_cost_models.fit.accuracy import Figure, Fitted, figures, fitted, other_predictions
from hetsched_cost_models.fit.dataset import BASE, RELEASE, Row
from hetsched_cost_models.fit.form import Chip, Problem
from hetsched_cost_models.fit.solving import parameters
from hetsched_cost_models.fit.writing import file_text, write
from hetsched_cost_models.work import FloatArray


def texts(base: Fitted) -> dict[str, str]:
    """The parameter files: fitted on all rows (shipped), and on those of ``use=fit`` (judged)."""
    widths = intervals.half_widths(base.rows, base.without_family)
    widths["unseen"] = max(intervals.slow_path(base.rows, base.without_family), *widths.values())
    widths["other_chip"] = max(intervals.other_chips(other_predictions(base)), widths["all"])
    chosen = {"hexagon.yaml": (base.shipped, base.rows, "fit and validate"),
              "hexagon-judged.yaml": (base.judged, tuple(r for r in base.rows if r.use == "fit"), "fit")}  # fmt: skip
    return {
        name: file_text(parameters(x), rows, _predicted(rows, x), f"Qualcomm AI Hub {RELEASE}, Snapdragon 8 Gen 3, use {use}", widths)
        for name, (x, rows, use) in chosen.items()
    }


def _predicted(rows: Sequence[Row], x: FloatArray) -> FloatArray:
    return Problem(rows, Chip.of(BASE)).log_predicted(parameters(x))


def show(found: Figure) -> None:
    """Print a line of the table."""
    print(f"{found.what:<62} {found.goal:>8}  {found.measured:<50} {'' if found.met is None else 'yes' if found.met else 'NO'}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Fit and print; with ``--check`` 1 if a goal is missed."""
    base = fitted(BASE)
    if "--check" not in arguments:
        for name, text in texts(base).items():
            print(f"wrote {write(name, text).name}")
    print(f"{'what':<62} {'goal':>8}  {'measured':<50} ok")
    table = []
    for found in figures(base):
        table.append(found)
        show(found)
    judged = [f for f in table if f.met is not None]
    met = sum(bool(f.met) for f in judged)
    print(f"{met} of {len(judged)} goals met")
    return 0 if met == len(judged) or "--check" not in arguments else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
