"""Sliding windows over NCHW: the shape descriptor of convolutions and the arithmetic of valid positions. Imports no numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hetsched_kernels.arrays import Array

#: Positions in the descriptor of :func:`conv_geometry`.
N, C, H, W, M, KH, KW, SH, SW, TOP, LEFT, BOTTOM, RIGHT, DH, DW, GROUPS, OH, OW = range(18)
FIELDS: Final = 18


def conv_geometry(
    n: int, c: int, h: int, w: int, m: int, kh: int, kw: int, strides: Sequence[int] = (1, 1), pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1), groups: int = 1,
) -> Array:  # fmt: skip
    """The int64 descriptor of a convolution.

    Args:
        n: batch.
        c: input channels.
        h: input height (1 for conv1d, with kh = 1).
        w: input width.
        m: output channels.
        kh: kernel height.
        kw: kernel width.
        strides: (vertical, horizontal).
        pads: ONNX order (top, left, bottom, right); auto_pad is the caller's to resolve.
        dilations: (vertical, horizontal).
        groups: groups; c and m are multiples of it.

    Raises:
        ValueError: the channels do not divide, or the window is larger than the padded input.
    """
    if groups < 1 or c % groups or m % groups:
        raise ValueError(f"convolution of {c} to {m} channels cannot have {groups} groups; both must be multiples of it")
    oh = (h + pads[0] + pads[2] - dilations[0] * (kh - 1) - 1) // strides[0] + 1
    ow = (w + pads[1] + pads[3] - dilations[1] * (kw - 1) - 1) // strides[1] + 1
    if min(oh, ow) < 1:
        raise ValueError(f"convolution window {kh}x{kw} does not fit its padded input {h}x{w}; check kernel, pads and dilations")
    return np.array([n, c, h, w, m, kh, kw, *strides, *pads, *dilations, groups, oh, ow], np.int64)


def conv_output(geometry: Array) -> tuple[int, int]:
    """(oh, ow) of a convolution's descriptor."""
    return int(geometry[OH]), int(geometry[OW])


def phases(kernel: int, stride: int, dilation: int) -> int:
    """How many of the ``stride`` interleaved sub-images along one axis a kernel reads."""
    return min(stride, kernel) if dilation == 1 else stride


def padded_plane(geometry: Array) -> tuple[int, int, int]:
    """(phase images, height, width) of one padded channel, split by stride so that every tap reads neighbours."""
    g = [int(v) for v in geometry]
    count = phases(g[KH], g[SH], g[DH]) * phases(g[KW], g[SW], g[DW])
    high = -(-(g[H] + g[TOP] + g[BOTTOM]) // g[SH])
    wide = -(-(g[W] + g[LEFT] + g[RIGHT]) // g[SW])
    return count, high, wide
