"""Twins of the channels-last kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_kernels import codes, conv_transpose_nhwc, nhwc, nhwc_conv, nhwc_conv_f32, nhwc_depthwise, nhwc_plain, pool, winograd
from hetsched_kernels.arrays import NO_F32, Array
from hetsched_kernels.comparison import Comparison, Draw, bytes_of, flat, floats, poisoned
from hetsched_kernels.comparison_products import ACTIVATIONS, convolution, quantized, window
from hetsched_kernels.window import conv_geometry, conv_output


def _within(value: Array, zero: int, low: int, high: int) -> Array:
    """A byte as the kernels round it: half to even, the zero point added afterwards."""
    q: Array = np.clip(np.rint(np.clip(value, np.float32(low - zero), np.float32(high - zero))) + zero, low, high).astype(np.uint8)
    return q


def last(x: Array) -> Array:
    """[n, c, h, w] as flat channels-last bytes, with what may be read beyond the end."""
    return np.concatenate([flat(x.transpose(0, 2, 3, 1)), poisoned(nhwc.SLACK, np.uint8)])


def _padded(stored: Array, geometry: Array, value: int) -> Array:
    """The image with its padding around it, and what may be read beyond the end."""
    n, c, h, w = (int(v) for v in geometry[:4])
    top, left, bottom, right = (int(v) for v in geometry[9:13])
    out = poisoned(n * (h + top + bottom) * (w + left + right) * c + nhwc.SLACK, stored.dtype)
    out[-nhwc.SLACK :] = 0
    nhwc.pad_nhwc(stored, out, n, h, w * c, top, bottom, left * c, right * c, np.full(1, value, stored.dtype))
    return out


def _range(draw: Draw) -> tuple[int, int]:
    return draw.choice([(0, 255), (3, 255), (0, 200), (17, 99)])


def _conv(draw: Draw) -> tuple[Array, Array]:
    return _conv_of(draw, window(draw) | {"groups": 1, "m": draw.integer(1, 130)})


def _conv_in_tiles(draw: Draw) -> tuple[Array, Array]:
    """Shapes that tile registers take, where there are any: no padding, no strides, whole steps of channels."""
    s: dict[str, Any] = {"n": draw.integer(1, 2), "c": draw.choice([16, 30, 64, 96, 128])}
    s |= {"h": draw.integer(3, 11), "w": draw.integer(3, 11)}
    s |= {"m": draw.integer(1, 100), "kh": draw.integer(1, 3), "kw": draw.integer(1, 3), "strides": (1, 1), "pads": (0, 0, 0, 0)}
    return _conv_of(draw, s | {"dilations": (1, 1), "groups": 1})


def _conv_of(draw: Draw, s: dict[str, Any]) -> tuple[Array, Array]:
    x, zero = bytes_of(draw, np.uint8, s["n"], s["c"], s["h"], s["w"]), int(bytes_of(draw, np.uint8))
    w = bytes_of(draw, np.int8, s["m"], s["c"], s["kh"], s["kw"])
    geometry = conv_geometry(**s)
    exact = convolution(x.astype(np.int64) - zero, w.astype(np.int64), s["strides"], s["pads"], s["dilations"], 1).astype(np.int32)
    factors = (draw.rng.random(s["m"]) * 0.01 + 0.0005).astype(np.float32)
    shifts = floats(draw, s["m"], scale=20.0)
    value = exact.astype(np.float32) * factors[:, None, None] + shifts[:, None, None]
    name, (low, high), out_zero = draw.choice(sorted({*ACTIVATIONS} - {"Tanh"})), _range(draw), draw.integer(0, 255)
    clamps = name in ("", "Relu", "Clip")
    expected = _within(value, out_zero, low, high) if clamps else quantized(ACTIVATIONS[name](value), np.float32(0.25), out_zero, False)
    positions = int(s["n"] * np.prod(conv_output(geometry)))
    out, scratch = poisoned(expected.size, np.uint8), poisoned(nhwc_conv.conv2d_nhwc_scratch(geometry), np.uint8)
    packed = nhwc_conv.pack_conv_nhwc(w, zero)
    middle, stored, pixel = draw.integer(0, positions), last(x), s["c"]
    if nhwc.worth_padding(geometry) and draw.choice([True, False]):
        stored, geometry = _padded(stored, geometry, zero), nhwc.padded(geometry)
        scratch = poisoned(nhwc_conv.conv2d_nhwc_scratch(geometry), np.uint8)
    terms = nhwc_conv.terms(factors), nhwc_conv.terms(shifts)
    if s["dilations"][1] == 1 and draw.choice([True, False]):
        stored, packed = _padded(stored, geometry, zero), nhwc_conv.pack_conv_nhwc(nhwc.widened_weights(w), zero)
        geometry = nhwc.widened(geometry)
        scratch = poisoned(nhwc_conv.conv2d_nhwc_scratch(geometry), np.uint8)
    for first, end in ((middle, positions), (0, middle)):
        nhwc_conv.conv2d_nhwc_i8(
            stored, *packed, *terms, out, scratch, geometry, pixel, zero, codes.ACTIVATION[name], -0.5, 0.75, low, high,
            np.float32(0.25), out_zero, first, end,
        )  # fmt: skip
    return out, flat(expected.transpose(0, 2, 3, 1))


def _depthwise(draw: Draw) -> tuple[Array, Array]:
    s: dict[str, Any] = window(draw)
    c = draw.integer(1, 150)
    s |= {"c": c, "m": c, "groups": c}
    x, zero = bytes_of(draw, np.uint8, s["n"], c, s["h"], s["w"]), int(bytes_of(draw, np.uint8))
    w = bytes_of(draw, np.int8, c, 1, s["kh"], s["kw"])
    geometry = conv_geometry(**s)
    exact = convolution(x.astype(np.int64) - zero, w.astype(np.int64), s["strides"], s["pads"], s["dilations"], c).astype(np.int32)
    factors, shifts = (draw.rng.random(c) * 0.01 + 0.0005).astype(np.float32), floats(draw, c, scale=20.0)
    (low, high), out_zero = _range(draw), draw.integer(0, 255)
    expected = _within(exact.astype(np.float32) * factors[:, None, None] + shifts[:, None, None], out_zero, low, high)
    out, scratch = poisoned(expected.size, np.uint8), poisoned(nhwc_depthwise.depthwise_nhwc_scratch(geometry), np.uint8)
    packed = nhwc_depthwise.pack_depthwise_nhwc(w, zero)
    rows = s["n"] * conv_output(geometry)[0]
    middle = draw.integer(0, rows)
    for first, end in ((middle, rows), (0, middle)):
        nhwc_depthwise.depthwise_nhwc_i8(
            last(x), *packed, nhwc_depthwise.terms(factors), nhwc_depthwise.terms(shifts), out, scratch, geometry, zero, low, high,
            out_zero, first, end,
        )  # fmt: skip
    return out, flat(expected.transpose(0, 2, 3, 1))


def _conv_f32(draw: Draw) -> tuple[Array, Array]:
    s: dict[str, Any] = window(draw)
    c = draw.integer(1, 150) if draw.choice([True, False]) else 0
    s |= {"c": c, "m": c, "groups": c} if c > 1 else {"groups": 1, "m": draw.integer(1, 130)}
    x = floats(draw, s["n"], s["c"], s["h"], s["w"])
    w = floats(draw, s["m"], s["c"] // s["groups"], s["kh"], s["kw"], scale=0.2)
    bias, geometry = floats(draw, draw.choice([0, s["m"]])), conv_geometry(**s)
    name = draw.choice(sorted(ACTIVATIONS))
    value = convolution(x.astype(np.float64), w, s["strides"], s["pads"], s["dilations"], s["groups"])
    skip = _skip(draw, value.shape) if s["groups"] == 1 else NO_F32
    expected = _activated(value, bias, skip, name)
    out, scratch = _result(draw, expected, skip), poisoned(nhwc_conv_f32.conv2d_nhwc_f32_scratch(geometry))
    packed = nhwc_conv_f32.pack_conv_nhwc_f32(w, bias, s["groups"])
    stored = np.concatenate([flat(x.transpose(0, 2, 3, 1)), np.zeros(nhwc.SLACK, np.float32)])
    positions = int(s["n"] * np.prod(conv_output(geometry)))
    middle, pixel = draw.integer(0, positions), s["c"]
    if s["groups"] == s["dilations"][1] == 1 and draw.choice([True, False]):
        stored, packed = _padded(stored, geometry, 0), nhwc_conv_f32.pack_conv_nhwc_f32(nhwc.widened_weights(w), bias)
        geometry = nhwc.widened(geometry)
        scratch = poisoned(nhwc_conv_f32.conv2d_nhwc_f32_scratch(geometry))
    for first, end in ((middle, positions), (0, middle)):
        nhwc_conv_f32.conv2d_nhwc_f32(
            stored, *packed, skip, out, scratch, geometry, pixel, codes.ACTIVATION[name], -0.5, 0.75, first, end
        )  # fmt: skip
    return out[: expected.size], flat(expected.transpose(0, 2, 3, 1))


def _skip(draw: Draw, shape: tuple[int, ...]) -> Array:
    """What is added to a result, channels last and readable beyond its end, or nothing."""
    n, m, oh, ow = shape
    return floats(draw, n * oh * ow * m + nhwc.SLACK) if draw.choice([True, False]) else NO_F32


def _activated(value: Array, bias: Array, skip: Array, name: str) -> Array:
    n, m, oh, ow = value.shape
    added = skip[: value.size].reshape(n, oh, ow, m).transpose(0, 3, 1, 2) if skip.size else 0
    result: Array = ACTIVATIONS[name](value + (bias.reshape(-1, 1, 1) if bias.size else 0) + added)
    return result


def _result(draw: Draw, expected: Array, skip: Array) -> Array:
    """Where a result goes: memory of its own, or that of what is added to it."""
    return skip if skip.size and draw.choice([True, False]) else poisoned(expected.size + nhwc.SLACK)


def _winograd(draw: Draw) -> tuple[Array, Array]:
    n, c, m = draw.integer(1, 2), draw.integer(1, 70), draw.integer(1, 130)
    h, w, pads = draw.integer(3, 14), draw.integer(3, 14), tuple(draw.integer(0, 2) for _ in range(4))
    x, kernels, bias = floats(draw, n, c, h, w), floats(draw, m, c, 3, 3, scale=0.2), floats(draw, draw.choice([0, m]))
    geometry, size, name = conv_geometry(n, c, h, w, m, 3, 3, pads=pads), draw.choice([2, 4]), draw.choice(sorted(ACTIVATIONS))
    value = convolution(x.astype(np.float64), kernels, (1, 1), pads, (1, 1), 1)
    skip = _skip(draw, value.shape)
    expected = _activated(value, bias, skip, name)
    out, tiles = _result(draw, expected, skip), winograd.winograd_tiles(geometry, size)
    stored = np.concatenate([flat(x.transpose(0, 2, 3, 1)), np.zeros(nhwc.SLACK, np.float32)])
    packed, middle = winograd.pack_winograd(kernels, bias, size), draw.integer(0, tiles)
    for first, end in ((middle, tiles), (0, middle)):
        scratch = poisoned(winograd.conv2d_winograd_scratch(geometry, size, end - first))
        winograd.conv2d_winograd_f32(stored, *packed, skip, out, scratch, geometry, size, codes.ACTIVATION[name], -0.5, 0.75, first, end)
    return out[: expected.size], flat(expected.transpose(0, 2, 3, 1))


def _conv_transpose(draw: Draw) -> tuple[Array, Array]:
    n, c, m, h, w = draw.integer(1, 2), draw.integer(1, 40), draw.integer(1, 30), draw.integer(1, 4), draw.integer(1, 20)
    kh, kw, name = draw.integer(1, 3), draw.integer(1, 3), draw.choice(sorted(ACTIVATIONS))
    x, weights, bias = floats(draw, n, h, w, c), floats(draw, c, m, kh, kw, scale=0.2), floats(draw, draw.choice([0, m]))
    value = np.einsum("nhwc,cmab->nhawbm", x.astype(np.float64), weights) + (bias if bias.size else 0)
    expected = ACTIVATIONS[name](value.reshape(-1))
    geometry = conv_transpose_nhwc.transpose_geometry(n, c, h, w, m, kh, kw, (kh, kw))
    out, middle = poisoned(expected.size + nhwc.SLACK), draw.integer(0, n * h)
    scratch = poisoned(conv_transpose_nhwc.conv_transpose2d_nhwc_f32_scratch(geometry))
    packed = conv_transpose_nhwc.pack_conv_transpose_nhwc_f32(weights, bias)
    stored = np.concatenate([flat(x), np.zeros(nhwc.SLACK, np.float32)])
    for first, end in ((middle, n * h), (0, middle)):
        conv_transpose_nhwc.conv_transpose2d_nhwc_f32(
            stored, *packed, out, scratch, geometry, codes.ACTIVATION[name], -0.5, 0.75, first, end
        )  # fmt: skip
    return out[: expected.size], expected


def _add(draw: Draw) -> tuple[Array, Array]:
    n = draw.integer(1, 300)
    a, b = bytes_of(draw, np.uint8, n), bytes_of(draw, np.uint8, n)
    fa, fb, shift = (np.float32(v) for v in draw.rng.standard_normal(3) * (1, 1, 100))
    (low, high), zero, middle = _range(draw), draw.integer(0, 255), draw.integer(0, n)
    expected = _within(a.astype(np.float32) * fa + (b.astype(np.float32) * fb + shift), zero, low, high)
    out = a if draw.choice([True, False]) else poisoned(n, np.uint8)
    for first, end in ((0, middle), (middle, n)):
        nhwc_plain.add_u8(a, b, out, fa, fb, shift, low, high, zero, first, end)
    return out, expected


def _multiply(draw: Draw) -> tuple[Array, Array]:
    rows, columns, per = draw.integer(1, 9), draw.integer(1, 90), draw.choice([1, 3])
    a, b = bytes_of(draw, np.uint8, rows, columns), bytes_of(draw, np.uint8, -(-rows // per), columns)
    za, zb, factor = np.float32(draw.integer(0, 255)), np.float32(draw.integer(0, 255)), np.float32(draw.rng.random() * 0.02)
    (low, high), zero = _range(draw), draw.integer(0, 255)
    value = (a.astype(np.float32) - za) * (b.astype(np.float32)[np.arange(rows) // per] - zb) * factor
    out, middle = poisoned(a.size, np.uint8), draw.integer(0, rows)
    for first, end in ((middle, rows), (0, middle)):
        nhwc_plain.multiply_u8(flat(a), flat(b), out, za, zb, factor, low, high, zero, columns, columns, per, first, end)
    return out.reshape(a.shape), _within(value, zero, low, high)


def _map(draw: Draw) -> tuple[Array, Array]:
    x, table = bytes_of(draw, np.uint8, draw.integer(1, 300)), bytes_of(draw, np.uint8, 256)
    out = poisoned(x.size, np.uint8)
    nhwc_plain.map_u8(x, out, table, 0, x.size)
    return out, table[x]


def _mean(draw: Draw) -> tuple[Array, Array]:
    n, c, plane = draw.integer(1, 2), draw.integer(1, 90), draw.integer(1, 60)
    x, zero = bytes_of(draw, np.uint8, n, plane, c), draw.integer(0, 255)
    factor, shift = np.float32(draw.rng.random() / plane), np.float32(draw.rng.standard_normal() * 50)
    expected = _within(x.sum(1, dtype=np.int32).astype(np.float32) * factor + shift, zero, 0, 255)
    out = poisoned(n * c, np.uint8)
    nhwc_plain.mean_nhwc_u8(flat(x), out, poisoned(c, np.int32), n, plane, c, factor, shift, zero)
    return out.reshape(n, c), expected


def _max_pool(draw: Draw) -> tuple[Array, Array]:
    n, c, h, w = draw.integer(1, 2), draw.integer(1, 90), draw.integer(3, 9), draw.integer(3, 9)
    kernel, strides = (draw.integer(1, 3), draw.integer(1, 3)), (draw.integer(1, 2), draw.integer(1, 2))
    pads = tuple(draw.integer(0, k - 1) for k in (*kernel, *kernel))
    oh, ow = ((size + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i, size in enumerate((h, w)))
    wide = draw.choice([True, False])
    x = floats(draw, n, c, h, w) if wide else bytes_of(draw, np.uint8, n, c, h, w)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=-np.inf)
    parts = [
        padded[:, :, ky : ky + (oh - 1) * strides[0] + 1 : strides[0], kx : kx + (ow - 1) * strides[1] + 1 : strides[1]]
        for ky in range(kernel[0])
        for kx in range(kernel[1])
    ]
    expected = np.maximum.reduce(parts).astype(x.dtype)
    out = poisoned(expected.size, x.dtype)
    geometry = pool.pool_geometry(n, c, h, w, oh, ow, kernel, strides, pads)
    for first, end in ((0, 1), (1, n * oh)):
        kernel = nhwc_plain.max_pool_nhwc_f32 if wide else nhwc_plain.max_pool_nhwc_u8
        kernel(flat(x.transpose(0, 2, 3, 1)), out, geometry, first, end)
    return out, flat(expected.transpose(0, 2, 3, 1))


def _orders(draw: Draw) -> tuple[Array, Array]:
    n, c, plane = draw.integer(1, 2), draw.choice([3, draw.integer(1, 90)]), draw.integer(1, 150)
    x, flip = bytes_of(draw, np.uint8, n, c, plane), draw.choice([True, False])
    there, back = poisoned(x.size, np.uint8), poisoned(x.size, np.uint8)
    nhwc.to_nhwc(flat(x), there, n, c, plane, flip)
    nhwc.from_nhwc(there, back, n, c, plane, flip)
    expected = flat(x.transpose(0, 2, 1)) ^ np.uint8(128 if flip else 0)
    return np.stack([there, back]), np.stack([expected, flat(x)])


def _orders_f32(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(1, 2), draw.integer(1, 90), draw.integer(1, 150))
    there, back = poisoned(x.size), poisoned(x.size)
    nhwc.to_nhwc_f32(flat(x), there, *x.shape)
    nhwc.from_nhwc_f32(there, back, *x.shape)
    return np.stack([there, back]), np.stack([flat(x.transpose(0, 2, 1)), flat(x)])


def _mean_f32(draw: Draw) -> tuple[Array, Array]:
    x = floats(draw, draw.integer(1, 2), draw.integer(1, 60), draw.integer(1, 90))
    out = poisoned(x.shape[0] * x.shape[2])
    nhwc_plain.mean_nhwc_f32(flat(x), out, *x.shape)
    return out.reshape(x.shape[0], x.shape[2]), x.astype(np.float64).mean(1)


TABLE = [
    Comparison("conv2d_nhwc_i8", _conv),
    Comparison("conv2d_nhwc_i8 in tiles", _conv_in_tiles),
    Comparison("depthwise_nhwc_i8", _depthwise),
    Comparison("add_u8", _add),
    Comparison("multiply_u8", _multiply),
    Comparison("map_u8", _map),
    Comparison("mean_nhwc_u8", _mean),
    Comparison("max_pool_nhwc", _max_pool),
    Comparison("to_nhwc", _orders),
    Comparison("to_nhwc_f32", _orders_f32),
    Comparison("mean_nhwc_f32", _mean_f32, 1e-5, 2e-5),
    Comparison("conv2d_nhwc_f32", _conv_f32, 1e-5, 2e-5),
    Comparison("conv_transpose2d_nhwc_f32", _conv_transpose, 1e-5, 2e-5),
    Comparison("conv2d_winograd_f32", _winograd, 1e-4, 2e-4),
]
