"""Older operator forms rewritten as those of opset 18, so that everything after the loader knows one form.

Attributes that became inputs (axes, pads, clip bounds, …) become constant inputs, Softmax over flattened axes becomes
Flatten → Softmax → Reshape, Upsample becomes Resize. The changes are those of ONNX's operator changelog.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op, Tensor

OLDEST, NEWEST, TARGET = 7, 25, 18
#: The opset in which an operator came, or took its form of today, where contrib operators of older models are written with it.
SINCE = {"Gelu": 20, "GroupNormalization": 21, "RMSNormalization": 23, "RotaryEmbedding": 23, "Attention": 23, "Swish": 24}


class Scope(Protocol):
    """What a rewrite may ask of the trace: the tensors so far, and a place for new constants."""

    def tensor(self, name: str) -> Tensor:
        """The tensor with this name."""
        ...

    def add_constant(self, name: str, array: npt.NDArray[Any]) -> str:
        """Define a constant; returns its name."""
        ...


Rewrite = Callable[[Op, int, Scope], list[Op]]


def normalise(op: Op, opset: int, scope: Scope) -> list[Op]:
    """The operators of opset 18 (or of ``opset`` where that is newer) that do what ``op`` does in ``opset``."""
    rewrite = _REWRITES.get(op.type) if op.domain == "" else None
    return [op] if rewrite is None else rewrite(op, opset, scope)


def _without(op: Op, *names: str) -> dict[str, Any]:
    return {k: v for k, v in op.attrs.items() if k not in names}


def _ints_to_input(op: Op, scope: Scope, attr: str, slot: int) -> Op:
    """Move an integer-list attribute to input ``slot`` (filled up with omitted inputs)."""
    if attr not in op.attrs:
        return op
    name = scope.add_constant(f"{op.name}/{attr}", np.array(op.attr_ints(attr, ()), np.int64))
    inputs = [*op.inputs, *[""] * (slot - len(op.inputs))][:slot]
    return replace(op, inputs=(*inputs, name), attrs=_without(op, attr))


def _axes(op: Op, opset: int, scope: Scope) -> list[Op]:
    return [_ints_to_input(op, scope, "axes", 1)]


def _split(op: Op, opset: int, scope: Scope) -> list[Op]:
    op = _ints_to_input(op, scope, "split", 1)
    if len(op.inputs) < 2 and "num_outputs" not in op.attrs:
        op = replace(op, attrs={**op.attrs, "num_outputs": len(op.outputs)})
    return [op]


def _clip(op: Op, opset: int, scope: Scope) -> list[Op]:
    if opset >= 11:
        return [op]
    dtype = scope.tensor(op.inputs[0]).dtype.numpy
    names = [scope.add_constant(f"{op.name}/{k}", np.array(op.attrs[k], dtype)) if k in op.attrs else "" for k in ("min", "max")]
    return [replace(op, inputs=(op.inputs[0], *names), attrs={})]


def _slice(op: Op, opset: int, scope: Scope) -> list[Op]:
    if opset >= 10:
        return [op]
    starts = op.attr_ints("starts", ())
    parts = {"starts": starts, "ends": op.attr_ints("ends", ()), "axes": op.attr_ints("axes", range(len(starts)))}
    names = [scope.add_constant(f"{op.name}/{k}", np.array(v, np.int64)) for k, v in parts.items()]
    return [replace(op, inputs=(op.inputs[0], *names), attrs={})]


def _pad(op: Op, opset: int, scope: Scope) -> list[Op]:
    if opset >= 11:
        return [op]
    pads = scope.add_constant(f"{op.name}/pads", np.array(op.attr_ints("pads", ()), np.int64))
    value = np.array(op.attr_float("value", 0.0), scope.tensor(op.inputs[0]).dtype.numpy)
    inputs = (op.inputs[0], pads, scope.add_constant(f"{op.name}/value", value))
    return [replace(op, inputs=inputs, attrs=_without(op, "pads", "value"))]


def _top_k(op: Op, opset: int, scope: Scope) -> list[Op]:
    if opset >= 10:
        return [op]
    k = scope.add_constant(f"{op.name}/k", np.array([op.attr_int("k", 1)], np.int64))
    return [replace(op, inputs=(op.inputs[0], k), attrs=_without(op, "k"))]


def _softmax(op: Op, opset: int, scope: Scope) -> list[Op]:
    """Before opset 13 the default axis is 1 and all axes from it on are one."""
    if opset >= 13:
        return [op]
    x = scope.tensor(op.inputs[0])
    axis = op.attr_int("axis", 1) % max(len(x.shape), 1)
    if axis == len(x.shape) - 1:
        return [replace(op, attrs={"axis": -1})]
    shape = scope.add_constant(f"{op.name}/shape", np.array(x.shape, np.int64))
    flat, soft = f"{op.outputs[0]}/flat", f"{op.outputs[0]}/soft"
    return [
        Op(f"{op.name}/Flatten", "Flatten", op.inputs, (flat,), {"axis": axis}, "", op.origin),
        replace(op, inputs=(flat,), outputs=(soft,), attrs={"axis": -1}),
        Op(f"{op.name}/Reshape", "Reshape", (soft, shape), op.outputs, {}, "", op.origin),
    ]


def _dropout(op: Op, opset: int, scope: Scope) -> list[Op]:
    training = len(op.inputs) > 2 and op.inputs[2] != ""
    if training and (not scope.tensor(op.inputs[2]).is_constant or bool(scope.tensor(op.inputs[2]).numpy())):
        raise UnsupportedModelError(f"node {op.name!r} is a Dropout in training mode: export the model for inference")
    out = [replace(op, type="Identity", inputs=op.inputs[:1], outputs=op.outputs[:1], attrs={})]
    if len(op.outputs) > 1 and op.outputs[1]:
        mask = np.broadcast_to(np.bool_(True), scope.tensor(op.inputs[0]).shape)
        out.append(Op(f"{op.name}/mask", "Identity", (scope.add_constant(f"{op.name}/ones", mask),), op.outputs[1:2], {}, "", op.origin))
    return out


def _batch_normalization(op: Op, opset: int, scope: Scope) -> list[Op]:
    if op.attr_int("training_mode", 0) or op.attr_int("spatial", 1) == 0:
        raise UnsupportedModelError(f"node {op.name!r} is a BatchNormalization in training or non-spatial mode: export for inference")
    return [replace(op, outputs=op.outputs[:1], attrs=_without(op, "spatial", "momentum", "training_mode"))]


def _upsample(op: Op, opset: int, scope: Scope) -> list[Op]:
    given = opset >= 9 and len(op.inputs) > 1
    scales = op.inputs[1] if given else scope.add_constant(f"{op.name}/scales", np.array(op.attrs.get("scales", ()), np.float32))
    mode = op.attr_str("mode", "nearest")
    attrs = {"mode": "linear" if "linear" in mode else "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return [replace(op, type="Resize", inputs=(op.inputs[0], "", scales), attrs=attrs)]


def _resize(op: Op, opset: int, scope: Scope) -> list[Op]:
    if opset >= 11:
        return [op]
    return _upsample(op, 10, scope)


def _scatter(op: Op, opset: int, scope: Scope) -> list[Op]:
    return [replace(op, type="ScatterElements")]


def _cast_like(op: Op, opset: int, scope: Scope) -> list[Op]:
    from hetsched.reference.element_types import NUMBER_OF

    return [replace(op, type="Cast", inputs=op.inputs[:1], attrs={"to": NUMBER_OF[scope.tensor(op.inputs[1]).dtype]})]


def _sum(op: Op, opset: int, scope: Scope) -> list[Op]:
    return [replace(op, type="Add")] if len(op.inputs) == 2 else [op]


_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
_REWRITES: dict[str, Rewrite] = {
    **{f"Reduce{kind}": _axes for kind in _REDUCTIONS},
    "Squeeze": _axes, "Unsqueeze": _axes, "Split": _split, "Clip": _clip, "Slice": _slice, "Pad": _pad, "TopK": _top_k,
    "Softmax": _softmax, "LogSoftmax": _softmax, "Hardmax": _softmax, "Dropout": _dropout, "Upsample": _upsample,
    "Resize": _resize, "BatchNormalization": _batch_normalization, "Scatter": _scatter, "CastLike": _cast_like,
    "Sum": _sum,
}  # fmt: skip
