"""Predicted beside measured of language models: a provider of :mod:`hetsched_cost_models.accuracy`.

Seconds a token of both phases by the shipped parameters, on the rows that they were fitted to (``use=fit``); how good they are
on a model x chip that was left out, ``python -m hetsched_cost_models.fit.processors --check`` says.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched_cost_models.accuracy import Point
from hetsched_cost_models.fit.language_data import rates
from hetsched_cost_models.fit.language_fit import Language
from hetsched_cost_models.parameters import FITTED, read_parameters

PHASES = ("decode", "prefill")


def points() -> Iterator[Point]:
    """Every row of both phases; the unit names the phase, the precision the bits of a stored weight."""
    stored = read_parameters(FITTED / "processors.yaml")
    for phase in PHASES:
        found = [r for r in rates() if getattr(r, phase) > 0]
        predicted = np.exp(Language(found, phase).log_predicted({n: float(v["value"]) for n, v in stored[phase].items()})).tolist()
        for r, seconds in zip(found, predicted, strict=True):
            engine = f"{r.engine} in an app" if r.app else r.engine
            yield Point(r.chip, f"{r.unit} {phase}", f"{r.bits:g} bits", engine, r.model, "fit", 1.0 / getattr(r, phase), seconds)
