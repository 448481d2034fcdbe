"""GridSample of images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.runtime.lower.lowering import Lowering
from hetsched_kernels import grid_sample as kernels


def grid_sample(low: Lowering) -> None:
    """GridSample on two spatial dimensions, images divided among the queue's threads."""
    op, (n, channels, h, w) = low.op, low.shape(0)
    positions = math.prod(low.shape(1)[1:3])
    x, grid, out = low.reals(0), low.reals(1), low.real_output()
    kinds = (kernels.MODE[op.attr_str("mode", "linear")], kernels.PADDING[op.attr_str("padding_mode", "zeros")])
    tail = (channels, h, w, positions, *kinds, bool(op.attr_int("align_corners", 0)))
    image, places, result = channels * h * w, 2 * positions, channels * positions

    def part(a: int, b: int) -> tuple[Any, ...]:
        own = x[a * image : b * image], grid[a * places : b * places], out[a * result : b * result]
        return *own, low.scratch(kernels.SCRATCH, np.float32), b - a, *tail

    low.emit_split(kernels.grid_sample_f32, n, 1, part)
