"""What fits a memory: a smooth step from all to nothing, as its size is passed."""

from __future__ import annotations

import numpy as np

from hetsched_cost_models.work import FloatArray


def share(ratio: FloatArray, power: int) -> FloatArray:
    """Share of data that does not fit, from the ratio of its size to the memory's: ``x^power / (1 + x^power)``."""
    x = np.minimum(ratio, 1e3) ** power
    return np.asarray(x / (1.0 + x))


def spill(ratio: FloatArray) -> FloatArray:
    """Share of an operator's activations, or of a model's weights, that does not stay: ``x^4 / (1 + x^4)``."""
    return share(ratio, 4)
