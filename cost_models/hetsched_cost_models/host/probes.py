"""The kernel calls that are timed on the host, one or two typical shapes for each class and kind of work.

They are this project's own kernels, called as the runtime calls them, so that predicted and measured times speak of the same
code. Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hetsched_kernels import binary, codes, conv, elementwise, gemm, movement, norm, pool, reduce, resize, softmax
from hetsched_kernels.arrays import NO_F32

NO_ACTIVATION = (codes.NONE, 0.0, 0.0)
#: (input channels, output channels, height and width, kernel, groups, class)
CONVOLUTIONS = (
    (64, 128, 28, 1, 1, "conv1x1"), (320, 256, 14, 1, 1, "conv1x1"), (64, 64, 28, 3, 1, "conv"), (16, 32, 112, 3, 1, "conv"),
    (64, 64, 28, 3, 4, "grouped"), (96, 96, 56, 3, 96, "depthwise"), (384, 384, 14, 3, 384, "depthwise"),
)  # fmt: skip
#: (rows, columns, depth) of products with constant weights
PRODUCTS = ((128, 1536, 384), (64, 384, 1536))


@dataclass(frozen=True, slots=True)
class Probe:
    """One timed call: what it stands for (``conv/f32``, ``vector/softmax``), its work, and the call."""

    name: str
    work: float
    call: Callable[[], Any]


def random_f32(rng: np.random.Generator, n: int) -> Any:
    """``n`` normally distributed float32."""
    return rng.standard_normal(n, dtype=np.float32)


def matrix_probes(rng: np.random.Generator) -> Iterator[Probe]:
    """Convolutions and products; ``work`` is operations (two a MAC)."""
    for c, o, size, k, groups, cls in CONVOLUTIONS:
        yield _conv_f32(rng, cls, c, o, size, k, groups)
    for m, n, k in PRODUCTS:
        yield _gemm_f32(rng, m, n, k)
    yield _matmul_f32(rng, 12, 128, 128, 32)


def square_geometry(c: int, o: int, size: int, k: int, groups: int) -> Any:
    """The kernels' descriptor of a convolution on a square image, same size out."""
    pad = k // 2
    return conv.conv_geometry(1, c, size, size, o, k, k, (1, 1), (pad, pad, pad, pad), (1, 1), groups)


def _conv_f32(rng: np.random.Generator, cls: str, c: int, o: int, size: int, k: int, groups: int) -> Probe:
    geometry = square_geometry(c, o, size, k, groups)
    x, out = random_f32(rng, c * size * size), np.empty(o * size * size, np.float32)
    w = conv.pack_conv_f32(random_f32(rng, o * (c // groups) * k * k).reshape(o, c // groups, k, k), groups)
    scratch = np.empty(max(1, conv.conv2d_f32_scratch(geometry)), np.float32)
    call = partial(conv.conv2d_f32, x, w, random_f32(rng, o), out, scratch, geometry, *NO_ACTIVATION)
    return Probe(f"{cls}/f32", 2.0 * o * size * size * (c // groups) * k * k, call)


def _gemm_f32(rng: np.random.Generator, m: int, n: int, k: int) -> Probe:
    a, b, out = random_f32(rng, m * k), gemm.pack_b_f32(random_f32(rng, k * n).reshape(k, n)), np.empty(m * n, np.float32)
    scratch = np.empty(gemm.gemm_f32_scratch(m, n, k), np.float32)
    return Probe("gemm/f32", 2.0 * m * n * k, partial(gemm.gemm_f32, a, b, random_f32(rng, n), out, scratch, m, n, k, *NO_ACTIVATION))


def _matmul_f32(rng: np.random.Generator, batch: int, m: int, n: int, k: int) -> Probe:
    a, b, out = random_f32(rng, batch * m * k), random_f32(rng, batch * k * n), np.empty(batch * m * n, np.float32)
    a_at, b_at = gemm.batch_offsets((batch, m, k), (batch, k, n))
    scratch = np.empty(gemm.matmul_f32_scratch(m, n, k), np.float32)
    call = partial(gemm.matmul_f32, a, a_at, b, b_at, NO_F32, out, scratch, gemm.matmul_shape(m, n, k), *NO_ACTIVATION)
    return Probe("matmul/f32", 2.0 * batch * m * n * k, call)


def vector_probes(rng: np.random.Generator) -> Iterator[Probe]:
    """Arithmetic and movement on data in cache; ``work`` is bytes read and written."""
    n = 1 << 16
    x, y, out = random_f32(rng, n), random_f32(rng, n), np.empty(n, np.float32)
    flat, unit = np.array([n], np.int64), np.ones(1, np.int64)
    yield Probe("vector/elementwise", 12.0 * n, partial(binary.binary_f32, x, y, out, codes.ADD, flat, unit, unit))
    yield Probe("vector/transcendental", 8.0 * n, partial(elementwise.unary_f32, x, out, codes.GELU, 0.0, 0.0))
    yield Probe("vector/transcendental", 8.0 * n, partial(elementwise.unary_f32, x, out, codes.SIGMOID, 0.0, 0.0))
    yield Probe("vector/softmax", 8.0 * n, partial(softmax.softmax_f32, x, NO_F32, out, 512, 128, 1.0, np.zeros(0, np.int64)))
    ones = np.ones(256, np.float32)
    yield Probe("vector/norm", 8.0 * n, partial(norm.layer_norm_f32, x, ones, ones, out, 256, 256, 1e-5))
    shape = np.array([256, 256], np.int64)
    bits, target = x.view(np.uint32), out.view(np.uint32)
    rows, columns = np.array([256, 1], np.int64), np.array([1, 256], np.int64)
    yield Probe("vector/transpose", 8.0 * n, partial(movement.copy_strided, bits, 0, columns, target, 0, rows, shape))
    yield Probe("vector/copy", 8.0 * n, partial(movement.copy_strided, bits, 0, rows, target, 0, rows, shape))
    yield Probe("vector/reduce", 4.0 * n, partial(reduce.reduce_f32, x, out, codes.MEAN, 256, 256, 1))
    geometry = pool.pool_geometry(1, 16, 64, 64, 64, 64, (3, 3), (1, 1), (1, 1, 1, 1))
    yield Probe("vector/pool", 4.0 * n * 10, partial(pool.max_pool_f32, x, out, geometry))
    yield _resize(rng)


def _resize(rng: np.random.Generator) -> Probe:
    taps = resize.resize_axis(32, 64, 2.0, "linear")
    x, out = random_f32(rng, 16 * 32 * 32), np.empty(16 * 64 * 64, np.float32)
    scratch = np.empty(32, np.float32)
    call = partial(resize.resize_f32, x, out, scratch, taps.index, taps.weight, taps.index, taps.weight, 16, 32, 32, 64, 64)
    return Probe("vector/resize", 4.0 * (x.size + out.size), call)
