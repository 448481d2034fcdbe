"""Convolution and transposed convolution, 1-D and 2-D, in float32 and float16."""

from __future__ import annotations

import numpy as np

from hetsched.runtime.delegates.wgpu.lowering import GpuLowering
from hetsched.runtime.delegates.wgpu.program import Slot
from hetsched.runtime.lower.convolution import Window, folded_bias, folded_weights, plane, window_of
from hetsched.runtime.lower.lowering import Array


def window(low: GpuLowering, transposed: bool = False) -> Window:
    """The op's window, as 2-D."""
    return window_of(low.op, low.tensor(1).shape[2:], low.tensor(0).shape[2:], low.output().shape[2:], transposed)


def geometry(window: Window) -> list[int]:
    """Strides, pads before and dilations, as the shaders take them."""
    return [*window.strides, *window.pads[:2], *window.dilations]


def _bias(low: GpuLowering, channels: int) -> Array:
    """The bias with the batch normalisation folded in, zeros where there is none."""
    bias = folded_bias(low, channels)
    return bias if bias.size else np.zeros(channels, np.float32)


def bias_slot(low: GpuLowering, channels: int, filled: int = 0, groups: int = 1) -> Slot:
    """The bias; each group's channels filled up with zeros to ``filled``."""

    def make() -> Array:
        rows = _bias(low, channels).reshape(groups, -1)
        return np.pad(rows, ((0, 0), (0, max(filled - rows.shape[1], 0))))

    return low.program.weight(low.op.name, "bias", "f32", make)


def convolution(low: GpuLowering) -> None:
    """Conv and FusedConv: X, W, B and a folded batch normalisation, with a fused activation."""
    groups = low.op.attr_int("group", 1)
    out = low.float_target()
    (_, _, h, w), (n, channels, oh, ow) = plane(low.shape(0)), plane(low.output().shape)
    ins, outs = low.tensor(1).shape[1], channels // groups
    view, kernel = window(low), window(low).kernel
    if ins == 1 and groups > 1:
        weights = low.program.weight(low.op.name, "depthwise", low.compute, lambda: folded_weights(low, groups, transposed=False))
        bindings = {"x": low.floats(0), "w": weights, "bias": bias_slot(low, channels), "y": out}
        items = n * channels * -(-(oh * ow) // 4)
        low.static("depthwise", bindings, [oh * ow, channels, outs, h, w, ow, *kernel, *geometry(view)], items)
        low.store(out)
        return
    blocks = -(-outs // 4)

    def pack() -> Array:
        taps = folded_weights(low, groups, transposed=False).reshape(groups, outs, ins, *kernel)
        filled = np.pad(taps, ((0, 0), (0, blocks * 4 - outs), (0, 0), (0, 0), (0, 0)))
        return filled.reshape(groups, blocks, 4, ins, *kernel).transpose(0, 1, 4, 5, 3, 2)

    weights = low.program.weight(low.op.name, "convolution", low.compute, pack)
    bindings = {"x": low.floats(0), "w": weights, "bias": bias_slot(low, channels, blocks * 4, groups), "y": out}
    params: list[int | float] = [oh * ow, blocks, ins, outs, groups, h, w, ow, *kernel, *geometry(view)]
    low.static("convolution", bindings, params, -(-(oh * ow) // 4), (blocks * groups, n))
    low.store(out)


def transposed_convolution(low: GpuLowering) -> None:
    """ConvTranspose and FusedConvTranspose."""
    groups = low.op.attr_int("group", 1)
    out = low.float_target()
    (_, ins, h, w), (_, channels, oh, ow) = plane(low.shape(0)), plane(low.output().shape)
    view = window(low, transposed=True)
    weights = low.program.weight(low.op.name, "transposed", low.compute, lambda: folded_weights(low, groups, transposed=True))
    bindings = {"x": low.floats(0), "w": weights, "bias": bias_slot(low, channels), "y": out}
    params: list[int | float] = [ins // groups, channels // groups, groups, h, w, oh, ow, *view.kernel, *geometry(view)]
    low.static("convolution_transposed", bindings, params, out.elements)
    low.store(out)
