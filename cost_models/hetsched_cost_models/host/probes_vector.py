"""The calls of arithmetic and movement that are timed on the host; as :mod:`hetsched_cost_models.host.probes`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from hetsched_cost_models.host.probes import Probe, aligned, random_f32
from hetsched_cost_models.host.probes_cold import Cold
from hetsched_kernels import (
    binary,
    broadcast,
    chain,
    codes,
    elementwise,
    gather,
    local_response,
    movement,
    nhwc,
    nhwc_plain,
    norm,
    pool,
    quantize,
    reduce,
    resize,
    softmax,
)  # fmt: skip
from hetsched_kernels.arrays import NO_F32

#: Elements: what fits a core's own cache, and what does not.
SIZES = (1 << 15, 1 << 18)


def vector_probes(rng: np.random.Generator) -> Iterator[Probe]:
    """Everything that is not matrix work; ``work`` is bytes read and written."""
    for n in SIZES:
        yield from _plain(rng, n)
    yield from _reductions(rng)
    yield from _shaped(rng)
    yield from _softmax(rng)
    for scale in (2, 4):
        yield from _resize(rng, scale)


def _plain(rng: np.random.Generator, n: int) -> Iterator[Probe]:
    """Operators that go through memory once, and copies."""
    x, y, out = random_f32(rng, n), random_f32(rng, n), np.empty(n, np.float32)
    flat, unit = np.array([n], np.int64), np.ones(1, np.int64)
    yield Probe("vector/elementwise", 12.0 * n, Cold(binary.binary_f32, (x, y, out, codes.ADD, flat, unit, unit), (1,), (2,)))
    yield Probe("vector/elementwise", 8.0 * n, Cold(elementwise.unary_f32, (x, out, codes.RELU, 0.0, 0.0), (), (1,)))
    yield _chain(x, out)
    one, zero, stored = np.full(1, 0.05, np.float32), np.full(1, 128, np.int32), np.empty(n, np.uint8)
    yield Probe("vector/convert", 5.0 * n, Cold(quantize.quantize_linear, (x, stored, one, zero, 1, 1, n, False), (), (1,)))
    yield Probe("vector/convert", 5.0 * n, Cold(quantize.dequantize_linear, (stored, out, one, zero, 1, 1, n), (), (1,)))
    yield Probe("vector/gelu", 8.0 * n, Cold(elementwise.unary_f32, (x, out, codes.GELU, 0.0, 0.0), (), (1,)))
    yield Probe("vector/transcendental", 8.0 * n, Cold(elementwise.unary_f32, (x, out, codes.UNARY["Tanh"], 0.0, 0.0), (), (1,)))
    yield Probe("vector/transcendental", 8.0 * n, Cold(elementwise.unary_f32, (x, out, codes.SIGMOID, 0.0, 0.0), (), (1,)))
    ones = np.ones(256, np.float32)
    yield Probe("vector/norm", 8.0 * n, Cold(norm.layer_norm_f32, (x, ones, ones, out, n // 256, 256, 1e-5), (), (3,)))
    bits, target = x.view(np.uint32), out.view(np.uint32)
    yield Probe("vector/copy", 8.0 * n, Cold(movement.copy_strided, (bits, 0, unit, target, 0, unit, flat), (), (3,)))
    # Heads of attention: [rows, 6, 64] to [6, rows, 64], and a plain matrix.
    rows = n // 384
    heads, source = np.array([6, rows, 64], np.int64), np.array([64, 384, 1], np.int64)
    gone = np.array([64 * rows, 64, 1], np.int64)
    yield Probe("vector/transpose", 8.0 * 384 * rows, Cold(movement.copy_strided, (bits, 0, source, target, 0, gone, heads), (), (3,)))
    side = 1 << (n.bit_length() // 2)
    square, across, along = np.array([n // side, side], np.int64), np.array([1, n // side], np.int64), np.array([side, 1], np.int64)
    yield Probe("vector/transpose", 8.0 * n, Cold(movement.copy_strided, (bits, 0, across, target, 0, along, square), (), (3,)))


def _reductions(rng: np.random.Generator) -> Iterator[Probe]:
    x, out = random_f32(rng, 1 << 17), np.empty(1 << 17, np.float32)
    for outer, axis, inner in ((384, 196, 1), (64, 1024, 1), (1, 256, 256)):
        size = outer * axis * inner
        part = x[:size]
        yield Probe("vector/reduce", 4.0 * size, partial(reduce.reduce_f32, part, out, codes.MEAN, outer, axis, inner))
        yield Probe("vector/maximum", 4.0 * size, partial(reduce.reduce_f32, part, out, codes.REDUCE["ReduceMax"], outer, axis, inner))


def _shaped(rng: np.random.Generator) -> Iterator[Probe]:
    """Repeated operands, comparisons, look-ups."""
    for channels, inner in ((384, 225), (96, 784)):
        x, y, out = random_f32(rng, channels * inner), random_f32(rng, channels), np.empty(channels * inner, np.float32)
        shape, strides = broadcast.broadcast_plan((channels, inner), (channels, 1))
        call = Cold(binary.binary_f32, (x, y, out, codes.BINARY["Mul"], shape, *strides), (), (2,))
        yield Probe("vector/broadcast", 4.0 * (2 * x.size + channels), call)
    rows, columns = rng.integers(0, 256, 256), rng.integers(0, 256, 257)
    one_hot = np.empty(rows.size * columns.size, np.bool_)
    shape, strides = broadcast.broadcast_plan((256, 1), (1, 257))
    compare = binary.compare.compile(np.dtype(np.int64))
    # Counted as the work model counts it: what is repeated is read again for every element.
    counted = one_hot.size * (1.0 + 2 * 4.0) + 4.0 * (rows.size + columns.size)
    yield Probe("vector/compare", counted, partial(compare, rows, columns, one_hot, codes.COMPARE["Equal"], shape, *strides))
    table, ids, found = np.zeros(4096 * 384, np.uint32), rng.integers(0, 4096, 96), np.empty(96 * 384, np.uint32)
    look_up = gather.gather.compile(np.dtype(np.uint32), np.dtype(np.int64))
    yield Probe("vector/gather", 8.0 * found.size, partial(look_up, table, ids, found, 1, 4096, 384))
    yield from _of_images(rng)


def _of_images(rng: np.random.Generator) -> Iterator[Probe]:
    """Pools, local responses, and sums of 8-bit images, channels last."""
    for channels, side, stride in ((64, 56, 2), (192, 14, 1)):
        x = aligned(random_f32(rng, channels * side * side + nhwc.SLACK))
        rows = side // stride
        out = aligned(np.zeros(channels * rows * rows, np.float32))
        geometry = pool.pool_geometry(1, channels, side, side, rows, rows, (3, 3), (stride, stride), (1, 1, 1, 1))
        counted = 4.0 * (x.size + 9 * out.size)  # as the work model counts: a window's other elements are read for every result
        yield Probe("vector/pool_last", counted, Cold(nhwc_plain.max_pool_nhwc_f32, (x, out, geometry, 0, rows), (), (1,)))
        yield Probe("vector/pool", counted, Cold(pool.max_pool_f32, (x, out, geometry), (), (1,)))
        yield Probe("vector/average", counted, Cold(pool.average_pool_f32, (x, out, geometry, False), (), (1,)))
    for channels, inner in ((64, 784), (160, 196)):
        x, out = random_f32(rng, channels * inner), np.empty(channels * inner, np.float32)
        args = (x, out, channels, inner, 5, 2e-5, 0.75, 1.0, 0, channels)
        yield Probe("vector/response", 8.0 * x.size, Cold(local_response.local_response_f32, args, (), (1,)))
    for n in SIZES:
        a, b = (aligned(rng.integers(0, 256, n).astype(np.uint8)) for _ in range(2))
        sums = (a, b, np.empty(n, np.uint8), 0.5, 0.5, 0.0, 0, 255, 128, 0, n)
        yield Probe("vector/image", 3.0 * n, Cold(nhwc_plain.add_u8, sums, (1,), (2,)))


def _softmax(rng: np.random.Generator) -> Iterator[Probe]:
    """Attention weights, with and without the mask of padded tokens."""
    for heads, tokens in ((8, 64), (12, 128), (2, 400)):
        rows = heads * tokens
        x, out, mask = random_f32(rng, rows * tokens), np.empty(rows * tokens, np.float32), np.zeros(tokens, np.float32)
        where = softmax.mask_plan((1, 1, 1, tokens), (1, heads, tokens, tokens))
        none = np.zeros(0, np.int64)
        yield Probe("vector/softmax", 8.0 * x.size, Cold(softmax.softmax_f32, (x, NO_F32, out, rows, tokens, 1.0, none), (), (2,)))
        masked = Cold(softmax.softmax_f32, (x, mask, out, rows, tokens, 0.125, where), (), (2,))
        yield Probe("vector/masked", 8.0 * x.size + 4.0 * tokens, masked)


def _chain(x: Any, out: Any) -> Probe:
    """X * scale + shift, per channel, then a residual: what fusion leaves of mobile nets and transformers."""
    channels, inner = 64, x.size // 64
    scale, shift = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    wide, narrow = chain.Operand(1, x.size), chain.Operand(inner, channels)
    steps = [chain.Step(codes.MUL, (0, 1)), chain.Step(codes.ADD, (3, 2)), chain.Step(codes.ADD, (4, 0))]
    compiled = chain.compile_chain(steps, [wide, narrow, narrow])
    where, scratch = chain.addresses([x, scale, shift]), np.empty(max(1, compiled.scratch), np.float32)

    kept = (x, scale, shift)  # the kernel knows them by address only

    def run(program: Any, parameters: Any, addresses: Any, out: Any, scratch: Any, kept: Any) -> None:
        chain.chain_f32(program, parameters, addresses, out, scratch)

    return Probe("vector/chain", 8.0 * x.size, Cold(run, (compiled.program, compiled.parameters, where, out, scratch, kept), (), (3,)))


def _resize(rng: np.random.Generator, scale: int) -> Iterator[Probe]:
    """32 channels to 64 x 64."""
    small = 64 // scale
    x, out = random_f32(rng, 32 * small * small), np.empty(32 * 64 * 64, np.float32)
    moved, dims = 4.0 * (x.size + out.size), (32, small, small, 64, 64)
    linear, nearest = (resize.resize_axis(small, 64, float(scale), mode) for mode in ("linear", "nearest"))
    taps = (linear.index, linear.weight, linear.index, linear.weight)
    yield Probe("vector/resize", moved, Cold(resize.resize_f32, (x, out, np.empty(small, np.float32), *taps, *dims), (), (1,)))
    copy = resize.resize_nearest.compile(np.dtype(np.uint32))
    yield Probe(
        "vector/nearest", moved, Cold(copy, (x.view(np.uint32), out.view(np.uint32), nearest.index, nearest.index, *dims), (), (1,))
    )


def dispatches(rng: np.random.Generator) -> Iterator[Callable[[], Any]]:
    """Small calls of the usual kinds, whose time is the cost of a dispatch; each gets a time stamp, as a worker gives it."""
    x, y, out = random_f32(rng, 16), random_f32(rng, 16), np.empty(16, np.float32)
    flat, unit = np.array([16], np.int64), np.ones(1, np.int64)
    bits, target = x.view(np.uint32), out.view(np.uint32)
    calls: tuple[tuple[Any, tuple[Any, ...]], ...] = (
        (elementwise.unary_f32.compile(), (x, out, codes.RELU, 0.0, 0.0)),
        (binary.binary_f32.compile(), (x, y, out, codes.ADD, flat, unit, unit)),
        (movement.copy_strided.compile(np.dtype(np.uint32)), (bits, 0, unit, target, 0, unit, flat)),
        (reduce.reduce_f32.compile(), (x, out, codes.MEAN, 1, 16, 1)),
        (norm.layer_norm_f32.compile(), (x, y, y, out, 1, 16, 1e-5)),
    )
    for function, args in calls:
        yield partial(_stamped, function, args, [])


def _stamped(function: Callable[..., Any], args: tuple[Any, ...], stamps: list[int]) -> None:
    function(*args)
    stamps.append(time.perf_counter_ns())
