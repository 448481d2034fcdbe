"""The kernel calls that are timed on the host, a few typical shapes for each class and kind of work.

They are this project's own kernels, called as the runtime calls them, so that predicted and measured times speak of the same
code. Every class of matrix work has shapes that are bound by arithmetic and shapes that are bound by what they read and
write, so that both costs can be told apart. Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hetsched_kernels import codes, conv, conv_transpose, gemm, nhwc, nhwc_conv_f32
from hetsched_kernels.arrays import NO_F32

NO_ACTIVATION = (codes.NONE, 0.0, 0.0)
TYPICAL_ACTIVATION = (codes.HARD_SWISH, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Shape:
    """A convolution: channels in and out, height and width, kernel, stride, groups."""

    cls: str
    c: int
    o: int
    height: int
    width: int
    k: int
    stride: int = 1
    groups: int = 1

    @property
    def geometry(self) -> Any:
        """The kernels' descriptor."""
        pad, kw = self.k // 2, self.k if self.width > 1 else 1
        pads = (pad, kw // 2, pad, kw // 2)
        strides = (self.stride, self.stride if self.width > 1 else 1)
        return conv.conv_geometry(1, self.c, self.height, self.width, self.o, self.k, kw, strides, pads, (1, 1), self.groups)

    @property
    def window(self) -> tuple[int, int, int, int]:
        """Shape of the weights."""
        return self.o, self.c // self.groups, self.k, self.k if self.width > 1 else 1

    @property
    def inputs(self) -> int:
        """Elements read."""
        return self.c * self.height * self.width

    @property
    def outputs(self) -> int:
        """Elements written."""
        pad, kw = self.k // 2, self.k if self.width > 1 else 1
        rows = (self.height + 2 * pad - self.k) // self.stride + 1
        columns = (self.width + 2 * (kw // 2) - kw) // (self.stride if self.width > 1 else 1) + 1
        return self.o * rows * columns

    @property
    def is_image(self) -> bool:
        """Whether its tensors are kept channels last."""
        return self.width > 1 and self.groups in (1, self.c)

    def moved(self, element_bytes: int) -> float:
        """Bytes read and written; none for depthwise convolutions of short rows, whose cost is that of their padded rows."""
        return 0.0 if self.cls == "depthwise_small" else float(element_bytes * (self.inputs + self.outputs))

    @property
    def operations(self) -> float:
        """Two a multiply-accumulate; rows of depthwise convolutions count as whole vectors, as in the roofline."""
        _, per_group, kh, kw = self.window
        width = (self.width - self.k + 2 * (self.k // 2)) // self.stride + 1
        padded = -(-width // 16) * 16 / width if self.cls.startswith("depthwise") else 1.0
        return 2.0 * self.outputs * per_group * kh * kw * padded


def _square(cls: str, c: int, o: int, size: int, k: int = 1, stride: int = 1, groups: int = 1) -> Shape:
    return Shape(cls, c, o, size, size, k, stride, groups)


#: Early and late layers of mobile nets and detectors, and a 1-D convolution over a sequence.
CONVOLUTIONS = (
    _square("conv1x1", 16, 96, 112), _square("conv1x1", 48, 48, 60), _square("conv1x1", 144, 24, 56), _square("conv1x1", 192, 192, 28),
    _square("conv1x1", 384, 96, 14), _square("conv1x1", 320, 1280, 7),
    _square("conv", 3, 32, 160, 3, 2), _square("conv", 96, 24, 60, 3), _square("conv", 96, 24, 15, 3), _square("conv", 64, 64, 28, 3),
    Shape("conv", 128, 256, 256, 1, 3),
    _square("grouped", 64, 64, 28, 3, 1, 4), _square("grouped", 128, 128, 14, 3, 1, 8),
    _square("depthwise", 32, 32, 112, 3, 1, 32), _square("depthwise", 144, 144, 56, 3, 1, 144),
    _square("depthwise", 192, 192, 30, 5, 1, 192),
    _square("depthwise_small", 576, 576, 14, 3, 1, 576), _square("depthwise_small", 960, 960, 7, 3, 1, 960),
    _square("depthwise_small", 384, 384, 15, 5, 1, 384),
    _square("depthwise_strided", 96, 96, 112, 3, 2, 96), _square("depthwise_strided", 144, 144, 56, 3, 2, 144),
)  # fmt: skip
#: Transposed convolutions: (channels in, channels out, height and width), kernel and stride 2.
TRANSPOSED = ((24, 24, 60), (24, 1, 120), (64, 32, 28))
#: (rows, columns, depth) of products with constant weights.
PRODUCTS = ((128, 384, 384), (128, 1536, 384), (32, 384, 384), (512, 64, 256))
#: (batch, rows, columns, depth) of products of two activations: attention scores and their use.
PAIRS = ((12, 128, 128, 32), (12, 32, 32, 32), (6, 400, 400, 64), (6, 400, 64, 400))


@dataclass(frozen=True, slots=True)
class Probe:
    """One timed call: what it stands for (``conv/f32``, ``vector/softmax``), its work, and the call.

    ``work`` is operations (two a multiply-accumulate) of matrix work, bytes read and written of other work; ``bytes`` are the
    bytes that matrix work reads and writes beside its weights.
    """

    name: str
    work: float
    call: Callable[[], Any]
    bytes: float = 0.0


def random_f32(rng: np.random.Generator, n: int) -> Any:
    """``n`` normally distributed float32."""
    return rng.standard_normal(n, dtype=np.float32)


def matrix_probes(rng: np.random.Generator) -> Iterator[Probe]:
    """Convolutions and products in float32."""
    for shape in CONVOLUTIONS:
        yield _conv_f32(rng, shape)
    for c, o, size in TRANSPOSED:
        yield _transposed_f32(rng, c, o, size)
    for m, n, k in PRODUCTS:
        yield _gemm_f32(rng, m, n, k)
    for batch, m, n, k in PAIRS:
        yield _matmul_f32(rng, batch, m, n, k)


def aligned(x: Any) -> Any:
    """A copy that starts on a cache line, as weights and tensors do when a plan runs."""
    room = np.empty(x.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    out = room[start : start + x.nbytes].view(x.dtype)
    out[:] = x
    return out


def _conv_f32(rng: np.random.Generator, shape: Shape) -> Probe:
    geometry = shape.geometry
    if shape.is_image:
        w, bias = nhwc_conv_f32.pack_conv_nhwc_f32(random_f32(rng, int(np.prod(shape.window))).reshape(shape.window), NO_F32, shape.groups)
        scratch = aligned(np.zeros(nhwc_conv_f32.conv2d_nhwc_f32_scratch(geometry), np.float32))
        reads = (aligned(random_f32(rng, shape.inputs + nhwc.SLACK)), aligned(w), aligned(bias))
        tail = (aligned(np.zeros(shape.outputs, np.float32)), scratch, geometry, shape.c, *TYPICAL_ACTIVATION, 0, shape.outputs // shape.o)
        return Probe(f"{shape.cls}/f32", shape.operations, partial(nhwc_conv_f32.conv2d_nhwc_f32, *reads, *tail), shape.moved(4))
    x, out = random_f32(rng, shape.inputs), np.empty(shape.outputs, np.float32)
    w = conv.pack_conv_f32(random_f32(rng, int(np.prod(shape.window))).reshape(shape.window), shape.groups)
    scratch = np.empty(max(1, conv.conv2d_f32_scratch(geometry)), np.float32)
    call = partial(conv.conv2d_f32, x, w, random_f32(rng, shape.o), out, scratch, geometry, *TYPICAL_ACTIVATION)
    return Probe(f"{shape.cls}/f32", shape.operations, call, shape.moved(4))


def _transposed_f32(rng: np.random.Generator, c: int, o: int, size: int) -> Probe:
    geometry = conv_transpose.transpose_geometry(1, c, size, size, o, 2, 2, (2, 2))
    x, out = random_f32(rng, c * size * size), np.empty(4 * o * size * size, np.float32)
    w = conv_transpose.pack_conv_transpose_f32(random_f32(rng, c * o * 4).reshape(c, o, 2, 2))
    scratch = np.empty(conv_transpose.conv_transpose2d_f32_scratch(geometry), np.float32)
    call = partial(conv_transpose.conv_transpose2d_f32, x, w, random_f32(rng, o), out, scratch, geometry, *TYPICAL_ACTIVATION)
    return Probe("transposed/f32", 2.0 * size * size * c * o * 4, call, 4.0 * (x.size + out.size))


def _gemm_f32(rng: np.random.Generator, m: int, n: int, k: int) -> Probe:
    a, b, out = random_f32(rng, m * k), gemm.pack_b_f32(random_f32(rng, k * n).reshape(k, n)), np.empty(m * n, np.float32)
    scratch = np.empty(gemm.gemm_f32_scratch(m, n, k), np.float32)
    call = partial(gemm.gemm_f32, a, b, random_f32(rng, n), out, scratch, m, n, k, *NO_ACTIVATION)
    return Probe("gemm/f32", 2.0 * m * n * k, call, 4.0 * (m * k + m * n))


def _matmul_f32(rng: np.random.Generator, batch: int, m: int, n: int, k: int) -> Probe:
    a, b, out = random_f32(rng, batch * m * k), random_f32(rng, batch * k * n), np.empty(batch * m * n, np.float32)
    a_at, b_at = gemm.batch_offsets((batch, m, k), (batch, k, n))
    scratch = np.empty(gemm.matmul_f32_scratch(m, n, k), np.float32)
    call = partial(gemm.matmul_f32, a, a_at, b, b_at, NO_F32, out, scratch, gemm.matmul_shape(m, n, k), *NO_ACTIVATION)
    return Probe("matmul/f32", 2.0 * batch * m * n * k, call, 4.0 * (a.size + b.size + out.size))
