"""Latencies of whole models on Snapdragon NPUs, predicted by the parameters that were fitted on ``use=fit`` rows of one chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp
from typing import Any

import numpy as np

from hetsched_cost_models.accuracy import Point
from hetsched_cost_models.parameters import FITTED, read_parameters


def points() -> Iterator[Point]:
    """Every row of the headline release. Rows of other chips than the fitted one are all ``validate``: none of them was fitted."""
    from hetsched_cost_models.fit.dataset import BASE, CHIPS, of_chip
    from hetsched_cost_models.fit.form import Chip, Problem

    tables = read_parameters(FITTED / "hexagon-judged.yaml")["parameters"]
    parameters, widths = _flat(tables), {name: float(f["value"]) for name, f in tables.get("half_width", {}).items()}
    for chipset, chip in CHIPS.items():
        rows = of_chip(chipset)
        if not rows:
            continue
        predicted = np.exp(Problem(rows, Chip.of(chipset)).log_predicted(parameters))
        for row, seconds in zip(rows, predicted.tolist(), strict=True):
            use = row.use if chipset == BASE else "other chip"
            factor = _factor(widths, row.precision, own=chipset == BASE)
            interval = None if factor is None else (seconds / factor, seconds * factor)
            yield Point(chip, "npu", row.precision, row.runtime, row.model, use, row.seconds, seconds, interval)


def _factor(widths: Mapping[str, float], precision: str, *, own: bool) -> float | None:
    """Upper factor of the 80 % interval, as :func:`hetsched_cost_models.certainty.interval` has it; None without calibration."""
    found = [widths[case] for case in (precision, *(() if own else ("other_chip",))) if case in widths]
    return exp(max(found)) if found else None


def _flat(tables: Mapping[str, Any]) -> dict[str, float]:
    """Parameters by the names that the fit has: ``rate/f16``, ``fixed/qnn/float``, ``pace/litert``."""
    out = {name: float(f["value"]) for name, f in tables["tiled"].items()}
    out |= {f"fixed/{runtime}/{name}": float(f["value"]) for runtime, row in tables["fixed_s"].items() for name, f in row.items()}
    return out | {f"pace/{runtime}": float(f["value"]) for runtime, f in tables["pace"].items()}
