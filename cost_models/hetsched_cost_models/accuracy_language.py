"""Predicted beside measured of language models: a provider of :mod:`hetsched_cost_models.accuracy`.

Seconds a token of both phases by the shipped parameters, on the rows that they were fitted to (``use=fit``); how good they are
on a model x chip that was left out, ``python -m hetsched_cost_models.fit.processors --check`` says.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched_cost_models.accuracy import Point
from hetsched_cost_models.fit.language_data import rates
from hetsched_cost_models.fit.language_fit import form_of
from hetsched_cost_models.language_form import PHASES
from hetsched_cost_models.language_rates import shipped


def points() -> Iterator[Point]:
    """Every row of both phases; the unit names the phase, the precision the bits of a stored weight."""
    for phase in PHASES:
        found = [r for r in rates() if getattr(r, phase) > 0]
        form, measured = form_of(found, phase, shipped().parameters["decode"])
        ratios = np.exp(form.log_seconds(shipped().parameters[phase]) - measured).tolist()
        for r, ratio in zip(found, ratios, strict=True):
            engine, seconds = f"{r.engine} in an app" if r.app else r.engine, 1.0 / getattr(r, phase)
            yield Point(r.chip, f"{r.unit} {phase}", f"{r.bits:g} bits", engine, r.model, "fit", seconds, ratio * seconds)
