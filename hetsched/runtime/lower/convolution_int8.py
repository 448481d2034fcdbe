"""Convolution on 8-bit integers: static where the activation is quantized in the model, dynamic per tensor otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.channels_last import works_channels_last
from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower import channels_last
from hetsched.runtime.lower.lowering import Array, Lowering, affine_of
from hetsched_kernels import conv, conv_i8, quantize


def quantized_per_channel(weights: Array, axis: int) -> tuple[Array, Array]:
    """Symmetric int8 of ``weights``, one scale for each index of ``axis``: ``(int8 codes, float32 scales)``."""
    others = tuple(i for i in range(weights.ndim) if i != axis)
    peak = np.abs(weights).max(axis=others, keepdims=True)
    scale = np.where(peak > 0, peak / 127.0, 1.0).astype(np.float32)
    codes = np.clip(np.rint(weights / scale), -127, 127).astype(np.int8)
    return codes, aligned_copy(scale.reshape(-1))


def _weights(low: Lowering) -> tuple[Array, Array | None, Array]:
    """8-bit weights [M, C / groups, kh, kw], their zero points and one scale a channel, batch normalisation in the scales."""
    from hetsched.runtime.lower.convolution import batch_norm_factor

    tensor, channels = low.tensor(1), low.shape(1)[0]
    if tensor.quantization is None:
        codes, scales = quantized_per_channel(low.constant_reals(1), 0)
        zeros = None
    else:
        a = affine_of(low.graph, tensor)
        codes, scales = low.constant(1), np.broadcast_to(a.scales, (channels,))
        zeros = np.broadcast_to(a.zeros, (channels,)).copy() if a.zeros.any() else None
    if low.op.attr_int("batch_norm", 0):
        scales = scales * batch_norm_factor(low)[0]
    square = np.ascontiguousarray(codes[:, :, None, :] if codes.ndim == 3 else codes)
    return square, zeros, np.asarray(scales, np.float32)


def _packed(low: Lowering, groups: int) -> tuple[Any, Array]:
    codes, zeros, scales = _weights(low)
    return conv_i8.pack_conv_i8(codes, groups, zeros), aligned_copy(scales)


def integer_convolution(low: Lowering) -> None:
    """Conv and FusedConv on 8-bit integers with int32 sums."""
    from hetsched.runtime.lower.convolution import folded_bias, plane, window_of

    window = window_of(low.op, low.shape(1)[2:], low.shape(0)[2:], low.output().shape[2:])
    groups, channels = low.op.attr_int("group", 1), low.shape(1)[0]
    n, c, h, w = plane(low.shape(0))
    geometry = conv.conv_geometry(n, c, h, w, channels, *window.kernel, window.strides, window.pads, window.dilations, groups)
    bias = low.packed(low.op.name, "bias f32", lambda: folded_bias(low, channels))
    if works_channels_last(low.op, low.graph, low.precision):
        codes, _, scales = low.packed(low.op.name, "weights i8", lambda: _weights(low))
        channels_last.convolution(low, codes, scales, bias, geometry)
        return
    packed, w_scales = low.packed(low.op.name, "conv i8", lambda: _packed(low, groups))
    weights = (packed.data, packed.sums, packed.zeros)
    if low.tensor(0).quantization is None:
        _dynamic(low, weights, w_scales, bias, geometry)
    else:
        _static(low, weights, w_scales, bias, geometry)


def _static(low: Lowering, weights: tuple[Array, ...], w_scales: Array, bias: Array, geometry: Array) -> None:
    x, a = low.raw(0), affine_of(low.graph, low.tensor(0))
    scales = low.packed(low.op.name, "conv scales", lambda: aligned_copy((w_scales * np.float32(a.scale)).astype(np.float32)))
    scratch = low.scratch(conv_i8.conv2d_i8_scratch(geometry), np.uint8)
    out = low.output()
    reads = (x.view(np.uint8), *weights, scales, bias)
    middle = (scratch, geometry, a.zero, x.dtype == np.int8, *low.activation())
    if out.quantization is None:
        low.emit(conv_i8.conv2d_i8_f32, *reads, low.raw_output(), *middle)
        return
    o, target = affine_of(low.graph, out), low.raw_output()
    low.emit(conv_i8.conv2d_i8_q8, *reads, target.view(np.uint8), *middle, o.scale, o.zero, target.dtype == np.int8)


def _dynamic(low: Lowering, weights: tuple[Array, ...], w_scales: Array, bias: Array, geometry: Array) -> None:
    x, out = low.reals(0), low.real_output()
    stored, x_scale = low.scratch(x.size, np.uint8), low.scratch(1, np.float32)
    x_zero, scales = low.scratch(1, np.int32), low.scratch(w_scales.size, np.float32)
    scratch = low.scratch(conv_i8.conv2d_i8_scratch(geometry), np.uint8)
    low.call(
        _quantize_and_convolve, quantize.quantize_rows.compile(), conv_i8.conv2d_i8_f32.compile(), x, stored, x_scale, x_zero,
        weights, w_scales, scales, bias, out, scratch, geometry, low.activation(),
    )  # fmt: skip


def _quantize_and_convolve(
    quantize_rows: Callable[..., None], convolve: Callable[..., None], x: Array, stored: Array, x_scale: Array, x_zero: Array,
    weights: tuple[Array, ...], w_scales: Array, scales: Array, bias: Array, out: Array, scratch: Array, geometry: Array,
    activation: tuple[int, float, float],
) -> None:  # fmt: skip
    """The activation's scale and zero point are known only once it is quantized."""
    quantize_rows(x, stored, x_scale, x_zero, 1, x.size, False, False)
    np.multiply(w_scales, x_scale[0], out=scales)
    convolve(stored, *weights, scales, bias, out, scratch, geometry, int(x_zero[0]), False, *activation)
