"""Twins of the products: gemm, matmul, convolutions, in float32 and int8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched_kernels import codes, conv, conv_i8, conv_transpose, gemm, gemm_halves, gemm_i8, halves, matmul_i8
from hetsched_kernels.arrays import NO_F32, Array
from hetsched_kernels.comparison import Comparison, Draw, bytes_of, flat, floats, poisoned
from hetsched_kernels.tile import COLS
from hetsched_kernels.window import conv_geometry, conv_output

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "": lambda v: v,
    "Relu": lambda v: np.maximum(v, 0),
    "Clip": lambda v: np.clip(v, np.float32(-0.5), np.float32(0.75)),
    "HardSwish": lambda v: v * np.clip(v / 6 + 0.5, 0, 1),
    "Tanh": np.tanh,
}


def _activation(draw: Draw) -> tuple[str, int]:
    name = draw.choice(sorted(ACTIVATIONS))
    return name, codes.ACTIVATION[name]


def _gemm_f32(draw: Draw) -> tuple[Array, Array]:
    m, n, k = draw.integer(1, 21), draw.integer(1, 130), draw.integer(0, 70)
    a, b, bias = floats(draw, m, k), floats(draw, k, n, scale=0.2), floats(draw, draw.choice([0, n]))
    name, code = _activation(draw)
    transposed = draw.choice([False, True])
    packed = gemm.pack_b_f32(b.T if transposed else b, transposed)
    out = poisoned(m * n)
    gemm.gemm_f32(flat(a), packed, bias, out, poisoned(gemm.gemm_f32_scratch(m, n, k)), m, n, k, code, -0.5, 0.75)
    value = a.astype(np.float64) @ b + (bias if bias.size else 0)
    return out.reshape(m, n), ACTIVATIONS[name](value)


def _gemm_halves(draw: Draw) -> tuple[Array, Array]:
    m, n, k = draw.integer(1, 21), draw.integer(1, 130), draw.integer(1, 70)
    a, b, bias = floats(draw, m, k), floats(draw, n, k, scale=0.2), floats(draw, draw.choice([0, n]))
    name, code = _activation(draw)
    form = draw.choice([halves.HALF, halves.BRAIN])
    brain = (b.view(np.uint32) >> 16).astype(np.uint16)
    bits = brain if form == halves.BRAIN else b.astype(np.float16).view(np.uint16)
    stored = (bits.astype(np.uint32) << 16).view(np.float32) if form == halves.BRAIN else bits.view(np.float16)
    packed, out = halves.pack_halves(bits), poisoned(m * n)
    middle = draw.integer(0, n // COLS) * COLS
    for first, last in ((0, middle), (middle, n)):
        scratch = poisoned(gemm_halves.gemm_halves_scratch(k))
        gemm_halves.gemm_halves_f32(flat(a), packed, form, bias, out, scratch, m, n, k, first, last, code, -0.5, 0.75)
    value = a.astype(np.float64) @ stored.astype(np.float64).T + (bias if bias.size else 0)
    return out.reshape(m, n), ACTIVATIONS[name](value)


def _matmul_f32(draw: Draw) -> tuple[Array, Array]:
    m, n, k = draw.integer(1, 19), draw.integer(1, 110), draw.integer(1, 40)
    lead_a, lead_b = draw.choice([((2, 3), (2, 3)), ((3,), ()), ((), (2,)), ((2, 1), (1, 3)), ((), ())])
    transposed = draw.choice([False, True])
    a = floats(draw, *lead_a, m, k)
    b = floats(draw, *lead_b, *((n, k) if transposed else (k, n)), scale=0.2)
    a_offsets, b_offsets = gemm.batch_offsets(a.shape, (*lead_b, k, n))
    shape = gemm.matmul_shape(m, n, k, b_strides=(1, k) if transposed else None)
    expected = np.matmul(a.astype(np.float64), np.swapaxes(b, -1, -2) if transposed else b)
    out = poisoned(expected.size)
    scratch = poisoned(gemm.matmul_f32_scratch(m, n, k))
    gemm.matmul_f32(flat(a), a_offsets, flat(b), b_offsets, NO_F32, out, scratch, shape, 0, 0.0, 0.0)
    return out.reshape(expected.shape), expected


def convolution(x: Array, w: Array, strides: tuple[int, int], pads: tuple[int, ...], dilations: tuple[int, int], groups: int) -> Array:
    """The definition of a convolution, tap by tap; x must already have its padding value at 0."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    n, _, h, wide = x.shape
    m, c, kh, kw = w.shape
    oh = (h - dilations[0] * (kh - 1) - 1) // strides[0] + 1
    ow = (wide - dilations[1] * (kw - 1) - 1) // strides[1] + 1
    out = np.zeros((n, m, oh, ow), x.dtype)
    for g in range(groups):
        channels, rows = slice(g * c, (g + 1) * c), slice(g * (m // groups), (g + 1) * (m // groups))
        for ky in range(kh):
            for kx in range(kw):
                y0, x0 = ky * dilations[0], kx * dilations[1]
                part = x[:, channels, y0 : y0 + (oh - 1) * strides[0] + 1 : strides[0], x0 : x0 + (ow - 1) * strides[1] + 1 : strides[1]]
                out[:, rows] += np.einsum("nchw,mc->nmhw", part, w[rows, :, ky, kx])
    return out


def window(draw: Draw) -> dict[str, Any]:
    """Random convolution sizes: plain, grouped, depthwise."""
    groups = draw.choice([1, 1, 2, 3])
    c, m = groups * draw.integer(1, 7), groups * draw.integer(1, 11)
    if draw.choice([False, False, True]):
        groups, m = c, c * draw.integer(1, 2)
    kh, kw = draw.integer(1, 5), draw.integer(1, 5)
    dilations, strides = (draw.integer(1, 2), draw.integer(1, 2)), (draw.integer(1, 3), draw.integer(1, 3))
    pads = tuple(draw.integer(0, 2) for _ in range(4))
    h, w = dilations[0] * (kh - 1) + draw.integer(1, 7), dilations[1] * (kw - 1) + draw.integer(1, 60)
    n = draw.integer(1, 2)
    return {
        "n": n, "c": c, "h": h, "w": w, "m": m, "kh": kh, "kw": kw, "strides": strides, "pads": pads, "dilations": dilations,
        "groups": groups,
    }  # fmt: skip


def _conv2d_f32(draw: Draw) -> tuple[Array, Array]:
    s = window(draw)
    x = floats(draw, s["n"], s["c"], s["h"], s["w"])
    w = floats(draw, s["m"], s["c"] // s["groups"], s["kh"], s["kw"], scale=0.2)
    bias = floats(draw, draw.choice([0, s["m"]]))
    name, code = _activation(draw)
    geometry = conv_geometry(**s)
    out = poisoned(s["n"] * s["m"] * int(np.prod(conv_output(geometry))))
    scratch = poisoned(conv.conv2d_f32_scratch(geometry))
    conv.conv2d_f32(flat(x), conv.pack_conv_f32(w, s["groups"]), bias, out, scratch, geometry, code, -0.5, 0.75)
    value = convolution(x.astype(np.float64), w, s["strides"], s["pads"], s["dilations"], s["groups"])
    value = ACTIVATIONS[name](value + (bias.reshape(-1, 1, 1) if bias.size else 0))
    return out.reshape(value.shape), value


def _conv_transpose2d_f32(draw: Draw) -> tuple[Array, Array]:
    groups = draw.choice([1, 2])
    n, c, m = draw.integer(1, 2), groups * draw.integer(1, 5), groups * draw.integer(1, 5)
    h, w, kh, kw = draw.integer(1, 5), draw.integer(1, 60), draw.integer(1, 4), draw.integer(1, 4)
    strides, dilations = (draw.integer(1, 3), draw.integer(1, 3)), (draw.integer(1, 2), draw.integer(1, 2))
    pads = tuple(draw.integer(0, min(1, k - 1)) for k in (kh, kw, kh, kw))
    extra = tuple(draw.integer(0, s - 1) for s in strides)
    x, weights, bias = floats(draw, n, c, h, w), floats(draw, c, m // groups, kh, kw), floats(draw, m)
    full = np.zeros((n, m, (h - 1) * strides[0] + (kh - 1) * dilations[0] + 4, (w - 1) * strides[1] + (kw - 1) * dilations[1] + 4))
    per = m // groups
    for g in range(groups):
        inputs = slice(g * (c // groups), (g + 1) * (c // groups))
        for ky in range(kh):
            for kx in range(kw):
                y0, x0 = ky * dilations[0], kx * dilations[1]
                part = np.einsum("nchw,cm->nmhw", x[:, inputs].astype(np.float64), weights[inputs, :, ky, kx])
                rows, cols = slice(y0, y0 + (h - 1) * strides[0] + 1, strides[0]), slice(x0, x0 + (w - 1) * strides[1] + 1, strides[1])
                full[:, g * per : (g + 1) * per, rows, cols] += part
    try:
        geometry = conv_transpose.transpose_geometry(n, c, h, w, m, kh, kw, strides, pads, extra, dilations, groups)
    except ValueError:
        return np.zeros(0), np.zeros(0)
    oh, ow = conv_output(geometry)
    expected = np.maximum(full[:, :, pads[0] : pads[0] + oh, pads[1] : pads[1] + ow] + bias.reshape(-1, 1, 1), 0)
    out = poisoned(n * m * oh * ow)
    scratch = poisoned(conv_transpose.conv_transpose2d_f32_scratch(geometry))
    packed = conv_transpose.pack_conv_transpose_f32(weights, groups)
    conv_transpose.conv_transpose2d_f32(flat(x), packed, bias, out, scratch, geometry, codes.RELU, 0.0, 0.0)
    return out.reshape(expected.shape), expected


def quantized(value: Array, scale: np.float32, zero: int, signed: bool) -> Array:
    """A fused requantization: by the reciprocal of the scale, in float32."""
    low = -128 if signed else 0
    q: Array = np.clip(np.rint(value * (np.float32(1) / scale)) + zero, low, low + 255).astype(np.int8 if signed else np.uint8)
    return q


def _gemm_i8(draw: Draw) -> dict[str, Any]:
    """Operands of any signedness with zero points per token or tensor, and the exact integer product."""
    m, n, k = draw.choice([draw.integer(1, 19), 37, 64]), draw.integer(1, 110), draw.choice([draw.integer(1, 70), 128, 144])
    a_type, b_type = draw.choice([np.uint8, np.int8]), draw.choice([np.int8, np.uint8])
    a, b = bytes_of(draw, a_type, m, k), bytes_of(draw, b_type, k, n)
    a_zeros = bytes_of(draw, a_type, draw.choice([1, m])).astype(np.int32)
    b_zeros = draw.choice([None, bytes_of(draw, b_type, 1), bytes_of(draw, b_type, n)])
    exact = (a.astype(np.int64) - a_zeros.reshape(-1, 1)) @ (b.astype(np.int64) - (0 if b_zeros is None else b_zeros.astype(np.int64)))
    packed = gemm_i8.pack_b_i8(b, zero_points=b_zeros)
    scratch = poisoned(gemm_i8.gemm_i8_scratch(m, n, k), np.uint8)
    return {"m": m, "n": n, "k": k, "a": flat(a).view(np.uint8), "signed": a_type is np.int8, "a_zeros": a_zeros, "b": packed,
    "exact": exact,
            "scratch": scratch}  # fmt: skip


def _gemm_i8_i32(draw: Draw) -> tuple[Array, Array]:
    s = _gemm_i8(draw)
    out = poisoned(s["m"] * s["n"], np.int32)
    gemm_i8.gemm_i8_i32(s["a"], s["a_zeros"], *s["b"], out, s["scratch"], s["m"], s["n"], s["k"], s["signed"])
    return out.reshape(s["m"], s["n"]), s["exact"]


def _scaled(draw: Draw, s: dict[str, Any]) -> tuple[Array, Array, Array, Array]:
    """Scales, bias, and the float32 result in the kernel's own order of operations."""
    a_scales = (draw.rng.random(s["a_zeros"].size) + 0.5).astype(np.float32)
    b_scales = (draw.rng.random(draw.choice([1, s["n"]])) * 0.01 + 0.001).astype(np.float32)
    bias = floats(draw, draw.choice([0, s["n"]]), scale=100.0)
    value = s["exact"].astype(np.float32) * (a_scales.reshape(-1, 1) * b_scales)
    value = np.maximum(value + bias if bias.size else value, np.float32(0))
    return a_scales, b_scales, bias, value


def _gemm_i8_f32(draw: Draw) -> tuple[Array, Array]:
    s = _gemm_i8(draw)
    a_scales, b_scales, bias, value = _scaled(draw, s)
    out = poisoned(value.size)
    sizes = (s["m"], s["n"], s["k"], s["signed"], codes.RELU, 0.0, 0.0)
    gemm_i8.gemm_i8_f32(s["a"], a_scales, s["a_zeros"], *s["b"], b_scales, bias, out, s["scratch"], *sizes)
    return out.reshape(value.shape), value


def _gemm_i8_q8(draw: Draw) -> tuple[Array, Array]:
    s = _gemm_i8(draw)
    a_scales, b_scales, bias, value = _scaled(draw, s)
    scale, zero, signed = np.float32(max(float(value.max()), 1.0) / 200), draw.integer(-9, 9), draw.choice([True, False])
    out = poisoned(value.size, np.uint8)
    sizes = (s["m"], s["n"], s["k"], s["signed"], codes.RELU, 0.0, 0.0, scale, zero, signed)
    gemm_i8.gemm_i8_q8(s["a"], a_scales, s["a_zeros"], *s["b"], b_scales, bias, out, s["scratch"], *sizes)
    return out.view(np.int8 if signed else np.uint8).reshape(value.shape), quantized(value, scale, zero, signed)


def _matmul_i8(draw: Draw) -> tuple[Array, Array]:
    m, n, k, batch = draw.integer(1, 19), draw.integer(1, 110), draw.integer(1, 40), draw.integer(1, 3)
    a_type, b_type, transposed = draw.choice([np.uint8, np.int8]), draw.choice([np.int8, np.uint8]), draw.choice([True, False])
    a, b = bytes_of(draw, a_type, batch, m, k), bytes_of(draw, b_type, batch, *((n, k) if transposed else (k, n)))
    za, zb = int(bytes_of(draw, a_type)), int(bytes_of(draw, b_type))
    right = np.swapaxes(b, -1, -2) if transposed else b
    value = ((a.astype(np.int64) - za) @ (right.astype(np.int64) - zb)).astype(np.float32) * np.float32(0.0123)
    offsets = gemm.batch_offsets(a.shape, (batch, k, n))
    shape = gemm.matmul_shape(m, n, k, b_strides=(1, k) if transposed else None)
    common = (shape, np.float32(0.0123), za, zb, a_type is np.int8, b_type is np.int8, 0, 0.0, 0.0)
    scratch = poisoned(matmul_i8.matmul_i8_scratch(m, n, k), np.uint8)
    left_bytes, right_bytes = flat(a).view(np.uint8), flat(b).view(np.uint8)
    if draw.choice([True, False]):
        out = poisoned(value.size)
        matmul_i8.matmul_i8_f32(left_bytes, offsets[0], right_bytes, offsets[1], out, scratch, *common)
        return out.reshape(value.shape), value
    scale = np.float32(np.abs(value).max() / 100 + 0.1)
    q = poisoned(value.size, np.uint8)
    matmul_i8.matmul_i8_q8(left_bytes, offsets[0], right_bytes, offsets[1], q, scratch, *common, scale, 3, True)
    return q.view(np.int8).reshape(value.shape), quantized(value, scale, 3, True)


def _conv2d_i8(draw: Draw) -> tuple[Array, Array]:
    s = window(draw)
    x_type, w_type = draw.choice([np.uint8, np.int8]), draw.choice([np.int8, np.uint8])
    x, w = bytes_of(draw, x_type, s["n"], s["c"], s["h"], s["w"]), bytes_of(draw, w_type, s["m"], s["c"] // s["groups"], s["kh"], s["kw"])
    zeros = draw.choice([None, bytes_of(draw, w_type, s["m"])])
    zero = int(bytes_of(draw, x_type))
    centred = w.astype(np.int64) - (0 if zeros is None else zeros.astype(np.int64).reshape(-1, 1, 1, 1))
    exact = convolution(x.astype(np.int64) - zero, centred, s["strides"], s["pads"], s["dilations"], s["groups"])
    scales = (draw.rng.random(s["m"]) * 0.01 + 0.001).astype(np.float32)
    bias = floats(draw, draw.choice([0, s["m"]]))
    value = exact.astype(np.float32) * scales.reshape(-1, 1, 1)
    value = np.maximum(value + bias.reshape(-1, 1, 1) if bias.size else value, np.float32(0))
    geometry = conv_geometry(**s)
    packed, scratch = conv_i8.pack_conv_i8(w, s["groups"], zeros), poisoned(conv_i8.conv2d_i8_scratch(geometry), np.uint8)
    common = (scratch, geometry, zero, x_type is np.int8, codes.RELU, 0.0, 0.0)
    if draw.choice([True, False]):
        out = poisoned(value.size)
        conv_i8.conv2d_i8_f32(flat(x).view(np.uint8), *packed, scales, bias, out, *common)
        return out.reshape(value.shape), value
    q = poisoned(value.size, np.uint8)
    conv_i8.conv2d_i8_q8(flat(x).view(np.uint8), *packed, scales, bias, q, *common, np.float32(0.25), -5, True)
    return q.view(np.int8).reshape(value.shape), quantized(value, np.float32(0.25), -5, True)


TABLE = [
    Comparison("gemm_f32", _gemm_f32, 1e-5, 2e-5),
    Comparison("gemm_halves_f32", _gemm_halves, 1e-5, 2e-5),
    Comparison("matmul_f32", _matmul_f32, 1e-5, 2e-5),
    Comparison("conv2d_f32", _conv2d_f32, 1e-5, 2e-5),
    Comparison("conv_transpose2d_f32", _conv_transpose2d_f32, 1e-5, 2e-5),
    Comparison("gemm_i8_i32", _gemm_i8_i32),
    Comparison("gemm_i8_f32", _gemm_i8_f32),
    Comparison("gemm_i8_q8", _gemm_i8_q8),
    Comparison("matmul_i8", _matmul_i8),
    Comparison("conv2d_i8", _conv2d_i8),
]
