"""MIL operations over windows of images: convolutions, pools and resizing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.lowering.mil import Lowering, MilBuild, builder
from hetsched.lowering.resizing import is_linear, is_repeat


def _pads(b: MilBuild, op: Op, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Counts before and after each axis, in MIL's order."""
    rank = len(kernel)
    auto = op.attr_str("auto_pad", "NOTSET")
    if auto in {"SAME_UPPER", "SAME_LOWER"}:
        pads = []
        for size, out, k, s, d in zip(b.shape(op.inputs[0])[2:], b.shape(op.outputs[0])[2:], kernel, strides, dilations, strict=True):
            total = max((out - 1) * s + (k - 1) * d + 1 - size, 0)
            pads += [total // 2, total - total // 2] if auto == "SAME_UPPER" else [total - total // 2, total // 2]
        return pads
    given = op.attr_ints("pads", (0,) * (2 * rank))
    return [p for axis in range(rank) for p in (given[axis], given[axis + rank])]


def _conv(b: MilBuild, op: Op) -> Sequence[Any]:
    kernel = b.shape(op.inputs[1])[2:]
    ones = (1,) * len(kernel)
    strides, dilations = op.attr_ints("strides", ones), op.attr_ints("dilations", ones)
    bias = {"bias": b.read(op.inputs[2])} if b.optional(op, 2) else {}
    out = builder().conv(
        x=b.read(op.inputs[0]), weight=b.read(op.inputs[1]), strides=list(strides), dilations=list(dilations), pad_type="custom",
        pad=_pads(b, op, kernel, strides, dilations), groups=op.attr_int("group", 1), **bias,
    )  # fmt: skip
    return [out]


def _conv_transpose(b: MilBuild, op: Op) -> Sequence[Any]:
    kernel = b.shape(op.inputs[1])[2:]
    ones = (1,) * len(kernel)
    strides, dilations = op.attr_ints("strides", ones), op.attr_ints("dilations", ones)
    if op.attr_str("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        raise UnsupportedModelError("transposed convolutions that pad by themselves are not written for Core ML")
    if any(op.attr_ints("output_padding", ())):
        raise UnsupportedModelError("transposed convolutions with output_padding are not written for Core ML")
    bias = {"bias": b.read(op.inputs[2])} if b.optional(op, 2) else {}
    out = builder().conv_transpose(
        x=b.read(op.inputs[0]), weight=b.read(op.inputs[1]), strides=list(strides), dilations=list(dilations), pad_type="custom",
        pad=_pads(b, op, kernel, strides, dilations), groups=op.attr_int("group", 1), **bias,
    )  # fmt: skip
    return [out]


def _pool(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    kernel = op.attr_ints("kernel_shape", ())
    ones = (1,) * len(kernel)
    strides = op.attr_ints("strides", ones)
    if any(d != 1 for d in op.attr_ints("dilations", ones)) or len(op.outputs) > 1:
        raise UnsupportedModelError("Core ML has no pooling with dilations or with indices")
    pads = _pads(b, op, kernel, strides, ones)
    more = {} if operation == "max_pool" else {"exclude_padding_from_average": not op.attr_int("count_include_pad", 0)}
    out = getattr(builder(), operation)(
        x=b.read(op.inputs[0]), kernel_sizes=list(kernel), strides=list(strides), pad_type="custom", pad=pads,
        ceil_mode=bool(op.attr_int("ceil_mode", 0)), **more,
    )  # fmt: skip
    return [out]


def _global(operation: str, b: MilBuild, op: Op) -> Sequence[Any]:
    axes = list(range(2, len(b.shape(op.inputs[0]))))
    return [getattr(builder(), operation)(x=b.read(op.inputs[0]), axes=axes, keep_dims=True)]


def _resize(b: MilBuild, op: Op) -> Sequence[Any]:
    have, wanted = b.shape(op.inputs[0]), b.shape(op.outputs[0])
    mode, where = op.attr_str("mode", "nearest"), op.attr_str("coordinate_transformation_mode", "half_pixel")
    x = b.read(op.inputs[0])
    if len(have) != 4 or have[:2] != wanted[:2]:
        raise UnsupportedModelError("Core ML resizes images of four axes")
    if is_repeat(b.graph, op):
        up, across = (w // h for w, h in zip(wanted[2:], have[2:], strict=True))
        return [builder().upsample_nearest_neighbor(x=x, scale_factor_height=up, scale_factor_width=across)]
    if is_linear(b.graph, op) and where in {"half_pixel", "pytorch_half_pixel", "align_corners"}:
        sampling = "ALIGN_CORNERS" if where == "align_corners" else "UNALIGN_CORNERS"
        return [builder().resize_bilinear(x=x, target_size_height=wanted[2], target_size_width=wanted[3], sampling_mode=sampling)]
    raise UnsupportedModelError(
        f"Core ML does not resize {list(have)} to {list(wanted)} like this (mode {mode!r}, coordinates {where!r}, or other factors)"
    )


LOWERINGS: Mapping[str, Lowering] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": partial(_pool, "max_pool"), "AveragePool": partial(_pool, "avg_pool"),
    "GlobalAveragePool": partial(_global, "reduce_mean"), "GlobalMaxPool": partial(_global, "reduce_max"), "Resize": _resize,
}  # fmt: skip
