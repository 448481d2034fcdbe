"""Weights quantized in groups along k, as plain arrays: what every layout of a few bits stands for."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from hetsched_kernels.arrays import Array

#: Values of k that the packed layouts take together.
CHUNK: Final = 32
#: For each width of codes the one that stands for 0 where a group has no minimum.
ZEROS: Final = {2: 1, 4: 8, 5: 16, 6: 32, 8: 128}
#: Widths whose groups may have minima, and the one whose groups are half a chunk (16 values of k).
WITH_MINS: Final = (4, 5)
OF_HALVES: Final = (6,)


class Groups(NamedTuple):
    """A quantized weight as plain arrays.

    Attributes:
        codes: uint8 [n, k], unsigned.
        bits: width of a code: 2, 4, 5, 6 or 8.
        group: values of k that share a scale; 16 for 6 bits, else a multiple of 32.
        scales: [n, ⌈k / group⌉] float16 or float32, or int8 that ``larger`` is multiplied with.
        mins: None where code ``ZEROS[bits]`` stands for 0, else as ``scales`` (4 and 5 bits only).
        larger: float16 [1 or 2, n, ⌈k / larger group⌉]: what integer scales are times, and minima minus times; else None.
    """

    codes: Array
    bits: int
    group: int
    scales: Array
    mins: Array | None = None
    larger: Array | None = None

    def reals(self) -> Array:
        """The float32 weights, [n, k]: the definition of the format."""
        width = self.codes.shape[1]
        scales, mins = self._spread(self.scales, 0, width), None if self.mins is None else self._spread(self.mins, 1, width)
        codes = self.codes.astype(np.float32)
        if mins is None:
            return (codes - np.float32(ZEROS[self.bits])) * scales
        return codes * scales - mins if self.larger is not None else codes * scales + mins

    def _spread(self, values: Array, which: int, width: int) -> Array:
        wide = np.repeat(values.astype(np.float32), self.group, 1)[:, :width]
        if self.larger is None:
            return wide
        larger = self.larger[which].astype(np.float32)
        times = -(-values.shape[1] // larger.shape[1]) * self.group
        return np.asarray(wide * np.repeat(larger, times, 1)[:, :width])


def padded_depth(k: int, group: int) -> int:
    """``k`` rounded up to whole groups and chunks: the width of a row of quantized activations."""
    step = max(group, CHUNK)
    return -(-k // step) * step
