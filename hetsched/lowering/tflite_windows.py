"""TFLite operators over windows of images: convolutions and pools, with channels last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.lowering.tflite import TO_LAST, Lowering, TfliteBuild, is_image

_SAME, _VALID = 0, 1
_LOWEST = np.float32(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class Window:
    """Geometry along height and width; ``before`` and ``after`` are counts of padding."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, b: TfliteBuild, op: Op, kernel: Sequence[int]) -> Window:
        """The window of a node, with the padding that gives its output shape.

        Raises:
            UnsupportedModelError: it is not over two axes, or its last windows do not lie in the padded image.
        """
        if not is_image(b.graph, op.inputs[0]):
            raise UnsupportedModelError("windows over other than two axes are not written for TFLite")
        strides, dilations = (op.attr_ints(n, (1, 1)) for n in ("strides", "dilations"))
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        size, out = b.shape(op.inputs[0])[2:], b.shape(op.outputs[0])[2:]
        total = [max((o - 1) * s + r - n, 0) for o, s, r, n in zip(out, strides, reach, size, strict=True)]
        auto = op.attr_str("auto_pad", "NOTSET")
        given = op.attr_ints("pads", (0, 0, 0, 0))[:2]
        before = {"SAME_UPPER": [t // 2 for t in total], "SAME_LOWER": [t - t // 2 for t in total], "VALID": [0, 0]}.get(auto, list(given))
        after = [max(t - p, 0) for t, p in zip(total, before, strict=True)]
        return cls(tuple(kernel), strides, dilations, tuple(before), tuple(after))

    def is_same(self, b: TfliteBuild, op: Op) -> bool:
        """Whether it is TFLite's own SAME padding: the output is the input over the stride, rounded up, the larger half after."""
        size, out = b.shape(op.inputs[0])[2:], b.shape(op.outputs[0])[2:]
        rounded = all(o == -(-n // s) for n, o, s in zip(size, out, self.strides, strict=True))
        return rounded and all(x == (x + y) // 2 for x, y in zip(self.before, self.after, strict=True))

    @property
    def is_padded(self) -> bool:
        """Whether there is any padding."""
        return any((*self.before, *self.after))


def padded(b: TfliteBuild, window: Window, source: int, value: np.ndarray[Any, Any] | None = None) -> int:
    """A tensor with explicit padding; without a value with zeros, which are zero points in integers."""
    given = b.tensors[source]
    pairs = np.zeros((4, 2), np.int32)
    pairs[1:3, 0], pairs[1:3, 1] = window.before, window.after
    shape = [int(n) + int(p.sum()) for n, p in zip(given.shape, pairs, strict=True)]
    out = b.tensor(shape, given.type, f"{given.name}/padded", given.quantization)
    if value is None:
        b.operator("PAD", [source, b.constant(pairs)], [out], "PadOptions")
    else:
        b.operator("PADV2", [source, b.constant(pairs), b.constant(value)], [out], "PadV2Options")
    return out


def put_convolution(
    b: TfliteBuild, op: Op, window: Window, source: int, weights: np.ndarray[Any, Any], constants: tuple[Any, int], out: int,
    activation: int = 0,
) -> None:  # fmt: skip
    """Add CONV_2D or DEPTHWISE_CONV_2D.

    Args:
        b: the model.
        op: the Conv node.
        window: its geometry.
        source: the image.
        weights: [M, C / groups, kh, kw].
        constants: quantization of the weights (None: floats), and the bias's tensor.
        out: the result's tensor.
        activation: fused.
    """
    groups, channels = op.attr_int("group", 1), b.shape(op.inputs[0])[1]
    depthwise = groups == channels and groups > 1
    same = window.is_same(b, op)
    source = source if same or not window.is_padded else padded(b, window, source)
    quantization, bias = constants
    fields = {
        "padding": _SAME if same else _VALID, "strideH": window.strides[0], "strideW": window.strides[1],
        "dilationHFactor": window.dilations[0], "dilationWFactor": window.dilations[1], "fusedActivationFunction": activation,
    }  # fmt: skip
    if depthwise:
        if quantization is not None:
            quantization.quantizedDimension = 3
        held = b.constant(np.ascontiguousarray(weights.transpose(1, 2, 3, 0)), quantization)
        multiplier = weights.shape[0] // groups
        b.operator("DEPTHWISE_CONV_2D", [source, held, bias], [out], "DepthwiseConv2DOptions", depthMultiplier=multiplier, **fields)
    else:
        held = b.constant(np.ascontiguousarray(weights.transpose(0, 2, 3, 1)), quantization)
        b.operator("CONV_2D", [source, held, bias], [out], "Conv2DOptions", **fields)


def _conv(b: TfliteBuild, op: Op) -> None:
    weights = b.values(op.inputs[1])
    window = Window.of(b, op, weights.shape[2:])
    bias = b.values(op.inputs[2]) if b.optional(op, 2) else np.zeros(weights.shape[0], np.float32)
    source = b.read(op.inputs[0], "last")
    put_convolution(b, op, window, source, weights, (None, b.constant(bias)), b.write(op.outputs[0], "last"))


def _conv_transpose(b: TfliteBuild, op: Op) -> None:
    """Without padding, then cropped; TFLite's own padding cannot say how much on which side."""
    weights = b.values(op.inputs[1])
    if (
        op.attr_int("group", 1) != 1
        or any(d != 1 for d in op.attr_ints("dilations", (1, 1)))
        or op.attr_str("auto_pad", "NOTSET") != "NOTSET"
    ):
        raise UnsupportedModelError("transposed convolutions with groups, dilations or automatic padding are not written for TFLite")
    if not is_image(b.graph, op.inputs[0]) or any(op.attr_ints("output_padding", (0, 0))):
        raise UnsupportedModelError("transposed convolutions with output_padding, or over other than two axes, are not written for TFLite")
    strides, pads = op.attr_ints("strides", (1, 1)), op.attr_ints("pads", (0, 0, 0, 0))
    n, _, h, w = b.shape(op.inputs[0])
    full = (n, (h - 1) * strides[0] + weights.shape[2], (w - 1) * strides[1] + weights.shape[3], weights.shape[1])
    if tuple(s - pads[i] - pads[i + 2] for i, s in enumerate(full[1:3])) != b.shape(op.outputs[0])[2:]:
        raise UnsupportedModelError("transposed convolutions that pad so as to give a shape are not written for TFLite")
    held = b.constant(np.ascontiguousarray(weights.transpose(1, 2, 3, 0)))
    whole = b.temporary(full)
    inputs = [b.constant(np.array(full, np.int32)), held, b.read(op.inputs[0], "last")]
    b.operator("TRANSPOSE_CONV", inputs, [whole], "TransposeConvOptions", padding=_VALID, strideH=strides[0], strideW=strides[1])
    if any(pads):
        shape = b.shape(op.outputs[0], "last")
        begin = (0, pads[0], pads[1], 0)
        ends = tuple(p + s for p, s in zip(begin, shape, strict=True))
        cropped = b.temporary(shape)
        counts = [b.constant(np.array(v, np.int32)) for v in (begin, ends, (1, 1, 1, 1))]
        b.operator("STRIDED_SLICE", [whole, *counts], [cropped], "StridedSliceOptions")
        whole = cropped
    bias = b.values(op.inputs[2]) if b.optional(op, 2) else np.zeros(weights.shape[1], np.float32)
    b.operator("ADD", [whole, b.constant(bias)], [b.write(op.outputs[0], "last")], "AddOptions")


def _pool(code: str, b: TfliteBuild, op: Op) -> None:
    """MAX_POOL_2D or AVERAGE_POOL_2D; averages leave padding out of the count where the node does."""
    window = Window.of(b, op, op.attr_ints("kernel_shape", ()))
    if any(d != 1 for d in window.dilations) or len(op.outputs) > 1:
        raise UnsupportedModelError("TFLite has no pooling with dilations or with indices")
    same, source = window.is_same(b, op), b.read(op.inputs[0], "last")
    average, out = code == "AVERAGE_POOL_2D", b.write(op.outputs[0], "last")
    shares = _shares(b, op, window) if average and window.is_padded else None
    if window.is_padded and (not same or (average and op.attr_int("count_include_pad", 0) == 1)):
        source, same = padded(b, window, source, None if average else np.array(_LOWEST)), False
    corrected = shares is not None and not same and bool((shares != 1).any())
    mean = b.temporary(b.shape(op.outputs[0], "last")) if corrected else out
    b.operator(
        code, [source], [mean], "Pool2DOptions", padding=_SAME if same else _VALID, strideH=window.strides[0],
        strideW=window.strides[1], filterHeight=window.kernel[0], filterWidth=window.kernel[1],
    )  # fmt: skip
    if corrected:
        b.operator("MUL", [mean, b.constant(np.asarray(shares))], [out], "MulOptions")


def _shares(b: TfliteBuild, op: Op, window: Window) -> np.ndarray[Any, Any]:
    """What an average over the padded image is to be multiplied by: elements of the kernel over those that count. [1, h, w, 1]."""
    pads = op.attr_ints("pads", (0, 0, 0, 0))
    explicit, counted = op.attr_str("auto_pad", "NOTSET") == "NOTSET", op.attr_int("count_include_pad", 0) == 1
    axes = []
    for axis, (size, out) in enumerate(zip(b.shape(op.inputs[0])[2:], b.shape(op.outputs[0])[2:], strict=True)):
        kernel, before = window.kernel[axis], window.before[axis]
        first = np.arange(out) * window.strides[axis] - before
        low, high = (-before, size + (pads[2 + axis] if explicit else window.after[axis])) if counted else (0, size)
        axes.append(kernel / (np.minimum(first + kernel, high) - np.maximum(first, low)))
    return np.outer(*axes).astype(np.float32)[None, :, :, None]


def _global(code: str, b: TfliteBuild, op: Op) -> None:
    rank = len(b.shape(op.inputs[0]))
    order = "last" if rank == len(TO_LAST) else "plain"
    axes = b.constant(np.array([1, 2] if order == "last" else range(2, rank), np.int32))
    source = b.read(op.inputs[0], "last" if rank == len(TO_LAST) else "plain")
    b.operator(code, [source, axes], [b.write(op.outputs[0], "last")], "ReducerOptions", keepDims=True)


LOWERINGS: Mapping[str, Lowering] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": partial(_pool, "MAX_POOL_2D"),
    "AveragePool": partial(_pool, "AVERAGE_POOL_2D"), "GlobalAveragePool": partial(_global, "MEAN"),
    "GlobalMaxPool": partial(_global, "REDUCE_MAX"),
}  # fmt: skip
