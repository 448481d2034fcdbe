"""TFLite operators for arithmetic, functions of one tensor, comparisons, reductions and Q/DQ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from hetsched.errors import UnsupportedModelError
from hetsched.graph import Op
from hetsched.lowering.tflite import TO_LAST, TYPES, Lowering, Order, TfliteBuild, is_image

#: Node -> operator and the class of its options.
_BINARY: Mapping[str, tuple[str, str]] = {
    "Add": ("ADD", "AddOptions"), "Sub": ("SUB", "SubOptions"), "Mul": ("MUL", "MulOptions"), "Div": ("DIV", "DivOptions"),
    "Pow": ("POW", "PowOptions"), "Max": ("MAXIMUM", "MaximumMinimumOptions"), "Min": ("MINIMUM", "MaximumMinimumOptions"),
    "Equal": ("EQUAL", "EqualOptions"), "Greater": ("GREATER", "GreaterOptions"), "Less": ("LESS", "LessOptions"),
    "GreaterOrEqual": ("GREATER_EQUAL", "GreaterEqualOptions"), "LessOrEqual": ("LESS_EQUAL", "LessEqualOptions"),
    "And": ("LOGICAL_AND", "LogicalAndOptions"), "Or": ("LOGICAL_OR", "LogicalOrOptions"),
}  # fmt: skip
_UNARY: Mapping[str, tuple[str, str]] = {
    "Relu": ("RELU", ""), "Sigmoid": ("LOGISTIC", ""), "Tanh": ("TANH", ""), "Exp": ("EXP", "ExpOptions"), "Abs": ("ABS", "AbsOptions"),
    "Neg": ("NEG", "NegOptions"), "Sqrt": ("SQRT", ""), "Log": ("LOG", ""), "Floor": ("FLOOR", ""), "Sin": ("SIN", ""),
    "Cos": ("COS", "CosOptions"), "HardSwish": ("HARD_SWISH", "HardSwishOptions"), "Not": ("LOGICAL_NOT", "LogicalNotOptions"),
    "Ceil": ("CEIL", ""), "Round": ("ROUND", ""),
}  # fmt: skip
_REDUCE: Mapping[str, str] = {
    "ReduceMean": "MEAN", "ReduceSum": "SUM", "ReduceMax": "REDUCE_MAX", "ReduceMin": "REDUCE_MIN", "ReduceProd": "REDUCE_PROD",
}  # fmt: skip
_CASTS: Mapping[int, str] = {1: "FLOAT32", 6: "INT32", 7: "INT64", 9: "BOOL"}


def order_of(b: TfliteBuild, names: Sequence[str], out: str) -> Order:
    """The order in which an operator that does not care runs: channels last if an input is there in that order only."""
    computed = [n for n in names if n and not b.is_constant(n)]
    images = is_image(b.graph, out) and all(is_image(b.graph, n) for n in computed)
    return "last" if images and any(b.orders(n) == ("last",) for n in computed) else "plain"


def argument(b: TfliteBuild, name: str, order: Order, rank: int) -> int:
    """An input of an operator that broadcasts; constants get all axes first, where the order asks for it."""
    if order == "plain" or is_image(b.graph, name):
        return b.read(name, order)
    values = b.values(name)
    return b.constant(np.transpose(values.reshape((1,) * (rank - values.ndim) + values.shape), TO_LAST))


def _binary(code: str, options: str, b: TfliteBuild, op: Op) -> None:
    order = order_of(b, op.inputs, op.outputs[0])
    rank = len(b.shape(op.outputs[0]))
    if op.type == "Pow" and b.is_constant(op.inputs[1]):  # ONNX's exponent may be of another type
        b.folded[op.inputs[1]] = b.values(op.inputs[1]).astype(b.graph.tensors[op.inputs[0]].dtype.numpy)
    names = op.inputs if len(op.inputs) > 1 else op.inputs * 2  # the largest of one tensor
    kind = TYPES[str(b.graph.tensors[op.outputs[0]].dtype.numpy)]
    left = argument(b, names[0], order, rank)
    for i, name in enumerate(names[1:], 2):
        out = b.write(op.outputs[0], order) if i == len(names) else b.temporary(b.shape(op.outputs[0], order), kind)
        b.operator(code, [left, argument(b, name, order, rank)], [out], options)
        left = out


def unary(code: str, options: str, b: TfliteBuild, op: Op) -> None:
    """An operator of one tensor, in whatever order that is in."""
    order = order_of(b, op.inputs[:1], op.outputs[0])
    source = b.read(op.inputs[0], order)
    b.operator(code, [source], [b.write(op.outputs[0], order)], options)


def _clip(b: TfliteBuild, op: Op) -> None:
    least, most = (b.optional(op, i) for i in (1, 2))
    low = float(b.values(least).item()) if least else op.attr_float("min", -np.inf)
    high = float(b.values(most).item()) if most else op.attr_float("max", np.inf)
    if b.graph.tensors[op.inputs[0]].dtype.is_float and (low, high) in {(0.0, 6.0), (0.0, np.inf)}:
        unary("RELU6" if high == 6 else "RELU", "", b, op)
        return
    order = order_of(b, op.inputs[:1], op.outputs[0])
    source = b.read(op.inputs[0], order)
    lower = float(np.finfo(np.float32).min) if low == -np.inf == -high else low  # without bounds one that changes nothing
    bounds = [(code, v) for code, v in (("MAXIMUM", lower), ("MINIMUM", high)) if np.isfinite(v)]
    for i, (code, bound) in enumerate(bounds, 1):
        last = i == len(bounds)
        kind = TYPES[str(b.graph.tensors[op.outputs[0]].dtype.numpy)]
        out = b.write(op.outputs[0], order) if last else b.temporary(b.shape(op.outputs[0], order), kind)
        b.operator(code, [source, b.number(bound, op.inputs[0])], [out], "MaximumMinimumOptions")
        source = out


def _leaky(b: TfliteBuild, op: Op) -> None:
    order = order_of(b, op.inputs, op.outputs[0])
    source = b.read(op.inputs[0], order)
    b.operator("LEAKY_RELU", [source], [b.write(op.outputs[0], order)], "LeakyReluOptions", alpha=op.attr_float("alpha", 0.01))


def _prelu(b: TfliteBuild, op: Op) -> None:
    order = order_of(b, op.inputs[:1], op.outputs[0])
    source = b.read(op.inputs[0], order)
    slope = argument(b, op.inputs[1], order, len(b.shape(op.outputs[0])))
    b.operator("PRELU", [source, slope], [b.write(op.outputs[0], order)])


def _elu(b: TfliteBuild, op: Op) -> None:
    if op.attr_float("alpha", 1.0) != 1:
        raise UnsupportedModelError("TFLite's ELU has alpha 1")
    unary("ELU", "", b, op)


def _hard_sigmoid(b: TfliteBuild, op: Op) -> None:
    order = order_of(b, op.inputs, op.outputs[0])
    shape = b.shape(op.outputs[0], order)
    scaled, shifted, low = (b.temporary(shape) for _ in range(3))
    slope, shift = np.float32(op.attr_float("alpha", 0.2)), np.float32(op.attr_float("beta", 0.5))
    b.operator("MUL", [b.read(op.inputs[0], order), b.constant(np.array(slope))], [scaled], "MulOptions")
    b.operator("ADD", [scaled, b.constant(np.array(shift))], [shifted], "AddOptions")
    b.operator("MAXIMUM", [shifted, b.constant(np.array(0, np.float32))], [low], "MaximumMinimumOptions")
    b.operator("MINIMUM", [low, b.constant(np.array(1, np.float32))], [b.write(op.outputs[0], order)], "MaximumMinimumOptions")


def _gelu(b: TfliteBuild, op: Op) -> None:
    order = order_of(b, op.inputs, op.outputs[0])
    source = b.read(op.inputs[0], order)
    fast = op.attr_str("approximate", "none") == "tanh"
    b.operator("GELU", [source], [b.write(op.outputs[0], order)], "GeluOptions", approximate=fast)


def _reciprocal(b: TfliteBuild, op: Op) -> None:
    order = order_of(b, op.inputs, op.outputs[0])
    source = b.read(op.inputs[0], order)
    b.operator("DIV", [b.number(1, op.inputs[0]), source], [b.write(op.outputs[0], order)], "DivOptions")


def _erf(b: TfliteBuild, op: Op) -> None:
    """By GELU, which is what TFLite has of it: with w = sqrt(2) |x|, erf |x| = 2 gelu(w) / w - 1; w is at least 1e-6."""
    order = order_of(b, op.inputs, op.outputs[0])
    shape = b.shape(op.outputs[0], order)

    def number(value: float) -> int:
        return b.constant(np.array(value, np.float32))

    def step(code: str, inputs: list[int], options: str = "", **fields: bool) -> int:
        out = b.temporary(shape)
        b.operator(code, inputs, [out], options, **fields)
        return out

    x = b.read(op.inputs[0], order)
    wide = step("MUL", [step("ABS", [x], "AbsOptions"), number(np.sqrt(2))], "MulOptions")
    wide = step("MAXIMUM", [wide, number(1e-6)], "MaximumMinimumOptions")
    curve = step("DIV", [step("GELU", [wide], "GeluOptions", approximate=False), wide], "DivOptions")
    half = step("SUB", [step("MUL", [curve, number(2)], "MulOptions"), number(1)], "SubOptions")
    b.operator("MUL", [half, step("SIGN", [x])], [b.write(op.outputs[0], order)], "MulOptions")


def _softplus(b: TfliteBuild, op: Op) -> None:
    """max(x, 0) + log(1 + exp(-|x|)), which cannot overflow."""
    order = order_of(b, op.inputs, op.outputs[0])
    x, shape = b.read(op.inputs[0], order), b.shape(op.outputs[0], order)
    held = x
    for code, options in (("ABS", "AbsOptions"), ("NEG", "NegOptions"), ("EXP", "ExpOptions"), ("ADD", "AddOptions"), ("LOG", "")):
        out = b.temporary(shape)
        b.operator(code, [held, b.constant(np.array(1, np.float32))] if code == "ADD" else [held], [out], options)
        held = out
    positive = b.temporary(shape)
    b.operator("RELU", [x], [positive])
    b.operator("ADD", [positive, held], [b.write(op.outputs[0], order)], "AddOptions")


def _reduce(code: str, b: TfliteBuild, op: Op) -> None:
    named = b.optional(op, 1)
    axes = tuple(int(a) for a in b.values(named)) if named else op.attr_ints("axes", ())
    rank, keep = len(b.shape(op.inputs[0])), bool(op.attr_int("keepdims", 1))
    if not axes and op.attr_int("noop_with_empty_axes", 0):
        raise UnsupportedModelError("a reduction of no axes is not written for TFLite")
    axes = tuple(a % rank for a in axes) or tuple(range(rank))
    order = order_of(b, op.inputs[:1], op.outputs[0]) if keep else "plain"
    source = b.read(op.inputs[0], order)
    moved = [TO_LAST.index(a) for a in axes] if order == "last" and rank == len(TO_LAST) else list(axes)
    out = b.write(op.outputs[0], order)
    b.operator(code, [source, b.constant(np.array(moved, np.int32))], [out], "ReducerOptions", keepDims=keep)


def _softmax(b: TfliteBuild, op: Op) -> None:
    rank = len(b.shape(op.inputs[0]))
    axis = op.attr_int("axis", -1) % rank
    order: Order = "last" if rank == len(TO_LAST) and axis == 1 else "plain"
    if order == "plain" and axis != rank - 1:
        raise UnsupportedModelError("TFLite's softmax is along the last axis")
    source = b.read(op.inputs[0], order)
    b.operator("SOFTMAX", [source], [b.write(op.outputs[0], order)], "SoftmaxOptions", beta=1.0)


def _where(b: TfliteBuild, op: Op) -> None:
    order = order_of(b, op.inputs, op.outputs[0])
    rank = len(b.shape(op.outputs[0]))
    b.operator("SELECT_V2", [argument(b, n, order, rank) for n in op.inputs], [b.write(op.outputs[0], order)], "SelectV2Options")


def _cast(b: TfliteBuild, op: Op) -> None:
    if op.attr_int("to", 1) not in _CASTS:
        raise UnsupportedModelError(f"casts to ONNX's element type {op.attr_int('to', 1)} are not written for TFLite")
    unary("CAST", "CastOptions", b, op)
    last = b.operators[-1]
    last.builtinOptions.inDataType, last.builtinOptions.outDataType = (b.tensors[i].type for i in (last.inputs[0], last.outputs[0]))


LOWERINGS: Mapping[str, Lowering] = {
    **{name: partial(_binary, *how) for name, how in _BINARY.items()},
    **{name: partial(unary, *how) for name, how in _UNARY.items()},
    **{name: partial(_reduce, code) for name, code in _REDUCE.items()},
    "Clip": _clip, "LeakyRelu": _leaky, "PRelu": _prelu, "Elu": _elu, "HardSigmoid": _hard_sigmoid, "Gelu": _gelu, "Erf": _erf,
    "Softplus": _softplus,
    "Reciprocal": _reciprocal, "Softmax": _softmax, "Where": _where, "Cast": _cast,
}  # fmt: skip
