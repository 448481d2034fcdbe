"""The INT8 kernel calls that are timed on the host; as :mod:`hetsched_cost_models.host.probes`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from hetsched_cost_models.host.probes import (
    CONVOLUTIONS,
    NO_ACTIVATION,
    PAIRS,
    PRODUCTS,
    TYPICAL_ACTIVATION,
    Probe,
    random_f32,
    square_geometry,
)
from hetsched_kernels import conv_i8, gemm, gemm_i8, matmul_i8, quantize


def integer_probes(rng: np.random.Generator) -> Iterator[Probe]:
    """Convolutions and products on 8-bit integers; ``work`` is operations (two a MAC)."""
    for c, o, size, k, stride, groups, cls in CONVOLUTIONS:
        yield _conv_i8(rng, cls, c, o, size, k, stride, groups)
    for m, n, k in PRODUCTS:
        yield _gemm_i8(rng, m, n, k)
    for batch, m, n, k in PAIRS:
        yield _matmul_i8(rng, batch, m, n, k)


def _conv_i8(rng: np.random.Generator, cls: str, c: int, o: int, size: int, k: int, stride: int, groups: int) -> Probe:
    geometry, side = square_geometry(c, o, size, k, stride, groups)
    x = rng.integers(0, 256, c * size * size).astype(np.uint8)
    packed = conv_i8.pack_conv_i8(rng.integers(-127, 128, (o, c // groups, k, k)).astype(np.int8), groups, None)
    out, scales = np.empty(o * side * side, np.float32), np.full(o, 0.01, np.float32)
    scratch = np.empty(max(1, conv_i8.conv2d_i8_scratch(geometry)), np.uint8)
    weights, bias = (packed.data, packed.sums, packed.zeros), random_f32(rng, o)
    call = partial(conv_i8.conv2d_i8_f32, x, *weights, scales, bias, out, scratch, geometry, 128, False, *TYPICAL_ACTIVATION)
    return Probe(f"{cls}/i8", 2.0 * o * side * side * (c // groups) * k * k, call)


def _gemm_i8(rng: np.random.Generator, m: int, n: int, k: int) -> Probe:
    x, stored = random_f32(rng, m * k), np.empty(m * k, np.uint8)
    scales, zeros = np.empty(m, np.float32), np.empty(m, np.int32)
    packed = gemm_i8.pack_b_i8(rng.integers(-127, 128, (k, n)).astype(np.int8), False, None)
    out, scratch = np.empty(m * n, np.float32), np.empty(max(1, gemm_i8.gemm_i8_scratch(m, n, k)), np.uint8)
    weights, b_scales, bias = (packed.data, packed.sums, packed.zeros), np.full(n, 0.01, np.float32), random_f32(rng, n)

    def call() -> None:
        quantize.quantize_rows(x, stored, scales, zeros, m, k, False, False)
        gemm_i8.gemm_i8_f32(stored, scales, zeros, *weights, b_scales, bias, out, scratch, m, n, k, False, *NO_ACTIVATION)

    return Probe("gemm/i8", 2.0 * m * n * k, call)


def _matmul_i8(rng: np.random.Generator, batch: int, m: int, n: int, k: int) -> Probe:
    a, b = (rng.integers(0, 256, batch * size).astype(np.uint8) for size in (m * k, k * n))
    a_at, b_at = gemm.batch_offsets((batch, m, k), (batch, k, n))
    out, scratch = np.empty(batch * m * n, np.float32), np.empty(matmul_i8.matmul_i8_scratch(m, n, k), np.uint8)
    shape = gemm.matmul_shape(m, n, k)
    call = partial(matmul_i8.matmul_i8_f32, a, a_at, b, b_at, out, scratch, shape, 0.01, 128, 128, False, False, *NO_ACTIVATION)
    return Probe("matmul/i8", 2.0 * batch * m * n * k, call)
