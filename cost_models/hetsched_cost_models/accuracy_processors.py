"""Predicted beside measured on CPUs, GPUs and Neural Engines: a provider of :mod:`hetsched_cost_models.accuracy`.

The fitted forms, by the shipped parameters, on the rows that they were fitted to (``use=fit``); how good they are on networks
that were left out, ``python -m hetsched_cost_models.fit.processors --check`` says.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched_cost_models.accuracy import Point
from hetsched_cost_models.fit.processor_data import chips, rows
from hetsched_cost_models.fit.processor_fit import KINDS
from hetsched_cost_models.fit.processor_form import Stack
from hetsched_cost_models.parameters import FITTED, read_parameters

_PRECISIONS = {"f32": "float", "f16": "float16", "i8": "w8a8", "mix": "quantized storage"}


def points() -> Iterator[Point]:
    """Every row whose chip has a SoC file."""
    stored = read_parameters(FITTED / "processors.yaml")
    for name, kind in KINDS.items():
        found = [r for r in rows() if r.unit == name and chips()[r.chip].has_file]
        values = {n: float(v["value"]) for n, v in stored[name].items()}
        predicted = np.exp(kind.form(Stack(found), values)).tolist()
        for r, seconds in zip(found, predicted, strict=True):
            unit = "all" if name == "npu" else name
            yield Point(r.chip, unit, _PRECISIONS[r.precision], r.engine, r.model, "fit", r.seconds, seconds)
