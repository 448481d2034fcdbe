"""MIL operations that move values: shapes, axes, parts, padding and indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.lowering.mil import Lowering, MilBuild, builder

_PADS: Mapping[str, str] = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


def _reshape(b: MilBuild, op: Op) -> Sequence[Any]:
    return [builder().reshape(x=b.read(op.inputs[0]), shape=list(b.shape(op.outputs[0])) or [1])]


def _transpose(b: MilBuild, op: Op) -> Sequence[Any]:
    rank = len(b.shape(op.inputs[0]))
    return [builder().transpose(x=b.read(op.inputs[0]), perm=list(op.attr_ints("perm", tuple(range(rank))[::-1])))]


def _concat(b: MilBuild, op: Op) -> Sequence[Any]:
    return [builder().concat(values=[b.read(n) for n in op.inputs], axis=op.attr_int("axis", 0))]


def _split(b: MilBuild, op: Op) -> Sequence[Any]:
    axis = op.attr_int("axis", 0)
    sizes = [b.shape(n)[axis] for n in op.outputs]
    if len(sizes) == 1:
        return [builder().identity(x=b.read(op.inputs[0]))]
    return list(builder().split(x=b.read(op.inputs[0]), split_sizes=sizes, axis=axis))


def _slice(b: MilBuild, op: Op) -> Sequence[Any]:
    shape = b.shape(op.inputs[0])
    starts, ends = (b.whole(n) for n in op.inputs[1:3])
    axes = b.whole(op.inputs[3]) if b.optional(op, 3) else list(range(len(starts)))
    steps = b.whole(op.inputs[4]) if b.optional(op, 4) else [1] * len(starts)
    begin, end, stride = [0] * len(shape), list(shape), [1] * len(shape)
    whole = [True] * len(shape)
    for axis, first, last, step in zip(axes, starts, ends, steps, strict=True):
        first, last, step = slice(first, last, step).indices(shape[axis])
        begin[axis], end[axis], stride[axis], whole[axis] = first, last, step, False
    open_end = [w or e < 0 for w, e in zip(whole, end, strict=True)]
    x = b.read(op.inputs[0])
    return [builder().slice_by_index(x=x, begin=begin, end=[max(e, 0) for e in end], stride=stride, begin_mask=whole, end_mask=open_end)]


def _pad(b: MilBuild, op: Op) -> Sequence[Any]:
    mode = op.attr_str("mode", "constant")
    if mode not in _PADS or b.optional(op, 3):
        raise UnsupportedModelError(f"Core ML does not pad like this (mode {mode!r}, or with axes)")
    pads = b.whole(op.inputs[1])
    rank = len(pads) // 2
    value = float(b.constant(op.inputs[2]).item()) if b.optional(op, 2) else 0.0
    both = [p for axis in range(rank) for p in (pads[axis], pads[axis + rank])]
    if min(both) < 0:
        raise UnsupportedModelError("Core ML does not pad with negative counts")
    first = next((i for i in range(rank) if both[2 * i] or both[2 * i + 1]), rank - 1)
    if mode != "constant" and first < rank - 2:
        raise UnsupportedModelError(f"Core ML pads the last two axes only in the mode {mode!r}")
    x = b.read(op.inputs[0])
    return [builder().pad(x=x, pad=both[2 * first :], mode=_PADS[mode], constant_val=b.number(value, x))]


def _gather(b: MilBuild, op: Op) -> Sequence[Any]:
    x, indices = b.read(op.inputs[0]), b.read(op.inputs[1])
    size = b.shape(op.inputs[0])[op.attr_int("axis", 0)]
    if isinstance(indices, np.ndarray):
        indices = np.where(indices < 0, indices + size, indices).astype(np.int32)
    out = builder().gather(x=x, indices=indices, axis=op.attr_int("axis", 0), validate_indices=False)
    wanted = b.shape(op.outputs[0])
    return [out if tuple(out.shape) == wanted or not wanted else builder().reshape(x=out, shape=list(wanted))]


def _expand(b: MilBuild, op: Op) -> Sequence[Any]:
    have, wanted = b.shape(op.inputs[0]), b.shape(op.outputs[0])
    x, padded = b.read(op.inputs[0]), (1,) * (len(wanted) - len(have)) + have
    if padded != have:
        x = builder().reshape(x=x, shape=list(padded))
    return [builder().tile(x=x, reps=[w // h for w, h in zip(wanted, padded, strict=True)])]


def _tile(b: MilBuild, op: Op) -> Sequence[Any]:
    return [builder().tile(x=b.read(op.inputs[0]), reps=b.whole(op.inputs[1]))]


def _depth_to_space(b: MilBuild, op: Op) -> Sequence[Any]:
    """Through plain axes: Core ML's own ``depth_to_space`` splits the channels in the other order."""
    n, c, h, w = b.shape(op.inputs[0])
    s = op.attr_int("blocksize", 1)
    crd = op.attr_str("mode", "DCR") == "CRD"
    if n != 1:
        raise UnsupportedModelError("Core ML's tensors have up to 5 axes, and a batch of several needs 6")
    split = [c // (s * s), s, s, h, w] if crd else [s, s, c // (s * s), h, w]
    perm = [0, 3, 1, 4, 2] if crd else [2, 3, 0, 4, 1]
    turned = builder().transpose(x=builder().reshape(x=b.read(op.inputs[0]), shape=split), perm=perm)
    return [builder().reshape(x=turned, shape=list(b.shape(op.outputs[0])))]


LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Transpose": _transpose, "Concat": _concat, "Split": _split, "Slice": _slice, "Pad": _pad, "Gather": _gather, "Expand": _expand,
    "Tile": _tile, "DepthToSpace": _depth_to_space,
}  # fmt: skip
