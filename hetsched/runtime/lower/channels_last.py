"""8-bit operators on channels-last tensors (:mod:`hetsched.channels_last`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.channels_last import ARITHMETIC, FEW_CHANNELS, FUNCTIONS, number_slot
from hetsched.graph import Op
from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.elementwise import clip_bounds, function_of
from hetsched.runtime.lower.lowering import Array, Lowering, affine_of
from hetsched_kernels import codes, elementwise, nhwc_conv, nhwc_depthwise, nhwc_plain, pool
from hetsched_kernels.nhwc import SLACK, pad_nhwc, padded, widened, widened_weights, worth_padding
from hetsched_kernels.tile import ROWS

#: Elements of a part that are worth another thread.
_MANY = 16384


def shifted(low: Lowering, tensor: Any) -> tuple[float, int]:
    """Scale, and zero point of the tensor's unsigned bytes."""
    a = affine_of(low.graph, tensor)
    return a.scale, a.zero + (128 if tensor.dtype.numpy == np.int8 else 0)


def _bounds(kind: str, alpha: float, beta: float, scale: float, zero: int) -> tuple[int, int]:
    """Least and largest byte of a result after a clamp, or after none."""
    lo, hi = {"Relu": (0.0, math.inf), "Clip": (alpha, beta)}.get(kind, (-math.inf, math.inf))
    ends = [float(np.clip(np.rint(np.float32(v) * (np.float32(1) / np.float32(scale))) + zero, 0, 255)) for v in (lo, hi)]
    return int(ends[0]), int(ends[1])


def convolution(low: Lowering, w: Array, w_scales: Array, bias: Array, geometry: Array) -> None:
    """Conv and FusedConv of an image by symmetric int8 weights ``w`` with one scale a channel."""
    name, out = low.op.name, low.output()
    (x_scale, x_zero), (scale, zero) = shifted(low, low.tensor(0)), shifted(low, out)
    kind, (code, alpha, beta) = low.op.attr_str("activation", ""), low.activation()
    fused = kind in ("", "Relu", "Clip")
    unit = scale if fused else 1.0
    factors = (np.asarray(w_scales, np.float64) * x_scale / unit).astype(np.float32)
    shifts = (np.asarray(bias, np.float64) / unit).astype(np.float32) if bias.size else np.zeros(factors.size, np.float32)
    ends = _bounds(kind, alpha, beta, scale, zero)
    x, target = low.bytes_last(0), low.last_output()
    if int(geometry[15]) > 1:
        packed = low.packed(name, "depthwise nhwc", lambda: _depthwise(w, x_zero, factors, shifts))
        room = nhwc_depthwise.depthwise_nhwc_scratch(geometry)
        low.emit_split(
            nhwc_depthwise.depthwise_nhwc_i8, int(geometry[0] * geometry[16]), 1,
            lambda first, last: (
                x, *packed, target, low.scratch(room, np.uint8), geometry, x_zero, *ends, zero, first, last
            ),
        )  # fmt: skip
        return
    x, geometry, pixel, wide = widened_image(low, x, geometry, x_zero)
    if worth_padding(geometry):
        x, geometry = _with_padding(low, x, geometry, x_zero), padded(geometry)
    packed = low.packed(name, "conv nhwc", lambda: _general(widened_weights(w) if wide else w, x_zero, factors, shifts))
    room = nhwc_conv.conv2d_nhwc_scratch(geometry)
    low.emit_split(
        nhwc_conv.conv2d_nhwc_i8, int(geometry[0] * geometry[16] * geometry[17]), ROWS,
        lambda first, last: (
            x, *packed, target, low.scratch(room, np.uint8), geometry, pixel, x_zero, code, alpha, beta, *ends, scale, zero, first, last
        ),
    )  # fmt: skip


def _depthwise(w: Array, x_zero: int, factors: Array, shifts: Array) -> tuple[Array, ...]:
    packed = nhwc_depthwise.pack_depthwise_nhwc(w, x_zero)
    return tuple(aligned_copy(a) for a in (*packed, nhwc_depthwise.terms(factors), nhwc_depthwise.terms(shifts)))


def _general(w: Array, x_zero: int, factors: Array, shifts: Array) -> tuple[Array, ...]:
    packed = nhwc_conv.pack_conv_nhwc(w, x_zero)
    return tuple(aligned_copy(a) for a in (*packed, nhwc_conv.terms(factors), nhwc_conv.terms(shifts)))


def widened_image(low: Lowering, x: Array, geometry: Array, value: int) -> tuple[Array, Array, int, bool]:
    """Image, geometry, step from position to position, and whether the kernel's rows are taken whole: where channels are few."""
    c, kw = int(geometry[1]), int(geometry[6])
    if c > FEW_CHANNELS or kw == 1 or int(geometry[15]) > 1 or int(geometry[14]) > 1:
        return x, geometry, c, False
    return _with_padding(low, x, geometry, value), widened(geometry), c, True


def _with_padding(low: Lowering, x: Array, geometry: Array, value: int) -> Array:
    """A copy of the image with its padding around it."""
    n, c, h, w = (int(v) for v in geometry[:4])
    top, left, bottom, right = (int(v) for v in geometry[9:13])
    size = n * (h + top + bottom) * (w + left + right) * c
    room = low.scratch(size + SLACK, x.dtype)
    low.emit(pad_nhwc, x, room, n, h, w * c, top, bottom, left * c, right * c, np.full(1, value, x.dtype), dtypes=(x.dtype,))
    return room[:size]


def arithmetic(low: Lowering) -> None:
    """Arithmetic on an image and a number (by a table), or on two images."""
    slot = number_slot(low.op, low.graph)
    if slot is not None:
        number = low.constant_reals(slot).reshape(-1)[0]
        function = _NUMPY[low.op.type]
        _by_table(low, 1 - slot, (lambda x: function(number, x)) if slot == 0 else (lambda x: function(x, number)))
    elif low.op.type == "Mul":
        _product(low)
    else:
        addition(low, low.op, "", 0.0, 0.0)


_NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum, "Pow": np.power,
}  # fmt: skip


def addition(low: Lowering, op: Op, kind: str, alpha: float, beta: float) -> None:
    """Add or Sub of two images, then a clamp; ``low`` is of the last of the operators that this stands for."""
    x, y = (low.graph.tensors[n] for n in op.inputs)
    (a_scale, a_zero), (b_scale, b_zero), (scale, zero) = shifted(low, x), shifted(low, y), shifted(low, low.output())
    fa, fb = a_scale / scale, (-b_scale if op.type == "Sub" else b_scale) / scale
    a, b, target = low.image(x), low.image(y), low.last_output()
    factors = [float(np.float32(v)) for v in (fa, fb, -(a_zero * fa + b_zero * fb))]
    middle = (*factors, *_bounds(kind, alpha, beta, scale, zero), zero)
    low.emit_split(nhwc_plain.add_u8, low.output().elements, _MANY, lambda first, last: (a, b, target, *middle, first, last))


def _product(low: Lowering) -> None:
    """Mul of two images, or of one and a value for each of its channels."""
    whole = 0 if low.shape(0) == low.output().shape else 1
    (a_scale, a_zero), (b_scale, b_zero) = (shifted(low, low.tensor(i)) for i in (whole, 1 - whole))
    scale, zero = shifted(low, low.output())
    n, c, h, w = low.output().shape
    a, b, target = low.bytes_last(whole), low.bytes_last(1 - whole), low.last_output()
    rows, columns, per = (n * h, w * c, 1) if low.shape(0) == low.shape(1) else (n * h * w, c, h * w)
    middle = (float(a_zero), float(b_zero), float(np.float32(a_scale * b_scale / scale)), 0, 255, zero, columns, columns, per)
    low.emit_split(
        nhwc_plain.multiply_u8, rows, -(-_MANY // columns), lambda first, last: (a, b, target, *middle, first, last)
    )  # fmt: skip


def _clamp(low: Lowering) -> tuple[str, float, float]:
    """The op, a Relu or Clip, as a fused activation."""
    return ("Relu", 0.0, 0.0) if low.op.type == "Relu" else ("Clip", *clip_bounds(low, low.op))


def function(low: Lowering) -> None:
    """A function of one stored byte, by a table; or a clamp of a sum, with the sum."""
    if low.before is not None:
        addition(low, low.before, *_clamp(low))
        return
    clip = low.op.type == "Clip"
    code, alpha, beta = (codes.UNARY["Clip"], *_clamp(low)[1:]) if clip else function_of(low.op)

    def compute(x: Array) -> Array:
        out = np.empty_like(x)
        elementwise.unary_f32(x, out, code, alpha, beta)
        return out

    _by_table(low, 0, compute)


def _by_table(low: Lowering, slot: int, compute: Callable[[Array], Array]) -> None:
    """Any function of an image's values: of its 256 bytes, once."""
    (x_scale, x_zero), (scale, zero) = shifted(low, low.tensor(slot)), shifted(low, low.output())
    reals = ((np.arange(256) - x_zero).astype(np.float32) * np.float32(x_scale)).astype(np.float32)
    with np.errstate(all="ignore"):
        values = np.rint(compute(reals) / np.float32(scale)) + zero
    table = aligned_copy(np.clip(np.where(np.isnan(values), 0, values), 0, 255).astype(np.uint8))
    x, target = low.bytes_last(slot), low.last_output()
    low.emit_split(nhwc_plain.map_u8, low.output().elements, _MANY, lambda first, last: (x, target, table, first, last))


def average(low: Lowering) -> None:
    """GlobalAveragePool, and AveragePool over all positions."""
    n, c, h, w = low.tensor(0).shape
    if low.last:
        low.emit(nhwc_plain.mean_nhwc_f32, low.image(low.tensor(0)), low.last_output(), n, h * w, c)
        return
    (x_scale, x_zero), (scale, zero) = shifted(low, low.tensor(0)), shifted(low, low.output())
    factor = float(np.float32(x_scale / (scale * h * w)))
    shift = float(np.float32(-x_zero * (x_scale / scale)))
    x, target = low.bytes_last(0), low.last_output()
    low.emit(nhwc_plain.mean_nhwc_u8, x, target, low.scratch(c, np.int32), n, h * w, c, factor, shift, zero)


def largest(low: Lowering) -> None:
    """MaxPool of a float32 image, or of one that is stored as its result is."""
    from hetsched.runtime.lower.convolution import window_of

    n, c, h, w = low.tensor(0).shape
    window = window_of(low.op, low.op.attr_ints("kernel_shape", ()), (h, w), low.output().shape[2:])
    oh, ow = low.output().shape[2:]
    geometry = pool.pool_geometry(n, c, h, w, oh, ow, window.kernel, window.strides, window.pads, window.dilations)
    x, target = low.image(low.tensor(0)), low.last_output()
    kernel = nhwc_plain.max_pool_nhwc_f32 if low.last else nhwc_plain.max_pool_nhwc_u8
    low.emit_split(kernel, n * oh, 1, lambda first, last: (x, target, geometry, first, last))


#: What lowers float32 ops other than convolutions in another way than where their channels do not come last.
POOLS: dict[str, Callable[[Lowering], None]] = {"GlobalAveragePool": average, "AveragePool": average, "MaxPool": largest}
LOWERINGS = {
    **dict.fromkeys(ARITHMETIC, arithmetic), **POOLS,
    **dict.fromkeys(FUNCTIONS, function),
}  # fmt: skip
