"""TFLite operators that move values: shapes, axes, parts, padding and indices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.lowering.resizing import is_linear, is_repeat
from hetsched.lowering.tflite import TO_LAST, TYPES, Lowering, TfliteBuild, is_image
from hetsched.lowering.tflite_arithmetic import order_of


def _ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def _reshape(b: TfliteBuild, op: Op) -> None:
    source, shape = b.read(op.inputs[0]), b.shape(op.outputs[0])
    b.operator("RESHAPE", [source, b.constant(_ints(*shape))], [b.write(op.outputs[0])], "ReshapeOptions", newShape=list(shape))


def _identity(b: TfliteBuild, op: Op) -> None:
    for order in b.orders(op.inputs[0]) or ("plain",):
        b.held[op.outputs[0], order] = b.read(op.inputs[0], order)


def _transpose(b: TfliteBuild, op: Op) -> None:
    rank = len(b.shape(op.inputs[0]))
    perm = op.attr_ints("perm", tuple(range(rank))[::-1])
    if perm == TO_LAST and "last" in b.orders(op.inputs[0]):  # it is there already, under another name
        b.held[op.outputs[0], "plain"] = b.read(op.inputs[0], "last")
        return
    source = b.read(op.inputs[0])
    b.operator("TRANSPOSE", [source, b.constant(_ints(*perm))], [b.write(op.outputs[0])], "TransposeOptions")


def _axis(axis: int, rank: int, order: str) -> int:
    axis %= rank
    return TO_LAST.index(axis) if order == "last" and rank == len(TO_LAST) else axis


def _concat(b: TfliteBuild, op: Op) -> None:
    order = order_of(b, op.inputs, op.outputs[0])
    inputs = [b.read(n, order) for n in op.inputs]
    axis = _axis(op.attr_int("axis", 0), len(b.shape(op.outputs[0])), order)
    b.operator("CONCATENATION", inputs, [b.write(op.outputs[0], order)], "ConcatenationOptions", axis=axis)


def _split(b: TfliteBuild, op: Op) -> None:
    order = order_of(b, op.inputs[:1], op.outputs[0])
    source, given = b.read(op.inputs[0], order), op.attr_int("axis", 0)
    axis = _axis(given, len(b.shape(op.inputs[0])), order)
    sizes = b.constant(_ints(*(b.shape(n)[given] for n in op.outputs)))
    outputs = [b.write(n, order) for n in op.outputs]
    b.operator("SPLIT_V", [source, sizes, b.constant(_ints(axis).reshape(()))], outputs, "SplitVOptions", numSplits=len(outputs))


def _slice(b: TfliteBuild, op: Op) -> None:
    shape = b.shape(op.inputs[0])
    starts, ends = (b.values(n).reshape(-1).tolist() for n in op.inputs[1:3])
    axes = b.values(op.inputs[3]).reshape(-1).tolist() if b.optional(op, 3) else list(range(len(starts)))
    steps = b.values(op.inputs[4]).reshape(-1).tolist() if b.optional(op, 4) else [1] * len(starts)
    begin, end, stride, open_end = [0] * len(shape), list(shape), [1] * len(shape), 0
    order = order_of(b, op.inputs[:1], op.outputs[0])
    places = [_axis(i, len(shape), order) for i in range(len(shape))]
    end = [shape[i] for i in sorted(range(len(shape)), key=places.__getitem__)]
    for axis, first, last, step in zip(axes, starts, ends, steps, strict=True):
        first, last, step = slice(int(first), int(last), int(step)).indices(shape[axis])
        place = places[axis % len(shape)]
        begin[place], end[place], stride[place] = first, max(last, 0), step
        open_end |= (last < 0) << place
    inputs = [b.read(op.inputs[0], order), *(b.constant(_ints(*v)) for v in (begin, end, stride))]
    b.operator("STRIDED_SLICE", inputs, [b.write(op.outputs[0], order)], "StridedSliceOptions", endMask=open_end)


def _pad(b: TfliteBuild, op: Op) -> None:
    mode = op.attr_str("mode", "constant")
    if mode not in {"constant", "reflect"} or b.optional(op, 3):
        raise UnsupportedModelError(f"TFLite does not pad like this (mode {mode!r}, or with axes)")
    pads = b.values(op.inputs[1]).reshape(-1)
    rank = pads.size // 2
    order = order_of(b, op.inputs[:1], op.outputs[0])
    pairs = np.stack([pads[:rank], pads[rank:]], 1).astype(np.int32)
    if pairs.min(initial=0) < 0:
        raise UnsupportedModelError("TFLite does not pad with negative counts")
    if order == "last":
        pairs = pairs[list(TO_LAST)]
    source, counts, out = b.read(op.inputs[0], order), b.constant(pairs), b.write(op.outputs[0], order)
    if mode == "reflect":
        b.operator("MIRROR_PAD", [source, counts], [out], "MirrorPadOptions", mode=0)
        return
    value = b.number(b.values(op.inputs[2]).item() if b.optional(op, 2) else 0, op.inputs[0])
    b.operator("PADV2", [source, counts, value], [out], "PadV2Options")


def _gather(b: TfliteBuild, op: Op) -> None:
    axis = op.attr_int("axis", 0) % len(b.shape(op.inputs[0]))
    if b.is_constant(op.inputs[1]):
        held = b.values(op.inputs[1])
        indices = b.constant(np.where(held < 0, held + b.shape(op.inputs[0])[axis], held).astype(np.int32))
    else:  # TFLite's indices are from 0
        given = b.graph.tensors[op.inputs[1]]
        indices = b.temporary(given.shape, TYPES[str(given.dtype.numpy)])
        size = b.number(b.shape(op.inputs[0])[axis], op.inputs[1])
        b.operator("FLOOR_MOD", [b.read(op.inputs[1]), size], [indices], "FloorModOptions")
    b.operator("GATHER", [b.read(op.inputs[0]), indices], [b.write(op.outputs[0])], "GatherOptions", axis=axis)


def _expand(b: TfliteBuild, op: Op) -> None:
    shape = b.constant(_ints(*b.shape(op.outputs[0])))
    b.operator("BROADCAST_TO", [b.read(op.inputs[0]), shape], [b.write(op.outputs[0])], "BroadcastToOptions")


def _tile(b: TfliteBuild, op: Op) -> None:
    repeats = b.constant(b.values(op.inputs[1]).reshape(-1).astype(np.int32))
    b.operator("TILE", [b.read(op.inputs[0]), repeats], [b.write(op.outputs[0])], "TileOptions")


def _resize(b: TfliteBuild, op: Op) -> None:
    have, wanted = b.shape(op.inputs[0]), b.shape(op.outputs[0])
    mode, where = op.attr_str("mode", "nearest"), op.attr_str("coordinate_transformation_mode", "half_pixel")
    if not is_image(b.graph, op.inputs[0]) or have[:2] != wanted[:2]:
        raise UnsupportedModelError("TFLite resizes images of four axes")
    linear = is_linear(b.graph, op) and where in {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"}
    if not (linear or is_repeat(b.graph, op)):
        raise UnsupportedModelError(
            f"TFLite does not resize {list(have)} to {list(wanted)} like this (mode {mode!r}, coordinates {where!r}, or other factors)"
        )
    name = "Bilinear" if linear else "NearestNeighbor"
    code = "RESIZE_BILINEAR" if linear else "RESIZE_NEAREST_NEIGHBOR"
    fields = {"alignCorners": linear and where == "align_corners", "halfPixelCenters": linear and where.endswith("half_pixel")}
    source, size = b.read(op.inputs[0], "last"), b.constant(_ints(*wanted[2:]))
    b.operator(code, [source, size], [b.write(op.outputs[0], "last")], f"Resize{name}Options", **fields)


def _depth_to_space(b: TfliteBuild, op: Op) -> None:
    """TFLite's is ONNX's mode DCR with channels last; for CRD the channels are put into that order first."""
    source, size = b.read(op.inputs[0], "last"), op.attr_int("blocksize", 1)
    if op.attr_str("mode", "DCR") == "CRD":
        channels = b.shape(op.inputs[0])[1]
        indices = np.arange(channels, dtype=np.int32).reshape(-1, size * size).T.reshape(-1)
        turned = b.temporary(b.shape(op.inputs[0], "last"))
        b.operator("GATHER", [source, b.constant(indices)], [turned], "GatherOptions", axis=3)
        source = turned
    b.operator("DEPTH_TO_SPACE", [source], [b.write(op.outputs[0], "last")], "DepthToSpaceOptions", blockSize=size)


LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Identity": _identity, "Transpose": _transpose, "Concat": _concat, "Split": _split, "Slice": _slice, "Pad": _pad, "Gather": _gather,
    "Expand": _expand, "Tile": _tile, "Resize": _resize, "DepthToSpace": _depth_to_space,
}  # fmt: skip
