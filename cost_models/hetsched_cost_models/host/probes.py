"""The kernel calls that are timed on the host, a few typical shapes for each class and kind of work.

They are this project's own kernels, called as the runtime calls them, so that predicted and measured times speak of the same
code, on weights and results that no cache holds. Every class of matrix work has shapes that are bound by arithmetic, by what they
read and write, and by what is done to each result, so that the costs can be told apart. Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched_cost_models.host.probes_cold import Cold
from hetsched_kernels import codes, conv, conv_transpose, gemm, nhwc, nhwc_conv_f32, winograd
from hetsched_kernels.arrays import NO_F32

NO_ACTIVATION = (codes.NONE, 0.0, 0.0)
TYPICAL_ACTIVATION = (codes.RELU, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Shape:
    """A convolution: channels in and out, height (1: of a sequence) and width, kernel, stride, groups."""

    cls: str
    c: int
    o: int
    height: int
    width: int
    k: int
    stride: int = 1
    groups: int = 1

    @property
    def rows(self) -> int:
        """Of the kernel."""
        return self.k if self.height > 1 else 1

    @property
    def geometry(self) -> Any:
        """The kernels' descriptor."""
        kh, pad = self.rows, self.k // 2
        strides, pads = (self.stride if kh > 1 else 1, self.stride), (kh // 2, pad, kh // 2, pad)
        return conv.conv_geometry(1, self.c, self.height, self.width, self.o, kh, self.k, strides, pads, (1, 1), self.groups)

    @property
    def window(self) -> tuple[int, int, int, int]:
        """Shape of the weights."""
        return self.o, self.c // self.groups, self.rows, self.k

    @property
    def inputs(self) -> int:
        """Elements read."""
        return self.c * self.height * self.width

    @property
    def outputs(self) -> int:
        """Elements written."""
        pad = self.k // 2
        rows = 1 if self.height == 1 else (self.height + 2 * pad - self.k) // self.stride + 1
        return self.o * rows * ((self.width + 2 * pad - self.k) // self.stride + 1)

    @property
    def is_image(self) -> bool:
        """Whether its tensors are kept channels last."""
        return self.height > 1 and self.groups in (1, self.c)

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
    _square("conv1x1", 384, 96, 14), _square("conv1x1", 320, 1280, 7), _square("conv1x1", 48, 192, 40), _square("conv1x1", 256, 96, 40),
    _square("conv1x1", 640, 320, 10), _square("conv1x1", 512, 1024, 12),
    _square("conv3x3", 96, 24, 60, 3), _square("conv3x3", 96, 24, 15, 3), _square("conv3x3", 64, 64, 28, 3),
    _square("conv3x3", 48, 48, 64, 3), _square("conv3x3", 160, 160, 16, 3), _square("conv3x3", 384, 384, 8, 3),
    _square("conv", 3, 32, 160, 3, 2), _square("conv", 96, 192, 32, 3, 2), _square("conv", 3, 48, 128, 7, 2),
    _square("conv", 24, 96, 32, 5), _square("conv", 192, 48, 20, 5), Shape("conv", 128, 256, 1, 256, 3),
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
    bytes that matrix work reads and writes beside its weights, ``results`` the elements that it writes.
    """

    name: str
    work: float
    call: Callable[[], Any]
    bytes: float = 0.0
    results: float = 0.0


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
    size = winograd.winograd_size(geometry) if shape.is_image else 0
    if size:
        return _winograd_f32(rng, shape, size)
    if shape.is_image:
        w, bias = nhwc_conv_f32.pack_conv_nhwc_f32(random_f32(rng, int(np.prod(shape.window))).reshape(shape.window), NO_F32, shape.groups)
        scratch = aligned(np.zeros(nhwc_conv_f32.conv2d_nhwc_f32_scratch(geometry), np.float32))
        reads = (aligned(random_f32(rng, shape.inputs + nhwc.SLACK)), aligned(w), aligned(bias))
        out = aligned(np.zeros(shape.outputs + nhwc.SLACK, np.float32))
        args = (*reads, NO_F32, out, scratch, geometry, shape.c, *TYPICAL_ACTIVATION, 0, shape.outputs // shape.o)
        return Probe(
            f"{shape.cls}/f32", shape.operations, Cold(nhwc_conv_f32.conv2d_nhwc_f32, args, (1,), (4,)), shape.moved(4), shape.outputs
        )
    x, out = random_f32(rng, shape.inputs), np.empty(shape.outputs, np.float32)
    w = conv.pack_conv_f32(random_f32(rng, int(np.prod(shape.window))).reshape(shape.window), shape.groups)
    scratch = np.empty(max(1, conv.conv2d_f32_scratch(geometry)), np.float32)
    call = Cold(conv.conv2d_f32, (x, w, random_f32(rng, shape.o), out, scratch, geometry, *TYPICAL_ACTIVATION), (1,), (3,))
    return Probe(f"{shape.cls}/f32", shape.operations, call, shape.moved(4), shape.outputs)


def _winograd_f32(rng: np.random.Generator, shape: Shape, size: int) -> Probe:
    """A 3 x 3 convolution as the runtime computes it: with fewer products."""
    geometry = shape.geometry
    w, bias = winograd.pack_winograd(random_f32(rng, int(np.prod(shape.window))).reshape(shape.window), NO_F32, size)
    tiles = winograd.winograd_tiles(geometry, size)
    scratch = aligned(np.zeros(winograd.conv2d_winograd_scratch(geometry, size, tiles), np.float32))
    reads = (aligned(random_f32(rng, shape.inputs + nhwc.SLACK)), aligned(w), aligned(bias), NO_F32)
    out = aligned(np.zeros(shape.outputs + nhwc.SLACK, np.float32))
    args = (*reads, out, scratch, geometry, size, *TYPICAL_ACTIVATION, 0, tiles)
    call = Cold(winograd.conv2d_winograd_f32, args, (1,), (4,))
    return Probe(f"{shape.cls}/f32", shape.operations, call, shape.moved(4), shape.outputs)


def _transposed_f32(rng: np.random.Generator, c: int, o: int, size: int) -> Probe:
    geometry = conv_transpose.transpose_geometry(1, c, size, size, o, 2, 2, (2, 2))
    x, out = random_f32(rng, c * size * size), np.empty(4 * o * size * size, np.float32)
    w = conv_transpose.pack_conv_transpose_f32(random_f32(rng, c * o * 4).reshape(c, o, 2, 2))
    scratch = np.empty(conv_transpose.conv_transpose2d_f32_scratch(geometry), np.float32)
    args = (x, w, random_f32(rng, o), out, scratch, geometry, *TYPICAL_ACTIVATION)
    call = Cold(conv_transpose.conv_transpose2d_f32, args, (1,), (3,))
    return Probe("transposed/f32", 2.0 * size * size * c * o * 4, call, 4.0 * (x.size + out.size), out.size)


def _gemm_f32(rng: np.random.Generator, m: int, n: int, k: int) -> Probe:
    a, b, out = random_f32(rng, m * k), gemm.pack_b_f32(random_f32(rng, k * n).reshape(k, n)), np.empty(m * n, np.float32)
    scratch = np.empty(gemm.gemm_f32_scratch(m, n, k), np.float32)
    call = Cold(gemm.gemm_f32, (a, b, random_f32(rng, n), out, scratch, m, n, k, *NO_ACTIVATION), (1,), (3,))
    return Probe("gemm/f32", 2.0 * m * n * k, call, 4.0 * (m * k + m * n), m * n)


def _matmul_f32(rng: np.random.Generator, batch: int, m: int, n: int, k: int) -> Probe:
    a, b, out = random_f32(rng, batch * m * k), random_f32(rng, batch * k * n), np.empty(batch * m * n, np.float32)
    a_at, b_at = gemm.batch_offsets((batch, m, k), (batch, k, n))
    scratch = np.empty(gemm.matmul_f32_scratch(m, n, k), np.float32)
    call = Cold(gemm.matmul_f32, (a, a_at, b, b_at, NO_F32, out, scratch, gemm.matmul_shape(m, n, k), *NO_ACTIVATION), (), (5,))
    return Probe("matmul/f32", 2.0 * batch * m * n * k, call, 4.0 * (a.size + b.size + out.size), out.size)
