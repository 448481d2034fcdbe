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

from hetsched_kernels import binary, chain, codes, conv, elementwise, gemm, movement, norm, pool, quantize, reduce, resize, softmax
from hetsched_kernels.arrays import NO_F32

NO_ACTIVATION = (codes.NONE, 0.0, 0.0)
TYPICAL_ACTIVATION = (codes.HARD_SWISH, 0.0, 0.0)
#: (input channels, output channels, height and width, kernel, stride, groups, class): early and late layers of mobile nets
CONVOLUTIONS = (
    (16, 32, 112, 1, 1, 1, "conv1x1"), (64, 128, 28, 1, 1, 1, "conv1x1"), (384, 96, 14, 1, 1, 1, "conv1x1"),
    (3, 32, 112, 3, 2, 1, "conv"), (64, 64, 28, 3, 1, 1, "conv"), (96, 24, 56, 3, 1, 1, "conv"),
    (64, 64, 28, 3, 1, 4, "grouped"), (128, 128, 14, 3, 1, 8, "grouped"),
    (32, 32, 112, 3, 1, 32, "depthwise"), (96, 96, 56, 3, 2, 96, "depthwise"), (192, 192, 14, 5, 1, 192, "depthwise"),
)  # fmt: skip
#: (rows, columns, depth) of products with constant weights
PRODUCTS = ((128, 384, 384), (128, 1536, 384))

#: (batch, rows, columns, depth) of products of two activations: attention scores and their use
PAIRS = ((12, 128, 128, 32), (6, 384, 384, 64), (6, 384, 64, 384))


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
    for c, o, size, k, stride, groups, cls in CONVOLUTIONS:
        yield _conv_f32(rng, cls, c, o, size, k, stride, groups)
    for m, n, k in PRODUCTS:
        yield _gemm_f32(rng, m, n, k)
    for batch, m, n, k in PAIRS:
        yield _matmul_f32(rng, batch, m, n, k)


def square_geometry(c: int, o: int, size: int, k: int, stride: int, groups: int) -> tuple[Any, int]:
    """The kernels' descriptor of a convolution on a square image, and the size of its output."""
    pad = k // 2
    out = (size + 2 * pad - k) // stride + 1
    return conv.conv_geometry(1, c, size, size, o, k, k, (stride, stride), (pad, pad, pad, pad), (1, 1), groups), out


def _conv_f32(rng: np.random.Generator, cls: str, c: int, o: int, size: int, k: int, stride: int, groups: int) -> Probe:
    geometry, side = square_geometry(c, o, size, k, stride, groups)
    x, out = random_f32(rng, c * size * size), np.empty(o * side * side, np.float32)
    w = conv.pack_conv_f32(random_f32(rng, o * (c // groups) * k * k).reshape(o, c // groups, k, k), groups)
    scratch = np.empty(max(1, conv.conv2d_f32_scratch(geometry)), np.float32)
    call = partial(conv.conv2d_f32, x, w, random_f32(rng, o), out, scratch, geometry, *TYPICAL_ACTIVATION)
    return Probe(f"{cls}/f32", 2.0 * o * side * side * (c // groups) * k * k, call)


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
    yield _chain(x, out)
    one, zero, stored = np.full(1, 0.05, np.float32), np.full(1, 128, np.int32), np.empty(n, np.uint8)
    yield Probe("vector/convert", 5.0 * n, partial(quantize.quantize_linear, x, stored, one, zero, 1, 1, n, False))
    yield Probe("vector/convert", 5.0 * n, partial(quantize.dequantize_linear, stored, out, one, zero, 1, 1, n))
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


def _chain(x: Any, out: Any) -> Probe:
    """X * scale + shift, per channel, then a residual: what fusion leaves of mobile nets and transformers."""
    channels, inner = 64, x.size // 64
    scale, shift = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    wide, narrow = chain.Operand(1, x.size), chain.Operand(inner, channels)
    steps = [chain.Step(codes.MUL, (0, 1)), chain.Step(codes.ADD, (3, 2)), chain.Step(codes.ADD, (4, 0))]
    compiled = chain.compile_chain(steps, [wide, narrow, narrow])
    where, scratch = chain.addresses([x, scale, shift]), np.empty(max(1, compiled.scratch), np.float32)

    def call(kept: Any = (x, scale, shift)) -> None:
        chain.chain_f32(compiled.program, compiled.parameters, where, out, scratch)

    return Probe("vector/chain", 8.0 * x.size, call)


def _resize(rng: np.random.Generator) -> Probe:
    taps = resize.resize_axis(32, 64, 2.0, "linear")
    x, out = random_f32(rng, 16 * 32 * 32), np.empty(16 * 64 * 64, np.float32)
    scratch = np.empty(32, np.float32)
    call = partial(resize.resize_f32, x, out, scratch, taps.index, taps.weight, taps.index, taps.weight, 16, 32, 32, 64, 64)
    return Probe("vector/resize", 4.0 * (x.size + out.size), call)
