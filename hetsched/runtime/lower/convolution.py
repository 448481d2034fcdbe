"""Convolution and transposed convolution, 1-D and 2-D, in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.channels_last import works_channels_last
from hetsched.graph import Op
from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.channels_last_float import apart_convolution, float_convolution
from hetsched.runtime.lower.convolution_int8 import integer_convolution
from hetsched.runtime.lower.lowering import Array, Lowering
from hetsched_kernels import conv, conv_transpose
from hetsched_kernels.arrays import NO_F32


@dataclass(frozen=True, slots=True)
class Window:
    """Strides, pads (ONNX order: begins, then ends) and dilations of a 2-D window; 1-D ones get a leading unit axis."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]


def plane(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """``[N, C, L]`` or ``[N, C, H, W]`` as four dims."""
    return (shape[0], shape[1], 1, shape[2]) if len(shape) == 3 else (shape[0], shape[1], shape[2], shape[3])


def _pair(values: tuple[int, ...], unit: int) -> tuple[int, int]:
    return (unit, values[0]) if len(values) == 1 else (values[0], values[1])


def window_of(op: Op, kernel: tuple[int, ...], size: tuple[int, ...], out: tuple[int, ...], transposed: bool = False) -> Window:
    """The window of an op whose spatial input and output extents are ``size`` and ``out``; resolves ``auto_pad``."""
    rank = len(kernel)
    strides = op.attr_ints("strides", (1,) * rank)
    dilations = op.attr_ints("dilations", (1,) * rank)
    pads = op.attr_ints("pads", (0,) * (2 * rank))
    mode = op.attr_str("auto_pad", "NOTSET")
    wanted = transposed and (len(op.attr_ints("output_shape", ())) > 0 or "SAME" in mode)
    if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
        pads = _implied_pads(mode, kernel, strides, dilations, size, out, op.attr_ints("output_padding", (0,) * rank), transposed)
    elif mode == "VALID":
        pads = (0,) * (2 * rank)
    full = (0, pads[0], 0, pads[1]) if rank == 1 else (pads[0], pads[1], pads[2], pads[3])
    return Window(_pair(kernel, 1), _pair(strides, 1), full, _pair(dilations, 1))


def _implied_pads(
    mode: str, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], size: tuple[int, ...], out: tuple[int, ...],
    extra: tuple[int, ...], transposed: bool,
) -> tuple[int, ...]:  # fmt: skip
    begins, ends = [], []
    for k, s, d, n, o, e in zip(kernel, strides, dilations, size, out, extra, strict=True):
        reach = (k - 1) * d + 1
        total = (n - 1) * s + reach + e - o if transposed else max((o - 1) * s + reach - n, 0)
        small = total // 2
        # The odd element goes to the end for SAME_UPPER; transposed convolution without it puts it at the begin.
        begins.append(small if mode == "SAME_UPPER" else total - small)
        ends.append(total - begins[-1])
    return (*begins, *ends)


def batch_norm_factor(low: Lowering) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The fused batch normalisation as ``y = x * factor + shift`` per output channel, from inputs 3 to 6."""
    scale, bias, mean, variance = (low.constant_reals(i).astype(np.float64).reshape(-1) for i in range(3, 7))
    factor = scale / np.sqrt(variance + low.op.attr_float("epsilon", 1e-5))
    return factor, bias - mean * factor


def folded_bias(low: Lowering, channels: int) -> Array:
    """The convolution's bias after batch normalisation, or the empty array; float32."""
    bias = low.constant_reals(2).astype(np.float64).reshape(-1) if low.has(2) else None
    if low.op.attr_int("batch_norm", 0):
        factor, shift = batch_norm_factor(low)
        bias = shift if bias is None else bias * factor + shift
    return NO_F32 if bias is None else aligned_copy(bias.astype(np.float32))


def folded_weights(low: Lowering, groups: int, transposed: bool) -> Array:
    """The weights after batch normalisation, float32, in ONNX's own layout."""
    w = low.constant_reals(1)
    if not low.op.attr_int("batch_norm", 0):
        return w
    factor = batch_norm_factor(low)[0]
    if not transposed:
        return np.asarray(w * factor.reshape(-1, *[1] * (w.ndim - 1)), np.float32)
    grouped = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1) * factor.reshape(groups, 1, w.shape[1], 1)
    return np.asarray(grouped.reshape(w.shape), np.float32)


def _as_2d(w: Array) -> Array:
    return np.ascontiguousarray(w[:, :, None, :] if w.ndim == 3 else w)


def convolution(low: Lowering) -> None:
    """Conv and FusedConv: X, W, B and a folded batch normalisation, with a fused activation."""
    if low.precision == "w8a8":
        integer_convolution(low)
        return
    x_shape, w_shape = low.tensor(0).shape, low.tensor(1).shape
    window = window_of(low.op, w_shape[2:], x_shape[2:], low.output().shape[2:])
    groups = low.op.attr_int("group", 1)
    n, c, h, w = plane(x_shape)
    geometry = conv.conv_geometry(n, c, h, w, w_shape[0], *window.kernel, window.strides, window.pads, window.dilations, groups)
    name = low.op.name
    if works_channels_last(low.op, low.graph, low.precision):
        float_convolution(low, lambda: (folded_weights(low, groups, False), folded_bias(low, w_shape[0])), geometry)
        return
    weights = low.packed(name, "conv f32", lambda: aligned_copy(conv.pack_conv_f32(_as_2d(folded_weights(low, groups, False)), groups)))
    bias = low.packed(name, "bias f32", lambda: folded_bias(low, w_shape[0]))
    x, out = low.reals(0), low.real_output()
    scratch = low.scratch(conv.conv2d_f32_scratch(geometry), np.float32)
    low.emit(conv.conv2d_f32, x, weights, bias, out, scratch, geometry, *low.activation())


def transposed_convolution(low: Lowering) -> None:
    """ConvTranspose and FusedConvTranspose."""
    op, x_shape, w_shape = low.op, low.tensor(0).shape, low.tensor(1).shape
    window = window_of(op, w_shape[2:], x_shape[2:], low.output().shape[2:], transposed=True)
    groups = op.attr_int("group", 1)
    n, c, h, w = plane(x_shape)
    extra = _pair(op.attr_ints("output_padding", (0,) * (len(x_shape) - 2)), 0)
    channels = w_shape[1] * groups
    geometry = conv_transpose.transpose_geometry(
        n, c, h, w, channels, *window.kernel, window.strides, window.pads, extra, window.dilations, groups
    )
    if works_channels_last(op, low.graph, low.precision):
        apart_convolution(low, lambda: (folded_weights(low, groups, True), folded_bias(low, channels)), geometry)
        return
    weights = low.packed(op.name, "conv f32", lambda: aligned_copy(_pack_transposed(low, groups)))
    bias = low.packed(op.name, "bias f32", lambda: folded_bias(low, channels))
    x, out = low.reals(0), low.real_output()
    scratch = low.scratch(conv_transpose.conv_transpose2d_f32_scratch(geometry), np.float32)
    low.emit(conv_transpose.conv_transpose2d_f32, x, weights, bias, out, scratch, geometry, *low.activation())


def _pack_transposed(low: Lowering, groups: int) -> Any:
    return conv_transpose.pack_conv_transpose_f32(_as_2d(folded_weights(low, groups, True)), groups)
