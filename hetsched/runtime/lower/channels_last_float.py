"""Convolutions of float32 images that are kept channels last (:mod:`hetsched.channels_last`), and the sums that they compute as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.channels_last import added
from hetsched.runtime.arena import aligned_copy
from hetsched.runtime.lower.channels_last import shifted, widened_image
from hetsched.runtime.lower.copying import emit_copy
from hetsched.runtime.lower.elementwise import clip_bounds
from hetsched.runtime.lower.lowering import Affine, Array, Lowering, bits
from hetsched.runtime.lower.splitting import emit_affine
from hetsched_kernels import codes, conv_transpose_nhwc, nhwc_conv_f32, quantize, winograd
from hetsched_kernels.arrays import NO_F32
from hetsched_kernels.nhwc import SLACK, widened_weights
from hetsched_kernels.tile import ROWS


def float_convolution(low: Lowering, folded: Callable[[], tuple[Array, Array]], geometry: Array) -> None:
    """Conv and FusedConv of a float32 image; ``folded`` gives weights and bias with the batch normalisation in them."""
    groups, size = int(geometry[15]), winograd.winograd_size(geometry)
    skip, target, activation = _skip(low), low.last_output(), _ending(low)
    x = _apart(low, low.image(low.tensor(0)), target)
    if size:
        _transformed(low, x, folded, (skip, target), geometry, size, activation)
        return
    x, geometry, pixel, wide = widened_image(low, x, geometry, 0)

    def pack() -> tuple[Array, ...]:
        w, bias = folded()
        return tuple(map(aligned_copy, nhwc_conv_f32.pack_conv_nhwc_f32(widened_weights(w) if wide else w, bias, groups)))

    packed = low.packed(low.op.name, "conv nhwc f32", pack)
    room = nhwc_conv_f32.conv2d_nhwc_f32_scratch(geometry)
    low.emit_split(
        nhwc_conv_f32.conv2d_nhwc_f32, int(geometry[0] * geometry[16] * geometry[17]), ROWS,
        lambda first, last: (x, *packed, skip, target, low.scratch(room, np.float32), geometry, pixel, *activation, first, last),
    )  # fmt: skip


def _skip(low: Lowering) -> Array:
    """What is added to the result of a convolution before its activation, or the empty array."""
    return NO_F32 if low.after is None else low.image(low.graph.tensors[added(low.op, low.after)])


def _apart(low: Lowering, x: Array, target: Array) -> Array:
    """The image, copied where the result shall lie in its bytes: nobody needs it after the convolution, but the sum comes later."""
    if not np.shares_memory(x, target):
        return x
    room = low.scratch(x.size + SLACK, x.dtype)[: x.size]
    emit_copy(low, bits(x), bits(room), (x.size,), (1,), (1,))
    return room


def _ending(low: Lowering) -> tuple[int, float, float]:
    """A convolution's activation: its own, or that of the sum that it computes as well."""
    clamp = low.op if low.after is None else (low.after.body or (low.after,))[-1]
    if clamp.type == "Clip":
        return codes.ACTIVATION["Clip"], *clip_bounds(low, clamp)
    return (codes.ACTIVATION["Relu"], 0.0, 0.0) if clamp.type == "Relu" else low.activation()


def _transformed(
    low: Lowering, x: Array, folded: Callable[[], tuple[Array, Array]], ends: tuple[Array, Array], geometry: Array, size: int,
    activation: tuple[int, float, float],
) -> None:  # fmt: skip
    """A convolution by 3 x 3 kernels with fewer products, in tiles of ``size`` results each way."""
    name = f"conv winograd {size}"
    packed = low.packed(low.op.name, name, lambda: tuple(map(aligned_copy, winograd.pack_winograd(*folded(), size))))

    def part(first: int, last: int) -> tuple[Any, ...]:
        scratch = low.scratch(winograd.conv2d_winograd_scratch(geometry, size, last - first), np.float32)
        return (x, *packed, *ends, scratch, geometry, size, *activation, first, last)

    low.emit_split(winograd.conv2d_winograd_f32, winograd.winograd_tiles(geometry, size), ROWS, part)


def apart_convolution(low: Lowering, folded: Callable[[], tuple[Array, Array]], geometry: Array) -> None:
    """A transposed convolution whose windows lie side by side, of an image of float32 or of bytes that stand for reals."""
    bytes_, stored = low.image(low.tensor(0)), low.last_output()
    x = _reals(low, low.tensor(0), bytes_)
    target = stored if stored.dtype == np.float32 else low.scratch(stored.size + SLACK, np.float32)[: stored.size]
    packed = low.packed(
        low.op.name, "conv nhwc f32", lambda: tuple(map(aligned_copy, conv_transpose_nhwc.pack_conv_transpose_nhwc_f32(*folded())))
    )  # fmt: skip
    room = conv_transpose_nhwc.conv_transpose2d_nhwc_f32_scratch(geometry)
    low.emit_split(
        conv_transpose_nhwc.conv_transpose2d_nhwc_f32, int(geometry[0] * geometry[2]), 1,
        lambda first, last: (x, *packed, target, low.scratch(room, np.float32), geometry, *low.activation(), first, last),
    )  # fmt: skip
    if target is not stored:
        emit_affine(low, quantize.quantize_linear, target, stored, _affine(low, low.output()), (False,))


def _affine(low: Lowering, tensor: Any) -> Affine:
    """How the unsigned bytes of an image stand for reals."""
    scale, zero = shifted(low, tensor)
    return Affine(np.full(1, scale, np.float32), np.full(1, zero, np.int32), 1, 1, tensor.elements)


def _reals(low: Lowering, tensor: Any, stored: Array) -> Array:
    """An image in float32."""
    if stored.dtype == np.float32:
        return stored
    out = low.scratch(stored.size + SLACK, np.float32)[: stored.size]
    emit_affine(low, quantize.dequantize_linear, stored, out, _affine(low, tensor), dtypes=(stored.dtype,))
    return out
