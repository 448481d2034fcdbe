"""The INT8 kernel calls that are timed on the host; as :mod:`hetsched_cost_models.host.probes`.

Convolutions and products are timed as models with Q/DQ nodes run them (8 bits in, 8 bits out) and, under a name of their own
and for some shapes, as float models that are planned as quantized (float in and out, quantized when they arrive): those run other
kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hetsched_cost_models.host.probes import (
    CONVOLUTIONS,
    NO_ACTIVATION,
    PAIRS,
    PRODUCTS,
    TYPICAL_ACTIVATION,
    Probe,
    Shape,
    aligned,
    random_f32,
)
from hetsched_cost_models.host.probes_cold import Cold
from hetsched_cost_models.parameters import DYNAMIC
from hetsched_kernels import conv_i8, gemm, gemm_i8, matmul_i8, nhwc, nhwc_conv, nhwc_depthwise, quantize


def integer_probes(rng: np.random.Generator) -> Iterator[Probe]:
    """Convolutions and products on 8-bit integers."""
    seen: dict[str, int] = {}
    for shape in CONVOLUTIONS:
        yield _conv_static(rng, shape)
        seen[shape.cls] = seen.get(shape.cls, 0) + 1
        if seen[shape.cls] <= 2:
            yield _conv_dynamic(rng, shape)
    for m, n, k in PRODUCTS:
        yield _gemm_dynamic(rng, m, n, k)
        yield _gemm_static(rng, m, n, k)
    for batch, m, n, k in PAIRS:
        yield _matmul_static(rng, batch, m, n, k)


def _conv_weights(rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
    packed = conv_i8.pack_conv_i8(rng.integers(-127, 128, shape.window).astype(np.int8), shape.groups, None)
    return packed.data, packed.sums, packed.zeros


def _conv_static(rng: np.random.Generator, shape: Shape) -> Probe:
    if shape.is_image:
        return Probe(f"{shape.cls}/i8", shape.operations, _image_call(rng, shape), shape.moved(1), shape.outputs)
    geometry, weights = shape.geometry, _conv_weights(rng, shape)
    x, out = rng.integers(0, 256, shape.inputs).astype(np.uint8), np.empty(shape.outputs, np.uint8)
    scales, bias = np.full(shape.o, 1e-4, np.float32), random_f32(rng, shape.o)
    scratch = np.empty(max(1, conv_i8.conv2d_i8_scratch(geometry)), np.uint8)
    tail = (out, scratch, geometry, 128, False, *NO_ACTIVATION, 0.05, 128, False)
    call = Cold(conv_i8.conv2d_i8_q8, (x, *weights, scales, bias, *tail), (1,), (6,))
    return Probe(f"{shape.cls}/i8", shape.operations, call, shape.moved(1), shape.outputs)


def _image_call(rng: np.random.Generator, shape: Shape) -> Cold:
    """A static convolution of an image that is kept channels last."""
    geometry, w = shape.geometry, rng.integers(-127, 128, shape.window).astype(np.int8)
    x, out = aligned(rng.integers(0, 256, shape.inputs + nhwc.SLACK).astype(np.uint8)), aligned(np.zeros(shape.outputs, np.uint8))
    factors, shifts, ends = np.full(shape.o, 1e-3, np.float32), random_f32(rng, shape.o), (0, 255)
    if shape.groups > 1:
        packed = (*nhwc_depthwise.pack_depthwise_nhwc(w, 128), nhwc_depthwise.terms(factors), nhwc_depthwise.terms(shifts))
        scratch, rows = aligned(np.zeros(nhwc_depthwise.depthwise_nhwc_scratch(geometry), np.uint8)), int(geometry[16])
        args = (x, *map(aligned, packed), out, scratch, geometry, 128, *ends, 128, 0, rows)
        return Cold(nhwc_depthwise.depthwise_nhwc_i8, args, (1,), (5,))
    packed = (*nhwc_conv.pack_conv_nhwc(w, 128), nhwc_conv.terms(factors), nhwc_conv.terms(shifts))
    scratch, positions = aligned(np.zeros(nhwc_conv.conv2d_nhwc_scratch(geometry), np.uint8)), shape.outputs // shape.o
    tail = (out, scratch, geometry, shape.c, 128, *NO_ACTIVATION, *ends, 1.0, 128, 0, positions)
    return Cold(nhwc_conv.conv2d_nhwc_i8, (x, *map(aligned, packed), *tail), (1,), (5,))


def _conv_dynamic(rng: np.random.Generator, shape: Shape) -> Probe:
    geometry, weights = shape.geometry, _conv_weights(rng, shape)
    x, stored = random_f32(rng, shape.inputs), np.empty(shape.inputs, np.uint8)
    x_scale, x_zero, out = np.empty(1, np.float32), np.empty(1, np.int32), np.empty(shape.outputs, np.float32)
    scales, bias = np.full(shape.o, 1e-4, np.float32), random_f32(rng, shape.o)
    scratch = np.empty(max(1, conv_i8.conv2d_i8_scratch(geometry)), np.uint8)

    def call() -> None:
        quantize.quantize_rows(x, stored, x_scale, x_zero, 1, x.size, False, False)
        conv_i8.conv2d_i8_f32(stored, *weights, scales, bias, out, scratch, geometry, int(x_zero[0]), False, *TYPICAL_ACTIVATION)

    return Probe(f"{shape.cls}/{DYNAMIC}", shape.operations, call, shape.moved(4), shape.outputs)


def _product_weights(rng: np.random.Generator, n: int, k: int) -> tuple[tuple[Any, ...], Any]:
    packed = gemm_i8.pack_b_i8(rng.integers(-127, 128, (k, n)).astype(np.int8), False, None)
    return (packed.data, packed.sums, packed.zeros), np.full(n, 1e-3, np.float32)


def _gemm_dynamic(rng: np.random.Generator, m: int, n: int, k: int) -> Probe:
    x, stored = random_f32(rng, m * k), np.empty(m * k, np.uint8)
    scales, zeros = np.empty(m, np.float32), np.empty(m, np.int32)
    weights, b_scales = _product_weights(rng, n, k)
    out, scratch, bias = np.empty(m * n, np.float32), np.empty(max(1, gemm_i8.gemm_i8_scratch(m, n, k)), np.uint8), random_f32(rng, n)

    def call() -> None:
        quantize.quantize_rows(x, stored, scales, zeros, m, k, False, False)
        gemm_i8.gemm_i8_f32(stored, scales, zeros, *weights, b_scales, bias, out, scratch, m, n, k, False, *NO_ACTIVATION)

    return Probe(f"gemm/{DYNAMIC}", 2.0 * m * n * k, call, 4.0 * (m * k + m * n), m * n)


def _gemm_static(rng: np.random.Generator, m: int, n: int, k: int) -> Probe:
    x, scales, zeros = rng.integers(0, 256, m * k).astype(np.uint8), np.full(1, 0.01, np.float32), np.full(1, 128, np.int32)
    weights, b_scales = _product_weights(rng, n, k)
    out, scratch = np.empty(m * n, np.uint8), np.empty(max(1, gemm_i8.gemm_i8_scratch(m, n, k)), np.uint8)
    tail = (random_f32(rng, n), out, scratch, m, n, k, False, *NO_ACTIVATION, 0.05, 128, False)
    call = Cold(gemm_i8.gemm_i8_q8, (x, scales, zeros, *weights, b_scales, *tail), (3,), (8,))
    return Probe("gemm/i8", 2.0 * m * n * k, call, float(m * k + m * n), m * n)


def _matmul_static(rng: np.random.Generator, batch: int, m: int, n: int, k: int) -> Probe:
    a, b = (rng.integers(0, 256, batch * size).astype(np.uint8) for size in (m * k, k * n))
    a_at, b_at = gemm.batch_offsets((batch, m, k), (batch, k, n))
    out, scratch = np.empty(batch * m * n, np.uint8), np.empty(matmul_i8.matmul_i8_scratch(m, n, k), np.uint8)
    shape = gemm.matmul_shape(m, n, k)
    tail = (out, scratch, shape, 1e-4, 128, 128, False, False, *NO_ACTIVATION, 0.05, 128, False)
    call = Cold(matmul_i8.matmul_i8_q8, (a, a_at, b, b_at, *tail), (), (4,))
    return Probe("matmul/i8", 2.0 * batch * m * n * k, call, float(a.size + b.size + out.size), out.size)
